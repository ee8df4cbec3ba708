// InfiniAttentionCore: Infini-attention between the projections: queries, keys and values in, mixed heads out.
//
// Source: Munkhdalai et al. 2024, "Leave No Context Behind" (arXiv 2404.07143 v2).
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "heed/backend/backend.hpp"
#include "heed/core/workspace.hpp"
#include "heed/layers/infini_attention_options.hpp"
#include "heed/ops/attention.hpp"
#include "heed/ops/compressive_memory.hpp"
#include "heed/ops/gated_mix.hpp"
#include "heed/ops/rotary_embedding.hpp"
#include "heed/state/infini_state.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// What a core holds besides sizes; shared by its copies.
template <class T>
struct InfiniCoreData {
  using A = accumulator_t<T>;

  Tensor<A, 1> beta;                // [H]
  Tensor<double, 1> inv_freq;       // [pairs]
  Tensor<A, 3> slot_cos, slot_sin;  // [1, L, pairs]: see InfiniAttentionCore
};

// Copies heads [n, K, D] to [n, K, D].
template <class T>
void copy_tokens(View<const T, 3> from, View<T, 3> to) noexcept {
  const Index heads = to.extent(1);
  const Index dim = to.extent(2);
  const auto whole = [&](const auto& view) noexcept { return heads == 1 || view.stride(1) == dim; };
  const Index pieces = whole(from) && whole(to) ? 1 : heads;
  const auto bytes = static_cast<std::size_t>(heads * dim / pieces) * sizeof(T);
  for (Index t = 0; t < to.extent(0); ++t) {
    for (Index h = 0; h < pieces; ++h) {
      std::memcpy(static_cast<void*>(to.pointer(t, h)), static_cast<const void*>(from.pointer(t, h)), bytes);
    }
  }
}

