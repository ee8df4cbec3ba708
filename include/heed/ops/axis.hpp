// Operations along one axis of a tensor: the axis checked at the door, the tensor handed to kernels as blocks.
#pragma once

#include <tuple>

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

}  // namespace impl

// For an axis that is not the last: calls kernel(block of first, block of each rest …), blocks being [outer, axis,
// inner] with contiguous inner, so that together the calls cover all elements. Axes that lie evenly in memory in every
// tensor are merged, the others become one call each. Extents but the axis's are those of `first`; does nothing if it
// is empty.
template <class Kernel, class First, class... Rest>
void for_each_block(Kernel&& kernel, int axis, First first, Rest... rest) {
  constexpr int rank = First::rank();
  constexpr int tensors = 1 + static_cast<int>(sizeof...(Rest));
  if (first.empty()) return;

  // Axes after `axis` join the last one as long as they continue it.
  int behind = rank - 2;
  Index inner = first.extent(rank - 1);
  const auto continues = [&](const auto& view) {
    return view.stride(rank - 1) == 1 && (view.extent(behind) == 1 || view.stride(behind) == inner);
  };
  while (behind > axis && continues(first) && (continues(rest) && ...)) inner *= first.extent(behind--);

  // The others are counted through; the last of them is the block's outer axis.
  struct Loop {
    Index extent = 1;
    Index strides[tensors] = {};
    Index at = 0;
  };
  Loop loops[rank];
  int count = 0;
  for (int i = 0; i <= behind; ++i) {
    if (i == axis || first.extent(i) == 1) continue;
    Loop next{first.extent(i), {first.stride(i), rest.stride(i)...}, 0};
    bool merges = count > 0;
    for (int t = 0; merges && t < tensors; ++t) {
      merges = loops[count - 1].strides[t] == next.extent * next.strides[t];
    }
    if (merges) next.extent *= loops[--count].extent;
    loops[count++] = next;
  }
  const Loop outer = count > 0 ? loops[--count] : Loop{};

  for (;;) {
    Index offsets[tensors] = {};
    for (int i = 0; i < count; ++i) {
      for (int t = 0; t < tensors; ++t) offsets[t] += loops[i].at * loops[i].strides[t];
    }
    int tensor = 0;
    const auto block = [&](const auto& view) {
      using T = typename std::remove_cvref_t<decltype(view)>::element_type;
      const int t = tensor++;
      return View<T, 3, typename First::space_type>(view.data_handle() + offsets[t],
                                                    {outer.extent, view.extent(axis), inner},
                                                    {outer.strides[t], view.stride(axis), Index{1}});
    };
    std::apply(kernel, std::tuple{block(first), block(rest)...});  // braces: in this order
    int i = count - 1;
    while (i >= 0 && ++loops[i].at == loops[i].extent) loops[i--].at = 0;
    if (i < 0) return;
  }
}

}  // namespace heed::inline HEED_ABI
