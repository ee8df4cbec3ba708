// BertEncoder: what does not depend on padding and batch, embeddings, and every error. (That its numbers are right is
// tests/conformance/models.)
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/models/bert_encoder.hpp"
#include "models/model_files.hpp"
#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"

namespace {

using heed::Cpu;
using heed::Index;
using heed::Tensor;
using test::error_text;
using test::ModelFiles;
using Encoder = heed::BertEncoder<float>;

ModelFiles bert_files(const std::string& prefix = "") {
  ModelFiles files;
  files.config = R"({"model_type": "bert", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
                     "num_attention_heads": 2, "vocab_size": 13, "type_vocab_size": 2, "max_position_embeddings": 6,
                     "layer_norm_eps": 1e-12, "hidden_act": "gelu"})";
  const auto norm = [&](const std::string& name) {
    files.vector(prefix + name + ".weight", 8, 0.5, 1.5);
    files.vector(prefix + name + ".bias", 8);
  };
  files.matrix(prefix + "embeddings.word_embeddings.weight", 13, 8);
  files.matrix(prefix + "embeddings.position_embeddings.weight", 6, 8);
  files.matrix(prefix + "embeddings.token_type_embeddings.weight", 2, 8);
  norm("embeddings.LayerNorm");
  for (const std::string layer : {"encoder.layer.0.", "encoder.layer.1."}) {
    for (const char* name : {"self.query", "self.key", "self.value", "output.dense"}) {
      files.linear(prefix + layer + "attention." + name, 8, 8, true);
    }
    norm(layer + "attention.output.LayerNorm");
    files.linear(prefix + layer + "intermediate.dense", 12, 8, true);
    files.linear(prefix + layer + "output.dense", 8, 12, true);
    norm(layer + "output.LayerNorm");
  }
  return files;
}

Encoder load(const ModelFiles& files, const Cpu& cpu = Cpu()) {
  const heed_test::TemporaryFolder folder;
  files.write(folder.path());
  return Encoder::from_folder(folder.path(), cpu);
}
std::string refusal(const ModelFiles& files) {
  return error_text([&] { load(files); });
}

}  // namespace

TEST_CASE("BertEncoder: rows come out as they do alone, whatever they are padded with and wherever") {
  const ModelFiles files = bert_files();
  Tensor<std::int64_t, 2> ids = test::random_ids({3, 8}, 1, 13);
  const auto types = test::random_ids({3, 8}, 2, 2);
  Tensor<bool, 2> valid({3, 8});
  for (const Index t : {0, 1, 2, 3}) valid(0, t) = true;
  for (const Index t : {2, 3, 5, 6, 7}) valid(1, t) = true;  // row 2: padding only
  ids(0, 6) = -1;                                            // what padding holds does not matter
  test::ReversePool pool;
  for (const Cpu& cpu : {Cpu(), Cpu(pool)}) {
    const Encoder encoder = load(files, cpu);
    const auto hidden = encoder.forward(cpu, ids, {.valid = valid, .token_types = types});
    const auto embeddings = encoder.embed(cpu, ids, {.valid = valid, .token_types = types});
    for (Index b = 0; b < 3; ++b) {
      const Index count = b == 0 ? 4 : b == 1 ? 5 : 0;
      Tensor<std::int64_t, 2> row({Index{1}, count});
      Tensor<std::int64_t, 2> row_types({Index{1}, count});
      for (Index t = 0, next = 0; t < 8; ++t) {
        if (!valid(b, t)) continue;
        row(0, next) = ids(b, t);
        row_types(0, next++) = types(b, t);
      }
      const auto alone = encoder.forward(Cpu(), row, {.token_types = row_types});
      double mean[8] = {};
      for (Index t = 0, next = 0; t < 8; ++t) {
        for (Index i = 0; i < 8; ++i) {
          CHECK(hidden(b, t, i) == (valid(b, t) ? alone(0, next, i) : 0.0F));
          mean[i] += static_cast<double>(hidden(b, t, i));
        }
        if (valid(b, t)) ++next;
      }
      // The embedding is the direction of the mean.
      double length = 0;
      for (const double value : mean) length += value * value;
      length = length > 0 ? std::sqrt(length) : 1;
      for (Index i = 0; i < 8; ++i) {
        CHECK(std::fabs(static_cast<double>(embeddings(b, i)) - mean[i] / length) < 1e-6);
      }
    }
  }
}

TEST_CASE("BertEncoder: token types left out are 0, and they matter") {
  const Encoder encoder = load(bert_files());
  const Cpu cpu;
  const auto ids = test::random_ids({1, 5}, 3, 13);
  Tensor<std::int64_t, 2> types({1, 5});
  const auto plain = encoder.forward(cpu, ids);
  CHECK(test::same_bits(encoder.forward(cpu, ids, {.token_types = types}), plain));
  types(0, 3) = 1;
  CHECK(test::max_error(encoder.forward(cpu, ids, {.token_types = types}), plain) > 1e-3);
}

