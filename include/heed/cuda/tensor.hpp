// Tensors and workspaces in the memory of a device.
#pragma once

#include <cstddef>
#include <utility>

#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"

namespace heed {

// The space of memory that a runtime gives: of CudaRuntime, or of HostRuntime.
template <class Runtime>
struct DeviceMemory {};

namespace detail {

// Memory of a runtime, given back on its stream.
template <class Runtime>
class DeviceBytes {
 public:
  DeviceBytes() noexcept = default;
  DeviceBytes(const Runtime& runtime, std::size_t bytes)
      : runtime_(runtime), data_(bytes > 0 ? runtime.allocate(bytes) : nullptr), bytes_(bytes) {}
  DeviceBytes(DeviceBytes&& other) noexcept { swap(other); }
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBytes() {
    if (data_ != nullptr) runtime_.release(data_);
  }
  void swap(DeviceBytes& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  // Of memory that is not empty.
  const Runtime& runtime() const noexcept { return runtime_; }

 private:
  Runtime runtime_ = Runtime::none();
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

template <class Runtime>
class WorkspaceMemory<DeviceMemory<Runtime>> {
 public:
  WorkspaceMemory() noexcept = default;
  WorkspaceMemory(const Runtime& runtime, std::size_t bytes) : bytes_(runtime, bytes) {}
  std::byte* data() const noexcept { return static_cast<std::byte*>(bytes_.data()); }

 private:
  DeviceBytes<Runtime> bytes_;
};

}  // namespace detail

// Owns memory of a device; copies are deep, moves are cheap. It is freed on the stream it came from, after what was
// asked for there before, so a tensor may die while kernels that read it are still to run; the stream must live as long.
template <class T, int Rank, class Runtime>
class Tensor<T, Rank, DeviceMemory<Runtime>> {
  static_assert(std::is_trivially_copyable_v<T>, "tensor elements are plain numbers");

 public:
  using element_type = T;
  using value_type = T;
  using space_type = DeviceMemory<Runtime>;

  Tensor() noexcept = default;

  // All zero. `device` is a Device<Runtime>. Allocates. Extents may be of any integer type, or mixed.
  template <class Device>
  requires std::is_same_v<typename Device::space_type, space_type> Tensor(const Device& device,
                                                                          const Index (&extents)[Rank])
      : Tensor(device.runtime(), View<const T, Rank>(nullptr, extents)) {
    if (bytes_.size() > 0) device.runtime().zero(bytes_.data(), bytes_.size());
  }
  template <class Device, std::integral I>
  requires std::is_same_v<typename Device::space_type, space_type> Tensor(const Device& device,
                                                                          const I (&extents)[Rank]) {
    Index list[Rank];
    for (int axis = 0; axis < Rank; ++axis) list[axis] = static_cast<Index>(extents[axis]);
    Tensor tensor(device, list);
    swap(tensor);
  }

  // A copy of host memory, made contiguous. Allocates; waits for the copy.
  template <class Device>
  requires std::is_same_v<typename Device::space_type, space_type> Tensor(const Device& device,
                                                                          View<const T, Rank> source)
      : Tensor(device.runtime(), source) {
    if (bytes_.size() == 0) return;
    if (source.is_contiguous()) {
      upload(device.runtime(), source.data_handle());
    } else {
      upload(device.runtime(), Tensor<T, Rank>(source).data());
    }
  }

  Tensor(const Tensor& other) {
    if (other.bytes_.size() > 0) {
      Tensor copy(other.bytes_.runtime(), other.view_);
      other.bytes_.runtime().copy(copy.bytes_.data(), other.bytes_.data(), other.bytes_.size());
      swap(copy);
    } else {
      view_ = other.view_;
    }
  }
  Tensor(Tensor&& other) noexcept : bytes_(std::move(other.bytes_)), view_(std::exchange(other.view_, {})) {}
  Tensor& operator=(const Tensor& other) {
    if (this != &other) {
      Tensor copy(other);
      swap(copy);
    }
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Tensor() = default;

  void swap(Tensor& other) noexcept {
    bytes_.swap(other.bytes_);
    std::swap(view_, other.view_);
  }

  static constexpr int rank() noexcept { return Rank; }
  Index extent(int axis) const noexcept { return view_.extent(axis); }
  Index size() const noexcept { return view_.size(); }
  bool empty() const noexcept { return view_.empty(); }
  // Not for the host to follow.
  T* data() noexcept { return view_.data_handle(); }
  const T* data() const noexcept { return view_.data_handle(); }

  View<T, Rank, space_type> view() noexcept { return view_; }
  View<const T, Rank, space_type> view() const noexcept { return view_; }
  operator View<T, Rank, space_type>() noexcept { return view_; }
  operator View<const T, Rank, space_type>() const noexcept { return view_; }

 private:
  // Contiguous, of the same extents, with nothing in it.
  template <class Like>
  Tensor(const Runtime& runtime, const Like& like)
      : bytes_(runtime, static_cast<std::size_t>(like.size()) * sizeof(T)) {
    Index extents[Rank];
    for (int axis = 0; axis < Rank; ++axis) extents[axis] = like.extent(axis);
    view_ = View<T, Rank, space_type>(static_cast<T*>(bytes_.data()), extents);
  }
  void upload(const Runtime& runtime, const T* from) {
    runtime.copy(bytes_.data(), from, bytes_.size());
    runtime.sync();
  }

  detail::DeviceBytes<Runtime> bytes_;
  View<T, Rank, space_type> view_;
};

}  // namespace heed
