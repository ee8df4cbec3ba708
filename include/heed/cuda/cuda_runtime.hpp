// CudaRuntime: a CUDA device, by the caller's stream. Kernels are launched where nvcc compiles; the rest any compiler can.
#pragma once

#include <cuda_runtime.h>

#include "heed/core/shape.hpp"
#include "heed/cuda/cuda_context.hpp"

namespace heed::inline HEED_ABI {

// Everything happens on this stream and on the device it belongs to, which must be the current one. The stream is the
// caller's and must outlive tensors and workspaces of it. The default streams are refused: they wait for others, or
// others for them. Every status is looked at where it comes; what kernels do wrong later comes from sync().
class CudaRuntime {
 public:
  explicit CudaRuntime(cudaStream_t stream) : stream_(stream) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
      raise(problem_at(ErrorKind::option, "CudaRuntime", "stream").append("must not be a default stream"));
    }
  }

  // For what has no memory yet.
  static CudaRuntime none() noexcept { return CudaRuntime(); }

  static constexpr const char* name() noexcept { return "cuda"; }
  cudaStream_t stream() const noexcept { return stream_; }

  void* allocate(std::size_t bytes) const {
    void* memory = nullptr;
    check(::cudaMallocAsync(&memory, bytes, stream_), "allocating", bytes, "bytes");
    return memory;
  }
  void release(void* memory) const noexcept { static_cast<void>(::cudaFreeAsync(memory, stream_)); }
  void copy(void* to, const void* from, std::size_t bytes) const {
    check(::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying", bytes, "bytes");
  }
  void zero(void* memory, std::size_t bytes) const {
    check(::cudaMemsetAsync(memory, 0, bytes, stream_), "zeroing", bytes, "bytes");
  }
  void sync() const { check(::cudaStreamSynchronize(stream_), "waiting for", 1, "stream"); }

  template <class Kernel>
  void launch([[maybe_unused]] const Kernel& kernel, [[maybe_unused]] Index blocks) const {
#if defined(__CUDACC__)
    static_assert(sizeof(Kernel) <= 4096, "a kernel's arguments must fit into 4 KB");
    if (blocks > 0x7fffffff) raise(Problem(ErrorKind::option, "heed: CUDA: too many blocks: ").append(blocks));
    const auto shared_bytes = static_cast<std::size_t>(kernel.shared_bytes());
    constexpr std::size_t without_asking = 48 * 1024;
    if (shared_bytes > without_asking) {
      check(::cudaFuncSetAttribute(impl::run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes)),
            "setting shared memory to", shared_bytes, "bytes");
    }
    impl::run_kernel<Kernel><<<static_cast<unsigned>(blocks), Kernel::threads, shared_bytes, stream_>>>(kernel);
    check_launch(::cudaGetLastError(), Kernel::name, blocks);
#else
    static_assert(sizeof(Kernel) == 0, "heed: kernels for CUDA are compiled by nvcc: put this into a .cu file");
#endif
  }

  static void check_launch(cudaError_t status, const char* kernel, Index blocks) {
    if (status == cudaSuccess) return;
    Problem what(ErrorKind::system, "launching ");
    what.append(kernel).append(" in");
    check(status, what.text(), static_cast<std::size_t>(blocks), "blocks");
  }
  // Throws if a call of CUDA's failed: "heed: CUDA: allocating 1024 bytes: cudaErrorMemoryAllocation (out of memory)".
  static void check(cudaError_t status, const char* what, std::size_t number, const char* of) {
    if (status == cudaSuccess) return;
    Problem problem(ErrorKind::system, "heed: CUDA: ");
    problem.append(what).append(" ").append(static_cast<Index>(number)).append(" ").append(of).append(": ");
    problem.append(::cudaGetErrorName(status)).append(" (").append(::cudaGetErrorString(status)).append(")");
    raise(problem);
  }

 private:
  CudaRuntime() noexcept = default;

  cudaStream_t stream_ = nullptr;
};

}  // namespace heed::inline HEED_ABI
