// CausalLM: what does not depend on padding, batch, caches or the cut into calls; that calls allocate nothing; and every
// error. (That its logits are right is tests/conformance/models.)
#define HEED_TEST_COUNT_ALLOCATIONS  // in one source of the program
#include "support/allocation_counter.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/models/causal_lm.hpp"
#include "models/model_files.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"

namespace {

using heed::Cpu;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::error_text;
using test::ModelFiles;
using Model = heed::CausalLM<float>;

Model load(const ModelFiles& files, const Cpu& cpu = Cpu()) {
  const heed_test::TemporaryFolder folder;
  files.write(folder.path());
  return Model::from_folder(folder.path(), cpu);
}
std::string refusal(const ModelFiles& files) {
  return error_text([&] { load(files); });
}

Tensor<float, 3> all_logits(const Model& model, const Cpu& cpu, View<const std::int64_t, 2> ids,
                            const heed::CausalLMCall& call = {}) {
  Tensor<float, 3> logits({ids.extent(0), ids.extent(1), model.vocabulary_size()});
  heed::Workspace workspace(model.workspace_size(cpu, ids.extent(0), ids.extent(1)));
  model.forward(cpu, ids, logits, workspace, call);
  return logits;
}

// The same in calls of 3, 1 and the rest of the tokens.
template <class Caches>
Tensor<float, 3> cached_logits(const Model& model, const Cpu& cpu, View<const std::int64_t, 2> ids, Caches caches) {
  const Index tokens = ids.extent(1);
  Tensor<float, 3> logits({ids.extent(0), tokens, model.vocabulary_size()});
  heed::Workspace workspace(model.workspace_size(cpu, ids.extent(0), tokens, 64));
  Index first = 0;
  for (const Index count : {Index{3}, Index{1}, tokens - 4}) {
    model.forward(cpu, ids.slice(1, first, count), caches, logits.view().slice(1, first, count), workspace);
    first += count;
  }
  CHECK(caches.length(0) == tokens);
  return logits;
}

}  // namespace

TEST_CASE("CausalLM: every cut into calls and every kind of cache that keeps all gives the same bits") {
  const ModelFiles files = test::llama_files();
  const auto ids = test::random_ids({2, 9}, 1, 11);
  const Tensor<float, 3> expected = all_logits(load(files), Cpu(), ids);
  test::ReversePool pool;
  for (const Cpu& cpu : {Cpu(), Cpu(pool)}) {
    const Model model = load(files, cpu);
    CHECK(test::same_bits(all_logits(model, cpu, ids), expected));
    CHECK(test::same_bits(cached_logits(model, cpu, ids, model.make_caches(2, 9)), expected));
    CHECK(test::same_bits(cached_logits(model, cpu, ids, model.make_caches<heed::GrowingKvCache<float>>(2)), expected));
    CHECK(test::same_bits(cached_logits(model, cpu, ids, model.make_caches<heed::PagedKvCache<float>>(2, 18, 3)),
                          expected));
    CHECK(test::same_bits(cached_logits(model, cpu, ids, model.make_caches<heed::SlidingKvCache<float>>(2, 9)),
                          expected));
    // Codes of 8 bits are near.
    const auto near = cached_logits(model, cpu, ids, model.make_caches<heed::Int8KvCache<float>>(2, 9));
    CHECK(test::max_scaled_error(near, expected) < 0.05);
    CHECK_FALSE(test::same_bits(near, expected));
  }
}

TEST_CASE("CausalLM: a sliding cache is a window") {
  ModelFiles files = test::llama_files();
  const auto ids = test::random_ids({1, 9}, 2, 11);
  const Model plain = load(files);
  const auto narrowed = cached_logits(plain, Cpu(), ids, plain.make_caches<heed::SlidingKvCache<float>>(1, 4));
  files.config = test::llama_config("\"sliding_window\": 4,", "mistral");
  const Model windowed = load(files);
  CHECK(test::max_scaled_error(narrowed, all_logits(windowed, Cpu(), ids)) < 1e-5);
  CHECK(test::max_scaled_error(narrowed, all_logits(plain, Cpu(), ids)) > 1e-3);
}

