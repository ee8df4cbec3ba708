// A checkpoint's folder and a prompt's tokens to the tokens that follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/backend/cpu.hpp"
#include "infini_options.hpp"
#include "sampler.hpp"

namespace generate {

// What keeps the keys and values of the tokens so far.
enum class Cache {
  full,     // all of them
  sliding,  // of the last `window` tokens
  int8,     // all of them, as 8-bit codes
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  Cache cache = Cache::full;   // without Infini-attention
  std::int64_t window = 1024;  // of Cache::sliding
  bool stop = true;            // at a token that the checkpoint says ends a text
  SamplerOptions sampler = {};
};

struct Generated {
  std::vector<std::int64_t> ids;  // without the token that ended the text
  bool stopped = false;           // there was one
  double prompt_seconds = 0;
  double seconds = 0;  // of all tokens but the first, which comes with the prompt
};

class Generator {
 public:
  // From a folder with config.json and model.safetensors (or its shards); `infini`: with Infini-attention instead of a
  // cache. Errors: heed::Error, text::BadFile.
  explicit Generator(const std::string& folder, const std::optional<InfiniOptions>& infini = {});
  ~Generator();

  std::int64_t vocabulary_size() const;
  std::int64_t max_positions() const { return max_positions_; }  // that the model was made for; 0: it does not say
  std::span<const std::int64_t> end_tokens() const { return end_tokens_; }

  // The tokens that follow a prompt of at least one; each one is given to on_token as soon as it is there, and false from
  // it ends the text. Errors: std::runtime_error if the model's logits are no numbers.
  Generated generate(const heed::Cpu& cpu, std::span<const std::int64_t> prompt, const GenerateOptions& options,
                     const std::function<bool(std::int64_t)>& on_token) const;

 private:
  // next_logits(ids, logits) reads tokens and says what comes after the last one.
  template <class NextLogits>
  Generated run(std::span<const std::int64_t> prompt, const GenerateOptions& options,
                const std::function<bool(std::int64_t)>& on_token, const NextLogits& next_logits) const;

  struct Model;  // not here, so that what uses a generator need not compile one
  std::unique_ptr<const Model> model_;
  std::int64_t max_positions_ = 0;
  std::vector<std::int64_t> end_tokens_;
};

}  // namespace generate
