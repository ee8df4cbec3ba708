// Which angles a rotary position embedding turns by: the options, as plain data, and their check.
//
// Sources: Su et al. 2021 (arXiv 2104.09864); the scalings as in Hugging Face transformers 5 (modeling_rope_utils),
// whose parameter names are kept.
#pragma once

#include <cmath>
#include <initializer_list>

#include "heed/core/shape.hpp"

namespace heed {

// Whether queries and keys carry their position when they are used.
enum class TokenPositions {
  none,
  rotary,  // turned by RoPE
};

// Which two dims of a head make pair i, of rotary_dim / 2 pairs.
enum class RopeLayout {
  half,         // i and i + rotary_dim / 2 (Llama, GPT-NeoX, most others)
  interleaved,  // 2i and 2i + 1 (GPT-J, GLM, Cohere)
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // g++ 12 says that RopeType::dynamic hides heed::dynamic; it cannot
#endif

// How the frequencies are stretched beyond the length a model was trained for.
enum class RopeType {
  none,
  linear,        // positions divided by `factor`
  dynamic,       // theta grows with the sequence's length beyond max_position_embeddings ("dynamic NTK")
  yarn,          // slow pairs interpolated, fast ones kept, a ramp between (Peng et al. 2023, arXiv 2309.00071)
  longrope,      // a factor for each pair, one list for short and one for long sequences (arXiv 2402.13753)
  llama3,        // Llama 3.1: by wavelength
  proportional,  // exponents over head_dim, only the first partial_rotary_factor of the pairs turn
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// longrope's list of one factor a pair; plain data of fixed capacity, so that options are copied like numbers.
class RopeFactors {
 public:
  static constexpr Index capacity = 256;  // pairs: a rotary_dim of 512

  HEED_INLINE constexpr RopeFactors() noexcept = default;
  // What does not fit is counted but not kept; check_rope() refuses it.
  HEED_INLINE constexpr RopeFactors(std::initializer_list<double> values) noexcept {
    for (const double value : values) append(value);
  }
  HEED_INLINE explicit constexpr RopeFactors(View<const double, 1> values) noexcept {
    for (Index i = 0; i < values.extent(0); ++i) append(values(i));
  }

  HEED_INLINE constexpr void append(double value) noexcept {
    if (count_ < capacity) values_[count_] = value;
    ++count_;
  }
  HEED_INLINE constexpr Index size() const noexcept { return count_; }
  HEED_INLINE constexpr double operator[](Index i) const noexcept { return values_[i]; }

  HEED_INLINE friend constexpr bool operator==(const RopeFactors& a, const RopeFactors& b) noexcept {
    bool equal = a.count_ == b.count_;
    for (Index i = 0; equal && i < a.count_ && i < capacity; ++i) equal = a.values_[i] == b.values_[i];
    return equal;
  }

 private:
  double values_[capacity] = {};
  Index count_ = 0;
};

// A scaling with its parameters; 0 stands for "not given". Each type reads the members named with it, no others.
struct RopeScaling {
  RopeType type = RopeType::none;
  // All but none. yarn and longrope: if not given, max_position_embeddings / original_max_position_embeddings.
  // proportional: if not given, 1.
  double factor = 0;
  Index max_position_embeddings = 0;           // dynamic; yarn, longrope: see factor
  Index original_max_position_embeddings = 0;  // yarn, longrope, llama3; if not given, max_position_embeddings
  double attention_factor = 0;                 // yarn, longrope: on cos and sin; if not given, by their papers
  double beta_fast = 32;                       // yarn: pairs with more turns in the original length are kept …
  double beta_slow = 1;                        // … with fewer are interpolated
  double mscale = 0;                           // yarn: if both are given, attention_factor is the
  double mscale_all_dim = 0;                   // ratio of their two terms
  bool truncate = true;                        // yarn: the ramp begins and ends at whole pairs
  double low_freq_factor = 1;                  // llama3
  double high_freq_factor = 4;                 // llama3
  double partial_rotary_factor = 1;            // proportional
  RopeFactors short_factor = {};               // longrope: rotary_dim / 2 values, for lengths up to the original one
  RopeFactors long_factor = {};                // longrope: for longer ones

