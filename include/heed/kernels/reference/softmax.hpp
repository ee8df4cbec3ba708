// Reference kernels of ops::softmax and ops::log_sum_exp.
#pragma once

#include <cmath>
#include <limits>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// The largest of n elements that lie `stride` apart, NaN not counted; −inf if there is none.
template <class T>
accumulator_t<T> largest_of(const T* from, Index stride, Index n) noexcept {
  accumulator_t<T> largest = -std::numeric_limits<accumulator_t<T>>::infinity();
  for (Index j = 0; j < n; ++j) {
    if (widen(from[j * stride]) > largest) largest = widen(from[j * stride]);
  }
  return largest;
}

// y_j = exp(x_j − max x) / Σ exp(x_k − max x).
template <class T>
void softmax_of(const T* x, Index x_stride, Index n, T* out, Index out_stride) noexcept {
  using A = accumulator_t<T>;
  const A largest = largest_of(x, x_stride, n);
  const A shift = std::isinf(largest) && largest < 0 ? A(0) : largest;  // nothing but −inf: every exp is 0, or NaN
  A sum = 0;
  for (Index j = 0; j < n; ++j) sum += std::exp(widen(x[j * x_stride]) - shift);
  for (Index j = 0; j < n; ++j) {
    const A exponential = std::exp(widen(x[j * x_stride]) - shift);
    out[j * out_stride] = narrow<T>(sum == 0 ? A(0) : exponential / sum);
  }
}

// max x + log Σ exp(x_k − max x).
template <class T>
T log_sum_exp_of(const T* x, Index stride, Index n) noexcept {
  using A = accumulator_t<T>;
  const A largest = largest_of(x, stride, n);
  A sum = 0;
  for (Index j = 0; j < n; ++j) {
    const A value = widen(x[j * stride]);
    sum += std::exp(value == largest ? A(0) : value - largest);  // ∞ − ∞ is meant as 0 here
  }
  return narrow<T>(largest + std::log(sum));
}

}  // namespace impl

// Rows of x [rows, n] -> out [rows, n].
template <class T>
void softmax_kernel(const Reference&, View<const T, 2> x, View<T, 2> out) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) impl::softmax_of(x.pointer(i), 1, out.extent(1), out.pointer(i), 1);
}

// The middle axis of x [outer, n, inner] -> out [outer, n, inner].
template <class T>
void softmax_columns_kernel(const Reference&, View<const T, 3> x, View<T, 3> out) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index c = 0; c < out.extent(2); ++c) {
      impl::softmax_of(x.pointer(i, 0, c), x.stride(1), out.extent(1), out.pointer(i, 0, c), out.stride(1));
    }
  }
}

// Rows of x [rows, n] -> out [rows].
template <class T>
void log_sum_exp_kernel(const Reference&, View<const T, 2> x, View<T, 1> out) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) out(i) = impl::log_sum_exp_of(x.pointer(i), 1, x.extent(1));
}

// The middle axis of x [outer, n, inner] -> out [outer, inner].
template <class T>
void log_sum_exp_columns_kernel(const Reference&, View<const T, 3> x, View<T, 2> out) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index c = 0; c < out.extent(1); ++c) {
      const T* column = x.empty() ? nullptr : x.pointer(i, 0, c);
      out(i, c) = impl::log_sum_exp_of(column, x.stride(1), x.extent(1));
    }
  }
}

}  // namespace heed::inline HEED_ABI
