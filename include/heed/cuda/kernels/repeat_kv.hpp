// Device kernel of ops::repeat_kv.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class T>
struct RepeatKvKernel {
  static constexpr const char* name = "repeat_kv";

  View<const T, 4> x;
  View<T, 4> out;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index d = i % out.extent(3);
    const Index h = i / out.extent(3) % out.extent(2);
    const Index token = i / out.extent(3) / out.extent(2);
    const Index s = token % out.extent(1);
    const Index b = token / out.extent(1);
    out(b, s, h, d) = x(b, s, h / (out.extent(2) / x.extent(2)), d);
  }
};

}  // namespace impl

template <class Runtime, class T>
void repeat_kv_kernel(const Device<Runtime>& device, View<const T, 4, DeviceMemory<Runtime>> x,
                      View<T, 4, DeviceMemory<Runtime>> out) {
  impl::launch_elements(device, impl::RepeatKvKernel<T>{in_kernel(x), in_kernel(out)}, out.size());
}

}  // namespace heed::inline HEED_ABI
