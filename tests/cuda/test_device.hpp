// The device that tests run kernels on: the imitated one, and, where nvcc compiles them, the real one.
#pragma once

#include <doctest/doctest.h>

#if defined(__CUDACC__)
#include "heed/cuda.hpp"
#else
#include "heed/cuda/host_runtime.hpp"
#include "heed/cuda/kernels.hpp"
#endif
#include "support/compare.hpp"
#include "support/random.hpp"

namespace test {

using heed::Index;
#if defined(__CUDACC__)
using TestDevice = heed::Cuda;
// Every call has a stream of its own, which lives as long as the program: tensors may outlive their test's device.
inline TestDevice make_device() {
  cudaStream_t stream = nullptr;
  heed::CudaRuntime::check(::cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making", 1, "stream");
  return TestDevice(stream);
}
#else
using TestDevice = heed::Device<heed::HostRuntime>;
inline TestDevice make_device() {
  return TestDevice(heed::HostRuntime());
}
#endif
template <class T, int Rank>
using DeviceTensor = heed::Tensor<T, Rank, TestDevice::space_type>;
template <class T, int Rank>
using DeviceView = heed::View<T, Rank, TestDevice::space_type>;

// Calls check(device) for each order in which the warps of a kernel can run. A real device has one of its own.
template <class F>
void for_each_warp_order(F&& check) {
#if defined(__CUDACC__)
  check(make_device());
#else
  const struct {
    const char* name;
    heed::WarpOrder order;
  } orders[] = {{"up", heed::WarpOrder::up}, {"down", heed::WarpOrder::down}, {"shuffled", heed::WarpOrder::shuffled}};
  for (const auto& each : orders) {
    INFO("warps run ", each.name);
    check(TestDevice(heed::HostRuntime({.order = each.order, .seed = 7})));
  }
#endif
}

// A tensor's copy on the device.
template <class T, int Rank>
DeviceTensor<T, Rank> on_device(const TestDevice& device, const heed::Tensor<T, Rank>& tensor) {
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
