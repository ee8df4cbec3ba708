// A block of width × width elements turned in registers.
#pragma once

#include <utility>

#include "heed/core/simd.hpp"

namespace heed::inline HEED_ABI::simd {

namespace detail {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HEED_HAS_SHUFFLE 1
#endif
#endif

#if defined(HEED_HAS_SHUFFLE)
// The compiler's own vector: its shuffles become the best instructions of any instruction set.
template <class A>
struct Native {
  typedef A type __attribute__((vector_size(sizeof(Vec<A>))));
};

// a0 b0 a1 b1 … of the lower halves, or of the upper ones.
template <class A, int Begin, int... I>
HEED_INLINE typename Native<A>::type interleave(typename Native<A>::type a, typename Native<A>::type b,
                                                std::integer_sequence<int, I...>) noexcept {
  constexpr int w = static_cast<int>(width<A>);
  return __builtin_shufflevector(a, b, (Begin + I / 2 + (I % 2) * w)...);
}
#endif

}  // namespace detail

// Element j of row i becomes element i of row j.
template <class A>
HEED_INLINE void transpose(Vec<A> (&rows)[width<A>]) noexcept {
  constexpr int w = static_cast<int>(width<A>);
#if defined(HEED_HAS_SHUFFLE)
  using Row = typename detail::Native<A>::type;
  constexpr auto lanes = std::make_integer_sequence<int, w>();
  Row from[w];
  HEED_UNROLL
  for (int i = 0; i < w; ++i) from[i] = __builtin_bit_cast(Row, rows[i]);
  HEED_UNROLL
  for (int step = 1; step < w; step *= 2) {  // each step shuffles the row's number one bit further into the lane's
    Row to[w];
    HEED_UNROLL
    for (int i = 0; i < w / 2; ++i) {
      to[2 * i] = detail::interleave<A, 0>(from[i], from[i + w / 2], lanes);
      to[2 * i + 1] = detail::interleave<A, w / 2>(from[i], from[i + w / 2], lanes);
    }
    HEED_UNROLL
    for (int i = 0; i < w; ++i) from[i] = to[i];
  }
  HEED_UNROLL
  for (int i = 0; i < w; ++i) rows[i] = __builtin_bit_cast(Vec<A>, from[i]);
#else
  alignas(64) A elements[w][w];
  for (int i = 0; i < w; ++i) simd::store(elements[i], rows[i]);
  for (int i = 0; i < w; ++i) {
    for (int j = 0; j < i; ++j) std::swap(elements[i][j], elements[j][i]);
  }
  for (int i = 0; i < w; ++i) rows[i] = simd::load(elements[i]);
#endif
}

}  // namespace heed::inline HEED_ABI::simd

#undef HEED_HAS_SHUFFLE
