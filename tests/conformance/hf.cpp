// Group hf: the attention modules of Hugging Face's models: a prefill, then one token at a time through every KV cache.
#include <vector>

#include "conformance/rope_attributes.hpp"
#include "conformance/run.hpp"
#include "heed/layers/grouped_query_attention.hpp"
#include "heed/layers/multi_head_self_attention.hpp"
#include "heed/models/load.hpp"

namespace conformance {

using heed::accumulator_t;
using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

// What the module's weights are called; empty: it has none of that kind.
struct WeightNames {
  explicit WeightNames(const Attributes& names) {
    const auto name = [&](const char* kind) { return names.find<std::string>(kind).value_or(""); };
    query = name("q");
    key = name("k");
    value = name("v");
    packed = name("qkv");
    output = name("o");
    query_norm = name("q_norm");
    key_norm = name("k_norm");
    sinks = name("sinks");
    norm = name("norm");
    names.finish();
  }
  std::string query, key, value, packed, output, query_norm, key_norm, sinks, norm;
};

// Attributes that say what the tensors show, or that are about the model around the module.
void expect_described(const Case& test, const WeightNames& names) {
  const Attributes& attributes = test.attributes();
  const Attributes bias = attributes.object("bias");
  const auto expect = [&](const char* key, const std::string& name) {
    if (!name.empty()) bias.expect(key, test.contains("weight." + name + ".bias"));
  };
  expect("q", names.query);
  expect("k", names.key);
  expect("v", names.value);
  expect("qkv", names.packed);
  expect("o", names.output);
  bias.finish();
  attributes.expect("hidden_size", test.extent("input.hidden_states", -1));
  attributes.expect("prefill_length", test.extent("input.hidden_states", 1));
  attributes.expect("steps",
                    test.contains("input.step_hidden_states") ? test.extent("input.step_hidden_states", 1) : 0);
  attributes.expect("sinks", !names.sinks.empty());
}

template <class T>
heed::ProjectionWeights<T> projections(const Case& test, const WeightNames& names, const heed::HeadLayout& heads) {
  const Attributes& attributes = test.attributes();
  if (names.packed.empty()) {
    attributes.expect("qkv_packing", nullptr);
    return heed::ProjectionWeights<T>::from_file(
        test, "weight", {names.query.c_str(), names.key.c_str(), names.value.c_str(), names.output.c_str()});
  }
  const auto order = attributes.one_of<heed::PackedOrder>(
      "qkv_packing", {{"q then k then v", heed::PackedOrder::query_key_value},
                      {"per kv head: its query heads, k, v", heed::PackedOrder::per_kv_head}});
  return heed::ProjectionWeights<T>::from_packed(heed::LinearWeights<T>::from_file(test, "weight." + names.packed),
                                                 heed::LinearWeights<T>::from_file(test, "weight." + names.output),
                                                 heads, order);
}

heed::QueryKeyNormOptions norm_options(const Attributes& attributes) {
  heed::QueryKeyNormOptions options;
  if (!attributes.has("qk_norm")) return options;
  const Attributes norm = attributes.object("qk_norm");
  options.kind =
      norm.one_of<heed::QueryKeyNorm>("kind", {{"rms", heed::QueryKeyNorm::rms}, {"layer", heed::QueryKeyNorm::layer}});
  options.over = norm.one_of<heed::NormOver>("over", {{"head_dim", heed::NormOver::head},
                                                      {"head_dim, one weight per head", heed::NormOver::each_head},
                                                      {"all heads", heed::NormOver::all_heads}});
  options.eps = norm.get<double>("eps");
  options.weight_offset = norm.get<double>("weight_offset");
  norm.finish();
  return options;
}

template <class T>
heed::GroupedQueryAttentionWeights<T> layer_weights(const Case& test, const WeightNames& names,
                                                    const heed::HeadLayout& heads, heed::NormOver over) {
  using A = accumulator_t<T>;
  auto weights = heed::GroupedQueryAttentionWeights<T>::from_projections(projections<T>(test, names, heads));
  const int rank = over == heed::NormOver::each_head ? 2 : 1;
  const heed::PrefixedSource module(test, "weight");
  if (!names.query_norm.empty()) {
    weights.query_norm = heed::NormWeights<T>::from_file(module, names.query_norm, rank);
    weights.key_norm = heed::NormWeights<T>::from_file(module, names.key_norm, rank);
  }
  if (!names.sinks.empty()) weights.sinks = test.read<A, 1>("weight." + names.sinks);
  if (test.attributes().has("alibi")) {
    const Attributes alibi = test.attributes().object("alibi");
    alibi.expect("bias", "-slope[h] * (query position - key position)");
    const auto slopes = alibi.get<std::vector<double>>("slopes");
    weights.alibi_slopes = Tensor<A, 1>({slopes.size()});
    for (std::size_t h = 0; h < slopes.size(); ++h)
      weights.alibi_slopes(static_cast<Index>(h)) = static_cast<A>(slopes[h]);
    alibi.finish();
  }
  return weights;
}

// Which tokens there are, from a mask of 0 and 1: [B, N + M].
Tensor<bool, 2> read_valid(const Case& test, Index batch, Index tokens) {
  Tensor<bool, 2> valid;
  const auto mask = test.read_optional<std::int64_t, 2>("input.attention_mask", {batch, tokens});
  if (mask.empty()) return valid;
  valid = Tensor<bool, 2>({mask.extent(0), mask.extent(1)});
  for (Index i = 0; i < mask.size(); ++i) valid.data()[i] = mask.data()[i] != 0;
  return valid;
}

// A prefill, then token by token.
template <class T, class B, class Layer, class Cache>
void decode(Case& test, const B& backend, const Layer& layer, Cache cache, View<const bool, 2> valid,
            View<const std::int64_t, 2> positions, const std::string& how) {
  const auto x = test.read<T, 3>("input.hidden_states");
  heed::GroupedQueryAttentionCall<T> call{.rope_length = test.attributes().template find<Index>("seq_len").value_or(0)};
  const auto at = [&](Index first, Index count) {
    if (valid.present()) call.valid = valid.slice(1, first, count);
    if (positions.present()) call.positions = positions.slice(1, first, count);
  };
  at(0, x.extent(1));
  test.check("output.output", layer.forward(backend, x, cache, call), how);
  if (!test.contains("input.step_hidden_states")) return;
  const auto tokens = test.read<T, 3>("input.step_hidden_states", {x.extent(0), heed::any, x.extent(2)});
  Tensor<T, 3> out({tokens.extent(0), tokens.extent(1), tokens.extent(2)});
  heed::Workspace workspace(layer.workspace_size(backend, x.extent(0), 1, x.extent(1) + tokens.extent(1)));
  for (Index t = 0; t < tokens.extent(1); ++t) {
    at(x.extent(1) + t, 1);
    layer.forward(backend, tokens.view().slice(1, t, 1), cache, out.view().slice(1, t, 1), workspace, call);
  }
  test.check("output.step_output", out, how);
}

}  // namespace

