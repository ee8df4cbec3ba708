// Tensor: a contiguous, row-major tensor that owns its memory.
#pragma once

#include <concepts>
#include <cstring>
#include <new>
#include <utility>

#include "heed/core/view.hpp"

namespace heed {

// In the host's memory (heed/cuda/tensor.hpp has those of devices). Owns 64-byte-aligned memory of `Rank` axes; copies are deep, moves are cheap, elements start at zero. Converts to
// View wherever one is asked for. Allocation: in the constructors and in copies; std::bad_alloc (abort without
// exceptions) if there is no memory.
template <class T, int Rank, class Space>
class Tensor {
  static_assert(std::is_trivially_copyable_v<T>, "tensor elements are plain numbers");

 public:
  using element_type = T;
  using value_type = T;
  using space_type = Space;

  HEED_INLINE Tensor() noexcept = default;

  // All zero. Extents may be of any integer type, or mixed as in {2, length, 64}.
  HEED_INLINE explicit Tensor(const Index (&extents)[Rank]) : view_(nullptr, extents) {
    allocate();
    if (!view_.empty()) std::memset(static_cast<void*>(view_.data_handle()), 0, bytes());
  }
  template <std::integral I>
  HEED_INLINE explicit Tensor(const I (&extents)[Rank]) {
    Index list[Rank];
    for (int axis = 0; axis < Rank; ++axis) list[axis] = static_cast<Index>(extents[axis]);
    Tensor tensor(list);
    swap(tensor);
  }

  // A deep copy of any view of the same rank, made contiguous.
  HEED_INLINE explicit Tensor(View<const T, Rank> source) {
    Index list[Rank];
    for (int axis = 0; axis < Rank; ++axis) list[axis] = source.extent(axis);
    view_ = View<T, Rank>(nullptr, list);
    allocate();
    copy_axis<0>(source, view_.data_handle(), source.data_handle());
  }

  HEED_INLINE Tensor(const Tensor& other) : view_(other.view_) {
    allocate();
    if (!view_.empty()) std::memcpy(static_cast<void*>(view_.data_handle()), other.view_.data_handle(), bytes());
  }
  HEED_INLINE Tensor(Tensor&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  HEED_INLINE Tensor& operator=(const Tensor& other) {
    if (this != &other) {
      Tensor copy(other);
      swap(copy);
    }
    return *this;
  }
  HEED_INLINE Tensor& operator=(Tensor&& other) noexcept {
    Tensor moved(std::move(other));
    swap(moved);
    return *this;
  }
  HEED_INLINE ~Tensor() { ::operator delete (static_cast<void*>(view_.data_handle()), std::align_val_t{alignment}); }

  HEED_INLINE void swap(Tensor& other) noexcept { std::swap(view_, other.view_); }

  static constexpr int rank() noexcept { return Rank; }
  HEED_INLINE Index extent(int axis) const noexcept { return view_.extent(axis); }
  HEED_INLINE Index size() const noexcept { return view_.size(); }
  HEED_INLINE bool empty() const noexcept { return view_.empty(); }
  HEED_INLINE T* data() noexcept { return view_.data_handle(); }
  HEED_INLINE const T* data() const noexcept { return view_.data_handle(); }

  HEED_INLINE View<T, Rank> view() noexcept { return view_; }
  HEED_INLINE View<const T, Rank> view() const noexcept { return view_; }
  HEED_INLINE operator View<T, Rank>() noexcept { return view_; }
  HEED_INLINE operator View<const T, Rank>() const noexcept { return view_; }
  HEED_INLINE std::span<T> span() noexcept { return view_.span(); }
  HEED_INLINE std::span<const T> span() const noexcept { return view().span(); }

  template <class... I>
  requires(sizeof...(I) == Rank) HEED_INLINE T& operator()(I... indices) noexcept { return view_(indices...); }
  template <class... I>
  requires(sizeof...(I) == Rank) HEED_INLINE const T& operator()(I... indices) const noexcept {
    return view_(indices...);
  }

  HEED_INLINE void fill(T value) noexcept {
    for (Index i = 0; i < size(); ++i) view_.data_handle()[i] = value;
  }

 private:
  static constexpr std::size_t alignment = 64;

  HEED_INLINE std::size_t bytes() const noexcept { return static_cast<std::size_t>(size()) * sizeof(T); }

  // Gives view_, whose extents are set, memory of its own.
  HEED_INLINE void allocate() {
    T* data = view_.empty() ? nullptr : static_cast<T*>(::operator new (bytes(), std::align_val_t{alignment}));
    Index list[Rank];
    for (int axis = 0; axis < Rank; ++axis) list[axis] = view_.extent(axis);
    view_ = View<T, Rank>(data, list);
  }

  template <int Axis>
  HEED_INLINE T* copy_axis(const View<const T, Rank>& source, T* to, const T* from) {
    for (Index i = 0; i < source.extent(Axis); ++i, from += source.stride(Axis)) {
      if constexpr (Axis + 1 == Rank) {
        *to++ = *from;
      } else {
        to = copy_axis<Axis + 1>(source, to, from);
      }
    }
    return to;
  }

  View<T, Rank> view_;
};

// The element type of a View or Tensor, without const. Doors deduce it from their output and convert their inputs.
template <class Tensorlike>
using scalar_t = typename std::remove_cvref_t<Tensorlike>::value_type;

// A View of Rank axes for anything a door accepts as output: View<T> or Tensor<T>&.
template <class Tensorlike>
HEED_INLINE auto output_view(Tensorlike&& tensor) noexcept {
  using Given = std::remove_cvref_t<Tensorlike>;
  return View<scalar_t<Tensorlike>, Given::rank(), typename Given::space_type>(tensor);
}

}  // namespace heed
