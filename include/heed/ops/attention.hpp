// ops::attention: softmax(scale · q·kᵀ, with everything that may be done to the scores) · v.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"
#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/reference/attention.hpp"
#include "heed/ops/attention_check.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/attention.hpp"
#include "heed/kernels/simd/attention.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// Bytes of workspace that attention() and attention_varlen() need for calls of these sizes or smaller ones. Grows with
// every size; includes a part for each of the backend's workers.
template <Scalar T, Backend B>
std::size_t attention_workspace_size(const B& backend, const AttentionExtents& largest) noexcept {
  return attention_workspace_kernel<T>(backend, largest);
}

// Scaled dot-product attention. For batch row b, query head h and its kv head h / (H / K), query t:
//
//   score[s] = scale · query[t]·key[s]   then, in this order: softcap, modifier, − slope · |distance|, + bias, mask
//   out[t]   = Σ_s softmax(score)[s] · value[s]
//
//   query      [B, T, H, D]
//   key        [B, S, K, D]       H is a multiple of K; stride 0 on the batch axis shares one sequence of keys
//   value      [B, S, K, Dv]
//   out        [B, T, H, Dv]      must not overlap the others
//   options    attention_options.hpp: scale, softcap, order, masks, ALiBi, sinks, lengths, dropout, further outputs
//   workspace  attention_workspace_size(…) bytes
//   modifier   score_modifier.hpp
//
// A query without keys gives 0 and log-sum-exp −inf, or the sink's logit. A masked key never matters, even if its key
// or value is NaN; NaN in an attended one is in the result. A score of −inf is a masked one.
//
// Allocates nothing; no matrix of scores is formed. Numerics: in accumulator_t<T>, one rounding at the output. Errors:
// ShapeError, OptionError, WorkspaceError, before anything is written. Source: Vaswani et al. 2017; online softmax:
// Milakov and Gimelshein 2018; tiles: Dao et al. 2022 (FlashAttention).
template <Backend B, class Out, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Out>>>
void attention(const B& backend, ViewOn<B, const scalar_t<Out>, 4> query, ViewOn<B, const scalar_t<Out>, 4> key,
               ViewOn<B, const scalar_t<Out>, 4> value, Out&& out,
               const AttentionOptions<scalar_t<Out>, space_of<B>>& options, WorkspaceOn<B>& workspace,
               const Modifier& modifier = {}) {
  using T = scalar_t<Out>;
  const ViewOn<B, T, 4> to = output_on(backend, out);
  raise_if(check_attention<T>(for_check(query), for_check(key), for_check(value), for_check(to), for_check(options),
                              impl::numbers_of<B>));
  const KeyValues<T, space_of<B>> keys{{key, {}, {}}, {value, {}, {}}, options.key_lengths, {}, {}, 0};
  const AttentionArguments<T, space_of<B>> arguments{
      query, keys, to, options, {}, {}, impl::extents_of(query, key, value)};
  raise_if(check_workspace("attention", workspace, attention_workspace_size<T>(backend, arguments.extents)));
  if (query.extent(0) * query.extent(1) * query.extent(2) == 0) return;
  attention_kernel(backend, arguments, modifier, workspace);
}

// The same; allocates its workspace.
template <Backend B, class Out, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Out>>>
void attention(const B& backend, ViewOn<B, const scalar_t<Out>, 4> query, ViewOn<B, const scalar_t<Out>, 4> key,
               ViewOn<B, const scalar_t<Out>, 4> value, Out&& out,
               const AttentionOptions<scalar_t<Out>, space_of<B>>& options = {}, const Modifier& modifier = {}) {
  using T = scalar_t<Out>;
  raise_if(check_attention<T>(for_check(query), for_check(key), for_check(value), for_check(output_on(backend, out)),
                              for_check(options), impl::numbers_of<B>));
  auto workspace = make_workspace(backend, attention_workspace_size<T>(backend, impl::extents_of(query, key, value)));
  attention(backend, query, key, value, out, options, workspace, modifier);
}

// The same; allocates its workspace and the result.
template <HostBackend B, class Query, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Query>>> Tensor < scalar_t<Query>,
4 > attention(const B& backend, const Query& query, ViewOn<B, const scalar_t<Query>, 4> key,
              ViewOn<B, const scalar_t<Query>, 4> value, const AttentionOptions<scalar_t<Query>>& options = {},
              const Modifier& modifier = {}) {
  using T = scalar_t<Query>;
  const ViewOn<B, const T, 4> q = query;
  Tensor<T, 4> out({q.extent(0), q.extent(1), q.extent(2), value.extent(3)});
  attention(backend, q, key, value, out, options, modifier);
  return out;
}

// Attention over the keys and values of a cache (state/kv_cache.hpp), which holds those of the queries already.
//
//   query    [B, T, H, D]    H is a multiple of K
//   keys                     cache.key_values(): key s of row b is the s-th token the row was given, at position s
//   out      [B, T, H, Dv]   must not overlap the others
//   options                  as above, but key_lengths must be absent (the cache knows them), and a mask's, bias's and
//                            weights' key axis is the longest row's length. query_offsets are the rows' lengths before
//                            the append; left out, Causal::bottom_right has the queries at the end of each row
//
// A sliding cache narrows the window to its own. Bits: those of the same keys in one View, wherever a cache keeps them.
// Otherwise as above.
template <Backend B, class Out, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Out>>>
void attention(const B& backend, ViewOn<B, const scalar_t<Out>, 4> query,
               const KeyValues<scalar_t<Out>, space_of<B>>& keys, Out&& out,
               const AttentionOptions<scalar_t<Out>, space_of<B>>& options, WorkspaceOn<B>& workspace,
               const Modifier& modifier = {}) {
  using T = scalar_t<Out>;
  const ViewOn<B, T, 4> to = output_on(backend, out);
  raise_if(
      check_attention<T>(for_check(query), for_check(keys), for_check(to), for_check(options), impl::numbers_of<B>));
  AttentionArguments<T, space_of<B>> arguments{query, keys, to, options, {}, {}, impl::extents_of(query, keys)};
  arguments.options.window = impl::narrower(options.window, keys.window);
  raise_if(check_workspace("attention", workspace, attention_workspace_size<T>(backend, arguments.extents)));
  if (query.extent(0) * query.extent(1) * query.extent(2) == 0) return;
  attention_kernel(backend, arguments, modifier, workspace);
}

