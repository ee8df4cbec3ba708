// GroupedQueryAttention: the attention of decoders: query heads that share kv heads, RoPE, causal or sliding windows.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "heed/layers/grouped_query_attention_options.hpp"
#include "heed/layers/rotary_embedding.hpp"
#include "heed/layers/self_attention.hpp"
#include "heed/ops/attention.hpp"
#include "heed/ops/layer_norm.hpp"
#include "heed/ops/rms_norm.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// What a layer holds besides projections; shared by its copies.
template <class T, class B>
struct GroupedQueryAttentionData {
  NormWeights<T> query_norm;
  NormWeights<T> key_norm;
  Tensor<accumulator_t<T>, 1> sinks;
  Tensor<accumulator_t<T>, 1> alibi_slopes;
  std::optional<RotaryEmbedding<T, B>> rope;
};

}  // namespace impl

// out = output(attention(rope(norm(query)), rope(norm(key)), value)); query head h reads kv head h / (H / K).
//
//   constexpr heed::HeadLayout heads{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
//   auto weights = heed::GroupedQueryAttentionWeights<float>::from_file(file, "model.layers.0.self_attn");
//   const heed::GroupedQueryAttention<float, heads> attention(weights, {.rope = {.theta = 500000}});
//   attention.forward(cpu, x, out, workspace);                  // x, out [batch, seq, hidden size]
//   auto y = attention.forward(cpu, x, {.lengths = lengths});   // the same, allocating; rows of different lengths
//
// With the options of grouped_query_attention_options.hpp it is the attention of Llama, Mistral, Qwen, Gemma, Phi,
// Cohere, OLMo, GPT-NeoX, GPT-J, Falcon, MPT and gpt-oss. The weights are packed for B at construction; they are
// immutable, copies of the layer share them, and threads may share the layer. hidden_size need not be
// num_heads · head_dim.
//
// Source: Ainslie et al. 2023 (arXiv 2305.13245).
template <Scalar T, HeadLayout Heads = HeadLayout{}, Backend B = Cpu>
class GroupedQueryAttention {
 public:
  using A = accumulator_t<T>;
  using Call = GroupedQueryAttentionCall<T>;

  // Copies the weights. `heads` gives the sizes that are dynamic in the type. Allocates. Errors: ShapeError,
  // OptionError.
  explicit GroupedQueryAttention(const GroupedQueryAttentionWeightsView<T>& weights,
                                 const GroupedQueryAttentionOptions& options = {}, const HeadLayout& heads = Heads,
                                 const B& backend = B())
      : options_(options),
        projections_(name, {weights.query, weights.key, weights.value, weights.output}, resolved(heads), backend) {
    raise_if(impl::check_query_key_norm(name, weights, options.norm, this->heads()));
    raise_if(impl::check_list(name, "sinks", weights.sinks, "heads", this->heads().num_heads));
    raise_if(impl::check_list(name, "alibi_slopes", weights.alibi_slopes, "heads", this->heads().num_heads));
    if (options.positions == TokenPositions::rotary) raise_if(check_rope(name, options.rope, this->heads().head_dim));
    const auto owned = [](const NormWeightsView<T>& norm) {
      return NormWeights<T>{Tensor<T, 1>(norm.weight), Tensor<T, 1>(norm.bias)};
    };
    impl::GroupedQueryAttentionData<T, B> data{owned(weights.query_norm),
                                               owned(weights.key_norm),
                                               Tensor<A, 1>(weights.sinks),
                                               Tensor<A, 1>(weights.alibi_slopes),
                                               {}};
    if (options.positions == TokenPositions::rotary) data.rope.emplace(this->heads().head_dim, options.rope);
    data_ = std::make_shared<const impl::GroupedQueryAttentionData<T, B>>(std::move(data));
    raise_if(impl::check_attention_options<T>(name, attention_options({.training = true}), extents(0, 0)));
  }

