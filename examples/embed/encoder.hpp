// Texts to embeddings: tokens, batches by length, all cores.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heed/core/tensor.hpp"
#include "threads.hpp"

namespace embed {

// A sentence-transformers model of BERT's kind whose embedding is the mean over tokens, brought to length 1.
class Encoder {
 public:
  // From a folder with config.json, model.safetensors and vocab.txt; if there, sentence_bert_config.json says how many
  // tokens of a text are read, and 1_Pooling/config.json is held to the mean. Errors: heed::Error, text::BadFile.
  explicit Encoder(const std::string& folder);
  ~Encoder();

  heed::Index hidden_size() const;
  heed::Index max_tokens() const;

  // A text's tokens, [CLS] and [SEP] included; what is over max_tokens() is cut off.
  std::vector<std::int64_t> tokens(const std::string& text) const;

  // One row a text [texts, hidden size]. A row's bits depend on its text alone: not on its neighbours, not on the number
  // of threads. `progress` is called with the texts done so far, from one thread at a time.
  heed::Tensor<float, 2> embed(std::span<const std::string> texts, common::Threads& threads,
                               const std::function<void(std::int64_t)>& progress = {}) const;

 private:
  struct Parts;  // tokenizer and model; not here, so that what uses an encoder need not compile one
  std::unique_ptr<const Parts> parts_;
};

// The cosine between a query [1, hidden size] and each embedding [texts, hidden size].
std::vector<float> cosines(heed::View<const float, 2> query, heed::View<const float, 2> embeddings,
                           common::Threads& threads);

}  // namespace embed
