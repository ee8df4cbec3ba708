// Device kernel of ops::embedding.
#pragma once

#include <cstdint>

#include "heed/cuda/kernels/kernel.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class T>
struct EmbeddingKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "embedding";

  View<const std::int64_t, 1> ids;
  View<const T, 2> table;
  View<T, 2> out;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index row = i / out.extent(1);
    const Index column = i % out.extent(1);
    const auto id = static_cast<Index>(ids.pointer()[row * ids.stride(0)]);
    const bool exists = id >= 0 && id < table.extent(0);  // the door could not look
    const A none = minus_infinity<A>();
    out(row, column) = exists ? table(id, column) : Context::template narrow<T>(none - none);
  }
};

}  // namespace impl

template <class Runtime, class T>
void embedding_kernel(const Device<Runtime>& device, View<const std::int64_t, 1, DeviceMemory<Runtime>> ids,
                      View<const T, 2, DeviceMemory<Runtime>> table, View<T, 2, DeviceMemory<Runtime>> out) {
  impl::launch_elements(device, impl::EmbeddingKernel<T>{in_kernel(ids), in_kernel(table), in_kernel(out)}, out.size());
}

}  // namespace heed::inline HEED_ABI
