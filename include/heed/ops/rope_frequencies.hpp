// The frequencies and the attention factor of a rotary position embedding, from its options.
//
// Sources: as rope_options.hpp; all formulae in double, in the order transformers computes them.
#pragma once

#include "heed/ops/rope_options.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// yarn: 1 for a pair that is interpolated, 0 for one that is kept, a ramp between.
inline double yarn_ramp(const RopeScaling& scaling, double theta, double dim, double pair) noexcept {
  const auto length = static_cast<double>(scaling.original_length());
  // The (broken) pair that makes so many turns in the original length.
  const auto pair_of = [&](double turns) noexcept {
    return dim * std::log(length / (turns * 2 * 3.141592653589793)) / (2 * std::log(theta));
  };
  double low = pair_of(scaling.beta_fast);
  double high = pair_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  if (low < 0) low = 0;
  if (high > dim - 1) high = dim - 1;
  if (low == high) high += 0.001;
  const double ramp = (pair - low) / (high - low);
  return ramp < 0 ? 0 : (ramp > 1 ? 1 : ramp);
}

}  // namespace impl

// The frequency of pair i, in radians a position; `length` is the sequence's (dynamic, longrope; 0: not beyond the
// original). Options are checked.
[[nodiscard]] HEED_NOINLINE inline double inverse_frequency(const RopeOptions& options, Index head_dim, Index i,
                                                            Index length = 0) noexcept {
  const RopeScaling& scaling = options.scaling;
  const auto dim = static_cast<double>(rope_dim(options, head_dim));
  const auto pair = static_cast<double>(i);
  const auto unscaled = [&](double theta, double over) noexcept { return 1 / std::pow(theta, 2 * pair / over); };
  switch (scaling.type) {
    case RopeType::none: break;
    case RopeType::linear: return unscaled(options.theta, dim) / scaling.factor;
    case RopeType::dynamic: {
      if (length <= scaling.max_position_embeddings) break;
      const double ratio = static_cast<double>(length) / static_cast<double>(scaling.max_position_embeddings);
      const double growth = scaling.factor * ratio - (scaling.factor - 1);
      return unscaled(options.theta * std::pow(growth, dim / (dim - 2)), dim);
    }
    case RopeType::yarn: {
      const double ramp = impl::yarn_ramp(scaling, options.theta, dim, pair);
      const double kept = unscaled(options.theta, dim);
      return kept / scaling.stretch() * ramp + kept * (1 - ramp);
    }
    case RopeType::longrope: {
      const bool is_long = length > scaling.original_length();
      return unscaled(options.theta, dim) / (is_long ? scaling.long_factor : scaling.short_factor)[i];
    }
    case RopeType::llama3: {
      const double kept = unscaled(options.theta, dim);
      const double turns = static_cast<double>(scaling.original_length()) * kept / (2 * 3.141592653589793);
      if (turns < scaling.low_freq_factor) return kept / scaling.factor;
      if (turns > scaling.high_freq_factor) return kept;
      const double smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      return (1 - smooth) * kept / scaling.factor + smooth * kept;
    }
    case RopeType::proportional: {
      const auto turning = static_cast<Index>(scaling.partial_rotary_factor * static_cast<double>(head_dim)) / 2;
      if (i >= turning) return 0;
      return unscaled(options.theta, static_cast<double>(head_dim)) / (scaling.factor > 0 ? scaling.factor : 1);
    }
  }
  return unscaled(options.theta, dim);
}

// All of them: out [rotary_dim / 2]. Options and extent are checked by the caller.
inline void inverse_frequencies(const RopeOptions& options, Index head_dim, Index length,
                                View<double, 1> out) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) out(i) = inverse_frequency(options, head_dim, i, length);
}

// The factor on cos and sin (1 but for yarn and longrope). Options are checked.
[[nodiscard]] inline double attention_factor(const RopeScaling& scaling) noexcept {
  const bool scales = scaling.type == RopeType::yarn || scaling.type == RopeType::longrope;
  if (!scales) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  const double factor = scaling.stretch();
  if (factor <= 1) return 1;
  if (scaling.type == RopeType::longrope) {
    return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(scaling.original_length())));
  }
  const auto term = [&](double mscale) noexcept { return 0.1 * mscale * std::log(factor) + 1; };
  const bool both = scaling.mscale != 0 && scaling.mscale_all_dim != 0;
  return both ? term(scaling.mscale) / term(scaling.mscale_all_dim) : term(1);
}

}  // namespace heed::inline HEED_ABI
