// View: a tensor somebody else owns, as pointer, extents and strides. The currency of every public function.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "heed/core/anywhere.hpp"
#include "heed/fwd.hpp"

namespace heed {

// Every extent, stride and element count. 64 bits, signed: 32 · 20 · 2000 · 2000 elements are more than 2^31.
using Index = std::ptrdiff_t;

// The memory a tensor lives in, as a type: a host view handed to a device backend does not compile.
struct Host {};

// A non-owning, trivially copyable tensor of `Rank` axes; member names follow std::mdspan.
//
// Layout: element (i0, i1, …) is data_handle()[i0 · stride(0) + i1 · stride(1) + …]. Doors ask that the last axis is
// contiguous; leading axes may have any positive stride (a permuted or cut tensor is fine), stride 0 repeats an input
// along that axis, and an axis of extent 1 may have any stride. A default-made View has no data: it stands for an
// optional tensor that is absent. Extents are not checked here but at the door that uses them. (fwd.hpp: Space = Host.)
template <class T, int Rank, class Space>
class View {
  static_assert(Rank >= 1, "a View has at least one axis");

 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using index_type = Index;
  using space_type = Space;

  HEED_INLINE constexpr View() noexcept = default;

  // Row-major and contiguous: View<float, 2> x(data, {rows, columns}). Extents may be of any integer type, or mixed.
  HEED_ANYWHERE constexpr View(T* data, const Index (&extents)[Rank]) noexcept : data_(data) {
    Index stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      extents_[axis] = extents[axis];
      strides_[axis] = stride;
      stride *= extents_[axis];
    }
  }
  template <std::integral I>
  HEED_ANYWHERE constexpr View(T* data, const I (&extents)[Rank]) noexcept : data_(data) {
    Index list[Rank] = {};
    for (int axis = 0; axis < Rank; ++axis) list[axis] = static_cast<Index>(extents[axis]);
    *this = View(data, list);
  }

  // With strides, counted in elements.
  HEED_ANYWHERE constexpr View(T* data, const Index (&extents)[Rank], const Index (&strides)[Rank]) noexcept
      : data_(data) {
    for (int axis = 0; axis < Rank; ++axis) {
      extents_[axis] = extents[axis];
      strides_[axis] = strides[axis];
    }
  }
  template <std::integral I, std::integral S>
  HEED_ANYWHERE constexpr View(T* data, const I (&extents)[Rank], const S (&strides)[Rank]) noexcept : data_(data) {
    for (int axis = 0; axis < Rank; ++axis) {
      extents_[axis] = static_cast<Index>(extents[axis]);
      strides_[axis] = static_cast<Index>(strides[axis]);
    }
  }

  // A span is a view of one axis.
  template <class U, std::size_t Extent>
  requires(Rank == 1 && std::is_convertible_v<U (*)[], T (*)[]> && std::is_same_v<Space, Host>) HEED_INLINE
      constexpr View(std::span<U, Extent> span) noexcept
      : View(span.data(), {static_cast<Index>(span.size())}) {}

  // View<T> -> View<const T>.
  template <class U>
  requires(!std::is_same_v<U, T> && std::is_same_v<const U, T>) HEED_ANYWHERE
      constexpr View(const View<U, Rank, Space>& other) noexcept
      : data_(other.data_handle()) {
    for (int axis = 0; axis < Rank; ++axis) {
      extents_[axis] = other.extent(axis);
      strides_[axis] = other.stride(axis);
    }
  }

  // A backend cannot reach other memory than its own: copy the tensor there first.
  template <class TensorInOtherMemory>
  requires(!std::is_same_v<typename TensorInOtherMemory::space_type, Space>) constexpr View(
      const TensorInOtherMemory&) = delete;

  static constexpr int rank() noexcept { return Rank; }
  HEED_ANYWHERE constexpr Index extent(int axis) const noexcept { return extents_[axis]; }
  HEED_ANYWHERE constexpr Index stride(int axis) const noexcept { return strides_[axis]; }
  HEED_ANYWHERE constexpr T* data_handle() const noexcept { return data_; }

  // The number of elements.
  HEED_ANYWHERE constexpr Index size() const noexcept {
    Index count = 1;
    for (int axis = 0; axis < Rank; ++axis) count *= extents_[axis];
    return count;
  }
  HEED_ANYWHERE constexpr bool empty() const noexcept { return size() == 0; }