template <class T>
void zero_tokens(View<T, 3> tokens) noexcept {
  for (Index t = 0; t < tokens.extent(0); ++t) {
    for (Index h = 0; h < tokens.extent(1); ++h) {
      for (Index d = 0; d < tokens.extent(2); ++d) tokens(t, h, d) = T{};
    }
  }
}

}  // namespace impl

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
      : heads_(heads), options_(options) {
    raise_if(check_layout(door, heads));
    raise_if(check_input(door, "beta", beta, {{"heads", heads.num_heads}}));
    raise_if(check_infini_options(door, options, heads));
    layout_ = infini_state_layout(options, heads);
    impl::InfiniCoreData<T> data;
    data.beta = Tensor<A, 1>(beta);
    for (Index h = 0; h < heads.num_heads; ++h) gates_open_ = gates_open_ || impl::gate_of(beta(h)).memory != 0;
    if (turns()) make_angles(backend, data);
    data_ = std::make_shared<const impl::InfiniCoreData<T>>(std::move(data));
  }

  const HeadLayout& heads() const noexcept { return heads_; }
  const InfiniAttentionOptions& options() const noexcept { return options_; }
  const InfiniStateLayout& state_layout() const noexcept { return layout_; }
  View<const A, 1> beta() const noexcept { return data_->beta; }
  // Bytes of β and of the angles.
  Index weight_bytes() const noexcept {
    return (data_->beta.size() + data_->slot_cos.size() + data_->slot_sin.size()) * static_cast<Index>(sizeof(A)) +
           data_->inv_freq.size() * static_cast<Index>(sizeof(double));
  }

  // Empty memories for `batch` rows. Allocates.
  InfiniState<T> make_state(Index batch) const { return InfiniState<T>(batch, layout_); }

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
    const Axis heads{"heads", heads_.num_heads};
    const Axis kv_heads{"kv heads", heads_.num_kv_heads};
    const Axis head_dim{"head dim", heads_.head_dim};
    const Axis value_head_dim{"value head dim", heads_.value_head_dim};
    return first_problem(check_input(door, "query", query, {{"batch", any}, {"seq", any}, heads, head_dim}),
                         check_input(door, "key", key, {batch, seq, kv_heads, head_dim}),
                         check_input(door, "value", value, {batch, seq, kv_heads, value_head_dim}),
                         check_output(door, "out", out, {batch, seq, heads, value_head_dim}),
                         check_disjoint(door, out, query, "query"), check_disjoint(door, out, key, "key"),
                         check_disjoint(door, out, value, "value"), check_call(door, call, batch.extent, seq.extent),
                         check_infini_state(door, state.layout(), state.batch(), layout_, batch.extent),
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
    raise_if(first_problem(check_infini_state(door, state.layout(), state.batch(), layout_, state.batch()),
                           check_workspace(door, workspace, workspace_size(backend, state.batch(), 1))));
    const InfiniStateParts<T> parts = state.parts();
    const Workspace::Frame frame(workspace);
    if (memory_turns()) turn_kept_keys(backend, parts, workspace);
    compress(backend, parts, parts.pending, workspace);
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
    const Index length = layout_.segment_length;
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
    const InfiniStateParts<T> parts = state.parts();
    if (query.present() || memory_turns()) turn_kept_keys(backend, parts, workspace);
    if (rows_are_aligned(parts, valid, reset)) {
      attend_aligned(backend, query, key, value, parts, out, workspace);
    } else {
      attend_ragged(backend, query, key, value, parts, out, workspace, valid, reset);
    }
  }

 private:
  // The next tokens of all rows, in the same place of their segments or not.
  struct Run {
    View<const T, 4> query;                     // [B, R, H, D], absent if nothing is to be answered
    View<T, 4> out;                             // [B, R, H, Dv]
    Index keys;                                 // most keys of a row, its pending ones included
    View<const std::int64_t, 1> key_lengths;    // [B]: keys of each row; absent: all have as many
    View<const std::int64_t, 1> query_offsets;  // [B]: keys before the run
  };

  static constexpr Index kept_keys_at_a_time = 16;

  bool turns() const noexcept { return layout_.local_positions == TokenPositions::rotary; }
  bool memory_turns() const noexcept { return layout_.memory_positions == TokenPositions::rotary; }
  Index pairs() const noexcept { return data_->inv_freq.extent(0); }

  void make_angles(const B& backend, impl::InfiniCoreData<T>& data) const {
    data.inv_freq = Tensor<double, 1>({rope_dim(options_.rope, heads_.head_dim) / 2});
    inverse_frequencies(options_.rope, heads_.head_dim, options_.rope_length, data.inv_freq);
    if (memory_turns()) return;
    const Index length = layout_.segment_length;
    Tensor<std::int64_t, 2> slots({Index{1}, length});
    for (Index i = 0; i < length; ++i) slots(0, i) = i;
    data.slot_cos = Tensor<A, 3>({Index{1}, length, data.inv_freq.extent(0)});
    data.slot_sin = Tensor<A, 3>({Index{1}, length, data.inv_freq.extent(0)});
    ops::rotary_tables(backend, slots, data.inv_freq, attention_factor(options_.rope.scaling), data.slot_cos,
                       data.slot_sin);
  }

  // ---- workspace
  std::size_t piece_size(const B& backend, Index batch, Index tokens) const noexcept {
    const Index most = tokens_at_a_time(batch);
    if (tokens > most) tokens = most;
    if (tokens > layout_.segment_length) tokens = layout_.segment_length;
    Workspace measured = Workspace::measuring();
    take_ragged(measured, batch, tokens, true);
    take_angles(measured, batch, tokens > kept_keys_at_a_time ? tokens : kept_keys_at_a_time);
    take_run(measured, batch, tokens);
    const AttentionExtents extents{batch,
                                   tokens,
                                   layout_.segment_length,
                                   heads_.num_heads,
                                   heads_.num_kv_heads,
                                   heads_.head_dim,
                                   heads_.value_head_dim};
    const std::size_t inner[] = {
        ops::attention_workspace_size<T>(backend, extents),
        ops::memory_retrieve_workspace_size<T>(backend, heads_.head_dim, heads_.value_head_dim),
        ops::memory_update_workspace_size<T>(backend, heads_.head_dim, heads_.value_head_dim)};
    std::size_t largest = 0;
    for (const std::size_t size : inner) largest = size > largest ? size : largest;
    return measured.size_needed() + largest;
  }

  struct Ragged {
    View<std::int64_t, 1> cursor, begin, count, lengths, offsets;  // [B]
    View<T, 4> query, out;                                         // [B, R, H, D], [B, R, H, Dv]
  };
  Ragged take_ragged(Workspace& workspace, Index batch, Index tokens, bool answers) const noexcept {
    Ragged ragged;
    View<std::int64_t, 1>* const lists[] = {&ragged.cursor, &ragged.begin, &ragged.count, &ragged.lengths,
                                            &ragged.offsets};
    for (View<std::int64_t, 1>* list : lists) *list = workspace.take<std::int64_t, 1>({batch});
    if (!answers) return ragged;
    ragged.query = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.head_dim});
    ragged.out = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.value_head_dim});
    return ragged;
  }

  struct Angles {
    View<std::int64_t, 2> positions;  // [B, R]
    View<A, 3> cos, sin;              // [B, R, pairs]
  };
  Angles take_angles(Workspace& workspace, Index batch, Index tokens) const noexcept {
    if (!memory_turns()) return {};
    Angles angles;
    angles.positions = workspace.take<std::int64_t>({batch, tokens});
    angles.cos = workspace.take<A>({batch, tokens, pairs()});
    angles.sin = workspace.take<A>({batch, tokens, pairs()});
    return angles;
  }

  struct Scratch {
    View<T, 4> query;        // [B, R, H, D], turned
    View<T, 4> memory;       // [B, R, H, Dv], the memory's answers
    View<A, 3> denominator;  // [B, R, H]
  };
  Scratch take_run(Workspace& workspace, Index batch, Index tokens) const noexcept {
    Scratch scratch;
    if (turns()) scratch.query = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.head_dim});
    if (!gates_open_) return scratch;
    scratch.memory = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.value_head_dim});
    scratch.denominator = workspace.take<A>({batch, tokens, heads_.num_heads});
    return scratch;
  }

  // ---- rows
  static bool rows_are_aligned(const InfiniStateParts<T>& state, const View<const bool, 2>& valid,
                               const View<const bool, 2>& reset) noexcept {
    for (Index b = 1; b < state.pending.extent(0); ++b) {
      if (state.pending(b) != state.pending(0)) return false;
    }
    const auto holds_only = [](const View<const bool, 2>& flags, bool value) noexcept {
      for (Index b = 0; flags.present() && b < flags.extent(0); ++b) {
        for (Index t = 0; t < flags.extent(1); ++t) {
          if (flags(b, t) != value) return false;
        }
      }
      return true;
    };
    return holds_only(valid, true) && holds_only(reset, false);
  }

  // All rows stand at the same token of their segments and every token counts: plain slices.
  void attend_aligned(const B& backend, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                      const InfiniStateParts<T>& state, View<T, 4> out, Workspace& workspace) const noexcept {
    const Index batch = key.extent(0);
    const Index seq = key.extent(1);
    const Index length = layout_.segment_length;
    for (Index t = 0; t < seq;) {
      const Workspace::Frame frame(workspace);
      const auto slot = static_cast<Index>(state.pending(0));
      const Index n = seq - t < length - slot ? seq - t : length - slot;
      for (Index b = 0; b < batch; ++b) {
        impl::copy_tokens(key[b].slice(0, t, n), state.segment_keys[b].slice(0, slot, n));
        impl::copy_tokens(value[b].slice(0, t, n), state.segment_values[b].slice(0, slot, n));
      }
      Run run{};
      run.keys = slot + n;
      if (query.present()) {
        run.query = query.slice(1, t, n);
        run.out = out.slice(1, t, n);
      }
      const bool turning = turns() && (query.present() || memory_turns());
      Angles angles;
      if (turning) {
        angles = take_angles(workspace, batch, n);
        for (Index b = 0; memory_turns() && b < batch; ++b) {
          for (Index i = 0; i < n; ++i) angles.positions(b, i) = state.position(b) + i;
        }
        angles = angles_of(backend, angles, 0, batch, slot, n);
        turn(backend, state.segment_keys.slice(1, slot, n), angles, state.rotated_keys.slice(1, slot, n));
      } else if (turns()) {
        *state.rotated_keys_current = false;
      }
      if (query.present()) {
        const Scratch scratch = take_run(workspace, batch, n);
        if (turning) turn(backend, run.query, angles, scratch.query);
        answer(backend, run, scratch, state, workspace);
      }
      for (Index b = 0; b < batch; ++b) {
        state.pending(b) = slot + n;
        state.position(b) += n;
      }
      if (slot + n == length) {
        compress(backend, state, {}, workspace);
        for (Index b = 0; b < batch; ++b) state.pending(b) = 0;
      }
      t += n;
    }
  }

  // Rows at different tokens, padding, new documents: in rounds, each row gives its next tokens up to the end of its
  // segment, its document or the call, gathered from the left into a batch of runs.
  void attend_ragged(const B& backend, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                     const InfiniStateParts<T>& state, View<T, 4> out, Workspace& workspace,
                     const View<const bool, 2>& valid, const View<const bool, 2>& reset) const noexcept {
    const Index batch = key.extent(0);
    const Index seq = key.extent(1);
    const Index length = layout_.segment_length;
    const bool answers = query.present();
    const auto counts = [&](Index b, Index t) noexcept { return !valid.present() || valid(b, t); };
    const auto begins = [&](Index b, Index t) noexcept { return reset.present() && reset(b, t); };
    for (Index b = 0; answers && b < batch; ++b) {
      for (Index t = 0; t < seq; ++t) {
        if (!counts(b, t)) impl::zero_tokens(out[b].slice(0, t, 1));
      }
    }
    const Workspace::Frame frame(workspace);
    const Index widest = seq < length ? seq : length;
    const Ragged ragged = take_ragged(workspace, batch, widest, answers);
    for (Index b = 0; b < batch; ++b) ragged.cursor(b) = 0;
    for (;;) {
      // Each row's next run: tokens begin … cursor − 1, without the padding among them.
      Index longest = 0;
      for (Index b = 0; b < batch; ++b) {
        Index t = static_cast<Index>(ragged.cursor(b));
        for (; t < seq; ++t) {
          if (begins(b, t)) state.reset(b);
          if (counts(b, t)) break;
        }
        Index count = 0;
        ragged.begin(b) = t;
        for (; t < seq && state.pending(b) + count < length && (count == 0 || !begins(b, t)); ++t) {
          if (counts(b, t)) ++count;
        }
        ragged.cursor(b) = t;
        ragged.count(b) = count;
        if (count > longest) longest = count;
      }
      if (longest == 0) return;
      const Workspace::Frame round(workspace);
      Run run{};
      Scratch scratch;
      if (answers) {
        run.query = ragged.query.slice(1, 0, longest);
        run.out = ragged.out.slice(1, 0, longest);
        scratch = take_run(workspace, batch, longest);
      }
      const bool turning = turns() && (answers || memory_turns());
      if (turns() && !turning) *state.rotated_keys_current = false;
      const Angles angles = turning ? take_angles(workspace, batch, longest) : Angles{};
      for (Index b = 0; b < batch; ++b) {
        const auto slot = static_cast<Index>(state.pending(b));
        const auto count = static_cast<Index>(ragged.count(b));
        ragged.offsets(b) = slot;
        ragged.lengths(b) = slot + count;
        if (slot + count > run.keys) run.keys = slot + count;
        for_each_counted(ragged, b, counts, [&](Index i, Index t) noexcept {
          impl::copy_tokens(key[b].slice(0, t, 1), state.segment_keys[b].slice(0, slot + i, 1));
          impl::copy_tokens(value[b].slice(0, t, 1), state.segment_values[b].slice(0, slot + i, 1));
          if (answers) impl::copy_tokens(query[b].slice(0, t, 1), ragged.query[b].slice(0, i, 1));
        });
        if (answers) impl::zero_tokens(ragged.query[b].slice(0, count, longest - count));
        if (!turning) continue;
        if (answers) impl::zero_tokens(scratch.query[b].slice(0, count, longest - count));
        if (count == 0) continue;
        for (Index i = 0; memory_turns() && i < count; ++i) angles.positions(b, i) = state.position(b) + i;
        const Angles own = angles_of(backend, angles, b, 1, slot, count);
        turn(backend, state.segment_keys.slice(0, b, 1).slice(1, slot, count), own,
             state.rotated_keys.slice(0, b, 1).slice(1, slot, count));
        if (answers) {
          turn(backend, run.query.slice(0, b, 1).slice(1, 0, count), own,
               scratch.query.slice(0, b, 1).slice(1, 0, count));
        }
      }
      run.key_lengths = ragged.lengths;
      run.query_offsets = ragged.offsets;
      if (answers) answer(backend, run, scratch, state, workspace);

      bool any_full = false;
      for (Index b = 0; b < batch; ++b) {
        if (answers) {
          for_each_counted(ragged, b, counts, [&](Index i, Index t) noexcept {
            impl::copy_tokens(View<const T, 4>(run.out)[b].slice(0, i, 1), out[b].slice(0, t, 1));
          });
        }
        state.pending(b) += ragged.count(b);
        state.position(b) += ragged.count(b);
        const bool full = state.pending(b) == length;
        any_full = any_full || full;
        ragged.lengths(b) = full ? length : 0;
        if (full) state.pending(b) = 0;
      }
      if (any_full) compress(backend, state, ragged.lengths, workspace);
    }
  }

  // Calls f(number in the run, token of the call) for the tokens of row b's run.
  template <class Counts, class F>
  static void for_each_counted(const Ragged& ragged, Index b, const Counts& counts, F&& f) noexcept {
    Index i = 0;
    for (Index t = static_cast<Index>(ragged.begin(b)); t < ragged.cursor(b); ++t) {
      if (counts(b, t)) f(i++, t);
    }
  }

  // ---- what is done with a run
  // The angles of rows first … first + rows − 1, n tokens from `slot` of their segments on; with rotary memory by
  // angles.positions, which are set.
  Angles angles_of(const B& backend, const Angles& angles, Index first, Index rows, Index slot,
                   Index n) const noexcept {
    if (memory_turns()) {
      const auto part = [&](const auto& view) noexcept { return view.slice(0, first, rows).slice(1, 0, n); };
      const Angles own{part(angles.positions), part(angles.cos), part(angles.sin)};
      ops::rotary_tables(backend, own.positions, data_->inv_freq, attention_factor(options_.rope.scaling), own.cos,
                         own.sin);
      return own;
    }
    // The same row of the table for all.
    const auto row = [&](const Tensor<A, 3>& table) noexcept {
      const Index extents[] = {rows, n, pairs()};
      const Index strides[] = {0, pairs(), 1};
      return View<A, 3>(const_cast<A*>(table.view().pointer(0, slot)), extents, strides);
    };
    return {{}, row(data_->slot_cos), row(data_->slot_sin)};
  }

  void turn(const B& backend, View<const T, 4> from, const Angles& angles, View<T, 4> to) const noexcept {
    ops::rotary_embedding(backend, from, angles.cos, angles.sin, options_.rope.layout, to);
  }

  // Makes rotated_keys of the tokens that were pending when the state was restored, or read without answers.
  void turn_kept_keys(const B& backend, const InfiniStateParts<T>& state, Workspace& workspace) const noexcept {
    if (!turns() || *state.rotated_keys_current) return;
    constexpr Index most = kept_keys_at_a_time;
    for (Index b = 0; b < state.pending.extent(0); ++b) {
      const auto pending = static_cast<Index>(state.pending(b));
      for (Index slot = 0; slot < pending; slot += most) {
        const Workspace::Frame frame(workspace);
        const Index n = pending - slot < most ? pending - slot : most;
        Angles angles = take_angles(workspace, 1, n);
        for (Index i = 0; memory_turns() && i < n; ++i) {
          angles.positions(0, i) = state.position(b) - pending + slot + i;
        }
        angles = angles_of(backend, angles, 0, 1, slot, n);
        turn(backend, state.segment_keys.slice(0, b, 1).slice(1, slot, n), angles,
             state.rotated_keys.slice(0, b, 1).slice(1, slot, n));
      }
    }
    *state.rotated_keys_current = true;
  }

  // Attention inside the segment, what the memory says, and their mix.
  void answer(const B& backend, const Run& run, const Scratch& scratch, const InfiniStateParts<T>& state,
              Workspace& workspace) const noexcept {
    AttentionOptions<T> options;
    if (options_.scale.given()) options.scale = static_cast<A>(options_.scale.value(heads_.head_dim));
    options.softcap = static_cast<A>(options_.softcap);
    options.window = options_.window;
    options.causal = Causal::bottom_right;
    options.key_lengths = run.key_lengths;
    options.query_offsets = run.query_offsets;
    const View<const T, 4> turned = turns() ? View<const T, 4>(scratch.query) : run.query;
    const View<T, 4> keys = turns() ? state.rotated_keys : state.segment_keys;
    ops::attention(backend, turned, keys.slice(1, 0, run.keys), state.segment_values.slice(1, 0, run.keys), run.out,
                   options, workspace);
    if (!gates_open_) return;
    ops::memory_retrieve(backend, memory_turns() ? turned : run.query, state.memory, state.normalizer, scratch.memory,
                         workspace, {.denominator = scratch.denominator});
    ops::gated_mix(backend, scratch.memory, run.out, data_->beta.view(), run.out,
                   {.empty_memory = options_.empty_memory, .denominator = scratch.denominator});
  }

  // The first `lengths` tokens of each row's segment enter its memory.
  void compress(const B& backend, const InfiniStateParts<T>& state, View<const std::int64_t, 1> lengths,
                Workspace& workspace) const noexcept {
    const View<T, 4> keys = memory_turns() ? state.rotated_keys : state.segment_keys;
    ops::memory_update(backend, keys, state.segment_values, state.memory, state.normalizer, workspace,
                       {.rule = options_.update, .key_lengths = lengths});
  }

  HeadLayout heads_;
  InfiniAttentionOptions options_;
  InfiniStateLayout layout_;
  bool gates_open_ = false;  // any of them
  std::shared_ptr<const impl::InfiniCoreData<T>> data_;
};

}  // namespace heed::inline HEED_ABI
