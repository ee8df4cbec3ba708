// What the Infini-attention layers can be asked for, as plain data, and their check.
#pragma once

#include "heed/core/heads.hpp"
#include "heed/core/progress.hpp"
#include "heed/ops/attention_options.hpp"
#include "heed/ops/compressive_memory_options.hpp"
#include "heed/ops/rope_options.hpp"
#include "heed/state/infini_state_layout.hpp"

namespace heed {

// What an Infini-attention layer is, besides its weights and heads.
struct InfiniAttentionOptions {
  Index segment_length = 2048;                              // L: tokens that enter the memory together
  MemoryUpdate update = MemoryUpdate::linear;               // how they do
  EmptyMemory empty_memory = EmptyMemory::bypass_gate;      // what the first segment gets
  TokenPositions local_positions = TokenPositions::rotary;  // of attention inside the segment
  TokenPositions memory_positions = TokenPositions::none;   // of queries and keys of the memory; rotary: as local
  RopeOptions rope = {};                                    // dynamic scaling is refused: streams have no length
  Index rope_length = 0;                                    // longrope: the length its frequencies are for
  ScoreScale<double> scale = {};                            // of q·k inside the segment; left out: 1/√head_dim
  double softcap = 0;                                       // c > 0: scores become c · tanh(score / c)
  Window window = {};                                       // inside the segment; it is causal in any case
};

// What a call may come with.
struct InfiniAttentionCall {
  View<const bool, 2> valid = {};  // [batch, seq]: false = padding: never enters the state, its output row is 0
  View<const bool, 2> reset = {};  // [batch, seq]: true = a new document begins with this token: the row's memory, open
                                   // segment and position are dropped before it
  Progress progress = {};  // asked with tokens done and in all, after at most 512 tokens (128 with more than four rows)
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// What is wrong with the options of a layer of these heads (every size given).
[[nodiscard]] inline Problem check_infini_options(const char* door, const InfiniAttentionOptions& options,
                                                  const HeadLayout& heads) noexcept {
  const auto bad = [&](const char* name) noexcept { return problem_at(ErrorKind::option, door, name); };
  if (options.segment_length < 1) {
    return bad("segment_length").append("must be at least 1, got ").append(options.segment_length);
  }
  if (const double scale = options.scale.value(heads.head_dim); !std::isfinite(scale)) {
    return bad("scale").append("must be finite, got ").append_number(scale);
  }
  if (!(options.softcap >= 0) || !std::isfinite(options.softcap)) {
    return bad("softcap").append("must be positive and finite, or 0 for none, got ").append_number(options.softcap);
  }
  if (options.window.left < -1 || options.window.right < -1) {
    return bad("window")
        .append("left and right must be at least 0, or -1 for no limit, got ")
        .append(options.window.left)
        .append(" and ")
        .append(options.window.right);
  }
  if (options.local_positions == TokenPositions::none) {
    if (options.memory_positions == TokenPositions::none) return {};
    return bad("memory_positions")
        .append(
            "is rotary, but local_positions is none: keys are turned for both or for the "
            "segment alone");
  }
  if (options.rope.scaling.type == RopeType::dynamic) {
    return bad("rope.scaling.type")
        .append("dynamic goes by the length of the sequence, which a stream does not have; use another scaling");
  }
  if (options.rope.scaling.type == RopeType::longrope && options.rope_length < 1) {
    return bad("rope_length")
        .append("longrope goes by the length of the sequence, which must be fixed for a stream, got ")
        .append(options.rope_length);
  }
  return check_rope(door, options.rope, heads.head_dim);
}

// The states such a layer works with.
[[nodiscard]] inline InfiniStateLayout infini_state_layout(const InfiniAttentionOptions& options,
                                                           const HeadLayout& heads) noexcept {
  InfiniStateLayout layout{.num_kv_heads = heads.num_kv_heads,
                           .head_dim = heads.head_dim,
                           .value_head_dim = heads.value_head_dim,
                           .segment_length = options.segment_length,
                           .update = options.update,
                           .local_positions = options.local_positions,
                           .memory_positions = options.memory_positions};
  if (options.local_positions == TokenPositions::none) return layout;
  layout.rope = options.rope;
  layout.rope.rotary_dim = rope_dim(options.rope, heads.head_dim);
  if (options.rope.scaling.type == RopeType::longrope) layout.rope_length = options.rope_length;
  return layout;
}

}  // namespace heed::inline HEED_ABI
