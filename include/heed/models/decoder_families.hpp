// The decoders of published models: what is around the attention of attention_families.hpp, a row for each family.
#pragma once

#include "heed/models/config.hpp"
#include "heed/models/mlp.hpp"
#include "heed/models/norm.hpp"

namespace heed {

struct DecoderFamily {
  const char* model_type;

  // Members of config.json.
  const char* activation = "hidden_act";
  const char* mlp_bias = nullptr;       // true: gate, up and down have biases
  const char* logit_softcap = nullptr;  // c: logits become c · tanh(logits / c)

  // Names in a layer; nullptr: there is no such norm.
  const char* before_attention = "input_layernorm";
  const char* after_attention = nullptr;
  const char* before_mlp = "post_attention_layernorm";
  const char* after_mlp = nullptr;
  bool packed_gate_up = false;  // mlp.gate_up_proj instead of mlp.gate_proj and mlp.up_proj

  double norm_weight_offset = 0;
  bool scaled_embeddings = false;  // by √hidden_size
};

// Sources: the classes *DecoderLayer and *ForCausalLM of Transformers 5.24.
inline constexpr DecoderFamily decoder_families[] = {
    {.model_type = "llama", .mlp_bias = "mlp_bias"},
    {.model_type = "mistral"},
    {.model_type = "qwen2"},
    {.model_type = "qwen3"},
    {.model_type = "phi3", .packed_gate_up = true},
    {.model_type = "olmo2",
     .before_attention = nullptr,
     .after_attention = "post_attention_layernorm",
     .before_mlp = nullptr,
     .after_mlp = "post_feedforward_layernorm"},
    {.model_type = "gemma2",
     .activation = "hidden_activation",
     .logit_softcap = "final_logit_softcapping",
     .after_attention = "post_attention_layernorm",
     .before_mlp = "pre_feedforward_layernorm",
     .after_mlp = "post_feedforward_layernorm",
     .norm_weight_offset = 1,
     .scaled_embeddings = true},
    {.model_type = "gemma3_text",
     .activation = "hidden_activation",
     .logit_softcap = "final_logit_softcapping",
     .after_attention = "post_attention_layernorm",
     .before_mlp = "pre_feedforward_layernorm",
     .after_mlp = "post_feedforward_layernorm",
     .norm_weight_offset = 1,
     .scaled_embeddings = true},
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// The row of a config's model_type. Errors: FormatError for a family that is not in the table.
inline const DecoderFamily& decoder_family(const ModelConfig& config) {
  return config.reader().choose("model_type", decoder_families, &DecoderFamily::model_type);
}

// The activation that a member names as Transformers does.
inline Activation activation(const ConfigReader& config, const char* member) {
  struct Named {
    const char* name;
    Activation activation;
  };
  constexpr Named activations[] = {{"gelu", Activation::gelu},
                                   {"gelu_new", Activation::gelu_tanh},
                                   {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                   {"silu", Activation::silu},
                                   {"swish", Activation::silu}};
  return config.choose(member, activations, &Named::name).activation;
}

}  // namespace heed::inline HEED_ABI
