// PackedWeight: a weight matrix in the order a backend's linear kernel reads it, made once when a layer takes the
// weight.
#pragma once

#include <memory>

#include "heed/core/tensor.hpp"

namespace heed {

// What kernels take: panels of `panel` output features, each [in_features][panel], the last one padded with zeros;
// panel 1 is the row-major [out_features, in_features] itself.
template <class T>
struct WeightPanels {
  const T* data = nullptr;
  Index out_features = 0;
  Index in_features = 0;
  Index panel = 1;

  // Elements from one panel to the next.
  HEED_INLINE Index panel_stride() const noexcept { return panel * in_features; }
  // Output features first … first + count − 1; first is a multiple of `panel`.
  HEED_INLINE WeightPanels slice(Index first, Index count) const noexcept {
    return {data + first * in_features, count, in_features, panel};
  }
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Owns the panels. Immutable and shared: copies of a layer hold the same memory. Of one backend and one set of compiler
// flags, like the layers that hold it, hence the namespace.
template <class T, class Space = Host>
struct PackedWeight {
  struct Storage {
    Tensor<T, 1, Space> elements;
  };
  std::shared_ptr<const Storage> storage;
  WeightPanels<T> panels;
};

}  // namespace heed::inline HEED_ABI
