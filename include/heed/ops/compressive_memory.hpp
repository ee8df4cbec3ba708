// ops::memory_retrieve and ops::memory_update: the compressive memory of Infini-attention.
//
// Source: Munkhdalai et al. 2024, "Leave No Context Behind" (arXiv 2404.07143 v2), equations 3 to 5.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"
#include "heed/kernels/reference/compressive_memory.hpp"
#include "heed/ops/compressive_memory_options.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/compressive_memory.hpp"
#include "heed/kernels/simd/compressive_memory.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// Bytes memory_retrieve() takes from its workspace, whatever the batch and the number of queries.
template <Scalar T, Backend B>
[[nodiscard]] std::size_t memory_retrieve_workspace_size(const B& backend, Index head_dim, Index value_head_dim) {
  Workspace measured = Workspace::measuring();
  measured.take<accumulator_t<T>>(backend.concurrency() *
                                  memory_retrieve_scratch_kernel<T>(backend, head_dim, value_head_dim));
  return measured.size_needed();
}

// Bytes memory_update() takes from its workspace, whatever the batch and the number of tokens.
template <Scalar T, Backend B>
[[nodiscard]] std::size_t memory_update_workspace_size(const B& backend, Index head_dim, Index value_head_dim) {
  Workspace measured = Workspace::measuring();
  measured.take<accumulator_t<T>>(backend.concurrency() *
                                  memory_update_scratch_kernel<T>(backend, head_dim, value_head_dim));
  return measured.size_needed();
}

// What is wrong with the arguments of memory_retrieve(), but for the workspace.
template <class T>
[[nodiscard]] Problem check_memory_retrieve(View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                                            View<const accumulator_t<T>, 3> normalizer, View<T, 4> out,
                                            const MemoryRetrieveOptions<T>& options = {}) noexcept {
  const char* door = "memory_retrieve";
  const Axis batch{"batch", query.extent(0)};
  const Axis seq{"seq", query.extent(1)};
  const Axis heads{"heads", query.extent(2)};
  const Axis kv_heads{"kv heads", memory.extent(1)};
  const Axis head_dim{"head dim", query.extent(3)};
  const Axis value_head_dim{"value head dim", memory.extent(3)};
  Problem problem = first_problem(
      check_input(door, "query", query, {{"batch", any}, {"seq", any}, {"heads", any}, {"head dim", any}}),
      check_input(door, "memory", memory, {batch, {"kv heads", any}, head_dim, {"value head dim", any}}),
      check_input(door, "normalizer", normalizer, {batch, kv_heads, head_dim}),
      check_output(door, "out", out, {batch, seq, heads, value_head_dim}));
  if (problem) return problem;
  if (kv_heads.extent == 0 ? heads.extent > 0 : heads.extent % kv_heads.extent != 0) {
    return problem_at(ErrorKind::shape, door, "query")
        .append(heads.extent)
        .append(" heads are not a multiple of the memory's ")
        .append(kv_heads.extent)
        .append(" kv heads");
  }
  problem = first_problem(check_disjoint(door, out, query, "query"), check_disjoint(door, out, memory, "memory"),
                          check_disjoint(door, out, normalizer, "normalizer"));
  if (!problem && options.denominator.present()) {
    problem = check_output(door, "denominator", options.denominator, {batch, seq, heads});
  }
  return problem;
}

// out = φ(query) · memory / (φ(query) · normalizer): what a memory answers. φ(x) = x + 1 for x > 0, eˣ otherwise.
//
//   query       [batch, seq, heads, head dim]             without position, or with the one the keys were stored with
//   memory      [batch, kv heads, head dim, value dim]    M, in accumulator_t<T>; query head h reads kv head h / (H/K)
//   normalizer  [batch, kv heads, head dim]               z, in accumulator_t<T>; all 0: the memory is empty
//   out         [batch, seq, heads, value dim]            0 where the memory is empty or φ(q)·z underflows to 0; must
//                                                         not overlap an input
//   options.denominator  [batch, seq, heads]              φ(q)·z, 0 in those cases: what gated_mix() goes by
//
// Allocates nothing; takes memory_retrieve_workspace_size() bytes of the workspace. Numerics: one chain per output in
// ascending head dim, in accumulator_t<T>; rounded once. Errors: ShapeError, WorkspaceError.
template <Backend B, class Out>
void memory_retrieve(const B& backend, ViewOn<B, const scalar_t<Out>, 4> query,
                     ViewOn<B, const accumulator_t<scalar_t<Out>>, 4> memory,
                     ViewOn<B, const accumulator_t<scalar_t<Out>>, 3> normalizer, Out&& out, WorkspaceOn<B>& workspace,
                     const MemoryRetrieveOptions<scalar_t<Out>, space_of<B>>& options = {}) {
  using T = scalar_t<Out>;
  const auto answer = output_on(backend, out);
  const Index head_dim = memory.extent(2);
  const Index value_head_dim = memory.extent(3);
  raise_if(check_memory_retrieve(for_check(query), for_check(memory), for_check(normalizer), for_check(answer),
                                 for_check(options)));
  raise_if(check_workspace("memory_retrieve", workspace,
                           memory_retrieve_workspace_size<T>(backend, head_dim, value_head_dim)));
  if (answer.extent(0) == 0 || answer.extent(1) == 0 || answer.extent(2) == 0) return;
  const typename WorkspaceOn<B>::Frame frame(workspace);
  const auto scratch = workspace.template take<accumulator_t<T>>(
      {Index{backend.concurrency()}, memory_retrieve_scratch_kernel<T>(backend, head_dim, value_head_dim)});
  memory_retrieve_kernel(backend, query, memory, normalizer, answer, options.denominator, options.denominator_epsilon,
                         scratch);
}

