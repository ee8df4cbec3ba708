// MultiHeadSelfAttention: attention as BERT has it: query, key and value projections, heads that see all tokens, and a
// dense output projection.
#pragma once

#include <cmath>
#include <string>

#include "heed/layers/projections.hpp"
#include "heed/layers/self_attention.hpp"
#include "heed/ops/attention.hpp"

namespace heed {

// What the layer is, besides its weights and heads.
struct MultiHeadSelfAttentionOptions {
  ScoreScale<double> scale = {};  // of q·k; left out: 1/√head_dim
  double dropout = 0;             // 0 ≤ p < 1: of attention weights, in calls with `training`
};

// What a call may come with. Masks broadcast to [batch, heads, seq, seq].
template <class T, class Space = Host>
struct MultiHeadSelfAttentionCall {
  ScoreView<bool, Space> mask = {};              // true = attend; padding: [batch, 1, 1, seq]
  ScoreView<accumulator_t<T>, Space> bias = {};  // added to the scores; −inf = do not attend
  bool training = false;                         // true: dropout
  std::uint64_t dropout_seed = 0;                // another one for every training step
  View<T, 4, Space> weights = {};                // out [batch, heads, seq, seq]: after softmax and dropout
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// The heads of a MultiHeadSelfAttention for a hidden size: head_dim is hidden_size / num_heads, and every head has keys
// and values of its own. `fixed` is the layer's template argument, `given` what its constructor was handed.
[[nodiscard]] inline Problem resolve_self_attention_heads(const char* door, const HeadLayout& fixed,
                                                          const HeadLayout& given, Index hidden_size,
                                                          HeadLayout& resolved) noexcept {
  HeadLayout heads = given;
  const Index num_heads = given.num_heads == dynamic ? fixed.num_heads : given.num_heads;
  if (num_heads != dynamic && (fixed.num_heads == dynamic || fixed.num_heads == num_heads)) {
    Index head_dim = 0;
    if (const Problem problem = head_dim_of(door, hidden_size, num_heads, head_dim)) return problem;
    for (const Index named : {given.head_dim, fixed.head_dim, given.value_head_dim, fixed.value_head_dim}) {
      if (named == dynamic || named == head_dim) continue;
      return problem_at(ErrorKind::shape, door, "head_dim")
          .append("must be hidden_size ")
          .append(hidden_size)
          .append(" / num_heads ")
          .append(num_heads)
          .append(" = ")
          .append(head_dim)
          .append(", got ")
          .append(named);
    }
    for (const Index named : {given.num_kv_heads, fixed.num_kv_heads}) {
      if (named == dynamic || named == num_heads) continue;
      return problem_at(ErrorKind::shape, door, "num_kv_heads")
          .append("must be num_heads ")
          .append(num_heads)
          .append(" (GroupedQueryAttention shares kv heads), got ")
          .append(named);
    }
    heads = {.num_heads = num_heads, .num_kv_heads = num_heads, .head_dim = head_dim, .value_head_dim = head_dim};
  }
  return resolve_layout(door, fixed, heads, resolved);
}

// out = dense(softmax(scale · Q Kᵀ + mask) V), heads side by side.
//
//   const auto weights = heed::ProjectionWeights<float>::from_file(file, "attention", heed::bert_projections);
//   const heed::MultiHeadSelfAttention<float> attention(weights, {}, {.num_heads = 12});
//   attention.forward(cpu, x, out, workspace, {.mask = padding});   // x, out [batch, seq, hidden size]
//   auto y = attention.forward(cpu, x);                             // the same, allocating
//
// Without a mask every token sees all tokens. The weights (projections.hpp: `output` is BERT's dense) are packed for B
// at construction; they are immutable, copies of the layer share them, and threads may share the layer. A hidden size
// that num_heads does not divide is an error.
//
// Source: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.2; Devlin et al. 2019 (arXiv 1810.04805).
template <Scalar T, HeadLayout Heads = HeadLayout{}, Backend B = Cpu>
class MultiHeadSelfAttention {
 public:
  using A = accumulator_t<T>;
  using Call = MultiHeadSelfAttentionCall<T, space_of<B>>;

  // Copies the weights. `heads` gives num_heads where it is dynamic in the type. Allocates. Errors: ShapeError,
  // OptionError.
  explicit MultiHeadSelfAttention(const ProjectionWeightsView<T>& weights,
                                  const MultiHeadSelfAttentionOptions& options = {}, const HeadLayout& heads = Heads,
                                  const B& backend = B())
      : options_(options), projections_(name, weights, resolved(weights, heads), backend) {
    raise_if(impl::check_attention_options<T>(name, for_check(attention_options({.training = true})), extents(0, 0)));
  }

  Index hidden_size() const noexcept { return projections_.hidden_size(); }
  const HeadLayout& heads() const noexcept { return projections_.layout(); }
  const MultiHeadSelfAttentionOptions& options() const noexcept { return options_; }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    auto measured = WorkspaceOn<B>::measuring();
    take(measured, batch, tokens);
    return measured.size_needed() + ops::attention_workspace_size<T>(backend, extents(batch, tokens));
  }

