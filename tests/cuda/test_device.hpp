// The device that tests run kernels on: the imitated one, and, where nvcc compiles them, the real one.
#pragma once

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
