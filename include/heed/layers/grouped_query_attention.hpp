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
#include "heed/state/kv_cache.hpp"

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
//   auto cache = attention.make_cache(batch, 4096);             // or make_cache<heed::SlidingKvCache<float>>(…), …
//   attention.forward(cpu, prompt, cache, out, workspace);      // appends the prompt's keys and values, and attends
//   attention.forward(cpu, token, cache, out, workspace);       // one token more, which attends all before it
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
    raise_if(impl::check_attention_options<T>(name, attention_options({.training = true}), extents(0, 0, 0)));
  }

  Index hidden_size() const noexcept { return projections_.hidden_size(); }
  const HeadLayout& heads() const noexcept { return projections_.layout(); }
  const GroupedQueryAttentionOptions& options() const noexcept { return options_; }

  // A cache for this layer: make_cache(batch, capacity), or make_cache<Cache>(…) with the sizes that Cache is made from
  // (state/kv_cache.hpp). Allocates. Errors: OptionError.
  template <KvCache Cache = StaticKvCache<T>, class... Sizes>
  Cache make_cache(Sizes... sizes) const {
    return Cache(cache_layout(), sizes...);
  }
  KvCacheLayout cache_layout() const noexcept {
    return {heads().num_kv_heads, heads().head_dim, heads().value_head_dim};
  }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    return workspace_size(backend, batch, tokens, tokens);
  }
  // The same with up to `keys` tokens a row in a cache after the call.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens, Index keys) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, batch, tokens);
    return measured.size_needed() + ops::attention_workspace_size<T>(backend, extents(batch, tokens, keys));
  }
  // The same for a cache, however full (a growing one: until it grows).
  template <KvCache Cache>
  std::size_t workspace_size(const B& backend, const Cache& cache, Index tokens) const noexcept {
    return workspace_size(backend, cache.batch(), tokens, cache.most_keys());
  }

  // What is wrong with the arguments of forward().
  [[nodiscard]] Problem check_forward(const B& backend, View<const T, 3> x, View<T, 3> out, const Workspace& workspace,
                                      const Call& call = {}) const noexcept {
    const Index batch = x.extent(0);
    const Index tokens = x.extent(1);
    return first_problem(check_call(x, out, call, tokens),
                         check_workspace(door, workspace, workspace_size(backend, batch, tokens)));
  }
  template <KvCache Cache>
  [[nodiscard]] Problem check_forward(const B& backend, View<const T, 3> x, const Cache& cache, View<T, 3> out,
                                      const Workspace& workspace, const Call& call = {}) const noexcept {
    const Index batch = x.extent(0);
    const Index tokens = x.extent(1);
    const Index piece = tokens < cache.append_limit() ? tokens : cache.append_limit();
    Problem problem = check_kv_cache(door, cache.layout(), cache.batch(), cache_layout(), batch);
    if (!problem) problem = impl::check_padding(door, call, batch, tokens);
    if (problem) return problem;
    const Index keys = longest_after(cache, call, tokens);
    problem = check_call(x, out, call, keys);
    if (!problem && piece < tokens) problem = impl::check_pieces(door, call, piece);
    if (!problem) problem = cache.check_append(piece, present(call));
    if (problem) return problem;
    return check_workspace(door, workspace, workspace_size(backend, batch, tokens, cache.key_values().most_keys(keys)));
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
    if (x.extent(0) * x.extent(1) == 0) return;
    const Index longest = x.extent(1);
    run(backend, x, to, workspace, call, {{}, longest}, [&](const auto& new_heads, const Buffers& buffers) noexcept {
      AttentionOptions<T> options = attention_options(call);
      options.key_lengths = call.valid.present() ? View<const std::int64_t, 1>(buffers.counts) : call.lengths;
      ops::attention(backend, new_heads.query, new_heads.key, new_heads.value, buffers.context, options, workspace,
                     modifier);
    });
  }

  // Appends a batch of sequences to a cache and answers them: each token attends what its row has in the cache, and the
  // call's tokens up to itself.
  //
  //   x          [batch, seq, hidden size]   one token a row, a whole prompt, or anything between
  //   cache      of this layer: make_cache()
  //   out        [batch, seq, hidden size]   may be x itself, must not overlap it otherwise; rows of padding are 0
  //   workspace  workspace_size(backend, cache, seq) bytes
  //   call       as above; a mask's, bias's and weights' key axis is the longest row's length after the call. Padding
  //              is not appended. Positions left out go on from the row's length, padding not counted
  //   modifier   of scores; its positions are those in the cache
  //
  // A growing cache that is full allocates, at the door. A sliding cache narrows the window to its own; a call longer
  // than its append_limit() goes through it in pieces. Bits: those of all tokens in one call without a cache, for static,
  // growing and paged caches, and for sliding ones those of its window. (dynamic and longrope scaling: if rope_length is
  // the same in all calls; cached keys keep the frequencies they were turned with.) Errors: ShapeError, OptionError,
  // CapacityError, WorkspaceError, before anything is written or appended.
  template <KvCache Cache, class Out, class Modifier = NoModifier>
  requires ScoreModifier<Modifier, A>
  void forward(const B& backend, View<const T, 3> x, Cache& cache, Out&& out, Workspace& workspace,
               const Call& call = {}, const Modifier& modifier = {}) const {
    const View<T, 3> to = output_view(out);
    raise_if(check_forward(backend, x, cache, to, workspace, call));
    const Index tokens = x.extent(1);
    if (x.extent(0) * tokens == 0) return;
    const Index longest = longest_after(cache, call, tokens);
    if (tokens <= cache.append_limit()) cache.reserve(tokens, present(call));
    run(backend, x, to, workspace, call, {cache.lengths(), longest},
        [&](const auto& new_heads, const Buffers& buffers) noexcept {
          append_and_attend(backend, new_heads, cache, workspace, call, buffers, modifier);
        });
  }

  // The same into a new tensor. Allocates it and the workspace.
  template <KvCache Cache, class Modifier = NoModifier>
  requires ScoreModifier<Modifier, A> Tensor<T, 3> forward(const B& backend, View<const T, 3> x, Cache& cache,
                                                           const Call& call = {}, const Modifier& modifier = {})
  const {
    Problem problem = check_kv_cache(door, cache.layout(), cache.batch(), cache_layout(), x.extent(0));
    if (!problem) problem = impl::check_padding(door, call, x.extent(0), x.extent(1));
    raise_if(problem);
    const Index keys = cache.key_values().most_keys(longest_after(cache, call, x.extent(1)));
    Tensor<T, 3> out({x.extent(0), x.extent(1), hidden_size()});
    Workspace workspace(workspace_size(backend, x.extent(0), x.extent(1), keys));
    forward(backend, x, cache, out, workspace, call, modifier);
    return out;
  }

  // The same without a cache into a new tensor. Allocates it and the workspace.
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
    return text.build<B>(weight_bytes());
  }

 private:
  static constexpr const char* name = "GroupedQueryAttention";
  static constexpr const char* door = "GroupedQueryAttention::forward";

  static HeadLayout resolved(const HeadLayout& given) {
    HeadLayout heads;
    raise_if(resolve_layout(name, Heads, given, heads));
    return heads;
  }

  AttentionExtents extents(Index batch, Index tokens, Index keys) const noexcept {
    return {batch, tokens, keys, heads().num_heads, heads().num_kv_heads, heads().head_dim, heads().value_head_dim};
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

  // What is wrong with a call that attends up to `keys` keys, but for cache and workspace.
  Problem check_call(View<const T, 3> x, View<T, 3> out, const Call& call, Index keys) const noexcept {
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
        impl::check_padding(door, call, batch, tokens),
        given(call.positions,
              [&]() noexcept {
                return check_input(door, "positions", call.positions, {rows, seq});
              }),
        impl::check_attention_options<T>(door, attention_options(call), extents(batch, tokens, keys)),
        given(call.log_sum_exp,
              [&]() noexcept {
                return check_output(door, "log_sum_exp", call.log_sum_exp, {rows, query_heads, seq});
              }),
        given(call.weights,
              [&]() noexcept {
                return check_output(door, "weights", call.weights, {rows, query_heads, seq, {"keys", keys}});
              }),
        check_disjoint(door, out, call.log_sum_exp, "log_sum_exp"), check_disjoint(door, out, call.weights, "weights"));
  }

  static PresentTokens present(const Call& call) noexcept { return {call.valid, call.lengths}; }

  // The longest row of a cache after the call.
  template <class Cache>
  static Index longest_after(const Cache& cache, const Call& call, Index tokens) noexcept {
    Index longest = 0;
    for (Index b = 0; b < cache.batch(); ++b) {
      const Index length = static_cast<Index>(cache.lengths()(b)) + present(call).count(b, tokens);
      if (length > longest) longest = length;
    }
    return longest;
  }

  // What the rows of a call go on from.
  struct Past {
    View<const std::int64_t, 1> lengths;  // [B]: of a cache's rows, or absent: 0
    Index longest;                        // row after the call
  };

  struct Buffers {
    View<T, 3> projected;            // queries, keys and values
    View<T, 4> context;              // [B, T, H, Dv]
    View<std::int64_t, 1> counts;    // [B]: tokens that are not padding
    View<std::int64_t, 1> appended;  // [B]: those of one piece of a call
    View<std::int64_t, 1> offsets;   // [B]: lengths in the cache before that piece
    View<std::int64_t, 2> positions;
    RotaryTables<T> tables;
  };
  Buffers take(Workspace& workspace, Index batch, Index tokens) const noexcept {
    Buffers buffers;
    buffers.projected = projections_.take(workspace, batch, tokens);
    buffers.context = workspace.take<T>({batch, tokens, heads().num_heads, heads().value_head_dim});
    for (View<std::int64_t, 1>* rows : {&buffers.counts, &buffers.appended, &buffers.offsets}) {
      *rows = View<std::int64_t, 1>(workspace.take<std::int64_t>(batch), {batch});
    }
    if (data_->rope) {
      buffers.positions = workspace.take<std::int64_t>({batch, tokens});
      buffers.tables = data_->rope->take(workspace, batch, tokens);
    }
    return buffers;
  }

  // Everything but the attention itself: attend(new heads, buffers) has the first counts(b) tokens of each row.
  template <class Attend>
  void run(const B& backend, View<const T, 3> x, View<T, 3> out, Workspace& workspace, const Call& call,
           const Past& past, Attend&& attend) const noexcept {
    const Workspace::Frame frame(workspace);
    const Buffers buffers = take(workspace, x.extent(0), x.extent(1));
    projections_.project(backend, x, buffers.projected);
    const ProjectedHeads<T> new_heads = projections_.split(buffers.projected);
    normalize(backend, new_heads.query, data_->query_norm);
    normalize(backend, new_heads.key, data_->key_norm);
    if (data_->rope) rotate(backend, new_heads.query, new_heads.key, call, past, buffers);

    // Attention sees rows of tokens without padding between them; that makes it the same as without padding.
    if (call.valid.present()) impl::gather_tokens(buffers.projected, call.valid, buffers.counts);
    attend(new_heads, buffers);
    if (call.valid.present()) impl::scatter_tokens<T>(buffers.context.merge_last(), call.valid, buffers.counts);
    projections_.output(backend, buffers.context, out);
    if (call.valid.present() || call.lengths.present()) clear_padding(out, call);
  }

  // In as many pieces as the cache needs, which is one but for calls longer than a sliding cache takes at once.
  template <class Cache, class Modifier>
  void append_and_attend(const B& backend, const ProjectedHeads<T>& new_heads, Cache& cache, Workspace& workspace,
                         const Call& call, const Buffers& buffers, const Modifier& modifier) const noexcept {
    const Index batch = new_heads.query.extent(0);
    const Index tokens = new_heads.query.extent(1);
    for (Index b = 0; b < batch; ++b) buffers.counts(b) = present(call).count(b, tokens);
    AttentionOptions<T> options = attention_options(call);
    options.query_offsets = buffers.offsets;
    const Index limit = cache.append_limit();
    for (Index first = 0, count = 0; first < tokens; first += count) {
      count = tokens - first < limit ? tokens - first : limit;
      for (Index b = 0; b < batch; ++b) {
        const auto left = static_cast<Index>(buffers.counts(b)) - first;
        buffers.appended(b) = left < 0 ? 0 : left < count ? left : count;
        buffers.offsets(b) = cache.lengths()(b);
      }
      const auto piece = [&](const auto& view) noexcept { return view.slice(1, first, count); };
      const PresentTokens which{{}, buffers.appended};
      if (limit < tokens) cache.reserve(count, which);  // else done at the door, where it may allocate
      cache.store(piece(new_heads.key), piece(new_heads.value), which);
      if (call.log_sum_exp.present()) options.log_sum_exp = call.log_sum_exp.slice(2, first, count);
      ops::attention(backend, piece(new_heads.query), cache.key_values(), piece(buffers.context), options, workspace,
                     modifier);
    }
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
  void rotate(const B& backend, View<T, 4> query, View<T, 4> key, const Call& call, const Past& past,
              const Buffers& buffers) const noexcept {
    const Index batch = query.extent(0);
    const Index tokens = query.extent(1);
    const Index longest = past.longest > 0 ? past.longest : 1;  // 0: padding only
    const Index length = call.rope_length > 0 ? call.rope_length : longest;
    const auto row_start = [&](Index b) noexcept { return past.lengths.present() ? past.lengths(b) : 0; };
    bool shared = !call.positions.present() && !call.valid.present();
    for (Index b = 1; b < batch; ++b) shared = shared && row_start(b) == row_start(0);
    const Index rows = shared ? 1 : batch;
    View<const std::int64_t, 2> positions = call.positions;
    if (!positions.present()) {
      const View<std::int64_t, 2> counted = buffers.positions.slice(0, 0, rows);
      if (call.valid.present()) {
        impl::count_positions(call.valid, counted);
      } else {
        for (Index b = 0; b < rows; ++b) {
          for (Index t = 0; t < tokens; ++t) counted(b, t) = t;
        }
      }
      for (Index b = 0; b < rows; ++b) {
        for (Index t = 0; t < tokens; ++t) counted(b, t) += row_start(b);
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
