// InfiniAttentionCore: Infini-attention between the projections: queries, keys and values in, mixed heads out.
//
// Source: Munkhdalai et al. 2024, "Leave No Context Behind" (arXiv 2404.07143 v2).
#pragma once

#include "heed/layers/infini_schedule.hpp"

namespace heed::inline HEED_ABI {

// For each row of a batch, a stream cut into segments of L tokens:
//
//   A_local = causal attention inside the segment              queries and keys turned by RoPE (local_positions)
//   A_mem   = φ(q) M / (φ(q)·z)                                queries and keys as they come (memory_positions)
//   out     = g · A_mem + (1 − g) · A_local                    g = sigmoid(beta), one a query head
//   a full segment enters M and z (update), after its last token
//
// A call may hold any part of the streams; the open segment waits in the state. One call, any cut into calls, and token
// by token give the same bits. With g = 0 out is A_local, bit for bit, and the memory is not read.
//
// Where the memory carries no positions, RoPE turns by the position inside the segment: scores depend only on
// differences of positions, so that equals positions that count on through the document, needs one table of L angles
// for ever, and rounds better. With memory_positions = rotary they count on from the document's start.
//
//   const heed::InfiniAttentionCore<float> core(heads, beta, {.segment_length = 2048});
//   auto state = core.make_state(batch);
//   core.forward(cpu, query, key, value, state, out, workspace);
//
// Immutable; threads may share it, each with its own state and workspace.
template <Scalar T, Backend B = Cpu>
class InfiniAttentionCore {
 public:
  using A = accumulator_t<T>;

  // heads: every size given. beta [H], copied; −∞ closes a head's gate. `door` names the layer in errors. Allocates.
  // Errors: ShapeError, OptionError.
  InfiniAttentionCore(const HeadLayout& heads, View<const A, 1> beta, const InfiniAttentionOptions& options,
                      const B& backend = B(), const char* door = "InfiniAttentionCore")
      : segment_(checked(heads, beta, options, door), beta, options, backend) {}

  const HeadLayout& heads() const noexcept { return segment_.heads(); }
  const InfiniAttentionOptions& options() const noexcept { return segment_.options(); }
  const InfiniStateLayout& state_layout() const noexcept { return segment_.layout(); }
  View<const A, 1> beta() const noexcept { return segment_.data().beta; }
  // Bytes of β and of the angles.
  Index weight_bytes() const noexcept {
    const auto& data = segment_.data();
    return (data.beta.size() + data.slot_cos.size() + data.slot_sin.size()) * static_cast<Index>(sizeof(A)) +
           data.inv_freq.size() * static_cast<Index>(sizeof(double));
  }

  // Empty memories for `batch` rows. Allocates.
  InfiniState<T> make_state(Index batch) const { return InfiniState<T>(batch, state_layout()); }

  // Tokens of each row that are worked on at a time: what bounds the workspace of long calls.
  static constexpr Index tokens_at_a_time(Index batch) noexcept { return batch <= 4 ? 512 : 128; }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take. Does not grow beyond 512 tokens.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    const std::size_t few = piece_size(backend, batch < 4 ? batch : 4, tokens);
    const std::size_t many = piece_size(backend, batch, tokens);
    return few > many ? few : many;
  }

  // What is wrong with the arguments of forward().
  [[nodiscard]] Problem check_forward(const B& backend, View<const T, 4> query, View<const T, 4> key,
                                      View<const T, 4> value, const InfiniState<T>& state, View<T, 4> out,
                                      const Workspace& workspace, const InfiniAttentionCall& call = {},
                                      const char* door = "InfiniAttentionCore::forward") const noexcept {
    const Axis batch{"batch", query.extent(0)};
    const Axis seq{"seq", query.extent(1)};
    const Axis heads{"heads", this->heads().num_heads};
    const Axis kv_heads{"kv heads", this->heads().num_kv_heads};
    const Axis head_dim{"head dim", this->heads().head_dim};
    const Axis value_head_dim{"value head dim", this->heads().value_head_dim};
    return first_problem(check_input(door, "query", query, {{"batch", any}, {"seq", any}, heads, head_dim}),
                         check_input(door, "key", key, {batch, seq, kv_heads, head_dim}),
                         check_input(door, "value", value, {batch, seq, kv_heads, value_head_dim}),
                         check_output(door, "out", out, {batch, seq, heads, value_head_dim}),
                         check_disjoint(door, out, query, "query"), check_disjoint(door, out, key, "key"),
                         check_disjoint(door, out, value, "value"), check_call(door, call, batch.extent, seq.extent),
                         check_infini_state(door, state.layout(), state.batch(), state_layout(), batch.extent),
                         check_workspace(door, workspace, workspace_size(backend, batch.extent, seq.extent)));
  }