void run_attention_layer(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const WeightNames names(attributes.object("weights"));
  expect_described(test, names);
  const heed::HeadLayout heads{.num_heads = attributes.get<Index>("num_heads"),
                               .num_kv_heads = attributes.get<Index>("num_kv_heads"),
                               .head_dim = attributes.get<Index>("head_dim")};
  heed::GroupedQueryAttentionOptions options;
  options.causal = attributes.one_of<bool>("causal", {{"top_left", true}, {"none", false}});
  const auto window = attributes.find<Index>("window");
  if (window) options.window = {*window - 1, 0};
  options.scale = attributes.get<double>("scale");
  options.softcap = attributes.find<double>("softcap").value_or(0);
  options.norm = norm_options(attributes);
  options.positions = attributes.has("rope") ? heed::TokenPositions::rotary : heed::TokenPositions::none;
  if (attributes.has("rope")) options.rope = rope_options(attributes.object("rope"));
  attributes.has("seq_len");

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    using Layer = heed::GroupedQueryAttention<T, heed::HeadLayout{}, B>;
    const Layer layer(layer_weights<T>(test, names, heads, options.norm.over), options, heads, backend);
    const auto x = test.read<T, 3>("input.hidden_states");
    const Index batch = x.extent(0);
    const Index longest = x.extent(1) + attributes.get<Index>("steps");
    const Tensor<bool, 2> valid = read_valid(test, batch, longest);
    const auto positions = test.read_optional<std::int64_t, 2>("input.positions", {batch, longest});

    heed::GroupedQueryAttentionCall<T> call{.rope_length = attributes.find<Index>("seq_len").value_or(0)};
    if (!valid.empty()) call.valid = valid.view().slice(1, 0, x.extent(1));
    test.check("output.output", layer.forward(backend, x, call));
    // The same layer as the model's config.json describes it.
    const auto config = heed::ModelConfig::from_text(attributes.json("hf_config"));
    const auto loaded = heed::load<Layer>(test, "weight", config, attributes.get<Index>("layer"), backend);
    decode<T>(test, backend, loaded, loaded.make_cache(batch, longest), valid, {}, "loaded by its config");
    // Positions that are not said must be those that the case gives.
    decode<T>(test, backend, layer, layer.make_cache(batch, longest), valid, positions, "static cache");
    decode<T>(test, backend, layer, layer.template make_cache<heed::GrowingKvCache<T>>(batch), valid, {},
              "growing cache");
    decode<T>(test, backend, layer, layer.template make_cache<heed::PagedKvCache<T>>(batch, batch * longest, 3), valid,
              {}, "paged cache");
    if (window) {
      decode<T>(test, backend, layer, layer.template make_cache<heed::SlidingKvCache<T>>(batch, *window), valid, {},
                "sliding cache");
    }
  });
}

