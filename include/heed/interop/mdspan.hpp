// std::mdspan as heed's views, and heed's views as std::mdspan: the same memory, nothing is copied. Where the standard
// library has it: C++23, and __cpp_lib_mdspan in <version>.
#pragma once

#include <version>

#if !defined(__cpp_lib_mdspan)
#error "heed/interop/mdspan.hpp needs std::mdspan: C++23 and a standard library that has it (libc++ 18, for one)."
#else
#include <array>
#include <mdspan>

#include "heed/core/tensor.hpp"
#include "heed/interop/elements.hpp"

namespace heed::inline HEED_ABI {

// A view of an mdspan of 1 axis or more, with its axes in the same order and its strides.
//
// The elements are float, double, heed::bfloat16, heed::float16, bool, std::int64_t or std::int8_t, const or not.
// layout_right fits always; with layout_stride the last axis may turn out not to be contiguous, which the operation that
// is handed the view refuses. Refused at compile time: layout_left of more than one axis, layouts without strides,
// accessors other than the default one. Allocates nothing.
template <class T, class Extents, class Layout, class Accessor>
auto as_view(const std::mdspan<T, Extents, Layout, Accessor>& span) noexcept {
  using Span = std::mdspan<T, Extents, Layout, Accessor>;
  constexpr int rank = static_cast<int>(Span::rank());
  constexpr bool has_strides = Span::is_always_strided() && rank > 0;
  constexpr bool is_plain = std::is_same_v<Accessor, std::default_accessor<T> >;
  constexpr bool is_known = impl::is_tensor_element<std::remove_const_t<T> >;
  constexpr bool is_row_major = rank == 1 || !std::is_same_v<Layout, std::layout_left>;
  if constexpr (!has_strides) {
    static_assert(has_strides, "a view has one axis or more, and a stride for each");
  } else if constexpr (!is_plain) {
    static_assert(is_plain, "a view reads memory as it is: the mdspan must have std::default_accessor");
  } else if constexpr (!is_known) {
    static_assert(is_known, "heed has views of float, double, bfloat16, float16, bool, std::int64_t and std::int8_t");
  } else if constexpr (!is_row_major) {
    static_assert(is_row_major, "heed's views are row-major: the mdspan must be of layout_right or layout_stride");
  } else {
    Index extents[rank];
    Index strides[rank];
    for (int axis = 0; axis < rank; ++axis) {
      const auto r = static_cast<std::size_t>(axis);
      extents[axis] = static_cast<Index>(span.extent(r));
      strides[axis] = static_cast<Index>(span.stride(r));
    }
    return View<T, rank>(span.data_handle(), extents, strides);
  }
}

// A view as an mdspan with its strides. Allocates nothing. Errors: ShapeError for a view with repeated elements or
// backward strides, which an mdspan cannot be.
template <class T, int Rank>
auto as_mdspan(View<T, Rank> view) {
  using Extents = std::dextents<Index, static_cast<std::size_t>(Rank)>;
  std::array<Index, static_cast<std::size_t>(Rank)> extents;
  std::array<Index, static_cast<std::size_t>(Rank)> strides;
  Index row_major = 1;
  for (int axis = Rank - 1; axis >= 0; --axis) {
    const Index extent = view.extent(axis);
    if (!view.empty() && extent > 1 && view.stride(axis) <= 0) {
      raise_if(problem_at(ErrorKind::shape, "as_mdspan", "view")
                   .append("every stride must be 1 or more, got ")
                   .append(view.stride(axis))
                   .append(" on axis ")
                   .append(axis));
    }
    const auto r = static_cast<std::size_t>(axis);
    extents[r] = extent;
    // The strides of an mdspan keep its rules even where no element hangs on them.
    strides[r] = view.empty() ? row_major : extent == 1 ? 1 : view.stride(axis);
    row_major *= extent > 0 ? extent : 1;
  }
  return std::mdspan<T, Extents, std::layout_stride>(view.data_handle(),
                                                     std::layout_stride::mapping<Extents>(Extents(extents), strides));
}

// A tensor as an mdspan of layout_right. The tensor must outlive it. Allocates nothing.
template <class T, int Rank>
auto as_mdspan(Tensor<T, Rank>& tensor) noexcept {
  std::array<Index, static_cast<std::size_t>(Rank)> extents;
  for (int axis = 0; axis < Rank; ++axis) extents[static_cast<std::size_t>(axis)] = tensor.extent(axis);
  return std::mdspan<T, std::dextents<Index, static_cast<std::size_t>(Rank)> >(tensor.data(), extents);
}
template <class T, int Rank>
auto as_mdspan(const Tensor<T, Rank>& tensor) noexcept {
  std::array<Index, static_cast<std::size_t>(Rank)> extents;
  for (int axis = 0; axis < Rank; ++axis) extents[static_cast<std::size_t>(axis)] = tensor.extent(axis);
  return std::mdspan<const T, std::dextents<Index, static_cast<std::size_t>(Rank)> >(tensor.data(), extents);
}
template <class T, int Rank>
void as_mdspan(const Tensor<T, Rank>&& temporary) = delete;

}  // namespace heed::inline HEED_ABI
#endif
