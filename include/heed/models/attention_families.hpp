// The attention layers of published models: what their config.json and their weights are called, a row for each family.
//
// A new family is a new row of attention_families, and a check against the original (docs/models.md). There is no code
// for a single family: what a row says is read by attention_config.hpp and attention_weights.hpp.
#pragma once

#include "heed/layers/grouped_query_attention_options.hpp"
#include "heed/models/rope_config.hpp"

namespace heed {

// Which projections have a bias.
enum class AttentionBias {
  none,
  input,  // query, key and value (Qwen 2)
  all,
};

// Which layers see a sliding window, where config.json has no list layer_types.
enum class WindowRule {
  none,
  every_layer,  // if sliding_window is not null
  periodic,     // all but every n-th (n: window_period)
  from_layer,   // those from max_window_layers on, if use_sliding_window
};

// A member of config.json that must be absent or have this value: what heed's layers, or Transformers', do without.
struct FixedMember {
  const char* name = nullptr;
  const char* json = nullptr;
};

struct AttentionFamily {
  const char* model_type;

  // Members of config.json. nullptr: it has none of the kind.
  const char* hidden_size = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* num_kv_heads = "num_key_value_heads";  // absent: as many as num_heads
  const char* head_dim = "head_dim";                 // absent: hidden_size / num_heads
  const char* single_kv_head = nullptr;              // true: one kv head, whatever num_kv_heads says …
  const char* single_kv_head_unless = nullptr;       // … but if this is true, which alone makes num_kv_heads count
  const char* members_in = nullptr;                  // the object that the members below are in
  const char* dropout = "attention_dropout";
  const char* softmax_scale = nullptr;          // absent: 1/√head_dim
  const char* query_pre_attn_scalar = nullptr;  // the scale is 1/√ of it
  const char* softcap = nullptr;
  const char* bias_switch = nullptr;  // false: no bias
  bool bias_default = false;          // if the switch is absent
  FixedMember fixed[5] = {};

  // Names of weights in the attention module, and what they hold.
  ProjectionNames names = {};
  const char* packed = nullptr;  // one weight for query, key and value, instead of three
  PackedOrder order = PackedOrder::query_key_value;
  AttentionBias bias = AttentionBias::none;
  const char* query_norm = "q_norm";  // if norm.kind says so
  const char* key_norm = "k_norm";
  const char* sinks = nullptr;
  const char* neighbour = nullptr;  // a part of the module that is not attention

