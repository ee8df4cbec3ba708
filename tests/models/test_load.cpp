// load(): the layer that config.json and weights describe, and the weights that do not fit.
#include <doctest/doctest.h>

#include <string>

#include "heed/models/load.hpp"
#include "models/model_files.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"

namespace {

using heed::Index;
using heed::ModelConfig;
using heed::ShardedReader;
using heed::Tensor;
using test::error_text;
using test::ModelFiles;
using test::random_tensor;

using Attention = heed::GroupedQueryAttention<float>;
using SelfAttention = heed::MultiHeadSelfAttention<float>;

constexpr const char* prefix = "model.layers.0.self_attn";

template <class Layer = Attention>
Layer load(const ModelFiles& files, const std::string& module = prefix) {
  const heed_test::TemporaryFolder folder;
  files.write(folder.path());
  return heed::load<Layer>(ShardedReader::open(folder.path()), module, ModelConfig::from_text(files.config));
}

template <class Layer = Attention>
std::string refusal(const ModelFiles& files, const std::string& module = prefix) {
  return error_text([&] { load<Layer>(files, module); });
}

heed::LinearWeightsView<float> linear_of(const ModelFiles& files, const std::string& name) {
  return {.weight = files.matrices.at(name + ".weight")};
}

ModelFiles bert_files() {
  ModelFiles files;
  files.config = R"({"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2})";
  for (const char* name : {"self.query", "self.key", "self.value", "output.dense"}) {
    files.linear(std::string("attention.") + name, 8, 8, true);
  }
  files.vector("attention.output.LayerNorm.weight", 8);
  files.vector("attention.output.LayerNorm.bias", 8);
  return files;
}

}  // namespace

TEST_CASE("load: equal to the layer made by hand, from files of every float type") {
  const ModelFiles files = test::llama_files();
  const std::string module = std::string(prefix) + ".";
  const auto by_hand = [&](const ModelFiles& from) {
    heed::GroupedQueryAttentionWeightsView<float> weights{.query = linear_of(from, module + "q_proj"),
                                                          .key = linear_of(from, module + "k_proj"),
                                                          .value = linear_of(from, module + "v_proj"),
                                                          .output = linear_of(from, module + "o_proj")};
    return Attention(weights, {.rope = {.theta = 10000}}, {.num_heads = 4, .num_kv_heads = 2, .head_dim = 2});
  };
  const auto x = random_tensor<float>({2, 5, 8}, 3);
  const heed::Cpu cpu;
  const auto expected = by_hand(files).forward(cpu, x.view());
  CHECK(test::same_bits(load(files).forward(cpu, x.view()), expected));

  const heed_test::TemporaryFolder folder;
  const ModelConfig config = ModelConfig::from_text(files.config);
  const auto open = [&] { return heed::load<Attention>(ShardedReader::open(folder.path()), prefix, config); };
  files.write<double>(folder.path());
  CHECK(test::same_bits(open().forward(cpu, x.view()), expected));
  // Half types round the weights, once.
  const auto from_half = [&]<class T>(T) {
    files.write<T>(folder.path());
    CHECK(ShardedReader::open(folder.path()).tensors().front().dtype == heed::dtype_of<T>());
    ModelFiles rounded = files;
    for (auto& [name, weight] : rounded.matrices) {
      for (float& element : weight.span()) element = heed::widen(heed::narrow<T>(element));
    }
    CHECK(test::same_bits(open().forward(cpu, x.view()), by_hand(rounded).forward(cpu, x.view())));
  };
  from_half(heed::bfloat16());
  from_half(heed::float16());
}