void run_bert_attention(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const WeightNames names(attributes.object("weights"));
  expect_described(test, names);
  const auto num_heads = attributes.get<Index>("num_heads");
  attributes.expect("num_kv_heads", num_heads);
  attributes.expect("causal", "none");
  for (const char* unused : {"alibi", "qk_norm", "rope", "softcap", "window"}) attributes.expect(unused, nullptr);
  const auto eps = attributes.get<double>("layer_norm_eps");

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    using Layer = heed::MultiHeadSelfAttention<T, heed::HeadLayout{}, B>;
    const heed::MultiHeadSelfAttentionOptions options{.scale = attributes.get<double>("scale")};
    const heed::HeadLayout heads{.num_heads = num_heads};
    auto weights = projections<T>(test, names, heads);
    const Layer layer(weights, options, heads, backend);
    const auto config = heed::ModelConfig::from_text(attributes.json("hf_config"));
    const auto loaded = heed::load<Layer>(test, "weight", config, 0, backend);
    attributes.expect("head_dim", layer.heads().head_dim);
    // The context before the output projection: through a projection that changes nothing.
    const Index hidden = layer.hidden_size();
    weights.output = {Tensor<T, 2>({hidden, hidden}), {}};
    for (Index i = 0; i < hidden; ++i) weights.output.weight(i, i) = T(1);
    const Layer context_layer(weights, options, heads, backend);

    const auto x = test.read<T, 3>("input.hidden_states");
    const Tensor<bool, 2> valid = read_valid(test, x.extent(0), x.extent(1));
    const Index mask_extents[] = {valid.extent(0), 1, 1, valid.extent(1)};
    heed::MultiHeadSelfAttentionCall<T> call;
    if (!valid.empty()) call.mask = View<const bool, 4>(valid.data(), mask_extents);
    Tensor<T, 3> context = context_layer.forward(backend, x, call);
    const auto norm = heed::NormWeights<T>::from_file(heed::PrefixedSource(test, "weight"), names.norm);
    const auto clear_padding = [&](Tensor<T, 3>& rows) {  // rows that do not count are stored as 0
      for (Index row = 0; row < valid.size(); ++row) {
        for (Index e = 0; e < hidden && !valid.data()[row]; ++e) rows.data()[row * hidden + e] = 0;
      }
    };
    clear_padding(context);
    test.check("output.context", context);
    const auto check_output = [&](const Layer& attention, const std::string& how) {
      Tensor<T, 3> out = attention.forward(backend, x, call);
      for (Index i = 0; i < out.size(); ++i) out.data()[i] += x.data()[i];
      heed::ops::layer_norm(backend, out, norm.weight, norm.bias, out, {.eps = eps});
      clear_padding(out);
      test.check("output.output", out, how);
    };
    check_output(layer, "");
    check_output(loaded, "loaded by its config");
  });
}

}  // namespace conformance
