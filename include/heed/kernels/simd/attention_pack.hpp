// How the Simd kernel of ops::attention takes queries, keys and values out of where they lie.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/simd/gemm.hpp"
#include "heed/kernels/simd/transpose.hpp"

namespace heed::inline HEED_ABI::impl {

// Eight-bit codes as numbers: `count` of them, the other lanes are 0.
template <class A>
HEED_INLINE simd::Vec<A> load_codes(const std::int8_t* from, Index count) noexcept {
  constexpr Index w = simd::width<A>;
  std::int8_t some[w] = {};
  if (count < w) {
    std::memcpy(some, from, static_cast<std::size_t>(count));
    from = some;
  }
#if defined(__GNUC__)
  if constexpr (std::is_same_v<A, float>) {
    const auto numbers = simd::detail::widen_vector<static_cast<int>(w)>(from);
    return simd::detail::cast_bits<simd::Vec<A>>(numbers);
  }
#endif
  alignas(64) A numbers[w];
  for (Index i = 0; i < w; ++i) numbers[i] = static_cast<A>(from[i]);
  return simd::load(numbers);
}

// Elements d … d + count − 1 of a token's head, at most a vector of them; the other lanes are 0.
template <class T>
HEED_INLINE simd::Vec<accumulator_t<T>> load_token(const TokenHead<T>& token, Index d, Index count) noexcept {
  using A = accumulator_t<T>;
  if (token.codes == nullptr) return simd::load_partial(token.elements + d, count);
  return load_codes<A>(token.codes + d, count) * simd::broadcast<A>(token.scale);
}

// The keys, or the values, of one kv head of a sequence: token s, counted from the sequence's key 0.
template <class T>
struct HeadTokens {
  RowHeads<T> heads;
  Index kv_head;
  Index dim;

  HEED_INLINE Index stride() const noexcept { return heads.heads.elements.stride(1); }
  HEED_INLINE bool has_codes() const noexcept { return heads.heads.codes.present(); }
  HEED_INLINE TokenHead<T> operator[](Index s) const noexcept { return heads.token(s, kv_head); }

  // Asks for token s. (Inline, because g++ takes a function that does nothing else for one that does nothing.)
  HEED_INLINE void fetch(Index s) const noexcept {
    const TokenHead<T> token = (*this)[s];
    const char* const from = token.codes == nullptr ? reinterpret_cast<const char*>(token.elements)
                                                    : reinterpret_cast<const char*>(token.codes);
    const Index bytes = dim * (token.codes == nullptr ? static_cast<Index>(sizeof(T)) : 1);
    for (Index offset = 0; offset < bytes; offset += 64) simd::prefetch(from + offset);
  }
};

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
    for (Index i = 0; i < w; ++i) {
      rows[i] = lane + i < count ? row(lane + i) : nullptr;
      if (lane + w + i >= lanes || lane + w + i >= count) continue;  // the next ones are asked for meanwhile
      constexpr Index line = 64 / static_cast<Index>(sizeof(T));
      for (Index d = 0; d < depth; d += line) simd::prefetch(row(lane + w + i) + d);
    }
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