// What is wrong with the arguments of memory_update(), but for the workspace.
template <class T>
[[nodiscard]] Problem check_memory_update(View<const T, 4> key, View<const T, 4> value,
                                          View<accumulator_t<T>, 4> memory, View<accumulator_t<T>, 3> normalizer,
                                          const MemoryUpdateOptions& options = {}) noexcept {
  const char* door = "memory_update";
  const Axis batch{"batch", key.extent(0)};
  const Axis seq{"seq", key.extent(1)};
  const Axis kv_heads{"kv heads", key.extent(2)};
  const Axis head_dim{"head dim", key.extent(3)};
  const Axis value_head_dim{"value head dim", value.extent(3)};
  Problem problem =
      first_problem(check_input(door, "key", key, {{"batch", any}, {"seq", any}, {"kv heads", any}, {"head dim", any}}),
                    check_input(door, "value", value, {batch, seq, kv_heads, {"value head dim", any}}),
                    check_output(door, "memory", memory, {batch, kv_heads, head_dim, value_head_dim}),
                    check_output(door, "normalizer", normalizer, {batch, kv_heads, head_dim}));
  const View<const std::int64_t, 1>& lengths = options.key_lengths;
  if (!problem && lengths.present()) problem = check_input(door, "key_lengths", lengths, {batch});
  for (Index b = 0; !problem && lengths.present() && b < lengths.extent(0); ++b) {
    if (lengths(b) >= 0 && lengths(b) <= key.extent(1)) continue;
    problem = problem_at(ErrorKind::shape, door, "key_lengths")
                  .append("row ")
                  .append(b)
                  .append(" must be in 0 to ")
                  .append(key.extent(1))
                  .append(", got ")
                  .append(static_cast<Index>(lengths(b)));
  }
  if (problem) return problem;
  // Of the two outputs "memory" is the one whose overlap would be an accident.
  const auto disjoint = [door](const char* name, const auto& output, const auto& input,
                               const char* input_name) noexcept {
    if (!overlap(output, input)) return Problem();
    return problem_at(ErrorKind::shape, door, name).append("must not overlap ").append(input_name);
  };
  return first_problem(disjoint("memory", memory, key, "key"), disjoint("memory", memory, value, "value"),
                       disjoint("normalizer", normalizer, key, "key"),
                       disjoint("normalizer", normalizer, value, "value"),
                       disjoint("normalizer", normalizer, memory, "memory"));
}

// A segment's keys and values enter a memory, by options.rule (see MemoryUpdate).
//
//   key         [batch, seq, kv heads, head dim]          without position, as a rule
//   value       [batch, seq, kv heads, value dim]
//   memory      [batch, kv heads, head dim, value dim]    M, in accumulator_t<T>: read and written
//   normalizer  [batch, kv heads, head dim]               z, in accumulator_t<T>: read and written
//   options.key_lengths  [batch]                          tokens of each row that enter, from the first; absent: all
//
// memory and normalizer must not overlap each other, key or value. An empty memory (z = 0 everywhere in a row and head)
// takes in by the linear rule; so does a token whose φ(k)·z underflows to 0. Allocates nothing; takes
// memory_update_workspace_size() bytes of the workspace. Numerics: the segment's sum is one chain per element in
// ascending token from 0, in accumulator_t<T>, and is then added to M and z. Errors: ShapeError, WorkspaceError.
template <Backend B, class Key>
void memory_update(const B& backend, const Key& key, ViewOn<B, const scalar_t<Key>, 4> value,
                   ViewOn<B, accumulator_t<scalar_t<Key>>, 4> memory,
                   ViewOn<B, accumulator_t<scalar_t<Key>>, 3> normalizer, WorkspaceOn<B>& workspace,
                   const BasicMemoryUpdateOptions<space_of<B>>& options = {}) {
  using T = scalar_t<Key>;
  const ViewOn<B, const T, 4> keys(key);
  const Index head_dim = memory.extent(2);
  const Index value_head_dim = memory.extent(3);
  raise_if(check_memory_update(for_check(keys), for_check(value), for_check(memory), for_check(normalizer),
                               for_check(options)));
  raise_if(
      check_workspace("memory_update", workspace, memory_update_workspace_size<T>(backend, head_dim, value_head_dim)));
  if (keys.extent(0) == 0 || keys.extent(1) == 0 || keys.extent(2) == 0) return;
  const typename WorkspaceOn<B>::Frame frame(workspace);
  const auto scratch = workspace.template take<accumulator_t<T>>(
      {Index{backend.concurrency()}, memory_update_scratch_kernel<T>(backend, head_dim, value_head_dim)});
  memory_update_kernel(backend, keys, value, memory, normalizer, options, scratch);
}

}  // namespace heed::inline HEED_ABI::ops