TEST_CASE("CausalLM: rows come out as they do alone, whatever they are padded with and wherever") {
  const Model model = load(test::llama_files());
  const Cpu cpu;
  // Row 0: left padding; row 1: none; row 2: in the middle and right; row 3: padding only.
  Tensor<std::int64_t, 2> ids = test::random_ids({4, 7}, 3, 11);
  Tensor<bool, 2> valid({4, 7});
  const bool pattern[4][7] = {{false, false, true, true, true, true, true},
                              {true, true, true, true, true, true, true},
                              {true, true, false, true, false, true, false},
                              {false, false, false, false, false, false, false}};
  for (Index b = 0; b < 4; ++b) {
    for (Index t = 0; t < 7; ++t) valid(b, t) = pattern[b][t];
  }
  const auto logits = all_logits(model, cpu, ids, {.valid = valid});
  auto caches = model.make_caches(4, 7);
  Tensor<float, 2> last({4, 11});
  heed::Workspace workspace(model.workspace_size(cpu, caches, 7));
  model.next_logits(cpu, ids, caches, last, workspace, {.valid = valid});

  for (Index b = 0; b < 4; ++b) {
    Index count = 0;
    for (Index t = 0; t < 7; ++t) count += pattern[b][t] ? 1 : 0;
    CHECK(caches.length(b) == count);
    Tensor<std::int64_t, 2> alone({Index{1}, count});
    for (Index t = 0, next = 0; t < 7; ++t) {
      if (pattern[b][t]) alone(0, next++) = ids(b, t);
    }
    const auto expected = all_logits(model, cpu, alone);
    Index next = 0;
    for (Index t = 0; t < 7; ++t) {
      if (pattern[b][t]) {
        CHECK(test::same_bits(logits.view()[b][t], expected.view()[0][next++]));
      } else {
        for (Index i = 0; i < 11; ++i) CHECK(logits(b, t, i) == 0);
      }
    }
    if (count > 0) {
      CHECK(test::same_bits(last.view()[b], expected.view()[0][count - 1]));
    } else {
      for (Index i = 0; i < 11; ++i) CHECK(last(b, i) == 0);
    }
  }
}

TEST_CASE("CausalLM: tokens taken back, copies, and no allocation in a call") {
  const Model model = load(test::llama_files());
  const Model copy = model;
  const Cpu cpu;
  const auto ids = test::random_ids({1, 6}, 4, 11);
  auto caches = copy.make_caches(1, 8);
  heed::Workspace workspace(model.workspace_size(cpu, caches, 6));
  Tensor<float, 2> first({1, 11});
  Tensor<float, 2> second({1, 11});
  CHECK(test::allocations_in([&] { model.next_logits(cpu, ids, caches, first, workspace); }) == 0);
  caches.truncate(0, 5);
  CHECK(test::allocations_in([&] { model.next_logits(cpu, ids.view().slice(1, 5, 1), caches, second, workspace); }) ==
        0);
  CHECK(test::same_bits(first, second));
  CHECK(workspace.size_left() == workspace.size());
  // No tokens: nothing to do.
  Tensor<float, 3> none({1, 0, 11});
  model.forward(cpu, ids.view().slice(1, 0, 0), caches, none, workspace);
  CHECK(caches.length(0) == 6);
}

TEST_CASE("CausalLM: a head that is tied to the embeddings, and a file of the model without its head") {
  ModelFiles files = test::llama_files();
  const auto ids = test::random_ids({1, 4}, 5, 11);
  files.matrices["lm_head.weight"] = files.matrices["model.embed_tokens.weight"];
  const auto expected = all_logits(load(files), Cpu(), ids);
  files.config = test::llama_config();
  files.config.replace(files.config.find("false}"), 6, "true}");
  CHECK(test::same_bits(all_logits(load(files), Cpu(), ids), expected));  // a head that is there all the same
  files.matrices.erase("lm_head.weight");
  CHECK(test::same_bits(all_logits(load(files), Cpu(), ids), expected));
  // Names as in a file of the model without its head.
  ModelFiles bare;
  bare.config = files.config;
  for (const auto& [name, weight] : files.matrices) bare.matrices[name.substr(6)] = weight;
  for (const auto& [name, weight] : files.vectors) bare.vectors[name.substr(6)] = weight;
  CHECK(test::same_bits(all_logits(load(bare), Cpu(), ids), expected));
}

