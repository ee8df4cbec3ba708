// InfiniAttention: attention with a compressive memory, over streams of any length in constant memory.
//
// Source: Munkhdalai et al. 2024, "Leave No Context Behind" (arXiv 2404.07143 v2).
#pragma once

#include <string>
#include <string_view>

#include "heed/layers/infini_attention_core.hpp"
#include "heed/layers/projections.hpp"

namespace heed {

// The weights of an InfiniAttention layer wherever they lie; axes as ProjectionWeightsView.
template <Scalar T>
struct InfiniAttentionWeightsView {
  LinearWeightsView<T> query = {};         // [H · D, E]
  LinearWeightsView<T> key = {};           // [K · D, E]
  LinearWeightsView<T> value = {};         // [K · Dv, E]
  LinearWeightsView<T> output = {};        // [E, H · Dv]
  View<const accumulator_t<T>, 1> beta{};  // [H]; g = sigmoid(beta) is the memory's share
};

// The same, owned.
template <Scalar T>
struct InfiniAttentionWeights {
  LinearWeights<T> query = {};            // [H · D, E]
  LinearWeights<T> key = {};              // [K · D, E]
  LinearWeights<T> value = {};            // [K · Dv, E]
  LinearWeights<T> output = {};           // [E, H · Dv]
  Tensor<accumulator_t<T>, 1> beta = {};  // [H]

  HEED_INLINE operator InfiniAttentionWeightsView<T>() const noexcept {
    return {query, key, value, output, beta.view()};
  }

  // Reads prefix.query.weight, prefix.query.bias (optional), prefix.key.weight, … and prefix.beta; where there is no
  // prefix.query.weight, the projections under Hugging Face's names (q_proj, k_proj, v_proj, o_proj). Allocates the
  // result. Errors: the source's (FormatError).
  template <class Source>
  HEED_INLINE static InfiniAttentionWeights from_file(const Source& source, std::string_view prefix) {
    const PrefixedSource<Source> part(source, prefix);
    const ProjectionNames names = part.contains("query.weight")
                                      ? ProjectionNames{"query", "key", "value", "output"}
                                      : ProjectionNames{"q_proj", "k_proj", "v_proj", "o_proj"};
    return {LinearWeights<T>::from_file(part, names.query), LinearWeights<T>::from_file(part, names.key),
            LinearWeights<T>::from_file(part, names.value), LinearWeights<T>::from_file(part, names.output),
            part.template read<accumulator_t<T>, 1>("beta")};
  }

  // Projections as ProjectionWeights::random(); β = 0, so that memory and segment count alike. Allocates the result.
  // Errors: ShapeError, OptionError.
  HEED_INLINE static InfiniAttentionWeights random(std::uint64_t seed, Index hidden_size, const HeadLayout& heads,
                                                   bool bias = false) {
    ProjectionWeights<T> projections = ProjectionWeights<T>::random(seed, hidden_size, heads, bias);
    return {std::move(projections.query), std::move(projections.key), std::move(projections.value),
            std::move(projections.output), Tensor<accumulator_t<T>, 1>({heads.num_heads})};
  }
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Projections around InfiniAttentionCore, which says what is computed.
//
//   constexpr heed::HeadLayout heads{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
//   const heed::InfiniAttention<float, heads> attention(weights, {.segment_length = 2048});
//   auto state = attention.make_state(batch);
//   attention.forward(cpu, x, state, out, workspace);   // x, out [batch, seq, hidden size]; then the next tokens
//   auto y = attention.forward(cpu, x, state);          // the same, allocating
//
// The weights are packed for B at construction; they are immutable, copies of the layer share them, and threads may
// share the layer, each with its own state and workspace. hidden_size need not be num_heads · head_dim.
template <Scalar T, HeadLayout Heads = HeadLayout{}, Backend B = Cpu>
class InfiniAttention {
 public:
  using A = accumulator_t<T>;
  using Core = InfiniAttentionCore<T, B>;