// The same; allocates its workspace.
template <Backend B, class Out, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Out>>>
void attention(const B& backend, ViewOn<B, const scalar_t<Out>, 4> query,
               const KeyValues<scalar_t<Out>, space_of<B>>& keys, Out&& out,
               const AttentionOptions<scalar_t<Out>, space_of<B>>& options = {}, const Modifier& modifier = {}) {
  using T = scalar_t<Out>;
  raise_if(check_attention<T>(for_check(query), for_check(keys), for_check(output_on(backend, out)), for_check(options),
                              impl::numbers_of<B>));
  auto workspace = make_workspace(backend, attention_workspace_size<T>(backend, impl::extents_of(query, keys)));
  attention(backend, query, keys, out, options, workspace, modifier);
}

// Attention over sequences of different lengths packed without padding; equal to one attention() for each.
//
//   query         [total queries, H, D]
//   key           [total keys, K, D]
//   value         [total keys, K, Dv]
//   out           [total queries, H, Dv]   must not overlap the others
//   cu_seqlens_q  [sequences + 1]          queries of sequence i are rows cu_seqlens_q[i] … cu_seqlens_q[i + 1] − 1
//   cu_seqlens_k  [sequences + 1]          its keys
//   log_sum_exp   [H, total queries]       or absent
//
// The options are attention()'s, with "batch" the number of the sequence; mask, bias, key_lengths, weights and the
// options' log_sum_exp (which have the shapes of a padded batch) must be absent. Allocation, numerics, errors: as
// attention(). Source: FlashAttention's flash_attn_varlen_func.
template <Backend B, class Out, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Out>>>
void attention_varlen(const B& backend, ViewOn<B, const scalar_t<Out>, 3> query, ViewOn<B, const scalar_t<Out>, 3> key,
                      ViewOn<B, const scalar_t<Out>, 3> value, ViewOn<B, const std::int64_t, 1> cu_seqlens_q,
                      ViewOn<B, const std::int64_t, 1> cu_seqlens_k, Out&& out,
                      ViewOn<B, accumulator_t<scalar_t<Out>>, 2> log_sum_exp,
                      const AttentionOptions<scalar_t<Out>, space_of<B>>& options, WorkspaceOn<B>& workspace,
                      const Modifier& modifier = {}) {
  using T = scalar_t<Out>;
  const ViewOn<B, T, 3> to = output_on(backend, out);
  raise_if(check_attention_varlen<T>(for_check(query), for_check(key), for_check(value), for_check(cu_seqlens_q),
                                     for_check(cu_seqlens_k), for_check(to), for_check(log_sum_exp), for_check(options),
                                     impl::numbers_of<B>));
  AttentionArguments<T, space_of<B>> arguments{
      impl::as_batch(query),
      {{impl::as_batch(key), {}, {}}, {impl::as_batch(value), {}, {}}, {}, {}, {}, 0},
      impl::as_batch(to),
      options,
      cu_seqlens_q,
      cu_seqlens_k,
      {}};
  arguments.extents = impl::extents_of_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k);
  if (log_sum_exp.present()) arguments.options.log_sum_exp = impl::as_batch(log_sum_exp);
  raise_if(check_workspace("attention_varlen", workspace, attention_workspace_size<T>(backend, arguments.extents)));
  if (query.extent(0) * query.extent(1) == 0) return;
  attention_kernel(backend, arguments, modifier, workspace);
}

// The same; allocates its workspace.
template <Backend B, class Out, class Modifier = NoModifier>
requires ScoreModifier<Modifier, accumulator_t<scalar_t<Out>>>
void attention_varlen(const B& backend, ViewOn<B, const scalar_t<Out>, 3> query, ViewOn<B, const scalar_t<Out>, 3> key,
                      ViewOn<B, const scalar_t<Out>, 3> value, ViewOn<B, const std::int64_t, 1> cu_seqlens_q,
                      ViewOn<B, const std::int64_t, 1> cu_seqlens_k, Out&& out,
                      ViewOn<B, accumulator_t<scalar_t<Out>>, 2> log_sum_exp = {},
                      const AttentionOptions<scalar_t<Out>, space_of<B>>& options = {}, const Modifier& modifier = {}) {
  using T = scalar_t<Out>;
  raise_if(check_attention_varlen<T>(for_check(query), for_check(key), for_check(value), for_check(cu_seqlens_q),
                                     for_check(cu_seqlens_k), for_check(output_on(backend, out)),
                                     for_check(log_sum_exp), for_check(options), impl::numbers_of<B>));
  auto workspace = make_workspace(
      backend,
      attention_workspace_size<T>(backend, impl::extents_of_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k)));
  attention_varlen(backend, query, key, value, cu_seqlens_q, cu_seqlens_k, out, log_sum_exp, options, workspace,
                   modifier);
}

}  // namespace heed::inline HEED_ABI::ops
