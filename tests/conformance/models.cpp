// Group models: whole models, from token ids to logits, hidden states and sentence embeddings.
#include <cmath>
#include <vector>

#include "conformance/rope_attributes.hpp"
#include "conformance/run.hpp"
#include "heed/models/bert_encoder.hpp"
#include "heed/models/causal_lm.hpp"

namespace conformance {

using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

// Attributes that say what config.json says: the outputs show that it was read.
void expect_said_by_config(const Attributes& attributes) {
  for (const char* key : {"activation", "rms_norm_eps", "layer_norm_eps", "rope", "scale", "softcap", "window",
                          "weights", "intermediate_size", "tie_word_embeddings", "weights_sha256"}) {
    attributes.has(key);
  }
}

// The largest of a row of logits, and how far the second is behind.
template <class T>
std::pair<std::int64_t, double> best_of(View<const T, 1> logits) {
  Index best = 0;
  for (Index i = 1; i < logits.extent(0); ++i) best = logits(i) > logits(best) ? i : best;
  double gap = std::numeric_limits<double>::infinity();
  for (Index i = 0; i < logits.extent(0); ++i) {
    if (i != best) gap = (std::min)(gap, static_cast<double>(logits(best)) - static_cast<double>(logits(i)));
  }
  return {best, gap};
}

// Greedy generation: the prompt in one call, then one token at a time.
template <class Model, class B>
void generate(Case& test, const B& backend, const Model& model, View<const std::int64_t, 2> prompt, Index new_tokens) {
  using T = typename Model::value_type;
  const Index batch = prompt.extent(0);
  auto caches = model.make_caches(batch, prompt.extent(1) + new_tokens);
  Tensor<std::int64_t, 2> generated({batch, new_tokens});
  Tensor<double, 1> smallest_gap({batch});
  smallest_gap.fill(std::numeric_limits<double>::infinity());
  Tensor<T, 2> logits({batch, model.vocabulary_size()});
  heed::Workspace workspace(model.workspace_size(backend, caches, prompt.extent(1)));
  model.next_logits(backend, prompt, caches, logits, workspace);
  for (Index step = 0; step < new_tokens; ++step) {
    for (Index b = 0; b < batch; ++b) {
      const auto [best, gap] = best_of(View<const T, 1>(logits.view()[b]));
      generated(b, step) = best;
      smallest_gap(b) = (std::min)(smallest_gap(b), gap);
    }
    if (step + 1 < new_tokens) {
      model.next_logits(backend, generated.view().slice(1, step, 1), caches, logits, workspace);
    }
  }
  test.check("output.generated_ids", generated);
  // That of the recorded run, which is a little off the recorded logits: it turned queries and keys in float.
  test.check("output.smallest_gap", smallest_gap, "", test.tolerance("float32"));
}

// Which of the tokens there are, from a mask of 0 and 1.
Tensor<bool, 2> read_valid(const Case& test, const Tensor<std::int64_t, 2>& ids) {
  const auto mask = test.read<std::int64_t, 2>("input.attention_mask", {ids.extent(0), ids.extent(1)});
  Tensor<bool, 2> valid({mask.extent(0), mask.extent(1)});
  for (Index i = 0; i < mask.size(); ++i) valid.data()[i] = mask.data()[i] != 0;
  return valid;
}

// Calls run(backend, encoder, ids, call).
template <class Run>
void with_encoder(Case& test, const Setup& setup, Run&& run) {
  const Attributes& attributes = test.attributes();
  const auto name = attributes.get<std::string>("model");
  const bool beside = std::filesystem::is_directory(test.folder() / name);
  if (!beside && setup.weights.empty()) throw CaseSkipped("needs the weights of " + name + ": --weights FOLDER");
  attributes.expect("causal", "none");
  const auto ids = test.read<std::int64_t, 2>("input.input_ids");
  const auto types = test.read<std::int64_t, 2>("input.token_type_ids", {ids.extent(0), ids.extent(1)});
  const Tensor<bool, 2> valid = read_valid(test, ids);
  const auto config = heed::ModelConfig::from_text(attributes.json("hf_config"));
  const auto weights = heed::ShardedReader::open(beside ? (test.folder() / name).string() : setup.weights);
  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const heed::BertEncoder<T, B> encoder(weights, config, backend);
    attributes.expect("hidden_size", encoder.hidden_size());
    attributes.expect("num_layers", encoder.num_layers());
    attributes.expect("num_heads", encoder.block(0).heads().num_heads);
    attributes.expect("num_kv_heads", encoder.block(0).heads().num_kv_heads);
    attributes.expect("head_dim", encoder.block(0).heads().head_dim);
    run(backend, encoder, ids.view(), heed::BertEncoderCall{.valid = valid, .token_types = types});
  });
  expect_said_by_config(attributes);
}

}  // namespace

void run_causal_lm(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const std::string folder = (test.folder() / attributes.get<std::string>("model")).string();
  const auto prompt = test.read<std::int64_t, 2>("input.input_ids");
  const auto new_tokens = attributes.size("new_tokens");
  const Index batch = prompt.extent(0);
  const Index longest = prompt.extent(1) + new_tokens;
  attributes.expect("prompt_length", prompt.extent(1));
  attributes.expect("causal", "top_left");
  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    using Model = heed::CausalLM<T, B>;
    const Model model = Model::from_folder(folder, backend);
    const heed::HeadLayout& heads = model.block(0).attention().heads();
    attributes.expect("hidden_size", model.hidden_size());
    attributes.expect("vocab_size", model.vocabulary_size());
    attributes.expect("num_layers", model.num_layers());
    attributes.expect("num_heads", heads.num_heads);
    attributes.expect("num_kv_heads", heads.num_kv_heads);
    attributes.expect("head_dim", heads.head_dim);

    generate(test, backend, model, prompt, new_tokens);

    // All logits of the prompt and what was recorded to follow it.
    const auto generated = test.read<std::int64_t, 2>("output.generated_ids", {batch, new_tokens});
    Tensor<std::int64_t, 2> ids({batch, longest});
    for (Index b = 0; b < batch; ++b) {
      for (Index t = 0; t < longest; ++t) {
        ids(b, t) = t < prompt.extent(1) ? prompt(b, t) : generated(b, t - prompt.extent(1));
      }
    }
    Tensor<T, 3> logits({batch, longest, model.vocabulary_size()});
    heed::Workspace workspace(model.workspace_size(backend, batch, longest));
    model.forward(backend, ids, logits, workspace);
    test.check("output.logits", logits);
    auto caches = model.make_caches(batch, longest);
    model.forward(backend, ids, caches, logits, workspace);
    test.check("output.logits", logits, "static cache");
  });
  expect_said_by_config(attributes);
}

void run_bert_encoder(Case& test, const Setup& setup) {
  for (const char* about_embeddings : {"normalize", "pooling"}) test.attributes().has(about_embeddings);
  with_encoder(test, setup, [&](const auto& backend, const auto& encoder, const auto& ids, const auto& call) {
    test.check("output.last_hidden_state", encoder.forward(backend, ids, call));
  });
}

void run_sentence_embedding(Case& test, const Setup& setup) {
  test.attributes().expect("pooling", "mean over attention_mask");
  test.attributes().expect("normalize", true);
  with_encoder(test, setup, [&](const auto& backend, const auto& encoder, const auto& ids, const auto& call) {
    test.check("output.sentence_embedding", encoder.embed(backend, ids, call));
  });
}

}  // namespace conformance
