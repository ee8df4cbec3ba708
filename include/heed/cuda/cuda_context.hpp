// CudaContext: what a kernel sees of its thread on a CUDA device. HostContext has the same members and says what they do.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI {

#if defined(__CUDACC__)

class CudaContext {
 public:
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ int warp() const { return static_cast<int>(threadIdx.x / 32); }
  __device__ Index block() const { return static_cast<Index>(blockIdx.x); }
  __device__ Index blocks() const { return static_cast<Index>(gridDim.x); }

  __device__ void sync() { __syncthreads(); }
  __device__ void sync_warp() { __syncwarp(); }
  template <class T>
  __device__ T shuffle_xor(const T& value, int mask) {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }
  template <class T>
  __device__ T shuffle(const T& value, int source) {
    return __shfl_sync(0xffffffffU, value, source);
  }

  template <class T>
  __device__ T* shared(int count) {
    extern __shared__ __align__(128) unsigned char heed_shared_memory[];
    T* const array = reinterpret_cast<T*>(heed_shared_memory + shared_used_);
    shared_used_ += (static_cast<unsigned>(count) * static_cast<unsigned>(sizeof(T)) + 127U) / 128U * 128U;
    return array;
  }

  __device__ void copy_async(void* to, const void* from, bool present = true) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = present ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  }
  __device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int N>
  __device__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
  }

  __device__ void load_matrices(std::uint32_t (&m)[4], const void* row, bool transposed) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if (transposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "r"(address)
                   : "memory");
    }
  }
  template <class T>
  __device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      static_assert(std::is_same_v<T, float16>);
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }

  template <class T>
  static __device__ std::uint32_t pack(float first, float second) {
    std::uint32_t word;
    if constexpr (std::is_same_v<T, bfloat16>) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    } else {
      static_assert(std::is_same_v<T, float16>);
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    }
    return word;
  }
  template <class T>
  static __device__ accumulator_t<T> widen(T value) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
    } else if constexpr (std::is_same_v<T, float16>) {
      float result;
      asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
      return result;
    } else {
      return value;
    }
  }
  template <class T>
  static __device__ T narrow(accumulator_t<T> value) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      T result;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
      return result;
    } else if constexpr (std::is_same_v<T, float16>) {
      T result;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
      return result;
    } else {
      return value;
    }
  }

  static __device__ float exp(float x) { return ::expf(x); }
  static __device__ float exp2(float x) { return ::exp2f(x); }
  static __device__ float fast_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
  static __device__ float max(float a, float b) { return ::fmaxf(a, b); }
  static __device__ float log(float x) { return ::logf(x); }
  static __device__ float tanh(float x) { return ::tanhf(x); }
  static __device__ float erf(float x) { return ::erff(x); }
  static __device__ float sqrt(float x) { return ::sqrtf(x); }
  static __device__ float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
  static __device__ double exp(double x) { return ::exp(x); }
  static __device__ double exp2(double x) { return ::exp2(x); }
  static __device__ double log(double x) { return ::log(x); }
  static __device__ double tanh(double x) { return ::tanh(x); }
  static __device__ double erf(double x) { return ::erf(x); }
  static __device__ double sqrt(double x) { return ::sqrt(x); }
  static __device__ double fma(double a, double b, double c) { return ::fma(a, b, c); }
  static __device__ void sin_cos(double x, double& sin, double& cos) { ::sincos(x, &sin, &cos); }

 private:
  unsigned shared_used_ = 0;
};

namespace impl {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run_kernel(const __grid_constant__ Kernel kernel) {
  CudaContext context;
  kernel(context);
}

}  // namespace impl

#endif  // __CUDACC__

}  // namespace heed::inline HEED_ABI
