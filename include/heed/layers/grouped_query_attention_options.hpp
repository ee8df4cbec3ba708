// What GroupedQueryAttention can be asked for and is made from, as plain data, and their check.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "heed/layers/projections.hpp"
#include "heed/ops/attention_check.hpp"
#include "heed/ops/rope_options.hpp"

namespace heed {

// What happens to queries and keys between projection and rotation.
enum class QueryKeyNorm {
  none,
  rms,    // divided by their root mean square
  layer,  // brought to mean 0 and variance 1
};

// What one norm goes over, and the size of its weight.
enum class NormOver {
  head,       // each head; all heads share a weight [head_dim] (Qwen 3, Gemma 3)
  each_head,  // each head, with a row of its own in the weight [heads · head_dim] (Cohere)
  all_heads,  // the heads of a token together, weight [heads · head_dim] (OLMo 2)
};

struct QueryKeyNormOptions {
  QueryKeyNorm kind = QueryKeyNorm::none;
  NormOver over = NormOver::head;
  double eps = 1e-6;
  double weight_offset = 0;  // rms: the factor is weight_offset + weight (Gemma: 1)
};

// What a GroupedQueryAttention layer is, besides its weights and heads.
struct GroupedQueryAttentionOptions {
  bool causal = true;                                 // a token sees itself and what came before
  Window window = {};                                 // a sliding window of W tokens is {W − 1, 0}
  TokenPositions positions = TokenPositions::rotary;  // none: no RoPE
  RopeOptions rope = {};
  QueryKeyNormOptions norm = {};
  ScoreScale<double> scale = {};  // of q·k; left out: 1/√head_dim
  double softcap = 0;             // c > 0: scores become c · tanh(score / c), before masks
  double dropout = 0;             // 0 ≤ p < 1: of attention weights, in calls with `training`
};

// What a call may come with. Masks broadcast to [batch, heads, seq, keys]; keys are seq, or with a cache the length of
// its longest row after the call.
//
// Padding is said in one of two ways: `valid` (anywhere) or `lengths` (at the end). Padded tokens are no keys, have no
// position, and their output rows are 0; the others come out as they would without them, bit for bit. (`mask` and
// `positions` can say it too, as Hugging Face does, with all tokens where they are.)
template <class T>
struct GroupedQueryAttentionCall {
  using A = accumulator_t<T>;

  View<const bool, 2> valid = {};              // [batch, seq]: false = padding; not with mask, bias or further outputs
  View<const std::int64_t, 1> lengths = {};    // [batch]: tokens of each row, 0 … seq; the rest is padding
  View<const std::int64_t, 2> positions = {};  // [batch, seq] for RoPE; left out: counted on, padding not counted
  Index rope_length = 0;           // dynamic and longrope scaling: length of the whole sequence; 0: the longest row
  ScoreView<bool> mask = {};       // true = attend
  ScoreView<A> bias = {};          // added to the scores; −inf = do not attend
  bool training = false;           // true: dropout
  std::uint64_t dropout_seed = 0;  // another one for every training step
  View<A, 3> log_sum_exp = {};     // out [batch, heads, seq]: natural log; −inf for a token without keys
  View<T, 4> weights = {};         // out [batch, heads, seq, keys]: after softmax and dropout
};

// A norm's weights, wherever they lie; sizes by NormOver, of the query's heads or of the kv heads.
template <Scalar T>
struct NormWeightsView {
  View<const T, 1> weight = {};
  View<const T, 1> bias = {};  // layer norm: or absent
};

// The same, owned.
template <Scalar T>
struct NormWeights {
  Tensor<T, 1> weight = {};
  Tensor<T, 1> bias = {};

  HEED_INLINE operator NormWeightsView<T>() const noexcept { return {weight, bias}; }