  // What is wrong with the arguments of forward().
  [[nodiscard]] Problem check_forward(const B& backend, ViewOn<B, const T, 3> x, ViewOn<B, T, 3> out,
                                      const WorkspaceOn<B>& workspace, const Call& call = {}) const noexcept {
    const char* door = "MultiHeadSelfAttention::forward";
    const Axis batch{"batch", x.extent(0)};
    const Axis seq{"seq", x.extent(1)};
    const Axis hidden{"hidden size", hidden_size()};
    const Axis keys{"keys", x.extent(1)};
    return first_problem(
        check_input(door, "x", x, {{"batch", any}, {"seq", any}, hidden}),
        check_output(door, "out", out, {batch, seq, hidden}), check_in_place(door, out, x, "x"),
        impl::check_attention_options<T>(door, for_check(attention_options(call)), extents(batch.extent, seq.extent)),
        call.weights.present()
            ? check_output(door, "weights", call.weights, {batch, {"heads", heads().num_heads}, seq, keys})
            : Problem(),
        check_disjoint(door, out, call.weights, "weights"),
        check_workspace(door, workspace, workspace_size(backend, batch.extent, seq.extent)));
  }

  // Answers a batch of sequences.
  //
  //   x          [batch, seq, hidden size]
  //   out        [batch, seq, hidden size]   may be x itself, must not overlap it otherwise
  //   workspace  workspace_size(backend, batch, seq) bytes
  //   call       mask, bias, training, weights (see MultiHeadSelfAttentionCall)
  //
  // Past the checks it allocates nothing and throws nothing. Numerics: as ops::linear and ops::attention. Errors:
  // ShapeError, WorkspaceError, before anything is written.
  template <class Out>
  void forward(const B& backend, ViewOn<B, const T, 3> x, Out&& out, WorkspaceOn<B>& workspace,
               const Call& call = {}) const {
    const ViewOn<B, T, 3> to = output_on(backend, out);
    raise_if(check_forward(backend, x, to, workspace, call));
    if (x.extent(0) * x.extent(1) > 0) run(backend, x, to, workspace, call);
  }

  // The same into a new tensor. Allocates it and the workspace.
  TensorOn<B, T, 3> forward(const B& backend, ViewOn<B, const T, 3> x, const Call& call = {}) const {
    auto out = make_tensor<T>(backend, {x.extent(0), x.extent(1), hidden_size()});
    auto workspace = make_workspace(backend, workspace_size(backend, x.extent(0), x.extent(1)));
    forward(backend, x, out, workspace, call);
    return out;
  }

  // Bytes of the packed weights and biases.
  Index weight_bytes() const noexcept { return projections_.weight_bytes(); }

  // "MultiHeadSelfAttention<float>: hidden_size 768, num_heads 12, head_dim 64; 9449472 bytes of weights; backend …"
  std::string describe() const {
    impl::Description text("MultiHeadSelfAttention", scalar_name<T>());
    text.size("hidden_size", hidden_size()).size("num_heads", heads().num_heads).size("head_dim", heads().head_dim);
    return text.build<B>(weight_bytes());
  }

 private:
  static constexpr const char* name = "MultiHeadSelfAttention";

  static HeadLayout resolved(const ProjectionWeightsView<T>& weights, const HeadLayout& given) {
    HeadLayout heads;
    raise_if(resolve_self_attention_heads(name, Heads, given, weights.query.weight.extent(1), heads));
    return heads;
  }

  AttentionExtents extents(Index batch, Index tokens) const noexcept {
    return {batch, tokens, tokens, heads().num_heads, heads().num_heads, heads().head_dim, heads().head_dim};
  }

  AttentionOptions<T, space_of<B>> attention_options(const Call& call) const noexcept {
    return {.scale = impl::score_scale<A>(options_.scale, heads().head_dim),
            .mask = call.mask,
            .bias = call.bias,
            .dropout = call.training ? static_cast<A>(options_.dropout) : A(0),
            .dropout_seed = call.dropout_seed,
            .weights = call.weights};
  }

  struct Buffers {
    ViewOn<B, T, 3> projected;  // queries, keys and values
    ViewOn<B, T, 4> context;    // [B, T, H, D]
  };
  Buffers take(WorkspaceOn<B>& workspace, Index batch, Index tokens) const noexcept {
    const ViewOn<B, T, 3> projected = projections_.take(workspace, batch, tokens);
    return {projected, workspace.template take<T>({batch, tokens, heads().num_heads, heads().head_dim})};
  }

  void run(const B& backend, ViewOn<B, const T, 3> x, ViewOn<B, T, 3> out, WorkspaceOn<B>& workspace,
           const Call& call) const noexcept(HostBackend<B>) {
    const typename WorkspaceOn<B>::Frame frame(workspace);
    const Buffers buffers = take(workspace, x.extent(0), x.extent(1));
    projections_.project(backend, x, buffers.projected);
    const auto [query, key, value] = projections_.split(buffers.projected);
    ops::attention(backend, query, key, value, buffers.context, attention_options(call), workspace);
    projections_.output(backend, buffers.context, out);
  }

  MultiHeadSelfAttentionOptions options_;
  Projections<T, B> projections_;
};

}  // namespace heed::inline HEED_ABI
