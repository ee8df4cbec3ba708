// What kernels have in common. docs/cuda.md says what a kernel is.
#pragma once

#include <type_traits>

#include "heed/core/anywhere.hpp"
#include "heed/core/scalar.hpp"
#include "heed/cuda/device.hpp"

// HEED_DEVICE: a function that runs in kernels, compiled by nvcc for the device alone.
// HEED_DEVICE_UNROLL: before a loop of constant count over arrays that must live in registers.
#if defined(__CUDACC__)
#define HEED_DEVICE __device__ __forceinline__
#define HEED_DEVICE_UNROLL _Pragma("unroll")
#else
#define HEED_DEVICE inline
#define HEED_DEVICE_UNROLL
#endif

namespace heed::inline HEED_ABI::impl {

// Four elements that are loaded together.
template <class A>
struct alignas(4 * sizeof(A)) Four {
  A at[4];
};

template <class I>
HEED_ANYWHERE constexpr I blocks_for(I count, I size) noexcept {
  return (count + size - 1) / size;
}

// Bytes that Context::shared() takes for an array.
template <class T>
HEED_ANYWHERE constexpr int shared_array_bytes(Index count) noexcept {
  return static_cast<int>((count * static_cast<Index>(sizeof(T)) + 127) / 128 * 128);
}

// The sum, or the largest, of a warp's values, in all lanes.
template <class Context, class A>
HEED_DEVICE A warp_sum(Context& context, A value) {
  for (int mask = 16; mask > 0; mask /= 2) value += context.shuffle_xor(value, mask);
  return value;
}
template <class Context, class A>
HEED_DEVICE A warp_max(Context& context, A value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const A other = context.shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// −∞, and whether a number is it, without the library's functions.
template <class A>
HEED_ANYWHERE constexpr A minus_infinity() noexcept {
  if constexpr (sizeof(A) == 8) {
    return -__builtin_huge_val();
  } else {
    return -__builtin_huge_valf();
  }
}

// A kernel of one thread for each of `count` elements: kernel.element(context, i).
template <class Kernel>
struct Elementwise {
  static constexpr const char* name = Kernel::name;
  static constexpr int threads = 256;
  int shared_bytes() const { return 0; }

  Kernel kernel;
  Index count;

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const Index i = context.block() * threads + context.thread();
    if (i < count) kernel.element(context, i);
  }
};

template <class Runtime, class Kernel>
void launch_elements(const Device<Runtime>& device, const Kernel& kernel, Index count) {
  device.launch(Elementwise<Kernel>{kernel, count}, blocks_for<Index>(count, Elementwise<Kernel>::threads));
}

// A kernel of one warp for each of `rows` rows: kernel.row(context, row).
template <class Kernel>
struct Rowwise {
  static constexpr const char* name = Kernel::name;
  static constexpr int threads = 128;
  int shared_bytes() const { return 0; }

  Kernel kernel;
  Index rows;

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const Index row = context.block() * (threads / 32) + context.warp();
    if (row < rows) kernel.row(context, row);  // a warp leaves as a whole
  }
};

template <class Runtime, class Kernel>
void launch_rows(const Device<Runtime>& device, const Kernel& kernel, Index rows) {
  device.launch(Rowwise<Kernel>{kernel, rows}, blocks_for<Index>(rows, Rowwise<Kernel>::threads / 32));
}

}  // namespace heed::inline HEED_ABI::impl