  // Reads name.weight, of `rank` axes (1 or 2) in the file, and name.bias; each is empty if the file has none.
  template <class Source>
  HEED_INLINE static NormWeights from_file(const Source& source, std::string_view name, int rank = 1) {
    const PrefixedSource<Source> part(source, name);
    NormWeights weights;
    if (rank == 1) {
      weights.weight = part.template read_optional<T, 1>("weight");
    } else if (part.contains("weight")) {
      const Tensor<T, 2> rows = part.template read<T, 2>("weight");
      weights.weight = Tensor<T, 1>(rows.view().merge_last());
    }
    weights.bias = part.template read_optional<T, 1>("bias");
    return weights;
  }
};

// The weights of a GroupedQueryAttention layer, wherever they lie.
template <Scalar T>
struct GroupedQueryAttentionWeightsView {
  LinearWeightsView<T> query = {};     // [H · D, E]
  LinearWeightsView<T> key = {};       // [K · D, E]
  LinearWeightsView<T> value = {};     // [K · Dv, E]
  LinearWeightsView<T> output = {};    // [E, H · Dv]
  NormWeightsView<T> query_norm = {};  // if options.norm says so
  NormWeightsView<T> key_norm = {};
  View<const accumulator_t<T>, 1> sinks = {};         // [H], or absent: a logit without a value (gpt-oss)
  View<const accumulator_t<T>, 1> alibi_slopes = {};  // [H], or absent: from ops::alibi_slopes() (MPT)
};

// What they are called in a file.
struct GroupedQueryAttentionNames {
  ProjectionNames projections = {};
  const char* query_norm = "q_norm";
  const char* key_norm = "k_norm";
  const char* sinks = "sinks";
  int norm_rank = 1;  // axes of the norms' weights in the file: 2 for [heads, head_dim] (Cohere)
};

// The same, owned.
template <Scalar T>
struct GroupedQueryAttentionWeights {
  LinearWeights<T> query = {};     // [H · D, E]
  LinearWeights<T> key = {};       // [K · D, E]
  LinearWeights<T> value = {};     // [K · Dv, E]
  LinearWeights<T> output = {};    // [E, H · Dv]
  NormWeights<T> query_norm = {};  // if options.norm says so
  NormWeights<T> key_norm = {};
  Tensor<accumulator_t<T>, 1> sinks = {};         // [H]; empty if there are none
  Tensor<accumulator_t<T>, 1> alibi_slopes = {};  // [H]; empty if there are none

  HEED_INLINE operator GroupedQueryAttentionWeightsView<T>() const noexcept {
    return {query, key, value, output, query_norm, key_norm, sinks.view(), alibi_slopes.view()};
  }

  // Takes projections, as ProjectionWeights::from_packed() makes them. Allocates nothing.
  HEED_INLINE static GroupedQueryAttentionWeights from_projections(ProjectionWeights<T> projections) {
    GroupedQueryAttentionWeights weights;
    weights.query = std::move(projections.query);
    weights.key = std::move(projections.key);
    weights.value = std::move(projections.value);
    weights.output = std::move(projections.output);
    return weights;
  }

  // Reads prefix.q_proj.weight, prefix.q_proj.bias (optional), … and, where the file has them, prefix.q_norm.weight,
  // prefix.q_norm.bias, the same of k_norm, and prefix.sinks; `names` for files that call them otherwise. Allocates the
  // result. Errors: the source's (FormatError).
  template <class Source>
  HEED_INLINE static GroupedQueryAttentionWeights from_file(const Source& source, std::string_view prefix,
                                                            const GroupedQueryAttentionNames& names = {}) {
    const PrefixedSource<Source> part(source, prefix);
    GroupedQueryAttentionWeights weights =
        from_projections(ProjectionWeights<T>::from_file(part, "", names.projections));
    weights.query_norm = NormWeights<T>::from_file(part, names.query_norm, names.norm_rank);
    weights.key_norm = NormWeights<T>::from_file(part, names.key_norm, names.norm_rank);
    weights.sinks = part.template read_optional<accumulator_t<T>, 1>(names.sinks);
    return weights;
  }

