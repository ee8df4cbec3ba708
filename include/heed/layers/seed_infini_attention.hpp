// seed::InfiniAttention: the arithmetic of the Python code that heed grew out of, for those who port from it.
#pragma once

#include <string>

#include "heed/layers/infini_attention.hpp"
#include "heed/layers/rotary_embedding.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class T>
struct SeedInfiniData {
  Tensor<accumulator_t<T>, 1> beta;  // [H]
};

}  // namespace impl

namespace seed {

// What a call may come with. Masks broadcast to [batch, heads, seq, seq].
template <class T>
struct InfiniAttentionCall {
  ScoreView<bool> mask = {};                   // true = attend
  ScoreView<accumulator_t<T>> bias = {};       // added to the scores; −inf = do not attend
  View<const std::int64_t, 2> positions = {};  // [batch, seq]; absent: 0, 1, … in every call
};

// Infini-attention as the seed computed it. Different from heed::InfiniAttention:
//
//   * each call is one segment: nothing waits, and it enters the memory when the call ends; so a text cut otherwise
//     gives other numbers, and decoding token by token makes segments of one token
//   * without a mask attention goes both ways
//   * positions begin at 0 in each call, and queries and keys carry them into the memory, too
//   * the read is φ(q) M / (φ(q)·z + 10⁻⁸), and the gate holds for an empty memory as well
//   * β may be one number for all heads
//
// The rule is linear (the seed's delta rule multiplied transposed keys and is not reproduced). What the seed did wrong
// with several kv heads, half precision and states of another batch is not, either: kv heads are shared as everywhere
// in heed, the state is float or wider and has a batch axis.
//
//   heed::seed::InfiniAttention<float, heads> attention(weights);
//   auto state = attention.make_state(batch);
//   attention.forward(cpu, x, state, out, workspace, {.mask = causal});
template <Scalar T, HeadLayout Heads = HeadLayout{}, Backend B = Cpu>
class InfiniAttention {
 public:
  using A = accumulator_t<T>;
  using Call = InfiniAttentionCall<T>;

  // Copies the weights; weights.beta is [1] or [heads]. rope_theta: of positions, in the half layout. Allocates. Errors: ShapeError, OptionError.
  explicit InfiniAttention(const InfiniAttentionWeightsView<T>& weights, double rope_theta = 10000,
                           const HeadLayout& heads = Heads, const B& backend = B())
      : heads_(resolved(heads)),
        rope_(heads_.head_dim, {.theta = rope_theta}),
        projections_(name, {weights.query, weights.key, weights.value, weights.output}, heads_, backend) {
    const Index gates = weights.beta.extent(0) == 1 ? 1 : heads_.num_heads;
    raise_if(check_input(name, "beta", weights.beta, {{"heads", gates}}));
    Tensor<A, 1> beta({heads_.num_heads});
    for (Index h = 0; h < heads_.num_heads; ++h) beta(h) = weights.beta(gates == 1 ? 0 : h);
    data_ = std::make_shared<const impl::SeedInfiniData<T>>(impl::SeedInfiniData<T>{std::move(beta)});
  }

  Index hidden_size() const noexcept { return projections_.hidden_size(); }
  const HeadLayout& heads() const noexcept { return heads_; }

