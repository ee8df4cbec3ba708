// How the Simd kernel of ops::attention takes queries, keys and values out of where they lie.
#pragma once

#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/simd/gemm.hpp"
#include "heed/kernels/simd/transpose.hpp"

namespace heed::inline HEED_ABI::impl {

// Elements d … d + count − 1 of a token's head, at most a vector of them; the other lanes are 0.
template <class T>
HEED_INLINE simd::Vec<accumulator_t<T>> load_token(const TokenHead<T>& token, Index d, Index count) noexcept {
  using A = accumulator_t<T>;
  if (token.codes == nullptr) return simd::load_partial(token.elements + d, count);
  alignas(64) A codes[simd::width<A>];
  for (Index i = 0; i < simd::width<A>; ++i) codes[i] = i < count ? static_cast<A>(token.codes[d + i]) : A(0);
  return simd::load(codes) * simd::broadcast<A>(token.scale);
}

// `lanes` rows as a panel [depth][panel], each a column of it, times the scale: the rows of one vector of lanes at a
// time. row(i) points to row i's elements; lanes from `count` on are 0.
template <class T, class Row>
HEED_INLINE void pack_query_panel(Row&& row, Index count, Index lanes, Index depth, Index panel, accumulator_t<T> scale,
                                  accumulator_t<T>* to) noexcept {
  using A = accumulator_t<T>;
  constexpr Index w = simd::width<A>;
  const simd::Vec<A> factor = simd::broadcast<A>(scale);
  for (Index lane = 0; lane < lanes; lane += w) {
    const T* rows[w];
    for (Index i = 0; i < w; ++i) rows[i] = lane + i < count ? row(lane + i) : nullptr;
    for (Index d = 0; d < depth; d += w) {
      simd::Vec<A> block[w];
      for (Index i = 0; i < w; ++i)
        block[i] = rows[i] != nullptr ? simd::load_partial(rows[i] + d, depth - d) * factor : simd::broadcast<A>(0);
      simd::transpose<A>(block);
      A* column = to + d * panel + lane;
      if (depth - d >= w) {
        HEED_UNROLL
        for (Index i = 0; i < w; ++i) simd::store(column + i * panel, block[i]);
      } else {
        for (Index i = 0; i < depth - d; ++i) simd::store(column + i * panel, block[i]);
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI::impl
