// InfiniSegment: what an Infini-attention layer does with tokens in the open segments of its states. Its parts are put
// together by infini_schedule.hpp.
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

namespace heed::inline HEED_ABI::impl {

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

// The same heads, all 0.
template <class T>
void zero_tokens(View<T, 3> tokens) noexcept {
  for (Index t = 0; t < tokens.extent(0); ++t) {
    for (Index h = 0; h < tokens.extent(1); ++h) {
      for (Index d = 0; d < tokens.extent(2); ++d) tokens(t, h, d) = T{};
    }
  }
}

// What does not change; shared by copies of a layer.
template <class T>
struct InfiniSegmentData {
  using A = accumulator_t<T>;

  Tensor<A, 1> beta;                // [H]
  Tensor<double, 1> inv_freq;       // [pairs]
  Tensor<A, 3> slot_cos, slot_sin;  // [1, L, pairs]: the angles of a segment's tokens, where the memory has none
};

// The next tokens of all rows, R at most.
template <class T>
struct InfiniRun {
  View<const T, 4> query = {};                     // [B, R, H, D], without position
  View<T, 4> out = {};                             // [B, R, H, Dv]
  Index keys = 0;                                  // most keys of a row, its pending ones and the run's
  View<const std::int64_t, 1> key_lengths = {};    // [B]: keys of each row; absent: all have as many
  View<const std::int64_t, 1> query_offsets = {};  // [B]: keys before the run; absent: `keys` less the run's
};

// Arguments are the caller's to check; nothing here allocates after construction.
template <Scalar T, Backend B>
class InfiniSegment {
 public:
  using A = accumulator_t<T>;
  using Parts = InfiniStateParts<T>;

  // The cosines and sines of a run's tokens.
  struct Angles {
    View<const A, 3> cos, sin;  // [B, R, pairs]
  };
  // Scratch of a run.
  struct Scratch {
    View<T, 4> query;        // [B, R, H, D], turned
    View<T, 4> memory;       // [B, R, H, Dv], the memory's answers
    View<A, 3> denominator;  // [B, R, H]
  };

  // Everything checked.
  InfiniSegment(const HeadLayout& heads, View<const A, 1> beta, const InfiniAttentionOptions& options, const B& backend)
      : heads_(heads), options_(options), layout_(infini_state_layout(options, heads)) {
    InfiniSegmentData<T> data;
    data.beta = Tensor<A, 1>(beta);
    for (Index h = 0; h < heads.num_heads; ++h) gates_open_ = gates_open_ || gate_of(beta(h)).memory != 0;
    if (turns()) make_angles(backend, data);
    data_ = std::make_shared<const InfiniSegmentData<T>>(std::move(data));
  }

  const HeadLayout& heads() const noexcept { return heads_; }
  const InfiniAttentionOptions& options() const noexcept { return options_; }
  const InfiniStateLayout& layout() const noexcept { return layout_; }
  const InfiniSegmentData<T>& data() const noexcept { return *data_; }
  // Whether queries and keys are turned at all, and before the memory sees them.
  bool turns() const noexcept { return layout_.local_positions == TokenPositions::rotary; }
  bool memory_turns() const noexcept { return layout_.memory_positions == TokenPositions::rotary; }

  // ---- workspace
  // What the operations take for runs of so many tokens.
  std::size_t operations_size(const B& backend, Index batch, Index tokens) const noexcept {
    const AttentionExtents extents{.batch = batch,
                                   .queries = tokens,
                                   .keys = layout_.segment_length,
                                   .num_heads = heads_.num_heads,
                                   .num_kv_heads = heads_.num_kv_heads,
                                   .head_dim = heads_.head_dim,
                                   .value_head_dim = heads_.value_head_dim};
    const std::size_t sizes[] = {
        ops::attention_workspace_size<T>(backend, extents),
        ops::memory_retrieve_workspace_size<T>(backend, heads_.head_dim, heads_.value_head_dim),
        ops::memory_update_workspace_size<T>(backend, heads_.head_dim, heads_.value_head_dim)};
    std::size_t largest = 0;
    for (const std::size_t size : sizes) largest = size > largest ? size : largest;
    return largest;
  }

  // What angles, scratch and operations take together.
  std::size_t run_size(const B& backend, Index batch, Index tokens) const noexcept {
    Workspace measured = Workspace::measuring();
    if (memory_turns()) take_angles(measured, batch, tokens > kept_keys_at_a_time ? tokens : kept_keys_at_a_time);
    take_scratch(measured, batch, tokens);
    return measured.size_needed() + operations_size(backend, batch, tokens);
  }