TEST_CASE("load: a tensor that is missing, left over or of another shape names itself") {
  ModelFiles files = test::llama_files();
  const std::string module = std::string(prefix) + ".";
  files.matrix(module + "k_proj.weight", 8, 4);
  CHECK(refusal(files) ==
        "heed: SafetensorsReader: model.layers.0.self_attn.k_proj.weight: expected [4, 8] (F64, F32, F16 or BF16), got "
        "[8, 4] (F32)");
  files.matrices.erase(module + "k_proj.weight");
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.k_proj.weight: no such tensor in the file, expected [4, 8]");
  files.matrix(module + "k_proj.weight", 4, 8);
  files.vector(module + "k_proj.bias", 4);
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.k_proj.bias: a tensor [4] that the model has no place for");
  files.vectors.erase(module + "k_proj.bias");
  files.vector(module + "q_norm.weight", 2);
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.q_norm.weight: a tensor [2] that the model has no place for");
  files.vectors.erase(module + "q_norm.weight");
  CHECK(refusal(files) == "no error");
  CHECK(refusal(files, "model.layers.7.self_attn") ==
        "heed: load: model.layers.7.self_attn.q_proj.weight: no such tensor in the file, expected [8, 8]");
  // Old files hold buffers that follow from the config.
  files.vector(module + "rotary_emb.inv_freq", 1);
  CHECK(refusal(files) == "no error");
}

TEST_CASE("load: biases and norms are there if the config says so") {
  ModelFiles files = test::llama_files();
  const std::string module = std::string(prefix) + ".";
  files.config = test::llama_config("\"attention_bias\": true,");
  CHECK(refusal(files) == "heed: load: model.layers.0.self_attn.q_proj.bias: no such tensor in the file, expected [8]");
  files.config = test::llama_config("", "qwen2");
  for (const char* name : {"q_proj.bias", "k_proj.bias", "v_proj.bias"}) {
    files.vector(module + name, name[0] == 'q' ? 8 : 4);
  }
  CHECK(refusal(files) == "no error");
  for (const char* name : {"q_proj.bias", "k_proj.bias", "v_proj.bias"}) files.vectors.erase(module + name);
  files.config = test::llama_config("", "qwen3");
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.q_norm.weight: no such tensor in the file, expected [2]");
  files.config = test::llama_config("", "olmo2");
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.q_norm.weight: no such tensor in the file, expected [8]");
  files.config = test::llama_config("\"use_qk_norm\": true, \"layer_norm_eps\": 1e-5,", "cohere");
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.q_norm.weight: no such tensor in the file, expected [4, 2]");
  files.config = test::llama_config("\"sliding_window\": null,", "phi3");
  CHECK(refusal(files) ==
        "heed: load: model.layers.0.self_attn.qkv_proj.weight: no such tensor in the file, expected [16, 8]");
  files.config = test::llama_config("\"sliding_window\": 3,", "gpt_oss");
  CHECK(refusal(files) == "heed: load: model.layers.0.self_attn.q_proj.bias: no such tensor in the file, expected [8]");
}

TEST_CASE("load: MultiHeadSelfAttention for what has no mask and no positions") {
  const ModelFiles files = bert_files();
  const SelfAttention attention = load<SelfAttention>(files, "attention");
  CHECK(attention.heads().num_heads == 2);
  CHECK(refusal<SelfAttention>(test::llama_files()) ==
        "heed: load: llama: is for GroupedQueryAttention: MultiHeadSelfAttention has no causal mask and no positions");
  // A GroupedQueryAttention can be that, too.
  const auto x = random_tensor<float>({1, 6, 8}, 5);
  const heed::Cpu cpu;
  CHECK(test::max_error(load<Attention>(files, "attention").forward(cpu, x.view()), attention.forward(cpu, x.view())) <
        1e-6);
  // Sizes that the layer's type fixes must be those of the config.
  using Fixed = heed::GroupedQueryAttention<float, heed::HeadLayout{.num_heads = 4, .head_dim = 4}>;
  CHECK(refusal<Fixed>(files, "attention") ==
        "heed: GroupedQueryAttention: num_heads: the layer's type says 4, the constructor was given 2");
}
