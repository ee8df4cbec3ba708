// ops::embedding: rows of a table by number.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/embedding.hpp"
#include "heed/ops/rows.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/embedding.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the shapes of embedding()'s arguments.
template <class T, int Rank>
[[nodiscard]] Problem check_embedding_shapes(View<const std::int64_t, Rank> ids, View<const T, 2> table,
                                             View<T, Rank + 1> out) noexcept {
  const char* door = "embedding";
  Problem problem = check_input(door, "table", table, {{"vocabulary", any}, {"features", any}});
  if (!problem) problem = check_rows(door, "ids", ids, "last axis", any);
  if (!problem) {
    const auto ids_as_rows = ids.split_last(ids.extent(Rank - 1), 1);
    problem = check_rows_like(door, "out", out, ids_as_rows, "features", table.extent(1));
  }
  if (!problem) problem = check_disjoint(door, out, table, "table");
  if (!problem) problem = check_disjoint(door, out, ids, "ids");
  return problem;
}

// What is wrong with the arguments of embedding(). Reads all ids.
template <class T, int Rank>
[[nodiscard]] Problem check_embedding(View<const std::int64_t, Rank> ids, View<const T, 2> table,
                                      View<T, Rank + 1> out) noexcept {
  Problem problem = check_embedding_shapes(ids, table, out);
  if (problem) return problem;
  Index position[Rank] = {};
  for (Index left = ids.size(); left > 0; --left) {
    Index offset = 0;
    for (int axis = 0; axis < Rank; ++axis) offset += position[axis] * ids.stride(axis);
    const auto id = static_cast<Index>(ids.data_handle()[offset]);
    if (id < 0 || id >= table.extent(0)) {
      problem = problem_at(ErrorKind::option, "embedding", "ids").append("expected 0 <= id < ").append(table.extent(0));
      problem.append(", got ").append(id).append(" at position [");
      for (int axis = 0; axis < Rank; ++axis) problem.append(axis > 0 ? ", " : "").append(position[axis]);
      return problem.append("]");
    }
    for (int axis = Rank - 1; axis >= 0 && ++position[axis] == ids.extent(axis); --axis) position[axis] = 0;
  }
  return {};
}

// out[...] = table[ids[...]]: each id replaced by its row.
//
//   ids    [...]             1 to 4 axes of int64, each 0 <= id < vocabulary (on a device: where one is not, out is NaN)
//   table  [vocabulary, features]
//   out    [..., features]   must not overlap the table or the ids
//
// Allocates nothing. Numerics: copies. Errors: ShapeError; OptionError naming the first id out of range and its
// position, before anything is written. Source: torch.nn.functional.embedding.
template <Backend B, class Out>
void embedding(const B& backend, ViewOn<B, const std::int64_t, std::remove_cvref_t<Out>::rank() - 1> ids,
               ViewOn<B, const scalar_t<Out>, 2> table, Out&& out) {
  using T = scalar_t<Out>;
  constexpr int rank = std::remove_cvref_t<Out>::rank();
  const auto y = output_on(backend, out);
  if constexpr (HostBackend<B>) {
    raise_if(check_embedding(ids, table, y));
  } else {
    raise_if(check_embedding_shapes(for_check(ids), for_check(table), for_check(y)));
  }
  if (y.empty()) return;
  for_each_matrix(
      [&](ViewOn<B, T, 2> to, ViewOn<B, const std::int64_t, 2> from) {
        const ViewOn<B, const std::int64_t, 1> numbers(from.data_handle(), {from.extent(0)}, {from.stride(0)});
        embedding_kernel(backend, numbers, table, to);
      },
      y, ids.split_last(ids.extent(rank - 2), 1));
}

}  // namespace heed::inline HEED_ABI::ops
