// DecoderBlock: causal attention and a feed-forward part, with or without a KV cache.
#pragma once

#include "heed/layers/grouped_query_attention.hpp"
#include "heed/models/mlp.hpp"
#include "heed/models/norm.hpp"

namespace heed {

struct DecoderBlockOptions {
  GroupedQueryAttentionOptions attention = {};
  NormOptions norm = {};
  Activation activation = Activation::silu;
};

template <Scalar T>
struct DecoderBlockWeights {
  GroupedQueryAttentionWeights<T> attention = {};
  BlockNormWeights<T> attention_norms = {};
  MlpWeights<T> mlp = {};
  BlockNormWeights<T> mlp_norms = {};
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// x = x + attention(x), then x = x + mlp(x), each with its norms (norm.hpp).
//
// Immutable, shared by copies and by threads. Source: Touvron et al. 2023 (arXiv 2302.13971), section 2.2.
template <Scalar T, Backend B = Cpu>
class DecoderBlock {
 public:
  using Attention = GroupedQueryAttention<T, HeadLayout{}, B>;
  using Call = typename Attention::Call;

  // Copies the weights. `heads`: every size. Allocates. Errors: ShapeError, OptionError.
  DecoderBlock(const DecoderBlockWeights<T>& weights, const DecoderBlockOptions& options, const HeadLayout& heads,
               const B& backend = B())
      : attention_(weights.attention, options.attention, heads, backend),
        attention_norms_("DecoderBlock", weights.attention_norms, options.norm, hidden_size()),
        mlp_(weights.mlp, options.activation, backend),
        mlp_norms_("DecoderBlock", weights.mlp_norms, options.norm, hidden_size()) {
    raise_if(check_input("DecoderBlock", "mlp.up.weight", weights.mlp.up.weight.view(),
                         {{"intermediate size", any}, {"hidden size", hidden_size()}}));
  }

  Index hidden_size() const noexcept { return attention_.hidden_size(); }
  const Attention& attention() const noexcept { return attention_; }
  Index weight_bytes() const noexcept {
    return attention_.weight_bytes() + mlp_.weight_bytes() + attention_norms_.weight_bytes() +
           mlp_norms_.weight_bytes();
  }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take, with up to `keys` tokens a row in a cache
  // after the call; monotone in all.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens, Index keys) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, batch, tokens);
    const std::size_t attention = attention_.workspace_size(backend, batch, tokens, keys);
    const std::size_t mlp = mlp_.workspace_size(batch * tokens);
    return measured.size_needed() + (attention > mlp ? attention : mlp);
  }

  // One block, in place.
  //
  //   x          [batch, seq, hidden size]  without gaps
  //   workspace  workspace_size(backend, batch, seq, keys) bytes
  //   cache      of this block: block.attention().make_cache(); none: rows begin at position 0
  //   call       as GroupedQueryAttention's
  //
  // Allocates nothing but for a growing cache. Numerics: as the operations. Errors: as GroupedQueryAttention::forward.
  template <KvCache... Cache>
  requires(sizeof...(Cache) <= 1) void forward(const B& backend, View<T, 3> x, Workspace& workspace, const Call& call,
                                               Cache&... cache) const {
    raise_if(
        check_output("DecoderBlock::forward", "x", x, {{"batch", any}, {"seq", any}, {"hidden size", hidden_size()}}));
    const Workspace::Frame frame(workspace);
    const View<T, 3> y = take(workspace, x.extent(0), x.extent(1));
    const auto as_batch = [&](const auto& rows) { return like(rows, x); };
    attention_norms_.apply(backend, impl::as_rows(x), impl::as_rows(y), [&](const auto& in, const auto& out) {
      attention_.forward(backend, as_batch(in), cache..., as_batch(out), workspace, call);
    });
    mlp_norms_.apply(backend, impl::as_rows(x), impl::as_rows(y),
                     [&](const auto& in, const auto& out) { mlp_.forward(backend, in, out, workspace); });
  }

 private:
  View<T, 3> take(Workspace& workspace, Index batch, Index tokens) const noexcept {
    return workspace.take<T>({batch, tokens, hidden_size()});
  }
  // Rows as [batch, seq, hidden size] again.
  template <class U>
  static View<U, 3> like(const View<U, 2>& rows, const View<T, 3>& x) noexcept {
    return {rows.data_handle(), {x.extent(0), x.extent(1), x.extent(2)}};
  }

  Attention attention_;
  BlockNorms<T, B> attention_norms_;
  Mlp<T, B> mlp_;
  BlockNorms<T, B> mlp_norms_;
};

}  // namespace heed::inline HEED_ABI