TEST_CASE("CausalLM: weights and configs that do not fit") {
  ModelFiles files = test::llama_files();
  files.vector("model.layers.2.input_layernorm.weight", 8);
  CHECK(refusal(files) ==
        "heed: load: model.layers.2.input_layernorm.weight: a tensor [8] that the model has no place for");
  files.vectors.erase("model.layers.2.input_layernorm.weight");
  files.vectors.erase("model.norm.weight");
  CHECK(refusal(files) == "heed: load: model.norm.weight: no such tensor in the file, expected [8]");
  files.vector("model.norm.weight", 8);
  files.matrix("model.layers.1.mlp.down_proj.weight", 8, 7);
  CHECK(refusal(files) ==
        "heed: SafetensorsReader: model.layers.1.mlp.down_proj.weight: expected [8, 6] (F64, F32, F16 or BF16), got "
        "[8, 7] (F32)");
  files.matrix("model.layers.1.mlp.down_proj.weight", 8, 6);
  files.config = test::llama_config("\"mlp_bias\": true,");
  CHECK(refusal(files) == "heed: load: model.layers.0.mlp.gate_proj.bias: no such tensor in the file, expected [6]");
  files.config = test::llama_config();
  files.config.replace(files.config.find("silu"), 4, "relu");
  CHECK(refusal(files) ==
        "heed: config.json: hidden_act: expected one of gelu gelu_new gelu_pytorch_tanh silu swish, got relu");
  files.config = test::llama_config("", "falcon");
  CHECK(refusal(files) ==
        "heed: config.json: model_type: expected one of llama mistral qwen2 qwen3 phi3 olmo2 gemma2 gemma3_text, got "
        "falcon");
}

TEST_CASE("CausalLM: calls that do not fit") {
  const Model model = load(test::llama_files());
  const Cpu cpu;
  auto ids = test::random_ids({2, 3}, 6, 11);
  auto caches = model.make_caches(2, 4);
  heed::Workspace workspace(model.workspace_size(cpu, caches, 3));
  Tensor<float, 3> logits({2, 3, 11});
  const auto text_of = [&](auto& to, heed::Workspace& scratch, const heed::CausalLMCall& call = {}) {
    return error_text([&] { model.forward(cpu, ids, caches, to, scratch, call); });
  };
  Tensor<float, 3> narrow({2, 3, 10});
  CHECK(text_of(narrow, workspace) ==
        "heed: CausalLM::forward: logits: expected [2, 3, 11] (batch, seq, vocabulary), got [2, 3, 10]");
  const Tensor<bool, 2> valid({2, 4});
  CHECK(text_of(logits, workspace, {.valid = valid}) ==
        "heed: CausalLM::forward: valid: expected [2, 3] (batch, seq), got [2, 4]");
  heed::Workspace none;
  CHECK(text_of(logits, none) == "heed: CausalLM::forward: workspace: needs " +
                                     std::to_string(model.workspace_size(cpu, 2, 3, 3)) + " bytes, has 0");
  CHECK(error_text([&] { model.forward(cpu, ids, logits, none); }) ==
        "heed: CausalLM::forward: workspace: needs " + std::to_string(model.workspace_size(cpu, 2, 3)) +
            " bytes, has 0");
  heed::KvCaches<heed::StaticKvCache<float>> no_caches;
  CHECK(error_text([&] { model.forward(cpu, ids, no_caches, logits, workspace); }) ==
        "heed: CausalLM::forward: caches: expected those of 2 layers, got 0");
  auto other_caches = model.make_caches(1, 4);
  CHECK(error_text([&] { model.forward(cpu, ids, other_caches, logits, workspace); }) ==
        "heed: CausalLM::forward: cache: is for a batch of 1, the call's is 2");
  CHECK(text_of(logits, workspace) == "no error");
  CHECK(text_of(logits, workspace) ==
        "heed: StaticKvCache::append: cache: holds at most 4 tokens a row (its capacity); row 0 has 3 and would get 3");
  CHECK(caches.length(0) == 3);  // in no layer was anything appended
  CHECK(caches[1].lengths()(1) == 3);
  ids(1, 2) = 11;
  CHECK(text_of(logits, workspace) == "heed: embedding: ids: expected 0 <= id < 11, got 11 at position [1, 2]");
}

TEST_CASE("CausalLM: in bfloat16, near to float; and what it says of itself") {
  const heed_test::TemporaryFolder folder;
  test::llama_files().write(folder.path());
  const auto half = heed::CausalLM<heed::bfloat16>::from_folder(folder.path());
  const auto model = Model::from_folder(folder.path());
  const auto ids = test::random_ids({1, 5}, 7, 11);
  const Cpu cpu;
  Tensor<heed::bfloat16, 3> logits({1, 5, 11});
  heed::Workspace workspace(half.workspace_size(cpu, 1, 5));
  half.forward(cpu, ids, logits, workspace);
  CHECK(test::max_scaled_error(logits, all_logits(model, cpu, ids)) < 0.05);
  CHECK(half.describe().find("CausalLM<bfloat16>: vocabulary_size 11, hidden_size 8, num_layers 2; ") == 0);
  CHECK(2 * half.weight_bytes() == model.weight_bytes());
}
