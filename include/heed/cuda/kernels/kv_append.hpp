// Device kernels of DeviceKvCache.
#pragma once

#include <cstdint>

#include "heed/cuda/kernels/kernel.hpp"

namespace heed::inline HEED_ABI::impl {

// Tokens t < counts(b) of new heads [B, T, K, dim] go to slot lengths(b) + t of [B, K, slots, dim], where there is one.
template <class T>
struct KvAppendKernel {
  static constexpr const char* name = "kv_append";

  View<const T, 4> heads;
  View<const std::int64_t, 1> counts;  // or absent: all
  View<const std::int64_t, 1> lengths;
  View<T, 4> to;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index d = i % heads.extent(3);
    const Index k = i / heads.extent(3) % heads.extent(2);
    const Index token = i / heads.extent(3) / heads.extent(2);
    const Index t = token % heads.extent(1);
    const Index b = token / heads.extent(1);
    const Index slot = static_cast<Index>(lengths(b)) + t;
    if ((!counts.present() || t < counts(b)) && slot < to.extent(2)) to(b, k, slot, d) = heads(b, t, k, d);
  }
};

// A row's length after that.
struct KvLengthKernel {
  static constexpr const char* name = "kv_length";

  View<const std::int64_t, 1> counts;
  std::int64_t all;
  std::int64_t capacity;
  View<std::int64_t, 1> lengths;

  template <class Context>
  HEED_DEVICE void element(Context&, Index b) const {
    const std::int64_t length = lengths(b) + (counts.present() ? counts(b) : all);
    lengths(b) = length < capacity ? length : capacity;
  }
};

// positions [B, T]: where the next tokens of each row stand.
struct KvPositionsKernel {
  static constexpr const char* name = "kv_positions";

  View<const std::int64_t, 1> lengths;
  View<std::int64_t, 2> positions;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index b = i / positions.extent(1);
    const Index t = i % positions.extent(1);
    positions(b, t) = lengths(b) + t;
  }
};

}  // namespace heed::inline HEED_ABI::impl
