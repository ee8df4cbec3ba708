// REFUSED=1: a host view where a device needs one of its own; 2: the host reads device memory.
#include "heed/cuda/host_runtime.hpp"
#include "heed/cuda/kernels/linear.hpp"
#include "heed/ops/linear.hpp"

using Device = heed::Device<heed::HostRuntime>;
template <class T, int Rank>
using DeviceView = heed::View<T, Rank, Device::space_type>;

void refused(const Device& device, DeviceView<const float, 2> weight, DeviceView<float, 2> out,
             heed::View<const float, 2> host) {
#if REFUSED == 1
  heed::ops::linear(device, host, weight, {}, out);
#else
  heed::ops::linear(device, weight, weight, {}, out);
  static_cast<void>(host(0, 0) + out(0, 0));
#endif
}
