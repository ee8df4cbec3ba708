// ops::linear_attention: attention without softmax, as a state that takes in one token after the other.
//
// Source: Katharopoulos et al. 2020 (arXiv 2006.16236, linear); Yang et al. 2024 (arXiv 2312.06635, gated, GLA); Schlag
// et al. 2021 (arXiv 2102.11174) and Yang et al. 2024 (arXiv 2406.06484, delta and its chunks); Yang et al. 2025 (arXiv
// 2412.06464, gated delta); the operator LinearAttention of the ONNX standard, opset 27.
#pragma once

#include <cmath>

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"
#include "heed/kernels/reference/linear_attention.hpp"
#include "heed/ops/attention_check.hpp"
#include "heed/ops/linear_attention_options.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/linear_attention.hpp"
#include "heed/kernels/simd/linear_attention.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// Bytes linear_attention() takes from its workspace, whatever the batch and the number of tokens. Grows with the chunk,
// the dims, and the query heads of a kv head.
template <Scalar T, Backend B>
[[nodiscard]] std::size_t linear_attention_workspace_size(const B& backend, const LinearAttentionExtents& extents) {
  Workspace measured = Workspace::measuring();
  measured.take<accumulator_t<T>>(backend.concurrency() * linear_attention_scratch_kernel<T>(backend, extents));
  return measured.size_needed();
}

// What is wrong with the arguments of linear_attention(), but for the workspace.
template <Scalar T>
[[nodiscard]] Problem check_linear_attention(View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                                             View<accumulator_t<T>, 4> state, View<T, 4> out,
                                             const LinearAttentionOptions<T>& options = {}) noexcept {
  const char* door = "linear_attention";
  const Axis batch{"batch", query.extent(0)};
  const Axis seq{"seq", query.extent(1)};
  const Axis kv_heads{"kv heads", key.extent(2)};
  const Axis head_dim{"head dim", query.extent(3)};
  const Axis value_head_dim{"value head dim", value.extent(3)};
  Problem problem = first_problem(
      check_input(door, "query", query, {{"batch", any}, {"seq", any}, {"heads", any}, {"head dim", any}}),
      check_input(door, "key", key, {batch, seq, {"kv heads", any}, head_dim}),
      check_input(door, "value", value, {batch, seq, kv_heads, {"value head dim", any}}));
  if (!problem) problem = impl::check_heads(door, query, key);
  if (problem) return problem;
  problem = first_problem(check_output(door, "state", state, {batch, kv_heads, head_dim, value_head_dim}),
                          check_output(door, "out", out, {batch, seq, {"heads", query.extent(2)}, value_head_dim}));
  const auto& [scale, decay, beta, lengths, chunk_size] = options;
  if (!problem && decay.present() && decay.extent(3) == 1) {
    problem = check_input(door, "decay", decay, {batch, seq, kv_heads, {"1", 1}});
  } else if (!problem && decay.present()) {
    problem = check_input(door, "decay", decay, {batch, seq, kv_heads, head_dim});
  }
  if (!problem && beta.present() && beta.extent(2) == 1) {
    problem = check_input(door, "beta", beta, {batch, seq, {"1", 1}});
  } else if (!problem && beta.present()) {
    problem = check_input(door, "beta", beta, {batch, seq, kv_heads});
  }
  if (!problem && lengths.present()) problem = check_input(door, "key_lengths", lengths, {batch});
  if (problem) return problem;

  for (Index b = 0; lengths.present() && b < lengths.extent(0); ++b) {
    if (lengths(b) >= 0 && lengths(b) <= seq.extent) continue;
    return problem_at(ErrorKind::option, door, "key_lengths")
        .append("must be from 0 to ")
        .append(seq.extent)
        .append(", got ")
        .append(static_cast<Index>(lengths(b)))
        .append(" for batch row ")
        .append(b);
  }
  const auto factor = static_cast<double>(scale.value(head_dim.extent));
  if (!(std::fabs(factor) < HUGE_VAL)) return impl::bad_option(door, "scale", "must be finite", factor);
  if (chunk_size < 1 || chunk_size > 4096) {
    return impl::bad_option(door, "chunk_size", "must be from 1 to 4096", static_cast<double>(chunk_size));
  }
  const auto disjoint = [&](const auto& input, const char* name) noexcept {
    if (!overlap(state, input)) return check_disjoint(door, out, input, name);
    return problem_at(ErrorKind::shape, door, "state").append("must not overlap ").append(name);
  };
  return first_problem(check_disjoint(door, out, state, "state"), disjoint(query, "query"), disjoint(key, "key"),
                       disjoint(value, "value"), disjoint(decay, "decay"), disjoint(beta, "beta"));
}

