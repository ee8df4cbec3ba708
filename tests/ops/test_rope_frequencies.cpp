// Frequencies and attention factors of every scaling, against the papers' and transformers' formulas in long double.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/core/tensor.hpp"
#include "heed/ops/rope_frequencies.hpp"

namespace {

using heed::Index;
using heed::RopeOptions;
using heed::RopeScaling;
using heed::RopeType;
using heed::Tensor;
using Real = long double;

const Real pi = std::acos(-1.0L);

Tensor<double, 1> frequencies(const RopeOptions& options, Index head_dim, Index length = 0) {
  REQUIRE_MESSAGE(!heed::check_rope("test", options, head_dim), heed::check_rope("test", options, head_dim).text());
  Tensor<double, 1> result({heed::rope_dim(options, head_dim) / 2});
  heed::inverse_frequencies(options, head_dim, length, result);
  return result;
}

// theta^(−2i / dim).
Real plain(Real theta, Index dim, Index i) {
  return std::exp(-2.0L * static_cast<Real>(i) / static_cast<Real>(dim) * std::log(theta));
}

template <class F>
void check_all(const Tensor<double, 1>& got, F&& want) {
  for (Index i = 0; i < got.extent(0); ++i) {
    CAPTURE(i);
    const auto wanted = static_cast<double>(want(i));
    CHECK(std::abs(got(i) - wanted) <= 2e-14 * wanted);
  }
}

std::string refusal(const RopeOptions& options, Index head_dim, heed::ErrorKind kind) {
  const heed::Problem problem = heed::check_rope("RotaryEmbedding", options, head_dim);
  CHECK(problem.kind() == kind);
  return problem.text();
}

RopeOptions with(const RopeScaling& scaling) {
  RopeOptions options;
  options.scaling = scaling;
  return options;
}

}  // namespace

TEST_CASE("default: theta^(-2i / rotary_dim)") {
  for (const double theta : {10000.0, 500000.0, 1e6, 100.0}) {
    for (const Index dim : {2, 16, 80, 128, 256}) {
      check_all(frequencies({.theta = theta}, dim), [&](Index i) { return plain(theta, dim, i); });
    }
  }
  check_all(frequencies({.rotary_dim = 20}, 80), [](Index i) { return plain(10000, 20, i); });
  CHECK(frequencies({}, 64).extent(0) == 32);
  CHECK(heed::attention_factor({}) == 1.0);
}

TEST_CASE("linear: positions divided by the factor") {
  const RopeScaling scaling{.type = RopeType::linear, .factor = 8};
  check_all(frequencies({.theta = 1e6, .scaling = scaling}, 64), [](Index i) { return plain(1e6, 64, i) / 8; });
  CHECK(heed::attention_factor(scaling) == 1.0);
}

TEST_CASE("case 25: dynamic NTK goes by the length alone, and keeps no state between calls") {
  const RopeScaling scaling{.type = RopeType::dynamic, .factor = 4, .max_position_embeddings = 2048};
  const RopeOptions options{.rotary_dim = 40, .scaling = scaling};
  const auto at_length = [&](Index length) {
    const Real growth = length <= 2048 ? 1 : 4.0L * static_cast<Real>(length) / 2048 - 3;
    const Real theta = 10000 * std::pow(growth, 40.0L / 38);
    check_all(frequencies(options, 80, length), [&](Index i) { return plain(theta, 40, i); });
  };
  for (const Index length : {9000, 1, 2048, 2049, 4096, 9000, 0}) at_length(length);  // also back to shorter ones
  CHECK(scaling.needs_length());
  CHECK(heed::attention_factor(scaling) == 1.0);
}

