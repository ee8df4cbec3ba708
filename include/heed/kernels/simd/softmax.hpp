// Simd kernels of ops::softmax and ops::log_sum_exp: along a row with its elements in the lanes, along another axis
// with one row per lane.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/simd/rows.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// What is subtracted before exp: the largest element, but 0 where that is −inf. Then exp of every element is 0 and so
// is the sum, unless one is NaN.
template <class A>
HEED_INLINE A softmax_shift(A largest) noexcept {
  return largest == -std::numeric_limits<A>::infinity() ? A(0) : largest;
}
template <class A>
HEED_INLINE simd::Vec<A> softmax_shift(simd::Vec<A> largest) noexcept {
  return simd::select<A>(largest == simd::broadcast<A>(-std::numeric_limits<A>::infinity()), simd::broadcast<A>(0),
                         largest);
}

// exp(x − largest) with ∞ − ∞ meant as 0.
template <class A>
HEED_INLINE simd::Vec<A> exp_below(simd::Vec<A> x, simd::Vec<A> largest) noexcept {
  return simd::exp_nonpositive<A>(simd::select<A>(x == largest, simd::broadcast<A>(0), x - largest));
}

// Lanes c … c + width − 1 of a block, row by row: f(vector of row j, j), missing lanes −inf.
template <class T, class F>
HEED_INLINE void for_column_vectors(View<const T, 3> x, Index i, Index c, F&& f) noexcept {
  constexpr auto lowest = -std::numeric_limits<accumulator_t<T>>::infinity();
  for (Index j = 0; j < x.extent(1); ++j) f(simd::load_partial(x.pointer(i, j, c), x.extent(2) - c, lowest), j);
}

template <class T>
HEED_INLINE simd::Vec<accumulator_t<T>> column_max(View<const T, 3> x, Index i, Index c) noexcept {
  using A = accumulator_t<T>;
  simd::Vec<A> largest = simd::broadcast<A>(-std::numeric_limits<A>::infinity());
  for_column_vectors(x, i, c, [&](simd::Vec<A> row, Index) { largest = simd::max<A>(largest, row); });
  return largest;
}

}  // namespace impl

template <class T>
void softmax_kernel(const Simd&, View<const T, 2> x, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  constexpr bool direct = std::is_same_v<T, A>;  // out itself holds the exponentials; 16-bit types compute them twice
  const Index n = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    const T* from = x.pointer(i);
    T* to = out.pointer(i);
    const V shift = simd::broadcast<A>(impl::softmax_shift<A>(simd::max_row(from, n)));
    const A sum = simd::sum_row(from, n, -std::numeric_limits<A>::infinity(), [&](V total, V row, Index j) {
      const V exponential = simd::exp_nonpositive<A>(row - shift);
      if constexpr (direct) simd::store_partial(to + j, n - j, exponential);
      return total + exponential;
    });
    const V divisor = simd::broadcast<A>(sum == 0 ? A(1) : sum);
    if constexpr (direct) {
      simd::map_row(to, to, n, [&](V exponential, Index) { return simd::divide<A>(exponential, divisor); });
    } else {
      simd::map_row(from, to, n,
                    [&](V row, Index) { return simd::divide<A>(simd::exp_nonpositive<A>(row - shift), divisor); });
    }
  }
}

template <class T>
void softmax_columns_kernel(const Simd&, View<const T, 3> x, View<T, 3> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  constexpr bool direct = std::is_same_v<T, A>;
  const Index inner = out.extent(2);
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index c = 0; c < inner; c += simd::width<A>) {
      const V shift = impl::softmax_shift<A>(impl::column_max(x, i, c));
      V sum = simd::broadcast<A>(0);
      impl::for_column_vectors(x, i, c, [&](V row, Index j) {
        const V exponential = simd::exp_nonpositive<A>(row - shift);
        if constexpr (direct) simd::store_partial(out.pointer(i, j, c), inner - c, exponential);
        sum = sum + exponential;
      });
      const V divisor = simd::select<A>(sum == simd::broadcast<A>(0), simd::broadcast<A>(1), sum);
      impl::for_column_vectors(direct ? View<const T, 3>(out) : x, i, c, [&](V row, Index j) {
        if constexpr (!direct) row = simd::exp_nonpositive<A>(row - shift);
        simd::store_partial(out.pointer(i, j, c), inner - c, simd::divide<A>(row, divisor));
      });
    }
  }
}

template <class T>
void log_sum_exp_kernel(const Simd&, View<const T, 2> x, View<T, 1> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  for (Index i = 0; i < out.extent(0); ++i) {
    const A largest = simd::max_row(x.pointer(i), x.extent(1));
    const A sum = simd::sum_row(
        x.pointer(i), x.extent(1), -std::numeric_limits<A>::infinity(),
        [&](V total, V row, Index) { return total + impl::exp_below<A>(row, simd::broadcast<A>(largest)); });
    out(i) = narrow<T>(largest + std::log(sum));
  }
}

template <class T>
void log_sum_exp_columns_kernel(const Simd&, View<const T, 3> x, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  const Index inner = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index c = 0; c < inner; c += simd::width<A>) {
      const V largest = impl::column_max(x, i, c);
      V sum = simd::broadcast<A>(0);
      impl::for_column_vectors(x, i, c, [&](V row, Index) { sum = sum + impl::exp_below<A>(row, largest); });
      A largests[simd::width<A>];
      A sums[simd::width<A>];
      simd::store(largests, largest);
      simd::store(sums, sum);
      for (Index lane = 0; lane < simd::width<A> && c + lane < inner; ++lane) {
        out(i, c + lane) = narrow<T>(largests[lane] + std::log(sums[lane]));
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
