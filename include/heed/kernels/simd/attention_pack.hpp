// How the Simd kernel of ops::attention takes keys and values out of where a cache keeps them.
#pragma once

#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI::impl {

// Elements d … d + count − 1 of a token's head, at most a vector of them.
template <class T>
HEED_INLINE simd::Vec<accumulator_t<T>> load_token(const TokenHead<T>& token, Index d, Index count) noexcept {
  using A = accumulator_t<T>;
  if (token.codes == nullptr) return simd::load_partial(token.elements + d, count);
  alignas(64) A codes[simd::width<A>];
  for (Index i = 0; i < simd::width<A>; ++i) codes[i] = i < count ? static_cast<A>(token.codes[d + i]) : A(0);
  return simd::load(codes) * simd::broadcast<A>(token.scale);
}

// Keys first + columns.begin … first + columns.end − 1 as those columns of a panel of kᵀ; the other ones are zero.
template <class T>
HEED_INLINE void pack_key_panel(const RowHeads<T>& keys, Index first, KeyRange columns, Index head, Index depth,
                                Index panel, accumulator_t<T>* to) noexcept {
  using A = accumulator_t<T>;
  if (columns.begin == 0 && keys.is_strided(first, columns.end)) {
    const T* from = keys.token(first, head).elements;
    simd::pack_panel(from, 1, keys.heads.elements.stride(1), depth, columns.end, panel, to);
    return;
  }
  for (Index column = 0; column < panel; ++column) {
    if (column < columns.begin || column >= columns.end) {
      for (Index d = 0; d < depth; ++d) to[d * panel + column] = 0;
      continue;
    }
    const TokenHead<T> key = keys.token(first + column, head);
    if (key.codes == nullptr) {
      for (Index d = 0; d < depth; ++d) to[d * panel + column] = widen(key.elements[d]);
    } else {
      for (Index d = 0; d < depth; ++d) to[d * panel + column] = key.scale * static_cast<A>(key.codes[d]);
    }
  }
}

}  // namespace heed::inline HEED_ABI::impl
