// load<Layer>(weights, prefix, config): an attention layer of a published model.
#pragma once

#include "heed/layers/grouped_query_attention.hpp"
#include "heed/layers/multi_head_self_attention.hpp"
#include "heed/models/attention_config.hpp"
#include "heed/models/weights.hpp"
#include "heed/ops/alibi.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <Scalar T, class Source>
ProjectionWeights<T> load_projections(const WeightLoader<Source>& loader, const std::string& prefix,
                                      const AttentionConfig& attention) {
  const AttentionFamily& family = *attention.family;
  const HeadLayout& heads = attention.heads;
  const bool biased = attention.bias != AttentionBias::none;
  const Index hidden = attention.hidden_size;
  const Index query = heads.num_heads * heads.head_dim;
  const Index key = heads.num_kv_heads * heads.head_dim;
  const Index value = heads.num_kv_heads * heads.value_head_dim;
  const auto output = [&] {
    return loader.template linear<T>(joined_name(prefix, family.names.output), hidden,
                                     heads.num_heads * heads.value_head_dim, attention.bias == AttentionBias::all);
  };
  if (family.packed != nullptr) {
    const auto packed =
        loader.template linear<T>(joined_name(prefix, family.packed), query + key + value, hidden, biased);
    return ProjectionWeights<T>::from_packed(packed, output(), heads, family.order);
  }
  return {loader.template linear<T>(joined_name(prefix, family.names.query), query, hidden, biased),
          loader.template linear<T>(joined_name(prefix, family.names.key), key, hidden, biased),
          loader.template linear<T>(joined_name(prefix, family.names.value), value, hidden, biased), output()};
}

// A norm of queries or keys of `heads` heads.
template <Scalar T, class Source>
NormWeights<T> load_query_key_norm(const WeightLoader<Source>& loader, const std::string& name,
                                   const AttentionConfig& attention, Index heads) {
  const QueryKeyNormOptions& norm = attention.options.norm;
  const Index dim = attention.heads.head_dim;
  NormWeights<T> weights;
  if (norm.over == NormOver::each_head) {
    const auto rows = loader.template read<T, 2>(name + ".weight", {heads, dim});
    weights.weight = Tensor<T, 1>(rows.view().merge_last());
  } else {
    const Index size = norm.over == NormOver::head ? dim : heads * dim;
    weights.weight = loader.template read<T, 1>(name + ".weight", {size});
    if (norm.kind == QueryKeyNorm::layer) weights.bias = loader.template read<T, 1>(name + ".bias", {size});
  }
  return weights;
}

template <Scalar T, class Source>
GroupedQueryAttentionWeights<T> load_attention_weights(const WeightLoader<Source>& loader, const std::string& prefix,
                                                       const AttentionConfig& attention) {
  using A = accumulator_t<T>;
  const AttentionFamily& family = *attention.family;
  const HeadLayout& heads = attention.heads;
  auto weights = GroupedQueryAttentionWeights<T>::from_projections(load_projections<T>(loader, prefix, attention));
  if (attention.options.norm.kind != QueryKeyNorm::none) {
    weights.query_norm =
        load_query_key_norm<T>(loader, joined_name(prefix, family.query_norm), attention, heads.num_heads);
    weights.key_norm =
        load_query_key_norm<T>(loader, joined_name(prefix, family.key_norm), attention, heads.num_kv_heads);
  }
  if (family.sinks != nullptr) {
    weights.sinks = loader.template read<A, 1>(joined_name(prefix, family.sinks), {heads.num_heads});
  }
  if (family.alibi) {
    weights.alibi_slopes = Tensor<A, 1>({heads.num_heads});
    ops::alibi_slopes(weights.alibi_slopes);
  }
  return weights;
}

// How a layer of each type is made.
template <class Layer>
struct AttentionMaker;

template <class T, HeadLayout Heads, class B>
struct AttentionMaker<GroupedQueryAttention<T, Heads, B>> {
  using Backend = B;

  template <class Source>
  static GroupedQueryAttention<T, Heads, B> make(const WeightLoader<Source>& loader, const std::string& prefix,
                                                 const AttentionConfig& attention, const B& backend) {
    const auto weights = load_attention_weights<T>(loader, prefix, attention);
    return GroupedQueryAttention<T, Heads, B>(weights, attention.options, attention.heads, backend);
  }
};

template <class T, HeadLayout Heads, class B>
struct AttentionMaker<MultiHeadSelfAttention<T, Heads, B>> {
  using Backend = B;

  template <class Source>
  static MultiHeadSelfAttention<T, Heads, B> make(const WeightLoader<Source>& loader, const std::string& prefix,
                                                  const AttentionConfig& attention, const B& backend) {
    const AttentionFamily& family = *attention.family;
    if (family.causal || family.positions == TokenPositions::rotary || family.alibi) {
      raise(format_problem("load", family.model_type)
                .append("is for GroupedQueryAttention: MultiHeadSelfAttention has "
                        "no causal mask and no positions"));
    }
    const auto weights = load_projections<T>(loader, prefix, attention);
    const MultiHeadSelfAttentionOptions options{.scale = attention.options.scale, .dropout = attention.options.dropout};
    return MultiHeadSelfAttention<T, Heads, B>(weights, options, attention.heads, backend);
  }
};

}  // namespace impl

// The attention of layer `layer` of a model whose config.json is `config`: a GroupedQueryAttention, or for models
// without a causal mask and without rotary positions a MultiHeadSelfAttention.
//
//   const auto config = heed::ModelConfig::open("Qwen3-8B/config.json");
//   const auto weights = heed::ShardedReader::open("Qwen3-8B");
//   const auto attention = heed::load<heed::GroupedQueryAttention<float>>(weights, "model.layers.3.self_attn", config, 3);
//
// Weights are copied, converted to the layer's scalar from F32, F16 or BF16, and packed. Which families there are says
// attention_families.hpp. Allocates. Errors: FormatError, which names the tensor that is missing, left over (all under
// `prefix` must have a place in the layer) or of another shape, or the member of config.json (attention_config());
// ShapeError where the layer's type says other heads than the config.
template <class Layer, WeightSource Source>
Layer load(const Source& weights, std::string_view prefix, const ModelConfig& config, Index layer = 0,
           const typename impl::AttentionMaker<Layer>::Backend& backend = {}) {
  const AttentionConfig attention = attention_config(config, layer);
  const WeightLoader<Source> loader(weights);
  const std::string name(prefix);
  Layer made = impl::AttentionMaker<Layer>::make(loader, name, attention, backend);
  if (attention.family->neighbour != nullptr) {
    loader.finish(name, {joined_name(name, attention.family->neighbour)});
  } else {
    loader.finish(name);
  }
  return made;
}

}  // namespace heed::inline HEED_ABI