TEST_CASE("yarn: slow pairs divided by the factor, fast ones kept, a ramp between") {
  // factor 4 from 32768, theta 1e6, 128 dims: a pair makes 32 turns at 128 · ln(32768 / 64π) / 2 ln 1e6 = 23.6 and one
  // at 39.6, so the ramp goes from pair 23 to pair 40.
  const RopeScaling scaling{.type = RopeType::yarn, .factor = 4, .original_max_position_embeddings = 32768};
  check_all(frequencies({.theta = 1e6, .scaling = scaling}, 128), [](Index i) {
    const Real interpolated = i <= 23 ? 0 : (i >= 40 ? 1 : static_cast<Real>(i - 23) / 17);
    return plain(1e6, 128, i) * (1 - interpolated + interpolated / 4);
  });
  CHECK(std::abs(heed::attention_factor(scaling) - (0.1 * std::log(4.0) + 1)) < 1e-15);

  SUBCASE("truncate = false: the ramp begins between pairs") {
    RopeScaling broken = scaling;
    broken.truncate = false;
    const Real low = 128 * std::log(32768 / (32 * 2 * pi)) / (2 * std::log(1e6L));
    const Real high = 128 * std::log(32768 / (2 * pi)) / (2 * std::log(1e6L));
    CHECK(static_cast<int>(low) == 23);
    check_all(frequencies({.theta = 1e6, .scaling = broken}, 128), [&](Index i) {
      const Real ramp = (static_cast<Real>(i) - low) / (high - low);
      const Real interpolated = ramp < 0 ? 0 : (ramp > 1 ? 1 : ramp);
      return plain(1e6, 128, i) * (1 - interpolated + interpolated / 4);
    });
  }
  SUBCASE("other betas: 16 and 2 turns") {
    // 48 dims, 1024 positions, theta 1e4: 48 · ln(1024 / 32π) / 2 ln 1e4 = 6.05 and 48 · ln(1024 / 4π) / … = 11.47.
    const RopeScaling other{
        .type = RopeType::yarn, .factor = 8, .original_max_position_embeddings = 1024, .beta_fast = 16, .beta_slow = 2};
    check_all(frequencies(with(other), 48), [](Index i) {
      const Real interpolated = i <= 6 ? 0 : (i >= 12 ? 1 : static_cast<Real>(i - 6) / 6);
      return plain(10000, 48, i) * (1 - interpolated + interpolated / 8);
    });
  }
  SUBCASE("the factor may follow from the two lengths") {
    RopeScaling ratio = scaling;
    ratio.factor = 0;
    ratio.max_position_embeddings = 131072;
    check_all(frequencies({.theta = 1e6, .scaling = ratio}, 128),
              [&](Index i) { return frequencies({.theta = 1e6, .scaling = scaling}, 128)(i); });
    CHECK(heed::attention_factor(ratio) == heed::attention_factor(scaling));
  }
  SUBCASE("a ramp of no width is a step") {
    // So few positions that both ends are cut to pair 0: pair 0 is kept, the others interpolated.
    const RopeScaling tiny{.type = RopeType::yarn, .factor = 2, .original_max_position_embeddings = 2};
    check_all(frequencies(with(tiny), 8), [](Index i) { return plain(10000, 8, i) / (i == 0 ? 1 : 2); });
  }
}

TEST_CASE("case 26: yarn's attention factor is the ratio of the two mscale terms when both are given") {
  RopeScaling scaling{.type = RopeType::yarn, .factor = 16, .original_max_position_embeddings = 4096};
  CHECK(std::abs(heed::attention_factor(scaling) - 1.2772588722239782) < 1e-15);
  scaling.mscale = 1;
  CHECK(std::abs(heed::attention_factor(scaling) - 1.2772588722239782) < 1e-15);  // one alone does not count
  scaling.mscale_all_dim = 1;
  CHECK(heed::attention_factor(scaling) == 1.0);
  scaling.mscale_all_dim = 0.5;
  CHECK(std::abs(heed::attention_factor(scaling) - 1.2772588722239782 / 1.1386294361119891) < 1e-15);
  scaling.mscale = scaling.mscale_all_dim = 0.707;
  CHECK(heed::attention_factor(scaling) == 1.0);
  scaling.attention_factor = 0.75;
  CHECK(heed::attention_factor(scaling) == 0.75);
  scaling = {.type = RopeType::yarn, .factor = 0.5, .original_max_position_embeddings = 4096};
  CHECK(heed::attention_factor(scaling) == 1.0);
}

