// What an attention layer of a published model is: its heads and options out of config.json, by the family's row.
#pragma once

#include "heed/models/attention_families.hpp"

namespace heed::inline HEED_ABI {

struct AttentionConfig {
  const AttentionFamily* family = nullptr;
  Index hidden_size = 0;
  HeadLayout heads = {};
  GroupedQueryAttentionOptions options = {};
  AttentionBias bias = AttentionBias::none;
};

namespace impl {

// "full_attention" or "sliding_attention".
inline const char* attention_layer_type(const ConfigReader& config, const AttentionFamily& family, Index layer,
                                        Index num_layers) {
  constexpr const char* full = "full_attention";
  constexpr const char* sliding = "sliding_attention";
  if (family.window == WindowRule::none) return full;
  if (family.window == WindowRule::every_layer) {
    // Transformers' default differs from family to family, and is nothing to rely on.
    if (!config.mentions("sliding_window")) {
      raise(config.problem("sliding_window").append("is missing, expected a number of tokens or null"));
    }
    return config.contains("sliding_window") ? sliding : full;
  }
  const bool switched_off = family.window == WindowRule::from_layer && !config.flag("use_sliding_window", false);
  const Index first = config.size("max_window_layers", 28);
  Index period = family.window_period;
  for (const char* name : {"sliding_window_pattern", "_sliding_window_pattern"}) period = config.size(name, period);
  if (config.contains("layer_types")) {
    const std::string_view type = config.text_at("layer_types", layer, num_layers);
    if (type == full) return full;
    if (type == sliding && !switched_off) return sliding;
    raise(
        append_name(config.problem("layer_types").append("expected full_attention or sliding_attention, got "), type));
  }
  if (family.window == WindowRule::from_layer) return !switched_off && layer >= first ? sliding : full;
  return (layer + 1) % period != 0 ? sliding : full;
}

inline HeadLayout attention_heads(const ConfigReader& config, const AttentionFamily& family, Index hidden_size) {
  HeadLayout heads{.num_heads = config.size(family.num_heads)};
  heads.num_kv_heads = heads.num_heads;
  if (family.num_kv_heads != nullptr) heads.num_kv_heads = config.size(family.num_kv_heads, heads.num_heads);
  if (family.single_kv_head != nullptr) {
    const bool single = config.flag(family.single_kv_head, true);
    if (single && !config.flag(family.single_kv_head_unless, false)) heads.num_kv_heads = 1;
  }
  if (family.head_dim != nullptr && config.contains(family.head_dim)) {
    heads.head_dim = config.size(family.head_dim);
  } else {
    raise_if(head_dim_of("config.json", hidden_size, heads.num_heads, heads.head_dim));
  }
  heads.value_head_dim = heads.head_dim;
  raise_if(check_layout("config.json", heads));
  return heads;
}

// The members in family.members_in.
inline void read_attention_members(const ConfigReader& members, const AttentionFamily& family,
                                   AttentionConfig& attention) {
  GroupedQueryAttentionOptions& options = attention.options;
  options.dropout = members.number(family.dropout, 0);
  if (family.softmax_scale != nullptr && members.contains(family.softmax_scale)) {
    options.scale = members.number(family.softmax_scale);
  }
  if (family.query_pre_attn_scalar != nullptr) {
    const double scalar = members.number(family.query_pre_attn_scalar);
    if (!(scalar > 0)) raise(members.problem(family.query_pre_attn_scalar).append("must be above 0"));
    options.scale = 1 / std::sqrt(scalar);
  }
  if (family.softcap != nullptr) options.softcap = members.number(family.softcap, 0);
  attention.bias = family.bias;
  if (family.bias_switch != nullptr && !members.flag(family.bias_switch, family.bias_default)) {
    attention.bias = AttentionBias::none;
  }
  for (const FixedMember& member : family.fixed) {
    if (member.name != nullptr) members.expect(member.name, member.json);
  }
}

}  // namespace impl

// Layer `layer` of a model. Errors: FormatError that names the member of config.json which is missing, of another type,
// or asks for what the layer does not have; members whose names speak of attention and which nothing has read are among
// them. ShapeError for sizes that do not divide.
inline AttentionConfig attention_config(const ModelConfig& config, Index layer = 0) {
  const AttentionFamily& family = attention_family(config);
  const ConfigReader members = config.reader();
  const Index num_layers = members.size(family.num_layers);
  if (layer < 0 || layer >= num_layers) {
    raise(members.problem(family.num_layers).append(num_layers).append(" layers do not include layer ").append(layer));
  }
  AttentionConfig attention{.family = &family, .hidden_size = members.size(family.hidden_size)};
  attention.heads = impl::attention_heads(members, family, attention.hidden_size);
  // What all names of options about attention have in common, and names that have it but are about something else.
  const auto finish = [](const ConfigReader& reader) {
    reader.finish({"attn", "attention", "alibi", "rope", "rotary", "window", "head", "softcap", "layer_types", "qk_",
                   "kv", "quantization"},
                  {"attn_impl", "attn_implementation", "_attn_implementation", "output_attentions", "parallel_attn",
                   "num_ln_in_parallel_attn", "final_logit_softcapping"});
  };
  if (family.members_in != nullptr && members.contains(family.members_in)) {
    const ConfigReader inner = members.object(family.members_in);
    impl::read_attention_members(inner, family, attention);
    finish(inner);
  } else {
    impl::read_attention_members(members, family, attention);
  }

  GroupedQueryAttentionOptions& options = attention.options;
  options.causal = family.causal;
  const char* layer_type = impl::attention_layer_type(members, family, layer, num_layers);
  const bool sliding = std::string_view(layer_type) == "sliding_attention";
  const Index window = members.size("sliding_window", 0);
  if (sliding) options.window = {members.size("sliding_window") - 1, 0};
  if (family.window == WindowRule::none && window > 0) {
    raise(members.problem("sliding_window").append("is not an option of this family, got ").append(window));
  }
  options.positions = family.positions;
  if (family.positions == TokenPositions::rotary) {
    options.rope = rope_options(members, family.rope, attention.heads.head_dim, layer_type);
    raise_if(check_rope("config.json", options.rope, attention.heads.head_dim));
  }
  const bool normed = family.norm_switch == nullptr || members.flag(family.norm_switch, false);
  if (family.norm.kind != QueryKeyNorm::none && normed) {
    options.norm = family.norm;
    options.norm.eps = members.number(family.norm_eps);
  }
  finish(members);
  return attention;
}

}  // namespace heed::inline HEED_ABI
