// ops::tensor_scatter: new rows are written into a cache, at a place of their own in each batch row.
#pragma once

#include <cstdint>

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/tensor_scatter.hpp"
#include "heed/ops/axis.hpp"

namespace heed {

// What happens at the end of a cache.
enum class ScatterMode {
  linear,    // rows must fit
  circular,  // rows beyond the end are written from the beginning on: a sliding cache
};

// Everything optional about tensor_scatter().
struct TensorScatterOptions {
  ScatterMode mode = ScatterMode::linear;
  int axis = -2;                                   // the one along which rows are written; not 0, which is the batch
  View<const std::int64_t, 1> write_indices = {};  // [batch]: where the first row of each goes; absent: 0
};

}  // namespace heed

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of tensor_scatter().
template <class T, int Rank>
[[nodiscard]] Problem check_tensor_scatter(View<const T, Rank> update, View<T, Rank> cache,
                                           const TensorScatterOptions& options = {}) noexcept {
  const char* door = "tensor_scatter";
  Problem problem = check_axis(door, options.axis, Rank);
  const int axis = impl::front_axis(options.axis, Rank);
  if (!problem && axis == 0) {
    problem = problem_at(ErrorKind::option, door, "axis").append("axis 0 is the batch; nothing is written along it");
  }
  if (!problem) problem = check_rows(door, "cache", cache, "last axis", any);
  if (problem) return problem;
  Index extents[Rank];
  for (int i = 0; i < Rank; ++i) extents[i] = i == axis ? update.extent(i) : cache.extent(i);
  problem = impl::check_rows(door, "update", update, extents, "last axis", extents[Rank - 1]);
  const Index rows = update.extent(axis);
  const Index capacity = cache.extent(axis);
  if (!problem && rows > capacity) {
    problem = problem_at(ErrorKind::shape, door, "update");
    problem.append(rows).append(" rows do not fit into the cache's ").append(capacity);
  }
  const auto& indices = options.write_indices;
  if (!problem && indices.present()) {
    problem = check_input(door, "write_indices", indices, {{"batch", cache.extent(0)}});
  }
  for (Index b = 0; !problem && indices.present() && b < indices.extent(0); ++b) {
    if (options.mode == ScatterMode::circular || (indices(b) >= 0 && indices(b) <= capacity - rows)) continue;
    problem = problem_at(ErrorKind::option, door, "write_indices")
                  .append("must be from 0 to ")
                  .append(capacity - rows)
                  .append(", got ")
                  .append(static_cast<Index>(indices(b)))
                  .append(" for batch row ")
                  .append(b);
  }
  if (!problem && overlap(cache, update)) {
    problem = problem_at(ErrorKind::shape, door, "cache").append("must not overlap update");
  }
  return problem;
}

// cache[b, …, write_indices[b] + i, …] = update[b, …, i, …] for all i, along options.axis.
//
//   update   [batch, …, rows, …]       2 to 5 axes
//   cache    [batch, …, capacity, …]   the same but for the axis; what no row goes to stays; not overlapping update
//   options  mode (linear or circular), axis, write_indices
//
// Elements may be of any type that tensors have. In circular mode an index may be any integer, negative ones count back
// from the cache's beginning. Allocates nothing. Numerics: copies. Errors: ShapeError, OptionError, before anything is
// written. Source: the operator TensorScatter of the ONNX standard, opset 24, whose present_cache is `cache` after and
// whose past_cache is `cache` before the call.
template <Backend B, class Cache>
void tensor_scatter(const B& backend, ViewOn<B, const scalar_t<Cache>, std::remove_cvref_t<Cache>::rank()> update,
                    Cache&& cache, const TensorScatterOptions& options = {}) {
  constexpr int rank = std::remove_cvref_t<Cache>::rank();
  static_assert(rank >= 2 && rank <= 5, "tensor_scatter takes 2 to 5 axes");
  const auto to = output_on(backend, cache);
  raise_if(check_tensor_scatter(update, to, options));
  if (!update.empty()) {
    tensor_scatter_kernel(backend, update, to, options.write_indices, impl::front_axis(options.axis, rank));
  }
}

}  // namespace heed::inline HEED_ABI::ops