  Scratch take_scratch(Workspace& workspace, Index batch, Index tokens) const noexcept {
    Scratch scratch;
    if (turns()) scratch.query = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.head_dim});
    if (!gates_open_) return scratch;
    scratch.memory = workspace.take<T>({batch, tokens, heads_.num_heads, heads_.value_head_dim});
    scratch.denominator = workspace.take<A>({batch, tokens, heads_.num_heads});
    return scratch;
  }

  // ---- keys
  // Row b's next tokens, key [n, K, D] and value [n, K, Dv], into the segment from `slot` on.
  static void append(const Parts& state, Index b, Index slot, View<const T, 3> key, View<const T, 3> value) noexcept {
    copy_tokens(key, state.segment_keys[b].slice(0, slot, key.extent(0)));
    copy_tokens(value, state.segment_values[b].slice(0, slot, value.extent(0)));
  }

  // The angles of rows `first` … first + rows − 1 for n tokens from `slot` on, where pending and position are still
  // those before these tokens. Takes memory of the workspace for them if they are not in the table.
  Angles angles_of(const B& backend, const Parts& state, Index first, Index rows, Index slot, Index n,
                   Workspace& workspace) const noexcept {
    if (!memory_turns()) {
      const auto row = [&](const Tensor<A, 3>& table) noexcept {  // the same for all rows
        const Index pairs = table.extent(2);
        const Index extents[] = {rows, n, pairs};
        const Index strides[] = {0, pairs, 1};
        return View<const A, 3>(table.view().pointer(0, slot), extents, strides);
      };
      return {row(data_->slot_cos), row(data_->slot_sin)};
    }
    const Positions taken = take_angles(workspace, rows, n);
    for (Index b = 0; b < rows; ++b) {
      const std::int64_t begin = state.position(first + b) - state.pending(first + b) + slot;
      for (Index i = 0; i < n; ++i) taken.positions(b, i) = begin + i;
    }
    ops::rotary_tables(backend, taken.positions, data_->inv_freq, attention_factor(options_.rope.scaling), taken.cos,
                       taken.sin);
    return {taken.cos, taken.sin};
  }

  // Makes rotated_keys of the same tokens, whose keys are in the segment, and returns their angles; or, if nobody is
  // going to look at them now, leaves that to turn_kept_keys().
  Angles turn_keys(const B& backend, const Parts& state, Index first, Index rows, Index slot, Index n, bool answers,
                   Workspace& workspace) const noexcept {
    if (!turns() || n == 0) return {};
    if (!answers && !memory_turns()) {
      *state.rotated_keys_current = false;
      return {};
    }
    const Angles angles = angles_of(backend, state, first, rows, slot, n, workspace);
    const auto tokens = [&](const View<T, 4>& keys) noexcept { return keys.slice(0, first, rows).slice(1, slot, n); };
    turn(backend, tokens(state.segment_keys), angles, tokens(state.rotated_keys));
    return angles;
  }

  // Makes rotated_keys of all pending tokens after the state was restored, or has read without answers.
  void turn_kept_keys(const B& backend, const Parts& state, Workspace& workspace) const noexcept {
    if (!turns() || *state.rotated_keys_current) return;
    for (Index b = 0; b < state.pending.extent(0); ++b) {
      const auto pending = static_cast<Index>(state.pending(b));
      for (Index slot = 0; slot < pending; slot += kept_keys_at_a_time) {
        const Workspace::Frame frame(workspace);
        const Index n = pending - slot < kept_keys_at_a_time ? pending - slot : kept_keys_at_a_time;
        turn_keys(backend, state, b, 1, slot, n, true, workspace);
      }
    }
    *state.rotated_keys_current = true;
  }

  // Heads [B, R, heads, D] with their angles; does nothing without rotary positions.
  void turn(const B& backend, View<const T, 4> from, const Angles& angles, View<T, 4> to) const noexcept {
    if (turns()) ops::rotary_embedding(backend, from, angles.cos, angles.sin, options_.rope.layout, to);
  }

  // ---- what becomes of a run
  // Attention inside the segment, what the memory says, and their mix.
  void answer(const B& backend, const InfiniRun<T>& run, const Scratch& scratch, const Parts& state,
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
  void compress(const B& backend, const Parts& state, View<const std::int64_t, 1> lengths,
                Workspace& workspace) const noexcept {
    const View<T, 4> keys = memory_turns() ? state.rotated_keys : state.segment_keys;
    ops::memory_update(backend, keys, state.segment_values, state.memory, state.normalizer, workspace,
                       {.rule = options_.update, .key_lengths = lengths});
  }

 private:
  static constexpr Index kept_keys_at_a_time = 16;

  struct Positions {
    View<std::int64_t, 2> positions;  // [B, R]
    View<A, 3> cos, sin;              // [B, R, pairs]
  };
  Positions take_angles(Workspace& workspace, Index batch, Index tokens) const noexcept {
    const Index pairs = data_->inv_freq.extent(0);
    const auto positions = workspace.take<std::int64_t>({batch, tokens});
    const auto cos = workspace.take<A>({batch, tokens, pairs});
    return {positions, cos, workspace.take<A>({batch, tokens, pairs})};
  }

  void make_angles(const B& backend, InfiniSegmentData<T>& data) const {
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

  HeadLayout heads_;
  InfiniAttentionOptions options_;
  InfiniStateLayout layout_;
  bool gates_open_ = false;  // any of them
  std::shared_ptr<const InfiniSegmentData<T>> data_;
};

}  // namespace heed::inline HEED_ABI::impl
