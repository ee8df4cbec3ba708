// ops::softmax and ops::log_sum_exp, along any axis.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/softmax.hpp"
#include "heed/ops/axis.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/softmax.hpp"
#include "heed/kernels/simd/softmax.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of softmax().
template <class T, int Rank>
[[nodiscard]] Problem check_softmax(View<const T, Rank> x, View<T, Rank> out, int axis = -1) noexcept {
  const char* door = "softmax";
  Problem problem = check_axis(door, axis, Rank);
  if (!problem) problem = check_rows(door, "x", x, "last axis", any);
  if (!problem) problem = check_rows_like(door, "out", out, x, "last axis", x.extent(Rank - 1));
  if (!problem) problem = check_in_place(door, out, x, "x");
  return problem;
}

// out = exp(x) / Σ exp(x), the sum along `axis` (negative axes count from the end).
//
//   x    any shape of 1 to 5 axes
//   out  x's shape; may be x itself, no other overlap
//
// Allocates nothing. Numerics: shifted by the largest element, so finite input gives finite output; in
// accumulator_t<T>, rounded once. −inf gives 0, and a row of nothing but −inf gives 0 everywhere (not NaN as in
// PyTorch: this is attention's convention for a query without keys). NaN or +inf in a row make the whole row NaN.
// Errors: ShapeError; OptionError for the axis. Source: torch.softmax.
template <Backend B, class Out>
void softmax(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x, Out&& out,
             int axis = -1) {
  constexpr int rank = std::remove_cvref_t<Out>::rank();
  const auto y = output_on(backend, out);
  raise_if(check_softmax(for_check(x), for_check(y), axis));
  if (y.empty()) return;
  const int front = impl::front_axis(axis, rank);
  if (front == rank - 1) {
    for_each_matrix([&](const auto& to, const auto& from) { softmax_kernel(backend, from, to); }, y, x);
  } else if constexpr (rank > 1) {
    for_each_block([&](const auto& to, const auto& from) { softmax_columns_kernel(backend, from, to); }, front, y, x);
  }
}

// What is wrong with the arguments of log_sum_exp().
template <class T, int Rank>
[[nodiscard]] Problem check_log_sum_exp(View<const T, Rank> x, View<T, Rank - 1> out, int axis = -1) noexcept {
  const char* door = "log_sum_exp";
  Problem problem = check_axis(door, axis, Rank);
  if (!problem) problem = check_rows(door, "x", x, "last axis", any);
  if (problem) return problem;
  Index extents[Rank] = {};
  for (int from = 0, to = 0; from < Rank; ++from) {
    if (from != impl::front_axis(axis, Rank)) extents[to++] = x.extent(from);
  }
  problem = impl::check_rows(door, "out", out, extents, "last axis", extents[Rank - 2]);
  if (!problem) problem = check_disjoint(door, out, x, "x");
  return problem;
}

// out = log Σ exp(x), the natural logarithm of the sum along `axis` (negative axes count from the end).
//
//   x    any shape of 2 to 5 axes
//   out  x's shape without that axis; must not overlap x
//
// Allocates nothing. Numerics: shifted by the largest element; in accumulator_t<T>, rounded once. Without elements, or
// with nothing but −inf, it is −inf; with +inf it is +inf; NaN in a row makes it NaN. Errors: ShapeError; OptionError
// for the axis. Source: torch.logsumexp.
template <Backend B, class Out>
void log_sum_exp(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank() + 1> x, Out&& out,
                 int axis = -1) {
  using T = scalar_t<Out>;
  constexpr int rank = std::remove_cvref_t<Out>::rank() + 1;
  const auto y = output_on(backend, out);
  raise_if(check_log_sum_exp(for_check(x), for_check(y), axis));
  if (y.empty()) return;

  // The result with the summed axis back in its place, one element long, so that its axes are x's.
  const int front = impl::front_axis(axis, rank);
  Index extents[rank];
  Index strides[rank];
  for (int to = 0, from = 0; to < rank; ++to) {
    extents[to] = to == front ? 1 : y.extent(from);
    strides[to] = to == front ? 1 : y.stride(from);
    if (to != front) ++from;
  }
  const ViewOn<B, T, rank> kept(y.data_handle(), extents, strides);
  if (front == rank - 1) {
    for_each_matrix(
        [&](const auto& to, const auto& from) {
          log_sum_exp_kernel(backend, from, ViewOn<B, T, 1>(to.data_handle(), {to.extent(0)}, {to.stride(0)}));
        },
        kept, x);
  } else {
    for_each_block(
        [&](const auto& to, const auto& from) {
          log_sum_exp_columns_kernel(
              backend, from, ViewOn<B, T, 2>(to.data_handle(), {to.extent(0), to.extent(2)}, {to.stride(0), Index{1}}));
        },
        front, kept, x);
  }
}

}  // namespace heed::inline HEED_ABI::ops
