// Where KV caches keep keys and values: as they are, or as 8-bit codes with a scale for each token and head.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "heed/core/tensor.hpp"
#include "heed/state/kv_cache_layout.hpp"

namespace heed::detail {

// Keys, or values: [blocks, slots, K, dim] of Element, which is T or std::int8_t. In memory a head's tokens follow each
// other, because that is how attention reads them.
template <class T, class Element>
class KvTensor {
  static_assert(std::is_same_v<Element, T> || std::is_same_v<Element, std::int8_t>,
                "a KV cache of T keeps T, or std::int8_t with a scale for each token and head");

 public:
  using A = accumulator_t<T>;
  static constexpr bool coded = !std::is_same_v<Element, T>;

  HEED_INLINE KvTensor() noexcept {}
  // (Written out, so that no unit emits them for others with different flags.)
  HEED_INLINE KvTensor(const KvTensor&) = default;
  HEED_INLINE KvTensor(KvTensor&&) noexcept = default;
  HEED_INLINE KvTensor& operator=(const KvTensor&) = default;
  HEED_INLINE KvTensor& operator=(KvTensor&&) noexcept = default;
  HEED_INLINE ~KvTensor() = default;
  HEED_INLINE KvTensor(Index blocks, Index slots, Index heads, Index dim) : elements_({blocks, heads, slots, dim}) {
    if constexpr (coded) scales_ = Tensor<float, 3>({blocks, heads, slots});
  }

  HEED_INLINE StoredHeads<T> view() const noexcept {
    const View<const Element, 4> in_memory = elements_;
    const Index extents[] = {in_memory.extent(0), in_memory.extent(2), in_memory.extent(1), in_memory.extent(3)};
    const Index strides[] = {in_memory.stride(0), in_memory.stride(2), in_memory.stride(1), Index{1}};
    const View<const Element, 4> tokens(in_memory.data_handle(), extents, strides);
    if constexpr (coded) {
      return {{}, tokens, scales_};
    } else {
      return {tokens, {}, {}};
    }
  }

  // One token's heads [K, dim].
  HEED_INLINE void write(Index block, Index slot, View<const T, 2> heads) noexcept {
    for (Index h = 0; h < heads.extent(0); ++h) {
      Element* const to = elements_.view().pointer(block, h, slot);
      if constexpr (coded) {
        scales_(block, h, slot) = encode(heads[h], to);
      } else {
        std::memcpy(static_cast<void*>(to), static_cast<const void*>(heads.pointer(h)),
                    static_cast<std::size_t>(heads.extent(1)) * sizeof(T));
      }
    }
  }

  // Tokens of one block to another place, which may overlap.
  HEED_INLINE void move(Index from_block, Index from_slot, Index to_block, Index to_slot, Index count) noexcept {
    move_in(elements_, from_block, from_slot, to_block, to_slot, count);
    if constexpr (coded) move_in(scales_, from_block, from_slot, to_block, to_slot, count);
  }
  // The first tokens of two blocks.
  HEED_INLINE void exchange(Index a, Index b, Index count) noexcept {
    exchange_in(elements_, a, b, count);
    if constexpr (coded) exchange_in(scales_, a, b, count);
  }

  HEED_INLINE void swap(KvTensor& other) noexcept {
    elements_.swap(other.elements_);
    scales_.swap(other.scales_);
  }
  // Takes over the first `slots` tokens of each block.
  HEED_INLINE void copy_blocks(const KvTensor& from, Index slots) noexcept {
    for (Index block = 0; block < elements_.extent(0); ++block) {
      copy_in(from.elements_, elements_, block, slots);
      if constexpr (coded) copy_in(from.scales_, scales_, block, slots);
    }
  }
  HEED_INLINE Index size_bytes() const noexcept {
    return elements_.size() * static_cast<Index>(sizeof(Element)) + scales_.size() * static_cast<Index>(sizeof(float));
  }

 private:
  // x ≈ scale · code with scale = max |x| / 127: off by at most scale / 2, that is max |x| / 254 (and a rounding of x's
  // own type). A head with something in it that is not finite, or whose scale is not in float, gets a scale that makes
  // all of it NaN. Returns the scale.
  HEED_INLINE static float encode(View<const T, 1> head, std::int8_t* codes) noexcept {
    A largest = 0;
    for (Index d = 0; d < head.extent(0); ++d) {
      const A size = std::fabs(widen(head(d)));
      if (size > largest || std::isnan(size)) largest = size;
      if (std::isnan(largest)) break;
    }
    const auto scale = static_cast<float>(largest / 127);
    const bool usable = scale > 0 && std::isfinite(scale);
    for (Index d = 0; d < head.extent(0); ++d) {
      A code = usable ? std::nearbyint(widen(head(d)) / static_cast<A>(scale)) : A(0);
      if (code > 127) code = 127;  // a scale that lost bits as a subnormal
      if (code < -127) code = -127;
      codes[d] = static_cast<std::int8_t>(code);
    }
    return scale;
  }

