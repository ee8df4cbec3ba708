// EncoderBlock: attention and a feed-forward part, over sequences packed without padding.
#pragma once

#include "heed/layers/multi_head_self_attention.hpp"
#include "heed/models/mlp.hpp"
#include "heed/models/norm.hpp"

namespace heed {

struct EncoderBlockOptions {
  ScoreScale<double> scale = {};  // of q·k; left out: 1/√head_dim
  NormOptions norm = {.kind = NormKind::layer, .eps = 1e-12};
  Activation activation = Activation::gelu;
};

template <Scalar T>
struct EncoderBlockWeights {
  ProjectionWeights<T> attention = {};
  BlockNormWeights<T> attention_norms = {};  // BERT: sum; pre-norm encoders: before
  MlpWeights<T> mlp = {};
  BlockNormWeights<T> mlp_norms = {};
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// x = x + attention(x), then x = x + mlp(x), each with its norms (norm.hpp); every token sees all of its sequence.
//
// All rows are tokens: padding costs nothing, in products no more than in attention. Immutable, shared by copies and by
// threads. Source: Devlin et al. 2019 (arXiv 1810.04805).
template <Scalar T, Backend B = Cpu>
class EncoderBlock {
 public:
  // Copies the weights. `heads`: num_heads, as MultiHeadSelfAttention. Allocates. Errors: ShapeError.
  EncoderBlock(const EncoderBlockWeights<T>& weights, const EncoderBlockOptions& options, const HeadLayout& heads,
               const B& backend = B())
      : options_(options),
        projections_("EncoderBlock", weights.attention, resolved(weights, heads), backend),
        attention_norms_("EncoderBlock", weights.attention_norms, options.norm, hidden_size()),
        mlp_(weights.mlp, options.activation, backend),
        mlp_norms_("EncoderBlock", weights.mlp_norms, options.norm, hidden_size()) {
    raise_if(check_input("EncoderBlock", "mlp.up.weight", weights.mlp.up.weight.view(),
                         {{"intermediate size", any}, {"hidden size", hidden_size()}}));
  }

  Index hidden_size() const noexcept { return projections_.hidden_size(); }
  const HeadLayout& heads() const noexcept { return projections_.layout(); }
  Index weight_bytes() const noexcept {
    return projections_.weight_bytes() + mlp_.weight_bytes() + attention_norms_.weight_bytes() +
           mlp_norms_.weight_bytes();
  }

  // Bytes that calls of up to `tokens` tokens in up to `sequences` sequences take; monotone in both.
  std::size_t workspace_size(const B& backend, Index sequences, Index tokens) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, tokens);
    {
      const Workspace::Frame frame(measured);
      take_attention(measured, tokens);
      measured.take<std::byte>(static_cast<Index>(ops::attention_workspace_size<T>(
          backend,
          {sequences, tokens, tokens, heads().num_heads, heads().num_heads, heads().head_dim, heads().head_dim})));
    }
    measured.take<std::byte>(static_cast<Index>(mlp_.workspace_size(tokens)));
    return measured.size_needed();
  }

  // One block, in place.
  //
  //   x           [tokens, hidden size]  sequences one after the other
  //   cu_seqlens  [sequences + 1]        sequence i is rows cu_seqlens[i] … cu_seqlens[i + 1] − 1
  //   workspace   workspace_size(backend, sequences, tokens) bytes
  //
  // Allocates nothing. Numerics: as the operations. Errors: ShapeError, WorkspaceError.
  void forward(const B& backend, View<T, 2> x, View<const std::int64_t, 1> cu_seqlens, Workspace& workspace) const {
    const char* door = "EncoderBlock::forward";
    raise_if(first_problem(
        check_output(door, "x", x, {{"tokens", any}, {"hidden size", hidden_size()}}),
        check_workspace(door, workspace, workspace_size(backend, cu_seqlens.extent(0) - 1, x.extent(0)))));
    const Workspace::Frame frame(workspace);
    const View<T, 2> y = take(workspace, x.extent(0));
    attention_norms_.apply(backend, x, y, [&](View<const T, 2> in, View<T, 2> out) {
      const Workspace::Frame inner(workspace);
      const Buffers buffers = take_attention(workspace, x.extent(0));
      projections_.project(backend, as_batch(in), buffers.projected);
      const auto [query, key, value] = projections_.split(buffers.projected);
      ops::attention_varlen(backend, query[0], key[0], value[0], cu_seqlens, cu_seqlens, buffers.context[0],
                            View<accumulator_t<T>, 2>(), attention_options(), workspace);
      projections_.output(backend, buffers.context, as_batch(out));
    });
    mlp_norms_.apply(backend, x, y,
                     [&](View<const T, 2> in, View<T, 2> out) { mlp_.forward(backend, in, out, workspace); });
  }

 private:
  static HeadLayout resolved(const EncoderBlockWeights<T>& weights, const HeadLayout& given) {
    HeadLayout heads;
    const Index hidden = weights.attention.query.weight.extent(1);
    raise_if(resolve_self_attention_heads("EncoderBlock", HeadLayout{}, given, hidden, heads));
    return heads;
  }

  AttentionOptions<T> attention_options() const noexcept {
    return {.scale = impl::score_scale<accumulator_t<T>>(options_.scale, heads().head_dim)};
  }

  struct Buffers {
    View<T, 3> projected;  // queries, keys and values
    View<T, 4> context;
  };
  Buffers take_attention(Workspace& workspace, Index tokens) const noexcept {
    const View<T, 3> projected = projections_.take(workspace, 1, tokens);
    return {projected, workspace.take<T>({Index{1}, tokens, heads().num_heads, heads().head_dim})};
  }
  View<T, 2> take(Workspace& workspace, Index tokens) const noexcept {
    return workspace.take<T>({tokens, hidden_size()});
  }

  template <class U>
  static View<U, 3> as_batch(const View<U, 2>& rows) noexcept {
    const Index extents[] = {1, rows.extent(0), rows.extent(1)};
    const Index strides[] = {0, rows.stride(0), rows.stride(1)};
    return {rows.data_handle(), extents, strides};
  }

  EncoderBlockOptions options_;
  Projections<T, B> projections_;
  BlockNorms<T, B> attention_norms_;
  Mlp<T, B> mlp_;
  BlockNorms<T, B> mlp_norms_;
};

}  // namespace heed::inline HEED_ABI