  // The layer.
  bool causal = true;
  bool alibi = false;
  TokenPositions positions = TokenPositions::rotary;
  RopeFamily rope = {};
  WindowRule window = WindowRule::none;
  Index window_period = 0;  // if config.json does not say
  QueryKeyNormOptions norm = {};
  const char* norm_eps = "rms_norm_eps";
  const char* norm_switch = nullptr;  // absent or false: no norm
};

// Sources: the classes *Attention and *Config of Transformers 5.24.
inline constexpr AttentionFamily attention_families[] = {
    {.model_type = "llama", .bias_switch = "attention_bias", .bias = AttentionBias::all},
    {.model_type = "mistral", .window = WindowRule::every_layer},
    {.model_type = "qwen2", .bias = AttentionBias::input, .window = WindowRule::from_layer},
    {.model_type = "qwen3",
     .bias_switch = "attention_bias",
     .bias = AttentionBias::all,
     .window = WindowRule::from_layer,
     .norm = {.kind = QueryKeyNorm::rms}},
    {.model_type = "gemma2",
     .query_pre_attn_scalar = "query_pre_attn_scalar",
     .softcap = "attn_logit_softcapping",
     .bias_switch = "attention_bias",
     .fixed = {{"use_bidirectional_attention", "false"}},
     .bias = AttentionBias::all,
     .window = WindowRule::periodic,
     .window_period = 2},
    {.model_type = "gemma3_text",
     .query_pre_attn_scalar = "query_pre_attn_scalar",
     .softcap = "attn_logit_softcapping",
     .bias_switch = "attention_bias",
     .fixed = {{"use_bidirectional_attention", "false"}},
     .bias = AttentionBias::all,
     .rope = {.theta = 1e6, .local_theta_name = "rope_local_base_freq"},
     .window = WindowRule::periodic,
     .window_period = 6,
     .norm = {.kind = QueryKeyNorm::rms, .weight_offset = 1}},
    {.model_type = "phi3", .packed = "qkv_proj", .window = WindowRule::every_layer},
    {.model_type = "phi",
     .names = {.output = "dense"},
     .bias = AttentionBias::all,
     .query_norm = "q_layernorm",
     .key_norm = "k_layernorm",
     .rope = {.fraction = 0.5},
     .norm = {.kind = QueryKeyNorm::layer},
     .norm_eps = "layer_norm_eps",
     .norm_switch = "qk_layernorm"},
    {.model_type = "gpt_neox",
     .num_kv_heads = nullptr,
     .head_dim = nullptr,
     .bias_switch = "attention_bias",
     .bias_default = true,
     .names = {.output = "dense"},
     .packed = "query_key_value",
     .order = PackedOrder::per_kv_head,
     .bias = AttentionBias::all,
     .rope = {.fraction = 0.25, .theta_name = "rotary_emb_base", .fraction_name = "rotary_pct"}},
    {.model_type = "gptj",
     .hidden_size = "n_embd",
     .num_layers = "n_layer",
     .num_heads = "n_head",
     .num_kv_heads = nullptr,
     .head_dim = nullptr,
     .dropout = "attn_pdrop",
     .fixed = {{"rotary", "true"}, {"scale_attn_weights", "true"}},
     .names = {.output = "out_proj"},
     .rope = {.layout = RopeLayout::interleaved, .dim_name = "rotary_dim"}},
    {.model_type = "gpt_oss",
     .bias_switch = "attention_bias",
     .bias_default = true,
     .bias = AttentionBias::all,
     .sinks = "sinks",
     .rope = {.theta = 150000},
     .window = WindowRule::periodic,
     .window_period = 2},
    {.model_type = "cohere",
     .bias_switch = "attention_bias",
     .bias = AttentionBias::all,
     .rope = {.layout = RopeLayout::interleaved},
     .norm = {.kind = QueryKeyNorm::layer, .over = NormOver::each_head},
     .norm_eps = "layer_norm_eps",
     .norm_switch = "use_qk_norm"},
    {.model_type = "falcon",
     .num_kv_heads = "num_kv_heads",
     .head_dim = nullptr,
     .single_kv_head = "multi_query",
     .single_kv_head_unless = "new_decoder_architecture",
     .bias_switch = "bias",
     .fixed = {{"alibi", "false"}},  // Transformers adds it before the scale, in bfloat16
     .names = {.output = "dense"},
     .packed = "query_key_value",
     .order = PackedOrder::per_kv_head,
     .bias = AttentionBias::all},
    {.model_type = "mpt",
     .hidden_size = "d_model",
     .num_layers = "n_layers",
     .num_heads = "n_heads",
     .num_kv_heads = nullptr,
     .head_dim = nullptr,
     .members_in = "attn_config",
     .dropout = "attn_pdrop",
     .softmax_scale = "softmax_scale",
     .fixed = {{"alibi", "true"},
               {"alibi_bias_max", "8"},  // which Transformers takes it for in any case
               {"attn_type", "\"multihead_attention\""}},
     .names = {.output = "out_proj"},
     .packed = "Wqkv",
     .alibi = true,
     .positions = TokenPositions::none},
    {.model_type = "olmo2",
     .bias_switch = "attention_bias",
     .bias = AttentionBias::all,
     .norm = {.kind = QueryKeyNorm::rms, .over = NormOver::all_heads}},
    {.model_type = "bert",
     .num_kv_heads = nullptr,
     .head_dim = nullptr,
     .dropout = "attention_probs_dropout_prob",
     .fixed = {{"position_embedding_type", "\"absolute\""}, {"is_decoder", "false"}, {"add_cross_attention", "false"}},
     .names = bert_projections,
     .bias = AttentionBias::all,
     .neighbour = "output.LayerNorm",
     .causal = false,
     .positions = TokenPositions::none},
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// The row of a config's model_type. Errors: FormatError for a family that is not in the table.
inline const AttentionFamily& attention_family(const ModelConfig& config) {
  return config.reader().choose("model_type", attention_families, &AttentionFamily::model_type);
}

}  // namespace heed::inline HEED_ABI