  // Copies the weights. `heads` gives the sizes that are dynamic in the type. Allocates. Errors: ShapeError,
  // OptionError.
  explicit InfiniAttention(const InfiniAttentionWeightsView<T>& weights, const InfiniAttentionOptions& options = {},
                           const HeadLayout& heads = Heads, const B& backend = B())
      : core_(resolved(heads), weights.beta, options, backend, "InfiniAttention"),
        projections_("InfiniAttention", {weights.query, weights.key, weights.value, weights.output}, core_.heads(),
                     backend) {}

  Index hidden_size() const noexcept { return projections_.hidden_size(); }
  const HeadLayout& heads() const noexcept { return core_.heads(); }
  const InfiniAttentionOptions& options() const noexcept { return core_.options(); }
  // The part between the projections.
  const Core& core() const noexcept { return core_; }

  // Empty memories for `batch` rows. Allocates.
  InfiniState<T> make_state(Index batch) const { return core_.make_state(batch); }

  // A state that was saved under a prefix; see InfiniState::load().
  template <class Source>
  InfiniState<T> load_state(const Source& source, std::string_view prefix = {}) const {
    return InfiniState<T>::load(source, core_.state_layout(), prefix);
  }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take. Does not grow beyond 512 tokens a row.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    const std::size_t few = buffers_size(batch < 4 ? batch : 4, tokens);
    const std::size_t many = buffers_size(batch, tokens);
    return (few > many ? few : many) + core_.workspace_size(backend, batch, tokens);
  }

  // What is wrong with the arguments of forward().
  [[nodiscard]] Problem check_forward(const B& backend, View<const T, 3> x, const InfiniState<T>& state, View<T, 3> out,
                                      const Workspace& workspace, const InfiniAttentionCall& call = {}) const noexcept {
    const char* door = "InfiniAttention::forward";
    const Problem problem = check_read(door, backend, x, state, workspace, call);
    if (problem) return problem;
    return first_problem(
        check_output(door, "out", out, {{"batch", x.extent(0)}, {"seq", x.extent(1)}, {"hidden size", hidden_size()}}),
        check_in_place(door, out, x, "x"));
  }

  // Reads the next tokens of every row and answers them.
  //
  //   x          [batch, seq, hidden size]
  //   state      of make_state(batch); read and written
  //   out        [batch, seq, hidden size]   may be x itself, must not overlap it otherwise; rows of padding are 0
  //   workspace  workspace_size(backend, batch, seq) bytes
  //   call       valid, reset, progress (see InfiniAttentionCall)
  //
  // Returns the tokens read: seq, or fewer if call.progress ended it; then the state has taken in just these, and the
  // other rows of out are as they were. Past the checks it allocates nothing and throws nothing. Errors: ShapeError,
  // WorkspaceError, before anything is written. Numerics: as the operations.
  template <class Out>
  Index forward(const B& backend, View<const T, 3> x, InfiniState<T>& state, Out&& out, Workspace& workspace,
                const InfiniAttentionCall& call = {}) const {
    const View<T, 3> to = output_view(out);
    raise_if(check_forward(backend, x, state, to, workspace, call));
    return run(backend, x, state, to, workspace, call);
  }

  // The same into a new tensor. Allocates it and the workspace.
  Tensor<T, 3> forward(const B& backend, View<const T, 3> x, InfiniState<T>& state,
                       const InfiniAttentionCall& call = {}) const {
    Tensor<T, 3> out({x.extent(0), x.extent(1), hidden_size()});
    Workspace workspace(workspace_size(backend, x.extent(0), x.extent(1)));
    forward(backend, x, state, out, workspace, call);
    return out;
  }

  // Reads the next tokens without answering them: the state afterwards is what forward() would have left, bit for bit,
  // for less work. For a model's last layer, while no output is asked for. Arguments, result and errors as forward().
  Index read(const B& backend, View<const T, 3> x, InfiniState<T>& state, Workspace& workspace,
             const InfiniAttentionCall& call = {}) const {
    raise_if(check_read("InfiniAttention::read", backend, x, state, workspace, call));
    return run(backend, x, state, {}, workspace, call);
  }

