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

// Elements of a and b by number, b's from width<A> on.
template <class A, class Number, int... I>
HEED_INLINE typename Native<A>::type pick(typename Native<A>::type a, typename Native<A>::type b, Number,
                                          std::integer_sequence<int, I...>) noexcept {
  return __builtin_shufflevector(a, b, Number::of(I)...);
}

// Elements in 128 bits: what is moved within them is moved by the cheapest instructions.
template <class A>
inline constexpr int lane_size = static_cast<int>(16 / sizeof(A));

// Of every 128 bits the lower half of a's and b's, or the upper one, taken in turns of Turn elements.
template <class A, int Turn, bool Upper>
struct InLanes {
  static constexpr int of(int i) noexcept {
    constexpr int size = lane_size<A>;
    const int at = i % size;
    const int from = at / (2 * Turn) * Turn + at % Turn + (Upper ? size / 2 : 0);
    return i / size * size + from + (at / Turn % 2 != 0 ? static_cast<int>(width<A>) : 0);
  }
};

// Every second 128 bits of a, then of b, from the first or from the second on.
template <class A, bool Odd>
struct WholeLanes {
  static constexpr int of(int i) noexcept {
    constexpr int size = lane_size<A>;
    return (2 * (i / size) + (Odd ? 1 : 0)) * size + i % size;
  }
};

template <class A, template <class, bool> class Number>
HEED_INLINE void pick_both(typename Native<A>::type& a, typename Native<A>::type& b) noexcept {
  constexpr auto lanes = std::make_integer_sequence<int, static_cast<int>(width<A>)>();
  const auto first = detail::pick<A>(a, b, Number<A, false>(), lanes);
  b = detail::pick<A>(a, b, Number<A, true>(), lanes);
  a = first;
}

template <class A, bool Upper>
using InOnes = InLanes<A, 1, Upper>;
template <class A, bool Upper>
using InTwos = InLanes<A, 2, Upper>;
#endif

}  // namespace detail

// Element j of row i becomes element i of row j.
template <class A>
HEED_INLINE void transpose(Vec<A> (&rows)[width<A>]) noexcept {
  constexpr int w = static_cast<int>(width<A>);
#if defined(HEED_HAS_SHUFFLE)
  using Row = typename detail::Native<A>::type;
  constexpr int size = detail::lane_size<A>;
  constexpr int lanes = w / size;
  Row row[w];
  HEED_UNROLL
  for (int i = 0; i < w; ++i) row[i] = __builtin_bit_cast(Row, rows[i]);
  // First the squares within 128 bits …
  HEED_UNROLL
  for (int i = 0; i < w; i += 2) detail::pick_both<A, detail::InOnes>(row[i], row[i + 1]);
  if constexpr (size == 4) {
    HEED_UNROLL
    for (int i = 0; i < w; i += 4) {
      detail::pick_both<A, detail::InTwos>(row[i], row[i + 2]);
      detail::pick_both<A, detail::InTwos>(row[i + 1], row[i + 3]);
      std::swap(row[i + 1], row[i + 2]);
    }
  }
  // … then the squares themselves: row g · size + c has column c of each.
  if constexpr (lanes > 1) {
    HEED_UNROLL
    for (int c = 0; c < size; ++c) {
      HEED_UNROLL
      for (int g = 0; g < lanes; g += 2)
        detail::pick_both<A, detail::WholeLanes>(row[g * size + c], row[(g + 1) * size + c]);
      if constexpr (lanes == 4) {
        detail::pick_both<A, detail::WholeLanes>(row[c], row[2 * size + c]);
        detail::pick_both<A, detail::WholeLanes>(row[size + c], row[3 * size + c]);
      }
    }
  }
  static_assert(lanes <= 4);
  HEED_UNROLL
  for (int i = 0; i < w; ++i) rows[i] = __builtin_bit_cast(Vec<A>, row[i]);
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
