// KeyValues: keys and values that lie where a cache keeps them, as ops::attention reads them. Plain data.
#pragma once

#include <cstdint>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed {

// Kernels count tiles of so many keys from a sequence's key 0.
inline constexpr Index attention_tile_keys = 256;

// One head of one token: numbers, or 8-bit codes times a scale.
template <class T>
struct TokenHead {
  using A = accumulator_t<T>;

  const T* elements = nullptr;
  const std::int8_t* codes = nullptr;  // instead of elements
  A scale = 0;

  HEED_INLINE A operator[](Index d) const noexcept {  // kernels of devices have conversions of their own
    return codes != nullptr ? scale * static_cast<A>(codes[d]) : widen(elements[d]);
  }
};

// Keys, or values: `slots` tokens in each of `blocks` blocks. A block is a batch row, or a page.
template <class T, class Space = Host>
struct StoredHeads {
  View<const T, 4, Space> elements = {};         // [blocks, slots, K, dim], or
  View<const std::int8_t, 4, Space> codes = {};  // [blocks, slots, K, dim]: value = code · scale
  View<const float, 3, Space> scales = {};       // [blocks, K, slots]

  // (The one that is absent has extents of 0.)
  HEED_ANYWHERE Index extent(int axis) const noexcept { return elements.extent(axis) + codes.extent(axis); }
  HEED_ANYWHERE TokenHead<T> token(Index block, Index slot, Index head) const noexcept {
    if (!codes.present()) return {elements.pointer(block, slot, head), nullptr, 0};
    return {nullptr, codes.pointer(block, slot, head), static_cast<accumulator_t<T>>(scales(block, head, slot))};
  }
};

// Keys, or values, of one row: token s, counted from the row's first token ever, wherever it lies.
template <class T>
struct RowHeads {
  StoredHeads<T> heads = {};
  View<const std::int64_t, 1> pages = {};  // [pages of the row]: blocks, or absent
  Index block = 0;                         // without pages
  Index first = 0;                         // without pages: the token in slot 0

  HEED_ANYWHERE TokenHead<T> token(Index s, Index head) const noexcept {
    if (!pages.present()) return heads.token(block, s - first, head);
    const Index slots = heads.extent(1);
    return heads.token(static_cast<Index>(pages(s / slots)), s % slots, head);
  }
  // True if tokens s … s + count − 1 lie elements.stride(1) apart, as numbers.
  HEED_ANYWHERE bool is_strided(Index s, Index count) const noexcept {
    if (heads.codes.present()) return false;
    return !pages.present() || s % heads.extent(1) + count <= heads.extent(1);
  }
};

// The keys and values of a batch: what a cache gives to ops::attention. Token s of row b, counted from the row's first
// token ever, lies
//
//   without pages   in block b, slot s − first_tokens(b)                      (static, growing, sliding caches)
//   with pages      in block pages(b, s / slots), slot s mod slots            (paged caches)
template <class T, class Space = Host>
struct KeyValues {
  StoredHeads<T, Space> key = {};                        // dim D
  StoredHeads<T, Space> value = {};                      // dim Dv
  View<const std::int64_t, 1, Space> lengths = {};       // [B]: tokens of each row so far
  View<const std::int64_t, 1, Space> first_tokens = {};  // [B]: the oldest one that is kept; absent: 0
  View<const std::int64_t, 2, Space> pages = {};         // [B, pages of a row], or absent
  Index window = 0;  // W > 0: a query sees itself and the W − 1 tokens before it, no more

  HEED_ANYWHERE RowHeads<T> key_row(Index b) const noexcept { return row(key, b); }
  HEED_ANYWHERE RowHeads<T> value_row(Index b) const noexcept { return row(value, b); }
  HEED_ANYWHERE Index length(Index b) const noexcept { return static_cast<Index>(lengths(b)); }
  HEED_ANYWHERE Index first_token(Index b) const noexcept {
    return first_tokens.present() ? static_cast<Index>(first_tokens(b)) : 0;
  }
  // How many keys a kernel may meet in a row of this length. A sliding cache's row may be far longer than what is kept,
  // of which the first tile is counted from its beginning on.
  HEED_ANYWHERE Index most_keys(Index longest) const noexcept {
    const Index most = key.extent(1) + attention_tile_keys;
    return window > 0 && longest > most ? most : longest;
  }
  // The longest row; of a device's, whose lengths the host cannot read, the longest that there is room for.
  HEED_ANYWHERE Index longest() const noexcept {
    if constexpr (std::is_same_v<Space, Host>) {
      Index most = 0;
      for (Index b = 0; b < lengths.extent(0); ++b) most = lengths(b) > most ? static_cast<Index>(lengths(b)) : most;
      return most;
    } else {
      return pages.present() ? pages.extent(1) * key.extent(1) : key.extent(1);
    }
  }

 private:
  HEED_ANYWHERE RowHeads<T> row(const StoredHeads<T>& heads, Index b) const noexcept {
    return {heads, pages.present() ? pages[b] : View<const std::int64_t, 1>(), b, first_token(b)};
  }
};

}  // namespace heed