TEST_CASE("BertEncoder: files with a prefix, a pooler and another head") {
  const auto ids = test::random_ids({1, 5}, 4, 13);
  const auto expected = load(bert_files()).forward(Cpu(), ids);
  ModelFiles files = bert_files("bert.");
  files.linear("bert.pooler.dense", 8, 8, true);
  files.linear("cls.predictions.transform.dense", 8, 8, true);
  for (auto& [name, weight] : files.matrices) {
    if (name.find("bert.") == 0 && name.find("pooler") == std::string::npos)
      weight = bert_files().matrices.at(name.substr(5));
  }
  for (auto& [name, weight] : files.vectors) {
    if (name.find("bert.") == 0 && name.find("pooler") == std::string::npos)
      weight = bert_files().vectors.at(name.substr(5));
  }
  CHECK(test::same_bits(load(files).forward(Cpu(), ids), expected));
  files.vector("bert.encoder.layer.0.extra", 3);
  CHECK(refusal(files) == "heed: load: bert.encoder.layer.0.extra: a tensor [3] that the model has no place for");
}

TEST_CASE("BertEncoder: no allocation in a call, and a workspace that only padding would exceed") {
  const Encoder encoder = load(bert_files());
  const Cpu cpu;
  const auto ids = test::random_ids({3, 6}, 5, 13);
  heed::Workspace workspace(encoder.workspace_size(cpu, 3, 6));
  Tensor<float, 3> hidden({3, 6, 8});
  Tensor<float, 2> embeddings({3, 8});
  CHECK(test::allocations_in([&] {
          encoder.forward(cpu, ids, hidden, workspace);
          encoder.embed(cpu, ids, embeddings, workspace);
        }) == 0);
  CHECK(test::same_bits(hidden, encoder.forward(cpu, ids)));
  CHECK(workspace.size_left() == workspace.size());
  CHECK(encoder.forward(cpu, ids.view().slice(1, 0, 0)).empty());
  CHECK(encoder.embed(cpu, ids.view().slice(0, 0, 0)).empty());
  CHECK(encoder.describe().find(
            "BertEncoder<float>: vocabulary_size 13, hidden_size 8, num_layers 2, max_tokens 6; ") == 0);
}

TEST_CASE("BertEncoder: calls that do not fit") {
  const Encoder encoder = load(bert_files());
  const Cpu cpu;
  auto ids = test::random_ids({2, 5}, 6, 13);
  heed::Workspace workspace(encoder.workspace_size(cpu, 2, 7));
  Tensor<float, 3> hidden({2, 5, 8});
  const auto text_of = [&](const heed::BertEncoderCall& call = {}) {
    return error_text([&] { encoder.forward(cpu, ids, hidden, workspace, call); });
  };
  Tensor<float, 3> narrow({2, 5, 7});
  CHECK(error_text([&] { encoder.forward(cpu, ids, narrow, workspace); }) ==
        "heed: BertEncoder::forward: out: expected [2, 5, 8] (batch, seq, hidden size), got [2, 5, 7]");
  Tensor<float, 2> flat({2, 7});
  CHECK(error_text([&] { encoder.embed(cpu, ids, flat, workspace); }) ==
        "heed: BertEncoder::embed: out: expected [2, 8] (batch, hidden size), got [2, 7]");
  heed::Workspace none;
  CHECK(error_text([&] { encoder.forward(cpu, ids, hidden, none); }) ==
        "heed: BertEncoder::forward: workspace: needs " + std::to_string(encoder.workspace_size(cpu, 2, 5)) +
            " bytes, has 0");
  const Tensor<bool, 2> valid({2, 4});
  CHECK(text_of({.valid = valid}) == "heed: BertEncoder::forward: valid: expected [2, 5] (batch, seq), got [2, 4]");
  Tensor<std::int64_t, 2> types({2, 5});
  types(1, 1) = 2;
  CHECK(text_of({.token_types = types}) ==
        "heed: BertEncoder::forward: token_types: expected 0 <= id < 2, got 2 at position [1, 1]");
  ids(0, 3) = 13;
  CHECK(text_of() == "heed: BertEncoder::forward: ids: expected 0 <= id < 13, got 13 at position [0, 3]");
  const auto longer = test::random_ids({2, 7}, 7, 13);
  CHECK(error_text([&] { encoder.forward(cpu, longer); }) ==
        "heed: BertEncoder::forward: ids: expected rows of at most 6 tokens, got 7 in batch row 0");
}

TEST_CASE("BertEncoder: weights and configs that do not fit") {
  ModelFiles files = bert_files();
  files.matrix("embeddings.position_embeddings.weight", 7, 8);
  CHECK(refusal(files) ==
        "heed: SafetensorsReader: embeddings.position_embeddings.weight: expected [6, 8] (F64, F32, F16 or BF16), got "
        "[7, 8] (F32)");
  files = bert_files();
  files.vectors.erase("encoder.layer.1.output.LayerNorm.bias");
  CHECK(refusal(files) ==
        "heed: load: encoder.layer.1.output.LayerNorm.bias: no such tensor in the file, expected [8]");
  files = bert_files();
  files.config = test::llama_config();
  CHECK(refusal(files) == "heed: config.json: model_type: only \"bert\" is supported, got \"llama\"");
  files.config = bert_files().config;
  files.config.replace(files.config.find("gelu"), 4, "relu");
  CHECK(refusal(files) ==
        "heed: config.json: hidden_act: expected one of gelu gelu_new gelu_pytorch_tanh silu swish, got relu");
}
