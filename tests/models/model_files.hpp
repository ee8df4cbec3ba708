// What a model's folder holds: config.json, and weights of random numbers.
#pragma once

#include <map>
#include <string>

#include "heed/io/safetensors_writer.hpp"
#include "io/safetensors_bytes.hpp"
#include "support/random.hpp"

namespace test {

class ModelFiles {
 public:
  std::map<std::string, heed::Tensor<float, 2>> matrices;
  std::map<std::string, heed::Tensor<float, 1>> vectors;
  std::string config;

  void matrix(const std::string& name, Index rows, Index columns) {
    matrices[name] = random_tensor<float>({rows, columns}, seed(name), -0.4, 0.4);
  }
  void vector(const std::string& name, Index size, double low = -0.4, double high = 0.4) {
    vectors[name] = random_tensor<float>({size}, seed(name), low, high);
  }
  void linear(const std::string& name, Index out, Index in, bool bias) {
    matrix(name + ".weight", out, in);
    if (bias) vector(name + ".bias", out);
  }

  // Writes what it holds now, as T, to a folder.
  template <class T = float>
  void write(const std::string& folder) const {
    std::map<std::string, heed::Tensor<T, 2>> rows;
    std::map<std::string, heed::Tensor<T, 1>> lists;
    heed::SafetensorsWriter writer;
    for (const auto& [name, tensor] : matrices) writer.add(name, rows[name] = as<T>(tensor));
    for (const auto& [name, tensor] : vectors) writer.add(name, lists[name] = as<T>(tensor));
    writer.write(folder + "/model.safetensors");
    heed_test::write_all(folder + "/config.json", config);
  }

 private:
  template <class T, int Rank>
  static heed::Tensor<T, Rank> as(const heed::Tensor<float, Rank>& tensor) {
    Index extents[Rank];
    for (int axis = 0; axis < Rank; ++axis) extents[axis] = tensor.extent(axis);
    heed::Tensor<T, Rank> result(extents);
    for (Index i = 0; i < tensor.size(); ++i) result.data()[i] = heed::narrow<T>(tensor.data()[i]);
    return result;
  }
  // A weight's numbers depend on its name alone.
  static std::uint64_t seed(const std::string& name) {
    std::uint64_t hash = 7;
    for (const char letter : name) hash = hash * 31 + static_cast<unsigned char>(letter);
    return hash;
  }
};

// The config of a small Llama; `more` goes before its members: "\"attention_bias\": true,".
inline std::string llama_config(const std::string& more = "", const std::string& type = "llama") {
  return "{" + more + "\"model_type\": \"" + type +
         R"(", "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 11, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": false})";
}

// Its weights.
inline ModelFiles llama_files() {
  ModelFiles files;
  files.config = llama_config();
  files.matrix("model.embed_tokens.weight", 11, 8);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    files.linear(layer + "self_attn.q_proj", 8, 8, false);
    files.linear(layer + "self_attn.k_proj", 4, 8, false);
    files.linear(layer + "self_attn.v_proj", 4, 8, false);
    files.linear(layer + "self_attn.o_proj", 8, 8, false);
    files.linear(layer + "mlp.gate_proj", 6, 8, false);
    files.linear(layer + "mlp.up_proj", 6, 8, false);
    files.linear(layer + "mlp.down_proj", 8, 6, false);
    files.vector(layer + "input_layernorm.weight", 8, 0.5, 1.5);
    files.vector(layer + "post_attention_layernorm.weight", 8, 0.5, 1.5);
  }
  files.vector("model.norm.weight", 8, 0.5, 1.5);
  files.matrix("lm_head.weight", 11, 8);
  return files;
}

}  // namespace test
