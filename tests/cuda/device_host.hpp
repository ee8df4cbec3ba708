// The imitated device that tests run kernels on.
#pragma once

#include <doctest/doctest.h>

#include "heed/cuda/host_runtime.hpp"
#include "heed/cuda/kernels.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"

namespace test {

using heed::Index;
using DeviceHost = heed::Device<heed::HostRuntime>;
template <class T, int Rank>
using DeviceTensor = heed::Tensor<T, Rank, DeviceHost::space_type>;
template <class T, int Rank>
using DeviceView = heed::View<T, Rank, DeviceHost::space_type>;

// Calls check(device) for each order in which the warps of a kernel can run.
template <class F>
void for_each_warp_order(F&& check) {
  const struct {
    const char* name;
    heed::WarpOrder order;
  } orders[] = {{"up", heed::WarpOrder::up}, {"down", heed::WarpOrder::down}, {"shuffled", heed::WarpOrder::shuffled}};
  for (const auto& each : orders) {
    INFO("warps run ", each.name);
    check(DeviceHost(heed::HostRuntime({.order = each.order, .seed = 7})));
  }
}

// A tensor's copy on the device.
template <class T, int Rank>
DeviceTensor<T, Rank> on_device(const DeviceHost& device, const heed::Tensor<T, Rank>& tensor) {
  return DeviceTensor<T, Rank>(device, tensor.view());
}

// An optional tensor: present on the device as it is in the host's memory.
template <class T>
heed::View<const T, 1> list_or_absent(const heed::Tensor<T, 1>& tensor) {
  return tensor.empty() ? heed::View<const T, 1>() : tensor.view();
}

// What a result of T may be off by, of operations whose inputs are about 1 in size.
template <class T>
double tolerance(double of_float) {
  return unit_roundoff<T> > 0x1p-20 ? 2 * unit_roundoff<T> : of_float * (unit_roundoff<T> / 0x1p-24);
}

}  // namespace test