  // True if the frequencies depend on the sequence's length.
  HEED_INLINE constexpr bool needs_length() const noexcept {
    return type == RopeType::dynamic || type == RopeType::longrope;
  }
  // The length the model was first trained for; 0 if not given.
  HEED_INLINE constexpr Index original_length() const noexcept {
    return original_max_position_embeddings > 0 ? original_max_position_embeddings : max_position_embeddings;
  }
  // yarn's and longrope's factor; 0 if nothing gives it.
  HEED_INLINE constexpr double stretch() const noexcept {
    if (factor != 0 || max_position_embeddings <= 0 || original_max_position_embeddings <= 0) return factor;
    return static_cast<double>(max_position_embeddings) / static_cast<double>(original_max_position_embeddings);
  }

  HEED_INLINE friend constexpr bool operator==(const RopeScaling& a, const RopeScaling& b) noexcept {
    return a.type == b.type && a.factor == b.factor && a.max_position_embeddings == b.max_position_embeddings &&
           a.original_max_position_embeddings == b.original_max_position_embeddings &&
           a.attention_factor == b.attention_factor && a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow &&
           a.mscale == b.mscale && a.mscale_all_dim == b.mscale_all_dim && a.truncate == b.truncate &&
           a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
           a.partial_rotary_factor == b.partial_rotary_factor && a.short_factor == b.short_factor &&
           a.long_factor == b.long_factor;
  }
};

// Pair i of a token at position p turns by p · theta^(−2i / rotary_dim), scaled by `scaling`; dims from rotary_dim on
// are left alone.
struct RopeOptions {
  double theta = 10000;
  RopeLayout layout = RopeLayout::half;
  Index rotary_dim = 0;  // even, at most head_dim; 0: head_dim
  RopeScaling scaling = {};