TEST_CASE("longrope: one list up to the original length, the other beyond it") {
  RopeScaling scaling{.type = RopeType::longrope,
                      .factor = 32,
                      .original_max_position_embeddings = 4096,
                      .short_factor = {1.0, 1.1, 1.5, 2.0},
                      .long_factor = {1.0, 3.0, 5.0, 9.0}};
  const double short_factor[] = {1.0, 1.1, 1.5, 2.0};
  const double long_factor[] = {1.0, 3.0, 5.0, 9.0};
  for (const Index length : {0, 1, 4096}) {
    check_all(frequencies(with(scaling), 8, length),
              [&](Index i) { return plain(10000, 8, i) / static_cast<Real>(short_factor[i]); });
  }
  for (const Index length : {4097, 131072}) {
    check_all(frequencies(with(scaling), 8, length),
              [&](Index i) { return plain(10000, 8, i) / static_cast<Real>(long_factor[i]); });
  }
  CHECK(scaling.needs_length());
  // sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5 / 12)
  CHECK(std::abs(heed::attention_factor(scaling) - std::sqrt(17.0 / 12)) < 1e-15);
  scaling.factor = 0;
  scaling.max_position_embeddings = 131072;
  CHECK(std::abs(heed::attention_factor(scaling) - std::sqrt(17.0 / 12)) < 1e-15);
  scaling.factor = 1;
  CHECK(heed::attention_factor(scaling) == 1.0);
  scaling.attention_factor = 1.25;
  CHECK(heed::attention_factor(scaling) == 1.25);
  scaling.factor = 0;
  scaling.max_position_embeddings = 0;  // nothing to work the attention factor out from, and no need
  CHECK(!heed::check_rope("test", with(scaling), 8));
}

TEST_CASE("llama3: by wavelength") {
  const RopeScaling scaling{.type = RopeType::llama3, .factor = 8, .original_max_position_embeddings = 8192};
  int kept = 0;
  int divided = 0;
  int between = 0;
  check_all(frequencies({.theta = 500000, .scaling = scaling}, 128), [&](Index i) {
    const Real frequency = plain(500000, 128, i);
    const Real wavelength = 2 * pi / frequency;
    if (wavelength < 8192.0L / 4) return ++kept, frequency;
    if (wavelength > 8192.0L / 1) return ++divided, frequency / 8;
    const Real smooth = (8192 / wavelength - 1) / (4 - 1);
    return ++between, (1 - smooth) * frequency / 8 + smooth * frequency;
  });
  CHECK(kept == 29);
  CHECK(between == 6);
  CHECK(divided == 29);
  CHECK(heed::attention_factor(scaling) == 1.0);

  const RopeScaling other{.type = RopeType::llama3,
                          .factor = 4,
                          .max_position_embeddings = 1000,  // stands in for the original length
                          .low_freq_factor = 2,
                          .high_freq_factor = 8};
  check_all(frequencies({.theta = 1000, .scaling = other}, 32), [&](Index i) {
    const Real frequency = plain(1000, 32, i);
    const Real turns = 1000 * frequency / (2 * pi);
    const Real smooth = turns < 2 ? 0 : (turns > 8 ? 1 : (turns - 2) / 6);
    return frequency * ((1 - smooth) / 4 + smooth);
  });
}

