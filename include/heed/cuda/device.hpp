// Device: the backend of kernels that run beside the host: on a CUDA device, or, for tests, on what imitates one.
#pragma once

#include <cstddef>

#include "heed/backend/backend.hpp"
#include "heed/cuda/tensor.hpp"

namespace heed::inline HEED_ABI {

// heed::Cuda cuda(stream);                                  Device<CudaRuntime>, heed/cuda.hpp
// heed::Device<heed::HostRuntime> device(runtime);          heed/cuda/host_runtime.hpp: the tests'
//
// A handle: copies are the same device and stream. Everything it is asked for is put on the stream in the order of the
// calls and runs beside the host; only sync(), and what says so, waits for it. Views of its memory are
// View<T, Rank, DeviceMemory<Runtime>>: one of host memory in their place does not compile.
//
// Errors of everything that talks to the runtime: SystemError, saying what was being done and what the driver said.
template <class Runtime>
class Device {
 public:
  using runtime_type = Runtime;
  using space_type = DeviceMemory<Runtime>;
  static constexpr bool is_device = true;

  explicit Device(const Runtime& runtime) noexcept : runtime_(runtime) {}
  template <class Stream>
  requires std::is_constructible_v<Runtime, const Stream&>
  explicit Device(const Stream& stream) : runtime_(stream) {}

  static constexpr const char* name() noexcept { return Runtime::name(); }
  // Operations divide their scratch by themselves.
  static constexpr int concurrency() noexcept { return 1; }
  const Runtime& runtime() const noexcept { return runtime_; }

  // Waits until everything asked for before is done.
  void sync() const { runtime_.sync(); }

  // Scratch for layers and doors. Allocates.
  BasicWorkspace<space_type> make_workspace(std::size_t bytes) const {
    constexpr std::size_t unit = detail::workspace_alignment;
    const std::size_t rounded = (bytes + unit - 1) / unit * unit;
    return {detail::WorkspaceMemory<space_type>(runtime_, rounded), rounded};
  }

  // Between contiguous tensors of one shape, in any direction. Does not wait: host memory must stay as it is until
  // sync(), in both directions. Errors: ShapeError.
  template <class From, class To>
  void copy(const From& from, To&& to) const {
    using T = scalar_t<From>;
    constexpr int rank = From::rank();
    const View<const T, rank, typename From::space_type> source(from);
    const auto target = output_view(to);
    raise_if(check_copy(source, target));
    if (!source.empty()) {
      runtime_.copy(target.data_handle(), source.data_handle(), static_cast<std::size_t>(source.size()) * sizeof(T));
    }
  }

  // A copy in the host's memory. Allocates; waits.
  template <class From>
  Tensor<scalar_t<From>, From::rank()> to_host(const From& from) const {
    Index extents[From::rank()];
    for (int axis = 0; axis < From::rank(); ++axis) extents[axis] = from.extent(axis);
    Tensor<scalar_t<From>, From::rank()> result(extents);
    copy(from, result);
    sync();
    return result;
  }

  // Runs a kernel (docs/cuda.md says what one is) in this many blocks; none if there are none.
  template <class Kernel>
  void launch(const Kernel& kernel, Index blocks) const {
    if (blocks > 0) runtime_.launch(kernel, blocks);
  }

 private:
  template <class From, class To>
  static Problem check_copy(const From& from, const To& to) noexcept {
    bool same = From::rank() == To::rank() && from.is_contiguous() && to.is_contiguous();
    for (int axis = 0; same && axis < From::rank(); ++axis) same = from.extent(axis) == to.extent(axis);
    if (same) return {};
    Problem problem = problem_at(ErrorKind::shape, "Device::copy", "to");
    problem.append("expected contiguous tensors of one shape, got ");
    detail::append_extents(problem, from);
    problem.append(from.is_contiguous() ? "" : " with gaps").append(" and ");
    detail::append_extents(problem, to);
    return problem.append(to.is_contiguous() ? "" : " with gaps");
  }

  Runtime runtime_;
};

// A view of device memory as kernels see it: there it is their own memory.
template <class T, int Rank, class Runtime>
HEED_INLINE View<T, Rank> in_kernel(const View<T, Rank, DeviceMemory<Runtime>>& view) noexcept {
  return for_check(view);
}

}  // namespace heed::inline HEED_ABI