  HEED_INLINE friend constexpr bool operator==(const RopeOptions& a, const RopeOptions& b) noexcept {
    return a.theta == b.theta && a.layout == b.layout && a.rotary_dim == b.rotary_dim && a.scaling == b.scaling;
  }
};

// Dims that turn.
HEED_INLINE constexpr Index rope_dim(const RopeOptions& options, Index head_dim) noexcept {
  return options.rotary_dim == 0 ? head_dim : options.rotary_dim;
}

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

inline Problem check_rope_scaling(const char* door, const RopeScaling& scaling, double theta, Index dim) noexcept {
  const auto bad = [&](const char* name) noexcept { return problem_at(ErrorKind::option, door, name); };
  const auto positive = [](double value) noexcept { return std::isfinite(value) && value > 0; };
  const RopeType type = scaling.type;
  if (type == RopeType::none) {
    if (scaling.factor == 0) return {};
    return bad("scaling.factor").append_number(scaling.factor).append(" is given, but scaling.type is none");
  }

  // longrope's factor is only for its attention factor; proportional's is 1 if left out.
  const bool stretched = type == RopeType::yarn || type == RopeType::longrope;
  const double factor = stretched ? scaling.stretch() : scaling.factor;
  const bool optional = type == RopeType::proportional || (type == RopeType::longrope && scaling.attention_factor > 0);
  if (!positive(factor) && !(optional && factor == 0)) {
    return bad("scaling.factor").append("must be positive, got ").append_number(factor);
  }
  if (!std::isfinite(scaling.attention_factor) || scaling.attention_factor < 0) {
    return bad("scaling.attention_factor").append("must not be negative, got ").append_number(scaling.attention_factor);
  }
  if (type == RopeType::dynamic) {
    if (scaling.max_position_embeddings < 1) {
      return bad("scaling.max_position_embeddings")
          .append("must be at least 1, got ")
          .append(scaling.max_position_embeddings);
    }
    if (dim < 4) return bad("scaling.type").append("dynamic needs a rotary_dim of at least 4, got ").append(dim);
  }
  // Below, logarithms of the length and of theta are divided by.
  if (type == RopeType::yarn || type == RopeType::longrope || type == RopeType::llama3) {
    if (scaling.original_length() < 2) {
      return bad("scaling.original_max_position_embeddings")
          .append("must be at least 2, got ")
          .append(scaling.original_length());
    }
  }
  if (type == RopeType::yarn) {
    if (!(scaling.mscale >= 0 && scaling.mscale_all_dim >= 0)) {
      return bad("scaling.mscale")
          .append("must not be negative, nor mscale_all_dim, got ")
          .append_number(scaling.mscale)
          .append(" and ")
          .append_number(scaling.mscale_all_dim);
    }
    if (theta <= 1) return bad("theta").append("must be more than 1 for yarn, got ").append_number(theta);
    if (!positive(scaling.beta_slow) || !positive(scaling.beta_fast) || scaling.beta_fast < scaling.beta_slow) {
      return bad("scaling.beta_fast")
          .append("must be at least beta_slow and both positive, got ")
          .append_number(scaling.beta_fast)
          .append(" and ")
          .append_number(scaling.beta_slow);
    }
  }
  if (type == RopeType::longrope) {
    const struct {
      const char* name;
      const RopeFactors& factors;
    } lists[] = {{"scaling.short_factor", scaling.short_factor}, {"scaling.long_factor", scaling.long_factor}};
    for (const auto& list : lists) {
      if (list.factors.size() != dim / 2 || list.factors.size() > RopeFactors::capacity) {
        return bad(list.name)
            .append("expected rotary_dim / 2 = ")
            .append(dim / 2)
            .append(" values (at most ")
            .append(RopeFactors::capacity)
            .append("), got ")
            .append(list.factors.size());
      }
      for (Index i = 0; i < list.factors.size(); ++i) {
        if (positive(list.factors[i])) continue;
        return bad(list.name)
            .append("must be positive, got ")
            .append_number(list.factors[i])
            .append(" for pair ")
            .append(i);
      }
    }
  }
  if (type == RopeType::llama3 &&
      !(positive(scaling.low_freq_factor) && scaling.low_freq_factor < scaling.high_freq_factor)) {
    return bad("scaling.low_freq_factor")
        .append("must be positive and less than high_freq_factor, got ")
        .append_number(scaling.low_freq_factor)
        .append(" and ")
        .append_number(scaling.high_freq_factor);
  }
  if (type == RopeType::proportional && !(scaling.partial_rotary_factor >= 0 && scaling.partial_rotary_factor <= 1)) {
    return bad("scaling.partial_rotary_factor")
        .append("must be between 0 and 1, got ")
        .append_number(scaling.partial_rotary_factor);
  }
  return {};
}

}  // namespace impl

// What is wrong with rotary options for heads of `head_dim` dims.
[[nodiscard]] inline Problem check_rope(const char* door, const RopeOptions& options, Index head_dim) noexcept {
  const Index dim = rope_dim(options, head_dim);
  if (head_dim < 1) {
    return problem_at(ErrorKind::shape, door, "head_dim").append("must be at least 1, got ").append(head_dim);
  }
  if (dim < 0 || dim > head_dim) {
    return problem_at(ErrorKind::shape, door, "rotary_dim")
        .append("must be at most head_dim ")
        .append(head_dim)
        .append(" (and not negative), got ")
        .append(dim);
  }
  if (dim % 2 != 0) {
    return problem_at(ErrorKind::shape, door, options.rotary_dim == 0 ? "head_dim" : "rotary_dim")
        .append("must be even to be turned in pairs, got ")
        .append(dim);
  }
  if (!std::isfinite(options.theta) || options.theta <= 0) {
    return problem_at(ErrorKind::option, door, "theta").append("must be positive, got ").append_number(options.theta);
  }
  return impl::check_rope_scaling(door, options.scaling, options.theta, dim);
}

}  // namespace heed::inline HEED_ABI