TEST_CASE("proportional: exponents over head_dim, the first pairs turn, the others stand still") {
  RopeScaling scaling{.type = RopeType::proportional, .partial_rotary_factor = 0.25};
  const auto quarter = frequencies({.theta = 1e6, .scaling = scaling}, 64);
  REQUIRE(quarter.extent(0) == 32);
  check_all(quarter, [](Index i) { return i < 8 ? plain(1e6, 64, i) : 0; });
  scaling.factor = 8;
  scaling.partial_rotary_factor = 0.3;  // 0.3 · 64 / 2 = 9.6 pairs: 9
  check_all(frequencies({.theta = 1e6, .scaling = scaling}, 64),
            [](Index i) { return i < 9 ? plain(1e6, 64, i) / 8 : 0; });
  scaling.partial_rotary_factor = 1;
  check_all(frequencies(with(scaling), 32), [](Index i) { return plain(10000, 32, i) / 8; });
  scaling.partial_rotary_factor = 0;
  check_all(frequencies(with(scaling), 32), [](Index) { return Real(0); });
}

TEST_CASE("RopeFactors and comparison of options") {
  heed::RopeFactors factors{1.5, 2.5};
  CHECK(factors.size() == 2);
  CHECK(factors[1] == 2.5);
  Tensor<double, 1> values({300});
  values.fill(3);
  CHECK(heed::RopeFactors(values.view()).size() == 300);  // counted, refused by check_rope

  RopeOptions a;
  RopeOptions b;
  CHECK(a == b);
  const auto differs = [&](auto&& change) {
    RopeOptions changed;
    change(changed);
    return !(changed == a);
  };
  CHECK(differs([](RopeOptions& o) { o.theta = 2; }));
  CHECK(differs([](RopeOptions& o) { o.layout = heed::RopeLayout::interleaved; }));
  CHECK(differs([](RopeOptions& o) { o.rotary_dim = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.type = RopeType::yarn; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.factor = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.max_position_embeddings = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.original_max_position_embeddings = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.attention_factor = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.beta_fast = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.beta_slow = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.mscale = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.mscale_all_dim = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.truncate = false; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.low_freq_factor = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.high_freq_factor = 2; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.partial_rotary_factor = 0.5; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.short_factor = {1}; }));
  CHECK(differs([](RopeOptions& o) { o.scaling.long_factor = {1}; }));
  b.scaling.short_factor = {1, 2};
  RopeOptions c = b;
  CHECK(c == b);
  c.scaling.short_factor = {1, 3};
  CHECK(!(c == b));
}