  Index hidden_size() const noexcept { return projections_.hidden_size(); }
  const HeadLayout& heads() const noexcept { return projections_.layout(); }
  const GroupedQueryAttentionOptions& options() const noexcept { return options_; }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, batch, tokens);
    return measured.size_needed() + ops::attention_workspace_size<T>(backend, extents(batch, tokens));
  }

  // What is wrong with the arguments of forward().
  [[nodiscard]] Problem check_forward(const B& backend, View<const T, 3> x, View<T, 3> out, const Workspace& workspace,
                                      const Call& call = {}) const noexcept {
    const Index batch = x.extent(0);
    const Index tokens = x.extent(1);
    const Axis rows{"batch", batch};
    const Axis seq{"seq", tokens};
    const Axis query_heads{"heads", heads().num_heads};
    const Axis hidden{"hidden size", hidden_size()};
    const auto given = [](const auto& view, auto&& check) noexcept { return view.present() ? check() : Problem(); };
    return first_problem(
        check_input(door, "x", x, {{"batch", any}, {"seq", any}, hidden}),
        check_output(door, "out", out, {rows, seq, hidden}), check_in_place(door, out, x, "x"),
        given(call.valid,
              [&]() noexcept {
                return check_input(door, "valid", call.valid, {rows, seq});
              }),
        given(call.positions,
              [&]() noexcept {
                return check_input(door, "positions", call.positions, {rows, seq});
              }),
        check_padding(call, batch, tokens),
        impl::check_attention_options<T>(door, attention_options(call), extents(batch, tokens)),
        given(call.log_sum_exp,
              [&]() noexcept {
                return check_output(door, "log_sum_exp", call.log_sum_exp, {rows, query_heads, seq});
              }),
        given(call.weights,
              [&]() noexcept {
                return check_output(door, "weights", call.weights, {rows, query_heads, seq, {"keys", tokens}});
              }),
        check_disjoint(door, out, call.log_sum_exp, "log_sum_exp"), check_disjoint(door, out, call.weights, "weights"),
        check_workspace(door, workspace, workspace_size(backend, batch, tokens)));
  }

  // Answers a batch of sequences.
  //
  //   x          [batch, seq, hidden size]
  //   out        [batch, seq, hidden size]   may be x itself, must not overlap it otherwise; rows of padding are 0
  //   workspace  workspace_size(backend, batch, seq) bytes
  //   call       padding, positions, masks, training, further outputs (see GroupedQueryAttentionCall)
  //   modifier   of scores (score_modifier.hpp); with `valid`, its positions do not count padding
  //
  // Past the checks it allocates nothing and throws nothing. Numerics: as the operations. Errors: ShapeError,
  // OptionError, WorkspaceError, before anything is written.
  template <class Out, class Modifier = NoModifier>
  requires ScoreModifier<Modifier, A>
  void forward(const B& backend, View<const T, 3> x, Out&& out, Workspace& workspace, const Call& call = {},
               const Modifier& modifier = {}) const {
    const View<T, 3> to = output_view(out);
    raise_if(check_forward(backend, x, to, workspace, call));
    if (x.extent(0) * x.extent(1) > 0) run(backend, x, to, workspace, call, modifier);
  }

  // The same into a new tensor. Allocates it and the workspace.
  template <class Modifier = NoModifier>
  requires ScoreModifier<Modifier, A> Tensor<T, 3> forward(const B& backend, View<const T, 3> x, const Call& call = {},
                                                           const Modifier& modifier = {})
  const {
    Tensor<T, 3> out({x.extent(0), x.extent(1), hidden_size()});
    Workspace workspace(workspace_size(backend, x.extent(0), x.extent(1)));
    forward(backend, x, out, workspace, call, modifier);
    return out;
  }

  // Bytes of the packed projections, and of norms, sinks and slopes.
  Index weight_bytes() const noexcept {
    const Index norms = data_->query_norm.weight.size() + data_->query_norm.bias.size() +
                        data_->key_norm.weight.size() + data_->key_norm.bias.size();
    return projections_.weight_bytes() + norms * static_cast<Index>(sizeof(T)) +
           (data_->sinks.size() + data_->alibi_slopes.size()) * static_cast<Index>(sizeof(A));
  }

  // "GroupedQueryAttention<float>: hidden_size 512, num_heads 8, num_kv_heads 2, head_dim 64, value_head_dim 64,
  // causal, rotary_dim 64; 2621440 bytes of weights; backend cpu, avx2 with fma"
  std::string describe() const {
    impl::Description text("GroupedQueryAttention", scalar_name<T>());
    text.size("hidden_size", hidden_size())
        .size("num_heads", heads().num_heads)
        .size("num_kv_heads", heads().num_kv_heads)
        .size("head_dim", heads().head_dim)
        .size("value_head_dim", heads().value_head_dim)
        .note(options_.causal ? "causal" : "bidirectional");
    if (options_.window.left >= 0) text.size("window left", options_.window.left);
    if (options_.window.right >= 0) text.size("window right", options_.window.right);
    if (data_->rope) text.size("rotary_dim", data_->rope->rotary_dim());
    if (options_.norm.kind != QueryKeyNorm::none) {
      text.note(options_.norm.kind == QueryKeyNorm::rms ? "rms norm" : "layer norm");
    }
    if (options_.softcap > 0) text.note("softcap");
    if (!data_->sinks.empty()) text.note("sinks");
    if (!data_->alibi_slopes.empty()) text.note("alibi");
    return text.build(weight_bytes(), B::name());
  }

 private:
  static constexpr const char* name = "GroupedQueryAttention";
  static constexpr const char* door = "GroupedQueryAttention::forward";

  static HeadLayout resolved(const HeadLayout& given) {
    HeadLayout heads;
    raise_if(resolve_layout(name, Heads, given, heads));
    return heads;
  }

  AttentionExtents extents(Index batch, Index tokens) const noexcept {
    return {batch, tokens, tokens, heads().num_heads, heads().num_kv_heads, heads().head_dim, heads().value_head_dim};
  }

  // Without key_lengths, which the call's padding decides.
  AttentionOptions<T> attention_options(const Call& call) const noexcept {
    return {.scale = impl::score_scale<A>(options_.scale, heads().head_dim),
            .softcap = static_cast<A>(options_.softcap),
            .causal = options_.causal ? Causal::top_left : Causal::none,
            .window = options_.window,
            .mask = call.mask,
            .bias = call.bias,
            .alibi_slopes = data_->alibi_slopes,
            .sinks = data_->sinks,
            .dropout = call.training ? static_cast<A>(options_.dropout) : A(0),
            .dropout_seed = call.dropout_seed,
            .log_sum_exp = call.log_sum_exp,
            .weights = call.weights};
  }

  // What valid, lengths and rope_length must not be.
  static Problem check_padding(const Call& call, Index batch, Index tokens) noexcept {
    if (call.valid.present()) {
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

  struct Buffers {
    View<T, 3> projected;          // queries, keys and values
    View<T, 4> context;            // [B, T, H, Dv]
    View<std::int64_t, 1> counts;  // [B]: tokens that are not padding
    View<std::int64_t, 2> positions;
    RotaryTables<T> tables;
  };
  Buffers take(Workspace& workspace, Index batch, Index tokens) const noexcept {
    Buffers buffers;
    buffers.projected = projections_.take(workspace, batch, tokens);
    buffers.context = workspace.take<T>({batch, tokens, heads().num_heads, heads().value_head_dim});
    buffers.counts = View<std::int64_t, 1>(workspace.take<std::int64_t>(batch), {batch});
    if (data_->rope) {
      buffers.positions = workspace.take<std::int64_t>({batch, tokens});
      buffers.tables = data_->rope->take(workspace, batch, tokens);
    }
    return buffers;
  }

  template <class Modifier>
  void run(const B& backend, View<const T, 3> x, View<T, 3> out, Workspace& workspace, const Call& call,
           const Modifier& modifier) const noexcept {
    const Workspace::Frame frame(workspace);
    const Buffers buffers = take(workspace, x.extent(0), x.extent(1));
    projections_.project(backend, x, buffers.projected);
    const auto [query, key, value] = projections_.split(buffers.projected);
    normalize(backend, query, data_->query_norm);
    normalize(backend, key, data_->key_norm);
    if (data_->rope) rotate(backend, query, key, call, buffers);

    // Attention sees rows of tokens without padding between them; that makes it the same as without padding.
    AttentionOptions<T> options = attention_options(call);
    options.key_lengths = call.lengths;
    if (call.valid.present()) {
      impl::gather_tokens(buffers.projected, call.valid, buffers.counts);
      options.key_lengths = buffers.counts;
    }
    ops::attention(backend, query, key, value, buffers.context, options, workspace, modifier);
    if (call.valid.present()) impl::scatter_tokens<T>(buffers.context.merge_last(), call.valid, buffers.counts);
    projections_.output(backend, buffers.context, out);
    if (call.valid.present() || call.lengths.present()) clear_padding(out, call);
  }

  void normalize(const B& backend, View<T, 4> heads, const NormWeights<T>& weights) const noexcept {
    const QueryKeyNormOptions& norm = options_.norm;
    const auto run = [&](const auto& rows, View<const T, 1> weight, View<const T, 1> bias) noexcept {
      if (norm.kind == QueryKeyNorm::rms) {
        ops::rms_norm(backend, rows, weight, rows, {.eps = norm.eps, .weight_offset = norm.weight_offset});
      } else {
        ops::layer_norm(backend, rows, weight, bias, rows, {.eps = norm.eps});
      }
    };
    if (norm.kind == QueryKeyNorm::none) return;
    if (norm.over == NormOver::head) {
      run(heads, weights.weight, weights.bias);
    } else if (norm.over == NormOver::all_heads) {
      run(heads.merge_last(), weights.weight, weights.bias);
    } else {
      const Index dim = heads.extent(3);
      const auto row = [dim](const Tensor<T, 1>& list, Index head) noexcept {
        return list.empty() ? View<const T, 1>() : list.view().slice(0, head * dim, dim);
      };
      for (Index h = 0; h < heads.extent(2); ++h) {
        run(heads.slice(2, h, 1), row(weights.weight, h), row(weights.bias, h));
      }
    }
  }

  // Turns queries and keys; one table serves all rows if they have the same positions.
  void rotate(const B& backend, View<T, 4> query, View<T, 4> key, const Call& call,
              const Buffers& buffers) const noexcept {
    const Index batch = query.extent(0);
    const Index tokens = query.extent(1);
    const Index length = call.rope_length > 0 ? call.rope_length : tokens;
    const bool shared = !call.positions.present() && !call.valid.present();
    const Index rows = shared ? 1 : batch;
    View<const std::int64_t, 2> positions = call.positions;
    if (!positions.present()) {
      const View<std::int64_t, 2> counted = buffers.positions.slice(0, 0, rows);
      if (call.valid.present()) {
        impl::count_positions(call.valid, counted);
      } else {
        for (Index t = 0; t < tokens; ++t) counted(0, t) = t;
      }
      positions = counted;
    }
    RotaryTables<T> tables{buffers.tables.cos.slice(0, 0, rows), buffers.tables.sin.slice(0, 0, rows)};
    data_->rope->cos_sin(backend, positions, tables.cos, tables.sin, length);
    if (shared) tables = tables.repeat(batch);
    data_->rope->rotate(backend, query, tables.cos, tables.sin, query);
    data_->rope->rotate(backend, key, tables.cos, tables.sin, key);
  }

  // Padded tokens were computed like the others, from whatever they hold.
  void clear_padding(View<T, 3> out, const Call& call) const noexcept {
    for (Index b = 0; b < out.extent(0); ++b) {
      for (Index t = 0; t < out.extent(1); ++t) {
        if (call.valid.present() ? call.valid(b, t) : t < call.lengths(b)) continue;
        impl::fill_row(out[b][t], T{});
        for (Index h = 0; h < heads().num_heads; ++h) {
          if (call.log_sum_exp.present()) call.log_sum_exp(b, h, t) = -std::numeric_limits<A>::infinity();
          if (call.weights.present()) impl::fill_row(call.weights[b][h][t], T{});
        }
      }
    }
  }

  GroupedQueryAttentionOptions options_;
  Projections<T, B> projections_;
  std::shared_ptr<const impl::GroupedQueryAttentionData<T, B>> data_;
};

}  // namespace heed::inline HEED_ABI
