// What a header says differently to nvcc.
#pragma once

#include "heed/config.hpp"

// HEED_ANYWHERE: inline, for the host and for kernels of a device.
// HEED_CPU_KERNELS: 0 where nvcc compiles. It is to see neither xsimd nor the kernels of Simd and Cpu: what it made of
// them would differ from what the host's compiler makes of them in another unit.
#if defined(__CUDACC__)
#define HEED_CPU_KERNELS 0
#define HEED_ANYWHERE __host__ __device__ inline __attribute__((always_inline))
#else
#define HEED_CPU_KERNELS 1
#define HEED_ANYWHERE HEED_INLINE
#endif