TEST_CASE("check_rope: error texts") {
  using enum heed::ErrorKind;
  const auto scaled = [](const RopeScaling& scaling, Index head_dim = 8) {
    return refusal(with(scaling), head_dim, option);
  };
  CHECK(!heed::check_rope("RotaryEmbedding", {}, 8));
  CHECK(refusal({}, 0, shape) == "heed: RotaryEmbedding: head_dim: must be at least 1, got 0");
  CHECK(refusal({}, 5, shape) == "heed: RotaryEmbedding: head_dim: must be even to be turned in pairs, got 5");
  CHECK(refusal({.rotary_dim = 3}, 8, shape) ==
        "heed: RotaryEmbedding: rotary_dim: must be even to be turned in pairs, got 3");
  CHECK(refusal({.rotary_dim = 10}, 8, shape) ==
        "heed: RotaryEmbedding: rotary_dim: must be at most head_dim 8 (and not negative), got 10");
  CHECK(refusal({.rotary_dim = -2}, 8, shape) ==
        "heed: RotaryEmbedding: rotary_dim: must be at most head_dim 8 (and not negative), got -2");
  CHECK(refusal({.theta = 0}, 8, option) == "heed: RotaryEmbedding: theta: must be positive, got 0");
  CHECK(refusal({.theta = std::nan("")}, 8, option) == "heed: RotaryEmbedding: theta: must be positive, got nan");

  CHECK(scaled({.factor = 8}) == "heed: RotaryEmbedding: scaling.factor: 8 is given, but scaling.type is none");
  CHECK(scaled({.type = RopeType::linear}) == "heed: RotaryEmbedding: scaling.factor: must be positive, got 0");
  CHECK(scaled({.type = RopeType::linear, .factor = -2}) ==
        "heed: RotaryEmbedding: scaling.factor: must be positive, got -2");
  CHECK(scaled({.type = RopeType::yarn, .original_max_position_embeddings = 8}) ==
        "heed: RotaryEmbedding: scaling.factor: must be positive, got 0");
  CHECK(scaled({.type = RopeType::dynamic, .factor = 2}) ==
        "heed: RotaryEmbedding: scaling.max_position_embeddings: must be at least 1, got 0");
  CHECK(scaled({.type = RopeType::dynamic, .factor = 2, .max_position_embeddings = 8}, 2) ==
        "heed: RotaryEmbedding: scaling.type: dynamic needs a rotary_dim of at least 4, got 2");
  CHECK(scaled({.type = RopeType::llama3, .factor = 2}) ==
        "heed: RotaryEmbedding: scaling.original_max_position_embeddings: must be at least 2, got 0");
  CHECK(scaled({.type = RopeType::llama3,
                .factor = 2,
                .original_max_position_embeddings = 8,
                .low_freq_factor = 4,
                .high_freq_factor = 4}) ==
        "heed: RotaryEmbedding: scaling.low_freq_factor: must be positive and less than high_freq_factor, got 4 and 4");
  CHECK(scaled({.type = RopeType::proportional, .partial_rotary_factor = 1.5}) ==
        "heed: RotaryEmbedding: scaling.partial_rotary_factor: must be between 0 and 1, got 1.5");

  const RopeScaling yarn{.type = RopeType::yarn, .factor = 2, .original_max_position_embeddings = 8};
  CHECK(refusal({.theta = 1, .scaling = yarn}, 8, option) ==
        "heed: RotaryEmbedding: theta: must be more than 1 for yarn, got 1");
  RopeScaling bad = yarn;
  bad.beta_slow = 33;
  CHECK(scaled(bad) ==
        "heed: RotaryEmbedding: scaling.beta_fast: must be at least beta_slow and both positive, got 32 and 33");
  bad = yarn;
  bad.attention_factor = -1;
  CHECK(scaled(bad) == "heed: RotaryEmbedding: scaling.attention_factor: must not be negative, got -1");
  bad = yarn;
  bad.mscale = -1;
  CHECK(scaled(bad) == "heed: RotaryEmbedding: scaling.mscale: must not be negative, nor mscale_all_dim, got -1 and 0");

  const RopeScaling longrope{.type = RopeType::longrope,
                             .factor = 2,
                             .original_max_position_embeddings = 8,
                             .short_factor = {1, 1, 1, 1},
                             .long_factor = {1, 1, 1, 1}};
  CHECK(!heed::check_rope("RotaryEmbedding", with(longrope), 8));
  bad = longrope;
  bad.short_factor = {1, 1, 1};
  CHECK(scaled(bad) ==
        "heed: RotaryEmbedding: scaling.short_factor: expected rotary_dim / 2 = 4 values (at most 256), got 3");
  bad = longrope;
  bad.long_factor = {1, 1, 0, 1};
  CHECK(scaled(bad) == "heed: RotaryEmbedding: scaling.long_factor: must be positive, got 0 for pair 2");
  Tensor<double, 1> many({300});
  many.fill(1);
  bad = longrope;
  bad.short_factor = bad.long_factor = heed::RopeFactors(many.view());
  CHECK(scaled(bad, 600) ==
        "heed: RotaryEmbedding: scaling.short_factor: expected rotary_dim / 2 = 300 values (at most 256), got 300");
  bad = longrope;
  bad.original_max_position_embeddings = 1;
  CHECK(scaled(bad) == "heed: RotaryEmbedding: scaling.original_max_position_embeddings: must be at least 2, got 1");
}
