// The choice of the next token from a model's logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace generate {

struct SamplerOptions {
  double temperature = 0;  // 0: the token of the highest logit, always
  std::int64_t top_k = 0;  // only so many of the likeliest tokens; 0: all
  double top_p = 1;        // only the likeliest tokens that together have this probability, at least one
  std::uint64_t seed = 1;
};

// Temperature first, then top-k, then top-p, as Hugging Face's generate() does. The same seed, logits and options give
// the same tokens.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}

  // The next token. Of equal logits the lower id counts as the likelier. A NaN is never chosen; −1 if all are.
  std::int64_t next(std::span<const float> logits);

 private:
  struct Candidate {
    std::int64_t id = 0;
    double logit = 0;
    double weight = 0;
  };

  SamplerOptions options_;
  std::mt19937_64 random_;  // its numbers are the standard's, unlike those of the distributions
  std::vector<Candidate> candidates_;
};

}  // namespace generate
