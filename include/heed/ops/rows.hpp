// Row-wise operations at the door: tensors of any rank whose last axis is the row, handed to kernels as matrices.
#pragma once

#include "heed/core/shape.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class T, int Rank, class Space>
Problem check_rows(const char* door, const char* tensor, const View<T, Rank, Space>& view, const Index* leading,
                   const char* row_name, Index row_extent) noexcept {
  constexpr Axis axes[] = {{"axis 0", any}, {"axis 1", any}, {"axis 2", any}, {"axis 3", any}};
  static_assert(Rank >= 1 && Rank <= 5);
  const auto axis = [&](int i) { return Axis{axes[i].name, leading == nullptr ? any : leading[i]}; };
  const Axis row{row_name, row_extent};
  const auto access = std::is_const_v<T> ? Access::input : Access::output;
  if constexpr (Rank == 1) {
    return check_shape(door, tensor, view, {row}, access);
  } else if constexpr (Rank == 2) {
    return check_shape(door, tensor, view, {axis(0), row}, access);
  } else if constexpr (Rank == 3) {
    return check_shape(door, tensor, view, {axis(0), axis(1), row}, access);
  } else if constexpr (Rank == 4) {
    return check_shape(door, tensor, view, {axis(0), axis(1), axis(2), row}, access);
  } else {
    return check_shape(door, tensor, view, {axis(0), axis(1), axis(2), axis(3), row}, access);
  }
}

}  // namespace impl

// A tensor of rows of `row_extent` elements.
template <class T, int Rank, class Space>
Problem check_rows(const char* door, const char* tensor, const View<T, Rank, Space>& view, const char* row_name,
                   Index row_extent) noexcept {
  return impl::check_rows(door, tensor, view, nullptr, row_name, row_extent);
}

// The same, with the leading axes of `like`.
template <class T, int Rank, class U, class Space>
Problem check_rows_like(const char* door, const char* tensor, const View<T, Rank, Space>& view,
                        const View<U, Rank, Space>& like, const char* row_name, Index row_extent) noexcept {
  Index leading[Rank] = {};
  for (int axis = 0; axis < Rank; ++axis) leading[axis] = like.extent(axis);
  return impl::check_rows(door, tensor, view, leading, row_name, row_extent);
}

// Calls kernel(matrix of first, matrix of each rest …) so that together the calls cover all rows. Leading axes that lie
// evenly in memory in every tensor are merged, the others become one call each; does nothing for empty tensors.
template <class Kernel, class First, class... Rest>
void for_each_matrix(Kernel&& kernel, First first, Rest... rest) {
  constexpr int rank = First::rank();
  if constexpr (rank == 1) {
    const auto as_matrix = [](auto view) {
      using T = typename decltype(view)::element_type;
      return View<T, 2, typename First::space_type>(view.data_handle(), {Index{1}, view.extent(0)},
                                                    {Index{0}, view.stride(0)});
    };
    kernel(as_matrix(first), as_matrix(rest)...);
  } else if constexpr (rank == 2) {
    if (first.extent(0) > 0) kernel(first, rest...);
  } else {
    const auto even = [](const auto& view) {
      return view.extent(0) <= 1 || view.extent(1) == 1 || view.stride(0) == view.extent(1) * view.stride(1);
    };
    if (even(first) && (even(rest) && ...)) {
      const auto merged = [](const auto& view) {
        using T = typename std::remove_cvref_t<decltype(view)>::element_type;
        Index extents[First::rank() - 1];
        Index strides[First::rank() - 1];
        for (int axis = 1; axis < First::rank(); ++axis) {
          extents[axis - 1] = view.extent(axis);
          strides[axis - 1] = view.stride(axis);
        }
        if (view.extent(1) == 1) strides[0] = view.stride(0);
        extents[0] *= view.extent(0);
        return View<T, First::rank() - 1, typename First::space_type>(view.data_handle(), extents, strides);
      };
      for_each_matrix(kernel, merged(first), merged(rest)...);
    } else {
      for (Index i = 0; i < first.extent(0); ++i) for_each_matrix(kernel, first[i], rest[i]...);
    }
  }
}

}  // namespace heed::inline HEED_ABI
