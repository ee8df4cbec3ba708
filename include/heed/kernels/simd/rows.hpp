// Loops over one row, as the row-wise Simd kernels share them.
//
// Each has its formula in one place: whole vectors and the tail run the same instructions on the same number of lanes,
// so a row's bits depend on the row alone.
#pragma once

#include <limits>

#include "heed/core/simd.hpp"

namespace heed::inline HEED_ABI::simd {

// to[i] = f(from[i], i) for vectors; to may be from.
template <class T, class F>
HEED_INLINE void map_row(const T* from, T* to, Index n, F&& f) noexcept {
  for (Index i = 0; i < n; i += width<accumulator_t<T>>) {
    simd::store_partial(to + i, n - i, f(simd::load_partial(from + i, n - i), i));
  }
}

// total = step(total, vector at i, i) over whole vectors in ascending order, the last one filled up with `fill`; then
// the lanes added up. `fill` must be what leaves the total as it is.
template <class T, class F>
HEED_INLINE accumulator_t<T> sum_row(const T* from, Index n, accumulator_t<T> fill, F&& step) noexcept {
  using A = accumulator_t<T>;
  Vec<A> total = simd::broadcast<A>(0);
  for (Index i = 0; i < n; i += width<A>) total = step(total, simd::load_partial(from + i, n - i, fill), i);
  return simd::reduce_add<A>(total);
}

// The largest element, −inf for an empty row. With a NaN in the row: anything, so what is computed from it must become
// NaN by the row itself.
template <class T>
HEED_INLINE accumulator_t<T> max_row(const T* from, Index n) noexcept {
  using A = accumulator_t<T>;
  constexpr A lowest = -std::numeric_limits<A>::infinity();
  Vec<A> largest = simd::broadcast<A>(lowest);
  for (Index i = 0; i < n; i += width<A>) {
    largest = simd::max<A>(largest, simd::load_partial(from + i, n - i, lowest));
  }
  return simd::reduce_max<A>(largest);
}

}  // namespace heed::inline HEED_ABI::simd