  // The open segments enter the memory now, though they are not full; see InfiniAttentionCore::flush().
  void flush(const B& backend, InfiniState<T>& state, Workspace& workspace) const {
    core_.flush(backend, state, workspace);
  }

  // Bytes of the packed weights, β and angles.
  Index weight_bytes() const noexcept { return projections_.weight_bytes() + core_.weight_bytes(); }

  // "InfiniAttention<float>: hidden_size 64, num_heads 4, …, segment_length 128, linear; 66048 bytes of weights; …"
  std::string describe() const {
    impl::Description text("InfiniAttention", scalar_name<T>());
    text.size("hidden_size", hidden_size())
        .size("num_heads", heads().num_heads)
        .size("num_kv_heads", heads().num_kv_heads)
        .size("head_dim", heads().head_dim)
        .size("value_head_dim", heads().value_head_dim)
        .size("segment_length", options().segment_length)
        .note(impl::state_text(options().update).text);
    return text.build<B>(weight_bytes());
  }

 private:
  static HeadLayout resolved(const HeadLayout& given) {
    HeadLayout heads;
    raise_if(resolve_layout("InfiniAttention", Heads, given, heads));
    return heads;
  }

  Problem check_read(const char* door, const B& backend, View<const T, 3> x, const InfiniState<T>& state,
                     const Workspace& workspace, const InfiniAttentionCall& call) const noexcept {
    return first_problem(check_input(door, "x", x, {{"batch", any}, {"seq", any}, {"hidden size", hidden_size()}}),
                         Core::check_call(door, call, x.extent(0), x.extent(1)),
                         check_infini_state(door, state.layout(), state.batch(), core_.state_layout(), x.extent(0)),
                         check_workspace(door, workspace, workspace_size(backend, x.extent(0), x.extent(1))));
  }

  std::size_t buffers_size(Index batch, Index tokens) const noexcept {
    const Index most = Core::tokens_at_a_time(batch);
    Workspace measured = Workspace::measuring();
    take_buffers(measured, batch, tokens < most ? tokens : most);
    return measured.size_needed();
  }

  struct Buffers {
    View<T, 3> projected;  // queries, keys and values
    View<T, 4> context;    // [B, n, H, Dv]
  };
  Buffers take_buffers(Workspace& workspace, Index batch, Index tokens) const noexcept {
    const View<T, 3> projected = projections_.take(workspace, batch, tokens);
    return {projected, workspace.take<T>({batch, tokens, heads().num_heads, heads().value_head_dim})};
  }

  Index run(const B& backend, View<const T, 3> x, InfiniState<T>& state, View<T, 3> out, Workspace& workspace,
            const InfiniAttentionCall& call) const noexcept {
    return core_.for_each_piece(state, x.extent(1), call, [&](Index first, Index n) noexcept {
      const Workspace::Frame frame(workspace);
      const Buffers buffers = take_buffers(workspace, x.extent(0), n);
      const View<const bool, 2> valid = Core::piece_of(call.valid, first, n);
      const View<const bool, 2> reset = Core::piece_of(call.reset, first, n);
      projections_.project(backend, x.slice(1, first, n), buffers.projected);
      const ProjectedHeads<T> parts = projections_.split(buffers.projected);
      if (!out.present()) {
        core_.attend(backend, {}, parts.key, parts.value, state, {}, workspace, valid, reset);
        return;
      }
      core_.attend(backend, parts.query, parts.key, parts.value, state, buffers.context, workspace, valid, reset);
      const View<T, 3> to = out.slice(1, first, n);
      projections_.output(backend, buffers.context, to);
      for (Index b = 0; valid.present() && b < to.extent(0); ++b) {
        for (Index t = 0; t < n; ++t) {
          if (valid(b, t)) continue;
          for (T& element : to[b][t].span()) element = T{};  // the output's bias made it something else
        }
      }
    });
  }

  Core core_;
  Projections<T, B> projections_;
};

}  // namespace heed::inline HEED_ABI