  // Projections as ProjectionWeights::random(), nothing else. Allocates the result. Errors: ShapeError, OptionError.
  HEED_INLINE static GroupedQueryAttentionWeights random(std::uint64_t seed, Index hidden_size, const HeadLayout& heads,
                                                         bool bias = false) {
    return from_projections(ProjectionWeights<T>::random(seed, hidden_size, heads, bias));
  }
};

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

// One norm's weights fit `count` heads.
template <class T>
Problem check_norm_weights(const char* door, const char* weight_name, const char* bias_name,
                           const NormWeightsView<T>& weights, const QueryKeyNormOptions& options, Index count,
                           Index head_dim) noexcept {
  if (options.kind == QueryKeyNorm::none) {
    if (!weights.weight.present() && !weights.bias.present()) return {};
    return problem_at(ErrorKind::option, door, weights.weight.present() ? weight_name : bias_name)
        .append("is given, but options.norm.kind is none");
  }
  const bool shared = options.over == NormOver::head;
  const Axis axis{shared ? "head dim" : "heads * head dim", shared ? head_dim : count * head_dim};
  Problem problem = check_input(door, weight_name, weights.weight, {axis});
  if (!problem && weights.bias.present()) {
    problem = options.kind == QueryKeyNorm::layer
                  ? check_input(door, bias_name, weights.bias, {axis})
                  : problem_at(ErrorKind::option, door, bias_name).append("is given, but an rms norm has none");
  }
  return problem;
}

template <class T>
Problem check_query_key_norm(const char* door, const GroupedQueryAttentionWeightsView<T>& weights,
                             const QueryKeyNormOptions& options, const HeadLayout& heads) noexcept {
  Problem problem = first_problem(check_norm_weights(door, "query_norm.weight", "query_norm.bias", weights.query_norm,
                                                     options, heads.num_heads, heads.head_dim),
                                  check_norm_weights(door, "key_norm.weight", "key_norm.bias", weights.key_norm,
                                                     options, heads.num_kv_heads, heads.head_dim));
  if (problem) return problem;
  const bool vanishes = options.eps > 0 && static_cast<accumulator_t<T>>(options.eps) == 0;
  if (!(options.eps >= 0) || !std::isfinite(options.eps) || vanishes) {
    return problem_at(ErrorKind::option, door, "norm.eps")
        .append("must be finite and not negative, and not vanish in float, got ")
        .append_number(options.eps);
  }
  if (!std::isfinite(options.weight_offset)) {
    return problem_at(ErrorKind::option, door, "norm.weight_offset")
        .append("must be finite, got ")
        .append_number(options.weight_offset);
  }
  return {};
}

// A call that goes through a cache in pieces cannot have what has an axis of keys.
template <class T>
Problem check_pieces(const char* door, const GroupedQueryAttentionCall<T>& call, Index piece) noexcept {
  const struct {
    const char* what;
    bool present;
  } options[] = {{"mask", call.mask.present()}, {"bias", call.bias.present()}, {"weights", call.weights.present()}};
  for (const auto& option : options) {
    if (!option.present) continue;
    return problem_at(ErrorKind::option, door, option.what)
        .append("must be absent in a call of more tokens than the cache takes at once, ")
        .append(piece);
  }
  return {};
}

// What valid, lengths and rope_length must not be.
template <class T>
Problem check_padding(const char* door, const GroupedQueryAttentionCall<T>& call, Index batch, Index tokens) noexcept {
  if (call.valid.present()) {
    const Problem problem = check_input(door, "valid", call.valid, {{"batch", batch}, {"seq", tokens}});
    if (problem) return problem;
    const struct {
      const char* what;
      bool present;
    } others[] = {{"lengths", call.lengths.present()},
                  {"mask", call.mask.present()},
                  {"bias", call.bias.present()},
                  {"log_sum_exp", call.log_sum_exp.present()},
                  {"weights", call.weights.present()}};
    for (const auto& other : others) {
      if (!other.present) continue;
      return problem_at(ErrorKind::option, door, "valid").append("must not be combined with ").append(other.what);
    }
  }
  if (call.lengths.present()) {
    const Problem problem = check_input(door, "lengths", call.lengths, {{"batch", batch}});
    if (problem) return problem;
    for (Index b = 0; b < batch; ++b) {
      if (call.lengths(b) >= 0 && call.lengths(b) <= tokens) continue;
      return problem_at(ErrorKind::option, door, "lengths")
          .append("must be from 0 to ")
          .append(tokens)
          .append(", got ")
          .append(static_cast<Index>(call.lengths(b)))
          .append(" for batch row ")
          .append(b);
    }
  }
  if (call.rope_length >= 0) return {};
  return problem_at(ErrorKind::option, door, "rope_length")
      .append("must not be negative, got ")
      .append(call.rope_length);
}

}  // namespace impl
}  // namespace heed::inline HEED_ABI
