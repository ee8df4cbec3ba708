#include "sampler.hpp"

#include <algorithm>
#include <cmath>

namespace generate {

std::int64_t Sampler::next(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.push_back({static_cast<std::int64_t>(i), static_cast<double>(logits[i])});
  }
  if (candidates_.empty()) return -1;
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const Candidate best = *std::ranges::min_element(candidates_, likelier);
  if (options_.temperature <= 0 || std::isinf(best.logit)) return best.id;

  const auto all = static_cast<std::int64_t>(candidates_.size());
  if (options_.top_k > 0 && options_.top_k < all) {
    const auto end = candidates_.begin() + options_.top_k;
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), likelier);
    candidates_.erase(end, candidates_.end());
  }
  double sum = 0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((candidate.logit - best.logit) / options_.temperature);
    sum += candidate.weight;
  }
  if (options_.top_p < 1) {
    std::ranges::sort(candidates_, likelier);
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < options_.top_p * sum)) {
      kept += candidates_[count++].weight;
    }
    candidates_.resize(count);
    sum = kept;
  }
  double rest = static_cast<double>(random_() >> 11U) * 0x1p-53 * sum;  // 53 bits: [0, sum)
  for (const Candidate& candidate : candidates_) {
    rest -= candidate.weight;
    if (rest < 0) return candidate.id;
  }
  return std::ranges::max_element(candidates_, {}, &Candidate::weight)->id;  // rounding: all was subtracted
}

}  // namespace generate
