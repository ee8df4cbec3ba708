// Workspace: scratch memory that the caller owns and hands to forward(), so that a second forward allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "heed/core/shape.hpp"
#include "heed/core/view.hpp"

namespace heed {

namespace detail {

inline constexpr std::size_t workspace_alignment = 64;

// The memory that a workspace owns. (heed/cuda/tensor.hpp has that of devices.)
template <class Space>
class WorkspaceMemory;

template <>
class WorkspaceMemory<Host> {
 public:
  HEED_INLINE WorkspaceMemory() noexcept = default;
  HEED_INLINE explicit WorkspaceMemory(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{workspace_alignment}))) {}
  HEED_INLINE WorkspaceMemory(WorkspaceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  HEED_INLINE WorkspaceMemory& operator=(WorkspaceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  HEED_INLINE ~WorkspaceMemory() {
    ::operator delete (static_cast<void*>(data_), std::align_val_t{workspace_alignment});
  }
  HEED_INLINE std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace detail

// A stack of scratch memory. Ask a layer or door for workspace_size(…) and make one of that many bytes, or let a
// Workspace borrow a buffer of yours. One thread at a time; its content means nothing between calls.
//
// The same code measures and takes: on a Workspace made by measuring(), take() only counts, and size_needed() is the
// result. A kernel's sizes therefore cannot differ from what it asks for.
//
// Workspace is BasicWorkspace<Host>; a device has a workspace of its own memory.
template <class Space>
class BasicWorkspace {
 public:
  HEED_INLINE BasicWorkspace() noexcept = default;

  // Owns `bytes` of memory, aligned to 64.
  HEED_INLINE explicit BasicWorkspace(std::size_t bytes) requires std::is_same_v<Space, Host>
      : BasicWorkspace(bytes > 0 ? detail::WorkspaceMemory<Space>(round_up(bytes)) : detail::WorkspaceMemory<Space>(),
                       round_up(bytes)) {}

  // Takes over memory of `bytes`, a multiple of 64.
  HEED_INLINE BasicWorkspace(detail::WorkspaceMemory<Space> memory, std::size_t bytes) noexcept
      : owned_(std::move(memory)), memory_(owned_.data()), size_(bytes) {}

  // Borrows a buffer; up to 63 bytes at its start are lost to alignment.
  HEED_INLINE explicit BasicWorkspace(std::span<std::byte> buffer) noexcept requires std::is_same_v<Space, Host> {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    const std::size_t lost = (alignment - address % alignment) % alignment;
    if (buffer.size() > lost) {
      memory_ = buffer.data() + lost;
      size_ = (buffer.size() - lost) / alignment * alignment;
    }
  }

  BasicWorkspace(const BasicWorkspace&) = delete;
  BasicWorkspace& operator=(const BasicWorkspace&) = delete;
  HEED_INLINE BasicWorkspace(BasicWorkspace&& other) noexcept { swap(other); }
  HEED_INLINE BasicWorkspace& operator=(BasicWorkspace&& other) noexcept {
    BasicWorkspace moved(std::move(other));
    swap(moved);
    return *this;
  }
  HEED_INLINE ~BasicWorkspace() = default;

  // A workspace without memory that counts what would be taken.
  HEED_INLINE static BasicWorkspace measuring() noexcept {
    BasicWorkspace workspace;
    workspace.measuring_ = true;
    return workspace;
  }

  HEED_INLINE std::size_t size() const noexcept { return size_; }
  HEED_INLINE std::size_t size_left() const noexcept { return size_ - used_; }
  // The most bytes that were taken at one time.
  HEED_INLINE std::size_t size_needed() const noexcept { return needed_; }

  // Room for `count` elements, 64-byte aligned; null while measuring. Doors check the size first: there is no way to
  // fail.
  template <class T>
  HEED_INLINE T* take(Index count) noexcept {
    const std::size_t begin = used_;
    used_ += round_up(static_cast<std::size_t>(count) * sizeof(T));
    if (used_ > needed_) needed_ = used_;
    if (measuring_) return nullptr;
    HEED_ASSERT(used_ <= size_);
    return reinterpret_cast<T*>(memory_ + begin);
  }

  // A contiguous tensor in the workspace.
  template <class T, int Rank>
  HEED_INLINE View<T, Rank, Space> take(const Index (&extents)[Rank]) noexcept {
    Index count = 1;
    for (const Index extent : extents) count *= extent;
    return View<T, Rank, Space>(take<T>(count), extents);
  }

  // Gives everything taken during its life back when it ends.
  class Frame {
   public:
    HEED_INLINE explicit Frame(BasicWorkspace& workspace) noexcept : workspace_(workspace), used_(workspace.used_) {}
    HEED_INLINE ~Frame() { workspace_.used_ = used_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    BasicWorkspace& workspace_;
    std::size_t used_;
  };

 private:
  static constexpr std::size_t alignment = detail::workspace_alignment;
  HEED_INLINE static constexpr std::size_t round_up(std::size_t bytes) noexcept {
    return (bytes + alignment - 1) / alignment * alignment;
  }
  HEED_INLINE void swap(BasicWorkspace& other) noexcept {
    owned_ = std::move(other.owned_);  // which exchanges them
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(used_, other.used_);
    std::swap(needed_, other.needed_);
    std::swap(measuring_, other.measuring_);
  }

  detail::WorkspaceMemory<Space> owned_;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::size_t needed_ = 0;
  bool measuring_ = false;
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// At a door: is what is left of the workspace enough?
template <class Space>
Problem check_workspace(const char* door, const BasicWorkspace<Space>& workspace, std::size_t needed) noexcept {
  if (workspace.size_left() >= needed) return {};
  return problem_at(ErrorKind::workspace, door, "workspace")
      .append("needs ")
      .append(static_cast<Index>(needed))
      .append(" bytes, has ")
      .append(static_cast<Index>(workspace.size_left()));
}

}  // namespace heed::inline HEED_ABI