  // Reads the next tokens of every row.
  //
  //   query      [batch, seq, heads, head dim]         without position
  //   key        [batch, seq, kv heads, head dim]      without position
  //   value      [batch, seq, kv heads, value dim]
  //   state      of make_state(batch); read and written
  //   out        [batch, seq, heads, value dim]        must not overlap the inputs
  //   workspace  workspace_size(backend, batch, seq) bytes
  //   call       valid, reset, progress
  //
  // Returns the tokens read: seq, or fewer if call.progress ended it; then the state has taken in just these, and the
  // other rows of out are as they were. Past the checks it allocates nothing and throws nothing. Errors: ShapeError,
  // WorkspaceError, before anything is written. Numerics: as the operations.
  Index forward(const B& backend, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                InfiniState<T>& state, View<T, 4> out, Workspace& workspace,
                const InfiniAttentionCall& call = {}) const {
    raise_if(check_forward(backend, query, key, value, state, out, workspace, call));
    return for_each_piece(state, query.extent(1), call, [&](Index first, Index n) noexcept {
      attend(backend, query.slice(1, first, n), key.slice(1, first, n), value.slice(1, first, n), state,
             out.slice(1, first, n), workspace, piece_of(call.valid, first, n), piece_of(call.reset, first, n));
    });
  }

  // The open segments enter the memory now, though they are not full; positions count on. For the end of a document
  // whose memory is to be kept.
  //
  //   workspace  workspace_size(backend, batch, 1) bytes
  //
  // Allocates nothing. Errors: ShapeError, WorkspaceError.
  void flush(const B& backend, InfiniState<T>& state, Workspace& workspace) const {
    const char* door = "InfiniAttentionCore::flush";
    raise_if(first_problem(check_infini_state(door, state.layout(), state.batch(), state_layout(), state.batch()),
                           check_workspace(door, workspace, workspace_size(backend, state.batch(), 1))));
    const InfiniStateParts<T> parts = state.parts();
    if (segment_.memory_turns()) segment_.turn_kept_keys(backend, parts, workspace);
    segment_.compress(backend, parts, parts.pending, workspace);
    for (Index b = 0; b < state.batch(); ++b) parts.pending(b) = 0;
  }

  // What is wrong with a call's flags.
  [[nodiscard]] static Problem check_call(const char* door, const InfiniAttentionCall& call, Index batch,
                                          Index seq) noexcept {
    const auto check = [&](const char* name, const View<const bool, 2>& flags) noexcept {
      return flags.present() ? check_input(door, name, flags, {{"batch", batch}, {"seq", seq}}) : Problem();
    };
    return first_problem(check("valid", call.valid), check("reset", call.reset));
  }

  // A call's flags for a piece of it.
  static View<const bool, 2> piece_of(const View<const bool, 2>& flags, Index first, Index n) noexcept {
    return flags.present() ? flags.slice(1, first, n) : flags;
  }

  // For layers: calls piece(first, n) on pieces of a call that end, where they can, with the first row's segments, and
  // asks call.progress after each. Returns the tokens done.
  template <class F>
  Index for_each_piece(const InfiniState<T>& state, Index seq, const InfiniAttentionCall& call,
                       F&& piece) const noexcept {
    if (state.batch() == 0) return seq;
    const Index most = tokens_at_a_time(state.batch());
    const Index length = state_layout().segment_length;
    Index done = 0;
    while (done < seq) {
      const Index left = length - static_cast<Index>(state.pending()(0));
      Index n = left < most ? left + (most - left) / length * length : most;
      if (n > seq - done) n = seq - done;
      piece(done, n);
      done += n;
      if (!call.progress(done, seq)) break;
    }
    return done;
  }

  // For layers: what forward() does with a piece of at most tokens_at_a_time() tokens. An absent query and out: the
  // tokens are read, nothing is answered.
  void attend(const B& backend, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
              InfiniState<T>& state, View<T, 4> out, Workspace& workspace, View<const bool, 2> valid,
              View<const bool, 2> reset) const noexcept {
    impl::read_piece(segment_, backend, {query, key, value, out, valid, reset}, state.parts(), workspace);
  }

 private:
  static const HeadLayout& checked(const HeadLayout& heads, const View<const A, 1>& beta,
                                   const InfiniAttentionOptions& options, const char* door) {
    raise_if(check_layout(door, heads));
    raise_if(check_input(door, "beta", beta, {{"heads", heads.num_heads}}));
    raise_if(check_infini_options(door, options, heads));
    return heads;
  }

  std::size_t piece_size(const B& backend, Index batch, Index tokens) const noexcept {
    const Index most = tokens_at_a_time(batch);
    return impl::read_piece_size(segment_, backend, batch, tokens < most ? tokens : most);
  }

  impl::InfiniSegment<T, B> segment_;
};

}  // namespace heed::inline HEED_ABI
