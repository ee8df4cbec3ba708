// Operations along one axis of a tensor: the axis checked at the door, the tensor handed to kernels as blocks.
#pragma once

#include "heed/ops/rows.hpp"

namespace heed::inline HEED_ABI {

// −rank … rank − 1; negative ones count from the end.
inline Problem check_axis(const char* door, int axis, int rank) noexcept {
  if (-rank <= axis && axis < rank) return {};
  return problem_at(ErrorKind::option, door, "axis")
      .append("expected ")
      .append(Index{-rank})
      .append(" <= axis < ")
      .append(Index{rank})
      .append(", got ")
      .append(Index{axis});
}

namespace impl {

// The axis counted from the front.
inline int front_axis(int axis, int rank) noexcept {
  return axis < 0 ? axis + rank : axis;
}

// May the last two axes be one? (A last axis of one element may have any stride; then they may not.)
template <class T, int Rank>
bool merges_last(const View<T, Rank>& view) noexcept {
  return view.stride(Rank - 1) == 1 && (view.extent(Rank - 2) <= 1 || view.stride(Rank - 2) == view.extent(Rank - 1));
}

// [..., axis, ..., last] -> [..., axis], the elements of the last axis being where the result's are, and next to them.
template <class T, int Rank>
View<T, Rank - 1> drop_last_after(const View<T, Rank>& view, int axis) noexcept {
  Index extents[Rank - 1];
  Index strides[Rank - 1];
  int to = 0;
  for (int from = 0; from < Rank - 1; ++from) {
    if (from == axis) continue;
    extents[to] = view.extent(from);
    strides[to++] = view.stride(from);
  }
  extents[to] = view.extent(axis);
  strides[to] = view.stride(axis);
  return {view.data_handle(), extents, strides};
}

}  // namespace impl

// For an axis that is not the last: calls kernel(block of first, block of each rest …), blocks being [outer, axis,
// inner] with contiguous inner, so that together the calls cover all elements. Extents other than the axis's are those
// of `first`. Does nothing if `first` is empty.
template <class Kernel, class First, class... Rest>
void for_each_block(Kernel&& kernel, int axis, First first, Rest... rest) {
  constexpr int rank = First::rank();
  if constexpr (rank > 2) {
    if (axis < rank - 2 && impl::merges_last(first) && (impl::merges_last(rest) && ...)) {
      for_each_block(kernel, axis, first.merge_last(), rest.merge_last()...);
      return;
    }
  }
  if (first.empty()) return;
  const Index inner = first.extent(rank - 1);
  const auto as_block = [inner](const auto& matrix) {
    using T = typename std::remove_cvref_t<decltype(matrix)>::element_type;
    return View<T, 3>(matrix.data_handle(), {matrix.extent(0), matrix.extent(1), inner},
                      {matrix.stride(0), matrix.stride(1), Index{1}});
  };
  for_each_matrix([&](auto... matrices) { kernel(as_block(matrices)...); }, impl::drop_last_after(first, axis),
                  impl::drop_last_after(rest, axis)...);
}

}  // namespace heed::inline HEED_ABI
