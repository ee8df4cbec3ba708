#include "infini_model.hpp"

#include <algorithm>
#include <cmath>

#include "heed/io/sharded_reader.hpp"
#include "heed/models/attention_config.hpp"
#include "heed/models/weights.hpp"
#include "heed/ops/embedding.hpp"

namespace generate {

namespace {

using heed::Index;
using Loader = heed::WeightLoader<heed::ShardedReader>;

// The families whose blocks have this form, and no norms of queries and keys.
void check_family(const heed::ConfigReader& config) {
  const std::string_view type = config.text("model_type");
  for (const std::string_view known : {"llama", "mistral", "qwen2"}) {
    if (type == known) return;
  }
  heed::raise(config.problem("model_type").append("with Infini-attention only llama, mistral and qwen2 are supported"));
}

heed::InfiniAttentionWeights<float> load_attention(const Loader& loader, const std::string& name,
                                                   const heed::AttentionConfig& config, double gate) {
  const Index query = config.heads.num_heads * config.heads.head_dim;
  const Index key = config.heads.num_kv_heads * config.heads.head_dim;
  const bool bias = config.bias != heed::AttentionBias::none;
  const bool output_bias = config.bias == heed::AttentionBias::all;
  heed::InfiniAttentionWeights<float> weights;
  weights.query = loader.linear<float>(name + ".q_proj", query, config.hidden_size, bias);
  weights.key = loader.linear<float>(name + ".k_proj", key, config.hidden_size, bias);
  weights.value = loader.linear<float>(name + ".v_proj", key, config.hidden_size, bias);
  weights.output = loader.linear<float>(name + ".o_proj", config.hidden_size, query, output_bias);
  if (loader.contains(name + ".beta")) {
    weights.beta = loader.read<float, 1>(name + ".beta", {config.heads.num_heads});
  } else {
    weights.beta = heed::Tensor<float, 1>({config.heads.num_heads});
    std::ranges::fill(weights.beta.span(), static_cast<float>(std::log(gate / (1 - gate))));  // ±∞ at 0 and 1
  }
  return weights;
}

}  // namespace

InfiniModel::InfiniModel(const std::string& folder, const InfiniOptions& options) {
  const auto config = heed::ModelConfig::open(folder + "/config.json");
  const auto file = heed::ShardedReader::open(folder);
  const heed::ConfigReader members = config.reader();
  check_family(members);
  members.expect("hidden_act", "\"silu\"");
  const Index hidden = members.size("hidden_size");
  const Index intermediate = members.size("intermediate_size");
  const Index vocabulary = members.size("vocab_size");
  const heed::NormOptions norm_options{.eps = members.number("rms_norm_eps")};
  const bool mlp_bias = members.flag("mlp_bias", false);

  const Loader loader(file);
  const auto norm = [&](const std::string& name) {
    const auto weight = loader.read<float, 1>(name + ".weight", {hidden});
    return heed::Norm<float>({.weight = weight}, norm_options);
  };
  embeddings_ = loader.read<float, 2>("model.embed_tokens.weight", {vocabulary, hidden});
  const Index num_layers = members.size("num_hidden_layers");
  for (Index i = 0; i < num_layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i);
    const heed::AttentionConfig attention = heed::attention_config(config, i);
    const heed::InfiniAttentionOptions infini{.segment_length = options.segment_length,
                                              .rope = attention.options.rope,
                                              .rope_length = members.size("max_position_embeddings", 0),
                                              .scale = attention.options.scale,
                                              .softcap = attention.options.softcap,
                                              .window = attention.options.window};
    layers_.push_back(
        {norm(at + ".input_layernorm"),
         heed::InfiniAttention<float>(load_attention(loader, at + ".self_attn", attention, options.gate), infini,
                                      attention.heads),
         norm(at + ".post_attention_layernorm"),
         heed::Mlp<float>({.gate = loader.linear<float>(at + ".mlp.gate_proj", intermediate, hidden, mlp_bias),
                           .up = loader.linear<float>(at + ".mlp.up_proj", intermediate, hidden, mlp_bias),
                           .down = loader.linear<float>(at + ".mlp.down_proj", hidden, intermediate, mlp_bias)},
                          heed::Activation::silu)});
  }
  final_norm_.emplace(norm("model.norm"));
  const bool tied = members.flag("tie_word_embeddings", !loader.contains("lm_head.weight"));
  if (tied) {
    head_.emplace(heed::LinearWeightsView<float>{.weight = embeddings_});
  } else {
    head_.emplace(loader.linear<float>("lm_head", vocabulary, hidden, false));
  }
  loader.finish("", {tied ? std::string("lm_head") : std::string("-")});
}

InfiniModel::Stream::Stream(const InfiniModel& model, const heed::Cpu& cpu, Index tokens) : model_(model), cpu_(cpu) {
  const Index hidden = model.embeddings_.extent(1);
  x_ = heed::Tensor<float, 2>({tokens, hidden});
  y_ = heed::Tensor<float, 2>({tokens, hidden});
  std::size_t bytes = 0;
  for (const Layer& layer : model.layers_) {
    states_.push_back(layer.attention.make_state(1));
    bytes = std::max({bytes, layer.attention.workspace_size(cpu, 1, tokens), layer.mlp.workspace_size(tokens)});
  }
  workspace_ = heed::Workspace(bytes);
}

void InfiniModel::Stream::next_logits(heed::View<const std::int64_t, 2> ids, heed::View<float, 2> logits) {
  const Index tokens = ids.extent(1);
  const heed::View<float, 2> x = x_.view().slice(0, 0, tokens);
  const heed::View<float, 2> y = y_.view().slice(0, 0, tokens);
  const auto batch = [&](const heed::View<float, 2>& rows) {  // of one text
    return heed::View<float, 3>(rows.data_handle(), {Index{1}, tokens, rows.extent(1)});
  };
  heed::ops::embedding(cpu_, ids, model_.embeddings_, batch(x));
  const auto add = [&] {
    for (Index i = 0; i < x.size(); ++i) x.data_handle()[i] += y.data_handle()[i];
  };
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Layer& layer = model_.layers_[i];
    layer.attention_norm.forward(cpu_, x, y);
    layer.attention.forward(cpu_, batch(y), states_[i], batch(y), workspace_);
    add();
    layer.mlp_norm.forward(cpu_, x, y);
    layer.mlp.forward(cpu_, y, y, workspace_);
    add();
  }
  const heed::View<float, 2> last = y.slice(0, tokens - 1, 1);
  model_.final_norm_->forward(cpu_, x.slice(0, tokens - 1, 1), last);
  model_.head_->forward(cpu_, last, logits);
}

}  // namespace generate