  // Empty memories for `batch` rows; they keep no open segment. Allocates.
  InfiniState<T> make_state(Index batch) const { return InfiniState<T>(batch, state_layout()); }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, batch, tokens);
    const std::size_t inner[] = {
        ops::attention_workspace_size<T>(backend, {batch, tokens, tokens, heads_.num_heads, heads_.num_kv_heads,
                                                   heads_.head_dim, heads_.value_head_dim}),
        ops::memory_retrieve_workspace_size<T>(backend, heads_.head_dim, heads_.value_head_dim),
        ops::memory_update_workspace_size<T>(backend, heads_.head_dim, heads_.value_head_dim)};
    std::size_t largest = 0;
    for (const std::size_t size : inner) largest = size > largest ? size : largest;
    return measured.size_needed() + largest;
  }

  // What is wrong with the arguments of forward().
  [[nodiscard]] Problem check_forward(const B& backend, View<const T, 3> x, const InfiniState<T>& state, View<T, 3> out,
                                      const Workspace& workspace, const Call& call = {}) const noexcept {
    const char* door = "seed::InfiniAttention::forward";
    const Axis batch{"batch", x.extent(0)};
    const Axis seq{"seq", x.extent(1)};
    const Axis hidden{"hidden size", hidden_size()};
    const AttentionExtents extents{x.extent(0),         x.extent(1),     x.extent(1),          heads_.num_heads,
                                   heads_.num_kv_heads, heads_.head_dim, heads_.value_head_dim};
    return first_problem(
        check_input(door, "x", x, {{"batch", any}, {"seq", any}, hidden}),
        check_output(door, "out", out, {batch, seq, hidden}), check_in_place(door, out, x, "x"),
        impl::check_score_view(door, "mask", call.mask, extents),
        impl::check_score_view(door, "bias", call.bias, extents),
        call.positions.present() ? check_input(door, "positions", call.positions, {batch, seq}) : Problem(),
        check_infini_state(door, state.layout(), state.batch(), state_layout(), batch.extent),
        check_workspace(door, workspace, workspace_size(backend, batch.extent, seq.extent)));
  }

  // Answers one segment, then takes it into the state.
  //
  //   x          [batch, seq, hidden size]
  //   state      of make_state(batch); read and written
  //   out        [batch, seq, hidden size]   may be x itself, must not overlap it otherwise
  //   workspace  workspace_size(backend, batch, seq) bytes
  //   call       mask, bias, positions
  //
  // Past the checks it allocates nothing and throws nothing. Errors: ShapeError, WorkspaceError.
  template <class Out>
  void forward(const B& backend, View<const T, 3> x, InfiniState<T>& state, Out&& out, Workspace& workspace,
               const Call& call = {}) const {
    const View<T, 3> to = output_view(out);
    raise_if(check_forward(backend, x, state, to, workspace, call));
    if (x.extent(0) > 0 && x.extent(1) > 0) run(backend, x, state.parts(), to, workspace, call);
  }

  // The same into a new tensor. Allocates it and the workspace.
  Tensor<T, 3> forward(const B& backend, View<const T, 3> x, InfiniState<T>& state, const Call& call = {}) const {
    Tensor<T, 3> out({x.extent(0), x.extent(1), hidden_size()});
    Workspace workspace(workspace_size(backend, x.extent(0), x.extent(1)));
    forward(backend, x, state, out, workspace, call);
    return out;
  }

  // "seed::InfiniAttention<float>: hidden_size 64, num_heads 4, …"
  std::string describe() const {
    impl::Description text("seed::InfiniAttention", scalar_name<T>());
    text.size("hidden_size", hidden_size())
        .size("num_heads", heads_.num_heads)
        .size("num_kv_heads", heads_.num_kv_heads)
        .size("head_dim", heads_.head_dim);
    return text.build<B>(projections_.weight_bytes() + data_->beta.size() * static_cast<Index>(sizeof(A)));
  }

 private:
  static constexpr const char* name = "seed::InfiniAttention";

  static HeadLayout resolved(const HeadLayout& given) {
    HeadLayout heads;
    raise_if(resolve_layout(name, Heads, given, heads));
    return heads;
  }

  InfiniStateLayout state_layout() const noexcept {
    return infini_state_layout(
        {.segment_length = 0, .memory_positions = TokenPositions::rotary, .rope = rope_.options()}, heads_);
  }

  struct Buffers {
    View<T, 3> projected;             // [B, n, H · D + K · (D + Dv)]
    View<T, 4> context, memory;       // [B, n, H, Dv]
    View<A, 3> denominator;           // [B, n, H]
    View<std::int64_t, 2> positions;  // [1, n]
    RotaryTables<T> angles;           // [B, n, pairs]
  };
  Buffers take(Workspace& workspace, Index batch, Index tokens) const noexcept {
    Buffers buffers;
    buffers.projected = projections_.take(workspace, batch, tokens);
    buffers.context = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.value_head_dim});
    buffers.memory = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.value_head_dim});
    buffers.denominator = workspace.take<A>({batch, tokens, heads_.num_heads});
    buffers.positions = workspace.take<std::int64_t>({Index{1}, tokens});
    buffers.angles = rope_.take(workspace, batch, tokens);
    return buffers;
  }

  void run(const B& backend, View<const T, 3> x, const InfiniStateParts<T>& state, View<T, 3> out, Workspace& workspace,
           const Call& call) const noexcept {
    const Workspace::Frame frame(workspace);
    const Index batch = x.extent(0);
    Buffers buffers = take(workspace, batch, x.extent(1));
    projections_.project(backend, x, buffers.projected);
    const ProjectedHeads<T> parts = projections_.split(buffers.projected);
    if (call.positions.present()) {
      rope_.cos_sin(backend, call.positions, buffers.angles.cos, buffers.angles.sin);
    } else {
      for (Index t = 0; t < x.extent(1); ++t) buffers.positions(0, t) = t;
      const RotaryTables<T> row{buffers.angles.cos.slice(0, 0, 1), buffers.angles.sin.slice(0, 0, 1)};
      rope_.cos_sin(backend, buffers.positions, row.cos, row.sin);
      buffers.angles = row.repeat(batch);
    }
    rope_.rotate(backend, parts.query, buffers.angles.cos, buffers.angles.sin, parts.query);
    rope_.rotate(backend, parts.key, buffers.angles.cos, buffers.angles.sin, parts.key);

    AttentionOptions<T> options;
    options.mask = call.mask;
    options.bias = call.bias;
    ops::attention(backend, parts.query, parts.key, parts.value, buffers.context, options, workspace);
    ops::memory_retrieve(backend, parts.query, state.memory, state.normalizer, buffers.memory, workspace,
                         {.denominator_epsilon = A(1e-8), .denominator = buffers.denominator});
    ops::gated_mix(backend, buffers.memory, buffers.context, data_->beta.view(), buffers.context,
                   {.empty_memory = EmptyMemory::apply_gate, .denominator = buffers.denominator});
    ops::memory_update(backend, parts.key, parts.value, state.memory, state.normalizer, workspace);
    for (Index b = 0; b < batch; ++b) state.position(b) += x.extent(1);
    projections_.output(backend, buffers.context, out);
  }

  HeadLayout heads_;
  RotaryEmbedding<T, B> rope_;
  Projections<T, B> projections_;
  std::shared_ptr<const impl::SeedInfiniData<T>> data_;
};

}  // namespace seed
}  // namespace heed::inline HEED_ABI
