// DeviceKvCache: keys and values of one layer in a device's memory, its rows' lengths too.
#pragma once

#include <cstdint>

#include "heed/cuda/kernels/kv_append.hpp"
#include "heed/ops/key_values.hpp"
#include "heed/state/kv_cache_layout.hpp"

namespace heed::inline HEED_ABI {

// A cache of fixed capacity whose lengths only the device knows: a decode step asks for the same work whatever they are,
// so one graph that was captured once serves every step.
//
//   heed::DeviceKvCache<float, heed::Cuda> cache(cuda, {.num_kv_heads = 2, .head_dim = 64}, batch, capacity);
//   cache.next_positions(cuda, positions);   // [B, T], for rotary tables
//   cache.append(cuda, key, value);          // [B, T, K, D], [B, T, K, Dv]
//   heed::ops::attention(cuda, query, cache.key_values(), out, {.causal = heed::Causal::bottom_right}, workspace);
//
// Nothing here allocates but the constructor, and nothing waits but lengths(). Copies of the whole cache are deep.
template <Scalar T, class B>
class DeviceKvCache {
 public:
  using space_type = space_of<B>;

  // Empty rows. Allocates. Errors: OptionError.
  DeviceKvCache(const B& device, const KvCacheLayout& layout, Index batch, Index capacity)
      : layout_(checked(layout, batch, capacity)),
        key_(device, {batch, layout.num_kv_heads, capacity, layout.head_dim}),
        value_(device, {batch, layout.num_kv_heads, capacity, layout.value_head_dim}),
        lengths_(device, {batch}) {}

  Index batch() const noexcept { return key_.extent(0); }
  Index capacity() const noexcept { return key_.extent(2); }
  const KvCacheLayout& layout() const noexcept { return layout_; }

  // Appends tokens to each row.
  //
  //   key     [B, T, K, D]
  //   value   [B, T, K, Dv]
  //   counts  [B]             tokens of each row that are appended, from the first; absent: all
  //
  // What a row has no room for is dropped: the host does not know its length. Errors: ShapeError.
  void append(const B& device, View<const T, 4, space_type> key, View<const T, 4, space_type> value,
              View<const std::int64_t, 1, space_type> counts = {}) {
    const char* door = "DeviceKvCache::append";
    const Axis rows{"batch", batch()};
    const Axis tokens{"seq", key.extent(1)};
    const Axis heads{"kv heads", layout_.num_kv_heads};
    raise_if(first_problem(
        check_input(door, "key", key, {rows, {"seq", any}, heads, {"head dim", layout_.head_dim}}),
        check_input(door, "value", value, {rows, tokens, heads, {"value head dim", layout_.value_head_dim}}),
        counts.present() ? check_input(door, "counts", counts, {rows}) : Problem()));
    impl::launch_elements(device, append_kernel(key, counts, key_), key.size());
    impl::launch_elements(device, append_kernel(value, counts, value_), value.size());
    impl::launch_elements(
        device, impl::KvLengthKernel{in_kernel(counts), key.extent(1), capacity(), in_kernel(lengths_.view())},
        batch());
  }

  // Where the next tokens of each row stand, before they are appended.
  //
  //   positions  [B, T]
  //
  // Errors: ShapeError.
  void next_positions(const B& device, View<std::int64_t, 2, space_type> positions) const {
    raise_if(check_output("DeviceKvCache::next_positions", "positions", positions, {{"batch", batch()}, {"seq", any}}));
    impl::launch_elements(device, impl::KvPositionsKernel{in_kernel(lengths_.view()), in_kernel(positions)},
                          positions.size());
  }

  // For ops::attention.
  KeyValues<T, space_type> key_values() const noexcept {
    KeyValues<T, space_type> keys;
    keys.key.elements = key_.view().permute({0, 2, 1, 3});
    keys.value.elements = value_.view().permute({0, 2, 1, 3});
    keys.lengths = lengths_.view();
    return keys;
  }

  // [B]: tokens of each row, in the device's memory.
  View<const std::int64_t, 1, space_type> lengths() const noexcept { return lengths_.view(); }
  // Forgets all but the first `length` tokens of every row that has more; 0 empties the cache.
  void truncate(const B& device, Index length) {
    impl::launch_elements(device, impl::KvLengthKernel{{}, 0, length, in_kernel(lengths_.view())}, batch());
  }

 private:
  static const KvCacheLayout& checked(const KvCacheLayout& layout, Index batch, Index capacity) {
    const char* name = "DeviceKvCache";
    raise_if(first_problem(check_kv_layout(name, layout, batch), check_kv_size(name, "capacity", capacity, 0)));
    return layout;
  }
  impl::KvAppendKernel<T> append_kernel(const View<const T, 4, space_type>& heads,
                                        const View<const std::int64_t, 1, space_type>& counts,
                                        Tensor<T, 4, space_type>& to) const {
    return {in_kernel(heads), in_kernel(counts), in_kernel(lengths_.view()), in_kernel(to.view())};
  }

  KvCacheLayout layout_;
  Tensor<T, 4, space_type> key_;    // [B, K, capacity, D]
  Tensor<T, 4, space_type> value_;  // [B, K, capacity, Dv]
  Tensor<std::int64_t, 1, space_type> lengths_;
};

}  // namespace heed::inline HEED_ABI
