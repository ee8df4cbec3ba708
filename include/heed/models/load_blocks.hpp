// The blocks of published models, read from their weights.
#pragma once

#include "heed/models/decoder_block.hpp"
#include "heed/models/decoder_families.hpp"
#include "heed/models/encoder_block.hpp"
#include "heed/models/load.hpp"

namespace heed::inline HEED_ABI::impl {

template <Scalar T, class Source>
NormWeights<T> load_norm(const WeightLoader<Source>& loader, const std::string& name, Index size, NormKind kind) {
  NormWeights<T> weights;
  weights.weight = loader.template read<T, 1>(name + ".weight", {size});
  if (kind == NormKind::layer) weights.bias = loader.template read<T, 1>(name + ".bias", {size});
  return weights;
}

// The norm of a block that `name` names; empty if it has none.
template <Scalar T, class Source>
NormWeights<T> load_block_norm(const WeightLoader<Source>& loader, const std::string& prefix, const char* name,
                               Index size) {
  if (name == nullptr) return {};
  return load_norm<T>(loader, joined_name(prefix, name), size, NormKind::rms);
}

template <Scalar T, class Source>
MlpWeights<T> load_gated_mlp(const WeightLoader<Source>& loader, const std::string& prefix, const DecoderFamily& family,
                             Index hidden, Index intermediate, bool bias) {
  MlpWeights<T> weights;
  if (family.packed_gate_up) {
    const auto both = loader.template linear<T>(joined_name(prefix, "gate_up_proj"), 2 * intermediate, hidden, bias);
    weights.gate = unpack_projection<T>(both, 1, 2 * intermediate, 0, intermediate);
    weights.up = unpack_projection<T>(both, 1, 2 * intermediate, intermediate, intermediate);
  } else {
    weights.gate = loader.template linear<T>(joined_name(prefix, "gate_proj"), intermediate, hidden, bias);
    weights.up = loader.template linear<T>(joined_name(prefix, "up_proj"), intermediate, hidden, bias);
  }
  weights.down = loader.template linear<T>(joined_name(prefix, "down_proj"), hidden, intermediate, bias);
  return weights;
}

// Layer `layer` of a decoder, whose weights begin with `prefix`.
template <Scalar T, class B, class Source>
DecoderBlock<T, B> load_decoder_block(const WeightLoader<Source>& loader, const std::string& prefix,
                                      const ModelConfig& config, Index layer, const B& backend) {
  const DecoderFamily& family = decoder_family(config);
  const ConfigReader members = config.reader();
  const AttentionConfig attention = attention_config(config, layer);
  const Index hidden = attention.hidden_size;
  DecoderBlockOptions options{.attention = attention.options};
  options.norm = {.eps = members.number("rms_norm_eps"), .weight_offset = family.norm_weight_offset};
  options.activation = activation(members, family.activation);
  const bool mlp_bias = family.mlp_bias != nullptr && members.flag(family.mlp_bias, false);
  const auto norm = [&](const char* name) { return load_block_norm<T>(loader, prefix, name, hidden); };

  DecoderBlockWeights<T> weights;
  weights.attention = load_attention_weights<T>(loader, joined_name(prefix, "self_attn"), attention);
  weights.attention_norms.before = norm(family.before_attention);
  weights.attention_norms.after = norm(family.after_attention);
  weights.mlp = load_gated_mlp<T>(loader, joined_name(prefix, "mlp"), family, hidden, members.size("intermediate_size"),
                                  mlp_bias);
  weights.mlp_norms.before = norm(family.before_mlp);
  weights.mlp_norms.after = norm(family.after_mlp);
  return DecoderBlock<T, B>(weights, options, attention.heads, backend);
}

// A layer of BERT, whose weights begin with `prefix`.
template <Scalar T, class B, class Source>
EncoderBlock<T, B> load_bert_block(const WeightLoader<Source>& loader, const std::string& prefix,
                                   const ModelConfig& config, Index layer, const B& backend) {
  const ConfigReader members = config.reader();
  const AttentionConfig attention = attention_config(config, layer);
  const Index hidden = attention.hidden_size;
  const Index intermediate = members.size("intermediate_size");
  const EncoderBlockOptions options{.scale = attention.options.scale,
                                    .norm = {.kind = NormKind::layer, .eps = members.number("layer_norm_eps")},
                                    .activation = activation(members, "hidden_act")};
  const auto norm = [&](const char* name) {
    return load_norm<T>(loader, joined_name(prefix, name), hidden, NormKind::layer);
  };

  EncoderBlockWeights<T> weights;
  weights.attention = load_projections<T>(loader, joined_name(prefix, "attention"), attention);
  weights.attention_norms.sum = norm("attention.output.LayerNorm");
  weights.mlp.up = loader.template linear<T>(joined_name(prefix, "intermediate.dense"), intermediate, hidden, true);
  weights.mlp.down = loader.template linear<T>(joined_name(prefix, "output.dense"), hidden, intermediate, true);
  weights.mlp_norms.sum = norm("output.LayerNorm");
  return EncoderBlock<T, B>(weights, options, {.num_heads = attention.heads.num_heads}, backend);
}

}  // namespace heed::inline HEED_ABI::impl
