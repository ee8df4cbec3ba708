// What the numbers in an InfiniState mean: sizes, rule and positions. A state fits a layer only if these agree.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "heed/ops/compressive_memory_options.hpp"
#include "heed/ops/rope_options.hpp"

namespace heed {

// Left out, value_head_dim is head_dim.
struct InfiniStateLayout {
  Index num_kv_heads = 0;           // K
  Index head_dim = 0;               // D
  Index value_head_dim = head_dim;  // Dv
  Index segment_length = 0;         // L
  MemoryUpdate update = MemoryUpdate::linear;
  TokenPositions local_positions = TokenPositions::rotary;  // in attention inside the segment
  TokenPositions memory_positions = TokenPositions::none;   // of the keys that enter the memory
  RopeOptions rope = {};                                    // if local_positions is rotary; with rotary_dim given
  Index rope_length = 0;                                    // longrope: the length its frequencies are for
};

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

// A number or a word in a fixed buffer: states are saved without std::string code of their own.
struct StateText {
  char text[640] = {};
};

inline StateText state_text(Index value) noexcept {
  StateText result;
  std::snprintf(result.text, sizeof result.text, "%td", value);
  return result;
}
inline StateText state_text(MemoryUpdate update) noexcept {
  constexpr const char* names[] = {"linear", "delta", "safe_delta"};
  StateText result;
  std::snprintf(result.text, sizeof result.text, "%s", names[static_cast<int>(update)]);
  return result;
}
inline StateText state_text(TokenPositions positions) noexcept {
  StateText result;
  std::snprintf(result.text, sizeof result.text, "%s", positions == TokenPositions::rotary ? "rotary" : "none");
  return result;
}

// longrope's lists as one number (FNV-1a over their values' bits).
inline std::uint64_t factors_hash(const RopeScaling& scaling) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const RopeFactors* lists[] = {&scaling.short_factor, &scaling.long_factor};
  for (const RopeFactors* list : lists) {
    for (Index i = 0; i < list->size() && i < RopeFactors::capacity; ++i) {
      const double value = (*list)[i];
      unsigned char bytes[sizeof value];
      std::memcpy(bytes, &value, sizeof value);
      for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3U;
    }
  }
  return hash;
}

// All that decides how a key is turned.
inline StateText rope_text(const InfiniStateLayout& layout) noexcept {
  StateText result;
  if (layout.local_positions == TokenPositions::none) return state_text(TokenPositions::none);
  const RopeOptions& rope = layout.rope;
  const RopeScaling& s = rope.scaling;
  constexpr const char* types[] = {"none", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"};
  const int length = std::snprintf(result.text, sizeof result.text, "theta %.17g, %s, rotary_dim %td, scaling %s",
                                   rope.theta, rope.layout == RopeLayout::half ? "half" : "interleaved",
                                   rope.rotary_dim, types[static_cast<int>(s.type)]);
  if (s.type == RopeType::none) return result;
  std::snprintf(result.text + length, sizeof result.text - static_cast<std::size_t>(length),
                " (factor %.17g, max %td, original %td, attention_factor %.17g, beta %.17g %.17g, mscale %.17g %.17g, "
                "truncate %d, freq_factor %.17g %.17g, partial %.17g, factors %016" PRIx64 ", length %td)",
                s.factor, s.max_position_embeddings, s.original_max_position_embeddings, s.attention_factor,
                s.beta_fast, s.beta_slow, s.mscale, s.mscale_all_dim, s.truncate ? 1 : 0, s.low_freq_factor,
                s.high_freq_factor, s.partial_rotary_factor, factors_hash(s), layout.rope_length);
  return result;
}

// Calls field(name, text) for everything that has to agree.
template <class F>
void for_each_field(const InfiniStateLayout& layout, F&& field) {
  field("num_kv_heads", state_text(layout.num_kv_heads));
  field("head_dim", state_text(layout.head_dim));
  field("value_head_dim", state_text(layout.value_head_dim));
  field("segment_length", state_text(layout.segment_length));
  field("update", state_text(layout.update));
  field("local_positions", state_text(layout.local_positions));
  field("memory_positions", state_text(layout.memory_positions));
  field("rope", rope_text(layout));
}

inline bool same_layout(const InfiniStateLayout& a, const InfiniStateLayout& b) noexcept {
  return a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim && a.value_head_dim == b.value_head_dim &&
         a.segment_length == b.segment_length && a.update == b.update && a.local_positions == b.local_positions &&
         a.memory_positions == b.memory_positions && a.rope == b.rope && a.rope_length == b.rope_length;
}

}  // namespace impl

// A state handed to a layer: does it belong to such a layer, and have as many rows?
[[nodiscard]] inline Problem check_infini_state(const char* door, const InfiniStateLayout& state, Index state_batch,
                                                const InfiniStateLayout& layer, Index batch) noexcept {
  if (!impl::same_layout(state, layer)) {
    Problem problem = problem_at(ErrorKind::shape, door, "state");
    impl::for_each_field(layer, [&](const char* name, const impl::StateText& wanted) noexcept {
      impl::for_each_field(state, [&](const char* other, const impl::StateText& found) noexcept {
        if (std::strcmp(name, other) != 0 || std::strcmp(wanted.text, found.text) == 0) return;
        problem.append(name).append(" is ").append(found.text).append(", the layer's is ").append(wanted.text);
        problem.append("; ");
      });
    });
    return problem.append("use the layer's make_state()");
  }
  if (state_batch == batch) return {};
  return problem_at(ErrorKind::shape, door, "state")
      .append("is for a batch of ")
      .append(state_batch)
      .append(", the call's is ")
      .append(batch);
}

// What is wrong with taking `tokens` of `pending` ones back from a row.
[[nodiscard]] inline Problem check_infini_rollback(Index row, Index batch, Index tokens, Index pending) noexcept {
  const char* door = "InfiniState::rollback";
  if (row < 0 || row >= batch) {
    return problem_at(ErrorKind::option, door, "row")
        .append("must be in 0 to ")
        .append(batch - 1)
        .append(", got ")
        .append(row);
  }
  if (tokens >= 0 && tokens <= pending) return {};
  return problem_at(ErrorKind::option, door, "tokens")
      .append("row ")
      .append(row)
      .append(" has ")
      .append(pending)
      .append(" tokens in its open segment, got ")
      .append(tokens);
}

}  // namespace heed::inline HEED_ABI