// For each batch row and kv head, token by token (kₜ, vₜ as columns; S is [D, Dv]):
//
//   S = diag(e^decayₜ) S               if there is a decay
//   S = S + kₜ uₜᵀ                     uₜ = vₜ, or betaₜ (vₜ − Sᵀ kₜ) if there is a beta
//   out = scale · Sᵀ q                 for each query head of the kv head: head h reads kv head h / (H / K)
//
//   query    [batch, seq, heads, head dim]
//   key      [batch, seq, kv heads, head dim]         for beta to be stable, of length 1 (or |k|² · beta ≤ 2)
//   value    [batch, seq, kv heads, value dim]
//   state    [batch, kv heads, head dim, value dim]   S, in accumulator_t<T>: read and written; all 0 to begin with
//   out      [batch, seq, heads, value dim]           0 for tokens beyond their row's length
//   options  linear_attention_options.hpp: scale, decay, beta, lengths, the chunk
//
// out and state must not overlap each other or an input. A decay of −inf forgets the state: so a document is reset
// inside a batch.
//
// This is the family that compressive memory belongs to: with the linear rule, keys φ(k) and queries φ(q), scale 1, and
// one value dim more that is always 1, S holds memory_update()'s M and, in that column, z; the quotient of the outputs
// is memory_retrieve()'s. (Its delta rules divide by φ(k)·z and read once a segment: operations of their own.)
//
// Allocates nothing; takes linear_attention_workspace_size() bytes. Numerics: in accumulator_t<T>, rounded once. Bits:
// Simd and Cpu work on chunks of tokens counted from the call's first one (the state's part and the chunk's own are two
// products), so, other than elsewhere in heed, a result's bits depend on the cut into calls: cuts at multiples of
// chunk_size change nothing, nor does any cut with chunk_size 1, others change the last places. Errors: ShapeError,
// OptionError, WorkspaceError, before anything is written.
template <Backend B, class Out>
void linear_attention(const B& backend, View<const scalar_t<Out>, 4> query, View<const scalar_t<Out>, 4> key,
                      View<const scalar_t<Out>, 4> value, View<accumulator_t<scalar_t<Out>>, 4> state, Out&& out,
                      const LinearAttentionOptions<scalar_t<Out>>& options, Workspace& workspace) {
  using T = scalar_t<Out>;
  using A = accumulator_t<T>;
  const View<T, 4> to = output_view(out);
  raise_if(check_linear_attention<T>(query, key, value, state, to, options));
  const LinearAttentionExtents extents{query.extent(2), key.extent(2), query.extent(3), value.extent(3),
                                       options.chunk_size};
  raise_if(check_workspace("linear_attention", workspace, linear_attention_workspace_size<T>(backend, extents)));
  if (query.extent(0) == 0 || query.extent(1) == 0 || key.extent(2) == 0 || value.extent(3) == 0) return;

  LinearAttentionOptions<T> complete = options;
  complete.scale = options.scale.value(query.extent(3));
  if (options.beta.present()) {  // one for all heads becomes one for each
    const View<const A, 3>& beta = options.beta;
    complete.beta = View<const A, 3>(beta.data_handle(), {beta.extent(0), beta.extent(1), key.extent(2)},
                                     {beta.stride(0), beta.stride(1), Index{beta.extent(2) == 1 ? 0 : 1}});
  }
  const Workspace::Frame frame(workspace);
  const auto scratch =
      workspace.take<A>({Index{backend.concurrency()}, linear_attention_scratch_kernel<T>(backend, extents)});
  linear_attention_kernel(backend, query, key, value, state, to, complete, scratch);
}

// The same; allocates its workspace.
template <Backend B, class Out>
void linear_attention(const B& backend, View<const scalar_t<Out>, 4> query, View<const scalar_t<Out>, 4> key,
                      View<const scalar_t<Out>, 4> value, View<accumulator_t<scalar_t<Out>>, 4> state, Out&& out,
                      const LinearAttentionOptions<scalar_t<Out>>& options = {}) {
  using T = scalar_t<Out>;
  raise_if(check_linear_attention<T>(query, key, value, state, output_view(out), options));
  Workspace workspace(linear_attention_workspace_size<T>(
      backend, {query.extent(2), key.extent(2), query.extent(3), value.extent(3), options.chunk_size}));
  linear_attention(backend, query, key, value, state, out, options, workspace);
}

}  // namespace heed::inline HEED_ABI::ops