  // False for a default-made View: the optional tensor is absent.
  HEED_ANYWHERE constexpr bool present() const noexcept { return data_ != nullptr; }

  // True if the elements lie row-major without gaps.
  HEED_ANYWHERE constexpr bool is_contiguous() const noexcept {
    if (empty()) return true;
    Index stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      if (extents_[axis] != 1 && strides_[axis] != stride) return false;
      stride *= extents_[axis];
    }
    return true;
  }

  template <class... I>
  requires(sizeof...(I) == Rank) HEED_ANYWHERE constexpr T& operator()(I... indices) const noexcept {
    static_assert(std::is_same_v<Space, Host>, "heed: this view shows device memory; copy it to the host to read it");
    return *pointer(static_cast<Index>(indices)...);
  }

  // The address of an element, or of the first one under the leading indices given: row(b, t) of a [B, T, H, D] view.
  template <class... I>
  requires(sizeof...(I) <= Rank) HEED_ANYWHERE constexpr T* pointer(I... indices) const noexcept {
    const Index list[] = {static_cast<Index>(indices)..., 0};
    Index offset = 0;
    for (int axis = 0; axis < static_cast<int>(sizeof...(I)); ++axis) offset += list[axis] * strides_[axis];
    return data_ + offset;
  }

  // The view under index `index` of the first axis.
  HEED_ANYWHERE constexpr View<T, Rank - 1, Space> operator[](Index index) const noexcept requires(Rank > 1) {
    Index extents[Rank - 1] = {};
    Index strides[Rank - 1] = {};
    for (int axis = 1; axis < Rank; ++axis) {
      extents[axis - 1] = extents_[axis];
      strides[axis - 1] = strides_[axis];
    }
    return {data_ + index * strides_[0], extents, strides};
  }

  // Entries begin … begin + count − 1 of one axis.
  HEED_ANYWHERE constexpr View slice(int axis, Index begin, Index count) const noexcept {
    View part = *this;
    part.data_ += begin * strides_[axis];
    part.extents_[axis] = count;
    return part;
  }

  // [..., outer · inner] -> [..., outer, inner]: a projection's output as heads, without a copy.
  HEED_ANYWHERE constexpr View<T, Rank + 1, Space> split_last(Index outer, Index inner) const noexcept {
    Index extents[Rank + 1] = {};
    Index strides[Rank + 1] = {};
    for (int axis = 0; axis < Rank - 1; ++axis) {
      extents[axis] = extents_[axis];
      strides[axis] = strides_[axis];
    }
    extents[Rank - 1] = outer;
    strides[Rank - 1] = inner * strides_[Rank - 1];
    extents[Rank] = inner;
    strides[Rank] = strides_[Rank - 1];
    return {data_, extents, strides};
  }

  // [..., outer, inner] -> [..., outer · inner]: heads as one row. The last two axes must be contiguous together.
  HEED_ANYWHERE constexpr View<T, Rank - 1, Space> merge_last() const noexcept requires(Rank > 1) {
    HEED_ASSERT(extents_[Rank - 2] <= 1 || strides_[Rank - 2] == extents_[Rank - 1] * strides_[Rank - 1]);
    Index extents[Rank - 1] = {};
    Index strides[Rank - 1] = {};
    for (int axis = 0; axis < Rank - 1; ++axis) {
      extents[axis] = extents_[axis];
      strides[axis] = strides_[axis];
    }
    extents[Rank - 2] = extents_[Rank - 2] * extents_[Rank - 1];
    strides[Rank - 2] = strides_[Rank - 1];
    return {data_, extents, strides};
  }

  // The same elements with the axes in another order: [B, H, T, D] -> [B, T, H, D] is permute({0, 2, 1, 3}).
  HEED_ANYWHERE constexpr View permute(const int (&order)[Rank]) const noexcept {
    View result = *this;
    for (int axis = 0; axis < Rank; ++axis) {
      result.extents_[axis] = extents_[order[axis]];
      result.strides_[axis] = strides_[order[axis]];
    }
    return result;
  }

  // A contiguous view as a span over all its elements.
  HEED_INLINE constexpr std::span<T> span() const noexcept {
    HEED_ASSERT(is_contiguous());
    return {data_, static_cast<std::size_t>(size())};
  }

 private:
  T* data_ = nullptr;
  Index extents_[Rank] = {};  // plain arrays: nvcc and C++20's constexpr take them everywhere
  Index strides_[Rank] = {};
};

}  // namespace heed