  // Of each head: `count` tokens of one block to another place.
  template <class U, int Rank>
  HEED_INLINE static void move_in(Tensor<U, Rank>& tensor, Index from_block, Index from_slot, Index to_block,
                                  Index to_slot, Index count) noexcept {
    const View<U, Rank> view = tensor;
    if (count <= 0 || view.empty()) return;
    for (Index h = 0; h < view.extent(1); ++h) {
      std::memmove(static_cast<void*>(view.pointer(to_block, h, to_slot)),
                   static_cast<const void*>(view.pointer(from_block, h, from_slot)),
                   static_cast<std::size_t>(count * view.stride(2)) * sizeof(U));
    }
  }
  template <class U, int Rank>
  HEED_INLINE static void exchange_in(Tensor<U, Rank>& tensor, Index a, Index b, Index count) noexcept {
    const View<U, Rank> view = tensor;
    for (Index h = 0; h < view.extent(1); ++h) {
      U* const first = view.pointer(a, h);
      U* const second = view.pointer(b, h);
      for (Index i = 0; i < count * view.stride(2); ++i) {
        const U kept = first[i];
        first[i] = second[i];
        second[i] = kept;
      }
    }
  }
  template <class U, int Rank>
  HEED_INLINE static void copy_in(const Tensor<U, Rank>& from, Tensor<U, Rank>& to, Index block, Index slots) noexcept {
    if (slots <= 0 || from.empty()) return;
    for (Index h = 0; h < from.extent(1); ++h) {
      std::memcpy(static_cast<void*>(to.view().pointer(block, h)),
                  static_cast<const void*>(from.view().pointer(block, h)),
                  static_cast<std::size_t>(slots * to.view().stride(2)) * sizeof(U));
    }
  }

  Tensor<Element, 4> elements_;  // [blocks, K, slots, dim]
  Tensor<float, 3> scales_;      // [blocks, K, slots], for codes
};

// Keys and values together.
template <class T, class Element>
class KvStorage {
 public:
  HEED_INLINE KvStorage() noexcept {}
  HEED_INLINE KvStorage(const KvStorage&) = default;
  HEED_INLINE KvStorage(KvStorage&&) noexcept = default;
  HEED_INLINE KvStorage& operator=(const KvStorage&) = default;
  HEED_INLINE KvStorage& operator=(KvStorage&&) noexcept = default;
  HEED_INLINE ~KvStorage() = default;
  HEED_INLINE KvStorage(Index blocks, Index slots, const KvCacheLayout& layout)
      : key_(blocks, slots, layout.num_kv_heads, layout.head_dim),
        value_(blocks, slots, layout.num_kv_heads, layout.value_head_dim) {}

  HEED_INLINE StoredHeads<T> key() const noexcept { return key_.view(); }
  HEED_INLINE StoredHeads<T> value() const noexcept { return value_.view(); }
  HEED_INLINE Index slots() const noexcept { return key_.view().extent(1); }

  HEED_INLINE void write(Index block, Index slot, View<const T, 2> key, View<const T, 2> value) noexcept {
    key_.write(block, slot, key);
    value_.write(block, slot, value);
  }
  HEED_INLINE void move(Index from_block, Index from_slot, Index to_block, Index to_slot, Index count) noexcept {
    key_.move(from_block, from_slot, to_block, to_slot, count);
    value_.move(from_block, from_slot, to_block, to_slot, count);
  }
  HEED_INLINE void exchange(Index a, Index b, Index count) noexcept {
    key_.exchange(a, b, count);
    value_.exchange(a, b, count);
  }
  HEED_INLINE void copy_blocks(const KvStorage& from, Index slots) noexcept {
    key_.copy_blocks(from.key_, slots);
    value_.copy_blocks(from.value_, slots);
  }
  HEED_INLINE void swap(KvStorage& other) noexcept {
    key_.swap(other.key_);
    value_.swap(other.value_);
  }
  HEED_INLINE Index size_bytes() const noexcept { return key_.size_bytes() + value_.size_bytes(); }

 private:
  KvTensor<T, Element> key_;
  KvTensor<T, Element> value_;
};

// Copies the tokens of a row that are kept: key [kept, K, D], value [kept, K, Dv].
template <class T>
HEED_INLINE void read_kv_row(const KeyValues<T>& from, Index row, Index first, const View<T, 3>& key,
                             const View<T, 3>& value) noexcept {
  const auto read = [first](const RowHeads<T>& heads, const View<T, 3>& to) noexcept {
    for (Index s = 0; s < to.extent(0); ++s) {
      for (Index h = 0; h < to.extent(1); ++h) {
        const TokenHead<T> token = heads.token(first + s, h);
        for (Index d = 0; d < to.extent(2); ++d) to(s, h, d) = narrow<T>(token[d]);
      }
    }
  };
  read(from.key_row(row), key);
  read(from.value_row(row), value);
}

}  // namespace heed::detail
