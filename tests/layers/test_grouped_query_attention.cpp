// GroupedQueryAttention against attention written out in double, option by option; its bits and its padding.
#include "heed/layers/grouped_query_attention.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <vector>

#include "layers/grouped_query_attention_tools.hpp"
#include "layers/self_attention_formula.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

namespace {

using heed::GroupedQueryAttention;
using heed::GroupedQueryAttentionOptions;
using heed::GroupedQueryAttentionWeights;
using heed::HeadLayout;
using heed::Index;
using heed::NormOver;
using heed::NormWeights;
using heed::QueryKeyNorm;
using heed::RopeLayout;
using heed::Tensor;
using heed::TokenPositions;
using heed::View;
using heed::Workspace;
using test::random_tensor;
using test::gqa::hidden;
using test::gqa::Layer;
using test::gqa::random_weights;
using test::gqa::small;

template <class T>
heed::ProjectionWeights<T> projections_of(const GroupedQueryAttentionWeights<T>& weights) {
  return {weights.query, weights.key, weights.value, weights.output};
}

// The norms and RoPE of a layer, from their definitions.
template <class T>
auto turn_formula(const GroupedQueryAttentionWeights<T>& weights, const GroupedQueryAttentionOptions& options,
                  View<const T, 3> x, View<const std::int64_t, 2> positions = {}, const HeadLayout& heads = small) {
  return [=, &weights](Index b, Index t, Index head, bool is_query, std::vector<double>& values) {
    const NormWeights<T>& norm = is_query ? weights.query_norm : weights.key_norm;
    const heed::LinearWeights<T>& projection = is_query ? weights.query : weights.key;
    if (options.norm.kind != QueryKeyNorm::none) {
      std::vector<double> group = values;  // what mean and variance go over
      if (options.norm.over == NormOver::all_heads) {
        group.clear();
        for (Index h = 0; h < (is_query ? heads.num_heads : heads.num_kv_heads); ++h) {
          for (const double v : test::head_of(projection, x[b][t], h, heads.head_dim)) group.push_back(v);
        }
      }
      const auto count = static_cast<double>(group.size());
      double mean = 0;
      for (const double v : group) mean += options.norm.kind == QueryKeyNorm::layer ? v / count : 0;
      double square = 0;
      for (const double v : group) square += (v - mean) * (v - mean) / count;
      for (std::size_t d = 0; d < values.size(); ++d) {
        const Index row = static_cast<Index>(d) + (options.norm.over == NormOver::head ? 0 : head * heads.head_dim);
        values[d] = (values[d] - mean) / std::sqrt(square + options.norm.eps) *
                    (options.norm.weight_offset + test::to_double(norm.weight(row)));
        if (!norm.bias.empty()) values[d] += test::to_double(norm.bias(row));
      }
    }
    if (options.positions == TokenPositions::none) return;
    const Index dim = options.rope.rotary_dim == 0 ? heads.head_dim : options.rope.rotary_dim;
    const std::vector<double> before = values;
    for (Index i = 0; i < dim / 2; ++i) {
      const double position = positions.present() ? static_cast<double>(positions(b, t)) : static_cast<double>(t);
      const double angle =
          position * std::pow(options.rope.theta, -2 * static_cast<double>(i) / static_cast<double>(dim));
      const auto first = static_cast<std::size_t>(options.rope.layout == RopeLayout::half ? i : 2 * i);
      const auto second = static_cast<std::size_t>(options.rope.layout == RopeLayout::half ? i + dim / 2 : 2 * i + 1);
      values[first] = before[first] * std::cos(angle) - before[second] * std::sin(angle);
      values[second] = before[second] * std::cos(angle) + before[first] * std::sin(angle);
    }
  };
}

template <class T>
test::SelfAttentionResult formula_of(const GroupedQueryAttentionWeights<T>& weights,
                                     const GroupedQueryAttentionOptions& options, View<const T, 3> x,
                                     View<const std::int64_t, 2> positions = {},
                                     std::function<double(Index, Index, Index, Index)> bias = {}) {
  test::SelfAttentionFormula formula{.heads = small,
                                     .scale = options.scale.given() ? options.scale.value(small.head_dim) : 0,
                                     .softcap = options.softcap,
                                     .causal = options.causal,
                                     .left = options.window.left,
                                     .right = options.window.right};
  for (const auto slope : weights.alibi_slopes.span()) formula.slopes.push_back(static_cast<double>(slope));
  for (const auto sink : weights.sinks.span()) formula.sinks.push_back(static_cast<double>(sink));
  formula.bias = std::move(bias);
  formula.turn = turn_formula<T>(weights, options, x, positions);
  return test::self_attention<T>(projections_of(weights), x, formula);
}

template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : (std::is_same_v<T, float> ? 2e-4 : 0.1);

// A layer of one dim a head that averages the tokens it attends: scores are 0, values are x itself.
GroupedQueryAttentionWeights<float> averaging_weights() {
  Tensor<float, 2> zero({1, 1});
  Tensor<float, 2> one({1, 1});
  one(0, 0) = 1;
  GroupedQueryAttentionWeights<float> weights;
  weights.query.weight = zero;
  weights.key.weight = zero;
  weights.value.weight = one;
  weights.output.weight = one;
  return weights;
}
constexpr HeadLayout single{.num_heads = 1, .head_dim = 1};

Tensor<float, 3> tokens(std::initializer_list<float> values) {
  Tensor<float, 3> x({1, static_cast<Index>(values.size()), 1});
  float* to = x.data();
  for (const float value : values) *to++ = value;
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("GroupedQueryAttention: each option, alone and together", T, float, double) {
  using A = heed::accumulator_t<T>;
  const auto x = random_tensor<T>({2, 9, hidden}, 5);
  const auto positions = test::random_ids({2, 9}, 6, 1000);
  const auto bias = random_tensor<A>({4, 9, 9}, 9, -2, 2);
  Tensor<bool, 4> mask({2, 1, 1, 9});
  for (Index j = 0; j < 9; ++j) {
    mask(0, 0, 0, j) = j != 3;
    mask(1, 0, 0, j) = true;
  }
  struct Setup {
    const char* what;
    GroupedQueryAttentionOptions options;
    GroupedQueryAttentionWeights<T> weights;
    bool with_positions = false;
    bool with_bias = false;
    bool with_mask = false;
  };
  const auto plain = random_weights<T>();
  std::vector<Setup> setups;
  const auto add = [&](const char* what, auto&& change) {
    setups.push_back({what, {}, plain});
    change(setups.back());
  };
  const auto give_norm = [](Setup& setup, Index query, Index key, bool with_bias) {
    setup.weights.query_norm.weight = random_tensor<T>({query}, 41, 0.5, 1.5);
    setup.weights.key_norm.weight = random_tensor<T>({key}, 42, 0.5, 1.5);
    if (!with_bias) return;
    setup.weights.query_norm.bias = random_tensor<T>({query}, 43);
    setup.weights.key_norm.bias = random_tensor<T>({key}, 44);
  };
  add("defaults: causal, RoPE", [](Setup&) {});
  add("bidirectional", [](Setup& s) { s.options.causal = false; });
  add("no positions", [](Setup& s) { s.options.positions = TokenPositions::none; });
  add("no biases", [](Setup& s) { s.weights = random_weights<T>(small, hidden, false); });
  add("theta, partial, interleaved",
      [](Setup& s) { s.options.rope = {.theta = 500, .layout = RopeLayout::interleaved, .rotary_dim = 4}; });
  add("partial half", [](Setup& s) { s.options.rope = {.rotary_dim = 2}; });
  add("positions", [](Setup& s) { s.with_positions = true; });
  add("sliding window", [](Setup& s) { s.options.window = {2, 0}; });
  add("window both ways", [](Setup& s) {
    s.options.causal = false;
    s.options.window = {1, 3};
  });
  add("scale and softcap", [](Setup& s) {
    s.options.scale = 0.7;
    s.options.softcap = 0.5;
  });
  add("ALiBi", [](Setup& s) {
    s.options.positions = TokenPositions::none;
    s.weights.alibi_slopes = random_tensor<A>({4}, 45, 0.1, 0.6);
  });
  add("sinks", [](Setup& s) { s.weights.sinks = random_tensor<A>({4}, 46, -2, 2); });
  add("boolean mask", [](Setup& s) { s.with_mask = true; });
  add("additive mask", [](Setup& s) { s.with_bias = true; });
  add("rms norm of heads with an offset", [&](Setup& s) {
    s.options.norm = {.kind = QueryKeyNorm::rms, .eps = 1e-3, .weight_offset = 1};
    give_norm(s, 6, 6, false);
  });
  add("rms norm with a row a head", [&](Setup& s) {
    s.options.norm = {.kind = QueryKeyNorm::rms, .over = NormOver::each_head};
    give_norm(s, 24, 12, false);
  });
  add("rms norm of all heads", [&](Setup& s) {
    s.options.norm = {.kind = QueryKeyNorm::rms, .over = NormOver::all_heads};
    give_norm(s, 24, 12, false);
  });
  add("layer norm of heads", [&](Setup& s) {
    s.options.norm = {.kind = QueryKeyNorm::layer, .eps = 1e-3};
    give_norm(s, 6, 6, true);
  });
  add("layer norm with a row a head", [&](Setup& s) {
    s.options.norm = {.kind = QueryKeyNorm::layer, .over = NormOver::each_head};
    give_norm(s, 24, 12, true);
  });
  add("layer norm of all heads, without a bias", [&](Setup& s) {
    s.options.norm = {.kind = QueryKeyNorm::layer, .over = NormOver::all_heads};
    give_norm(s, 24, 12, false);
  });
  add("everything", [&](Setup& s) {
    s.options.window = {5, 0};
    s.options.scale = 0.7;
    s.options.softcap = 2;
    s.options.rope = {.theta = 500, .rotary_dim = 4};
    s.options.norm = {.kind = QueryKeyNorm::rms, .over = NormOver::each_head, .weight_offset = 1};
    give_norm(s, 24, 12, false);
    s.weights.alibi_slopes = random_tensor<A>({4}, 45, 0.1, 0.6);
    s.weights.sinks = random_tensor<A>({4}, 46, -2, 2);
    s.with_positions = s.with_mask = s.with_bias = true;
  });

  for (const Setup& setup : setups) {
    CAPTURE(setup.what);
    heed::GroupedQueryAttentionCall<T> call;
    if (setup.with_positions) call.positions = positions;
    if (setup.with_mask) call.mask = mask;
    if (setup.with_bias) call.bias = bias;
    const auto want =
        formula_of<T>(setup.weights, setup.options, x, call.positions, [&](Index b, Index h, Index i, Index j) {
          const bool masked = setup.with_mask && !mask(b, 0, 0, j);
          return masked ? -HUGE_VAL : (setup.with_bias ? static_cast<double>(bias(h, i, j)) : 0.0);
        });
    test::for_each_backend([&](const auto& backend) {
      using B = std::remove_cvref_t<decltype(backend)>;
      const Layer<T, B> layer(setup.weights, setup.options, small, backend);
      const auto y = layer.forward(backend, x, call);
      CHECK(test::max_scaled_error(y, want.out) < tolerance<T>);

      Tensor<T, 4> weights({2, 4, 9, 9});
      Tensor<A, 3> log_sum_exp({2, 4, 9});
      auto with_outputs = call;
      with_outputs.weights = weights;
      with_outputs.log_sum_exp = log_sum_exp;
      CHECK(test::same_bits(layer.forward(backend, x, with_outputs), y));
      CHECK(test::max_scaled_error(weights, want.weights) < tolerance<T>);
      CHECK(test::max_scaled_error(log_sum_exp, want.log_sum_exp) < tolerance<T>);
    });
  }
}

TEST_CASE_TEMPLATE("GroupedQueryAttention: 16-bit types", T, heed::bfloat16, heed::float16) {
  const auto weights = random_weights<T>();
  const auto x = random_tensor<T>({2, 6, hidden}, 5);
  const Layer<T, heed::Cpu> layer(weights, {}, small);
  CHECK(test::max_scaled_error(layer.forward(heed::Cpu(), x), formula_of<T>(weights, {}, x).out) < tolerance<T>);
}

TEST_CASE("GroupedQueryAttention: longer than a tile, heads of other sizes") {
  for (const HeadLayout& heads : {HeadLayout{.num_heads = 6, .num_kv_heads = 1, .head_dim = 2, .value_head_dim = 9},
                                  HeadLayout{.num_heads = 1, .head_dim = 40}}) {
    const auto weights = random_weights<double>(heads, 7);
    const auto x = random_tensor<double>({1, 150, 7}, 5);
    test::SelfAttentionFormula formula{.heads = heads, .causal = true};
    formula.turn = turn_formula<double>(weights, {}, x, {}, heads);
    const auto want = test::self_attention<double>(projections_of(weights), x, formula);
    test::for_each_backend([&](const auto& backend) {
      const Layer<double, std::remove_cvref_t<decltype(backend)>> layer(weights, {}, heads, backend);
      CHECK(test::max_scaled_error(layer.forward(backend, x), want.out) < 1e-11);
    });
  }
}

TEST_CASE("case 5: softcap comes before the mask") {
  // Cap 0.5, mask [0, −inf], V {0, 1000} -> 0; a softcap after the mask gives 377.5.
  const Layer<float, heed::Cpu> layer(averaging_weights(),
                                      {.causal = false, .positions = TokenPositions::none, .softcap = 0.5}, single);
  Tensor<float, 1> bias({2});
  bias(1) = -std::numeric_limits<float>::infinity();
  const auto y = layer.forward(heed::Cpu(), tokens({0, 1000}), {.bias = bias});
  CHECK(y(0, 0, 0) == 0);
  CHECK(y(0, 1, 0) == 0);
}

TEST_CASE("case 6: causal holds whether weights are returned or not") {
  test::for_each_backend([](const auto& backend) {
    const Layer<float, std::remove_cvref_t<decltype(backend)>> layer(
        averaging_weights(), {.positions = TokenPositions::none}, single, backend);
    Tensor<float, 4> weights({1, 1, 3, 3});
    for (const bool returned : {false, true}) {
      const auto y =
          layer.forward(backend, tokens({1, 2, 3}), {.weights = returned ? weights.view() : View<float, 4>()});
      CHECK(y(0, 0, 0) == doctest::Approx(1));
      CHECK(y(0, 1, 0) == doctest::Approx(1.5));
      CHECK(y(0, 2, 0) == doctest::Approx(2));
    }
    CHECK(weights(0, 0, 0, 1) == 0);
    CHECK(weights(0, 0, 2, 1) == doctest::Approx(1.0 / 3));
  });
}

TEST_CASE("case 7: training with dropout 0 is evaluation, bit for bit") {
  const auto x = random_tensor<float>({2, 9, hidden}, 5);
  const Layer<float, heed::Cpu> layer(random_weights<float>(), {}, small);
  const heed::Cpu cpu;
  CHECK(test::same_bits(layer.forward(cpu, x, {.training = true, .dropout_seed = 3}), layer.forward(cpu, x)));
}

TEST_CASE("case 10: a window of 2 includes the token itself") {
  const Layer<float, heed::Cpu> layer(averaging_weights(), {.window = {1, 0}, .positions = TokenPositions::none},
                                      single);
  const auto y = layer.forward(heed::Cpu(), tokens({1, 2, 3, 4}));
  const float want[] = {1, 1.5F, 2.5F, 3.5F};
  for (Index t = 0; t < 4; ++t) CHECK(y(0, t, 0) == doctest::Approx(want[t]));
}

TEST_CASE("case 14: in a left-padded batch {[a, b], [pad, a]} row 2's a is at position 0, as in a run of its own") {
  const auto x = random_tensor<float>({1, 2, hidden}, 5);
  Tensor<float, 3> batch({2, 2, hidden});
  for (Index e = 0; e < hidden; ++e) {
    batch(0, 0, e) = batch(1, 1, e) = x(0, 0, e);
    batch(0, 1, e) = x(0, 1, e);
    batch(1, 0, e) = std::numeric_limits<float>::quiet_NaN();
  }
  Tensor<bool, 2> valid({2, 2});
  valid.fill(true);
  valid(1, 0) = false;
  test::for_each_backend([&](const auto& backend) {
    const Layer<float, std::remove_cvref_t<decltype(backend)>> layer(random_weights<float>(), {}, small, backend);
    const auto y = layer.forward(backend, batch, {.valid = valid});
    CHECK(test::same_bits(y.view()[0], layer.forward(backend, x).view()[0]));
    CHECK(test::same_bits(y.view()[1].slice(0, 1, 1), layer.forward(backend, x.view().slice(1, 0, 1)).view()[0]));
    CHECK(test::same_bits(y.view()[1][0], Tensor<float, 1>({hidden})));
  });
}

TEST_CASE("case 16: query heads 0, 1 read kv head 0, heads 2, 3 read kv head 1") {
  // Value head 0 is 1 and head 1 is 2 for every token; the output projection lets each of the four heads through.
  constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 1};
  GroupedQueryAttentionWeights<float> weights;
  weights.query.weight = Tensor<float, 2>({4, 4});
  weights.key.weight = Tensor<float, 2>({2, 4});
  weights.value = {Tensor<float, 2>({2, 4}), Tensor<float, 1>({2})};
  weights.value.bias(0) = 1;
  weights.value.bias(1) = 2;
  weights.output.weight = Tensor<float, 2>({4, 4});
  for (Index h = 0; h < 4; ++h) weights.output.weight(h, h) = 1;
  test::for_each_backend([&](const auto& backend) {
    const GroupedQueryAttention<float, heads, std::remove_cvref_t<decltype(backend)>> layer(
        weights, {.positions = TokenPositions::none}, heads, backend);
    const auto y = layer.forward(backend, Tensor<float, 3>({1, 3, 4}));
    for (Index t = 0; t < 3; ++t) {
      const float want[] = {1, 1, 2, 2};
      for (Index h = 0; h < 4; ++h) CHECK(y(0, t, h) == doctest::Approx(want[h]));
    }
  });
}

TEST_CASE("case 31: a row's bits depend on no neighbour, thread, view or place in the batch") {
  const auto weights = random_weights<float>();
  const auto x = random_tensor<float>({3, 70, hidden}, 5);
  const auto positions = test::random_ids({3, 70}, 6, 1000);
  const heed::GroupedQueryAttentionCall<float> call{.positions = positions};
  const auto want = Layer<float, heed::Simd>(weights, {}, small).forward(heed::Simd(), x, call);
  test::for_each_fast_backend([&](const auto& backend) {
    const Layer<float, std::remove_cvref_t<decltype(backend)>> layer(weights, {}, small, backend);
    CHECK(test::same_bits(layer.forward(backend, x, call), want));
    for (Index b = 0; b < 3; ++b) {
      CHECK(test::same_bits(
          layer.forward(backend, x.view().slice(0, b, 1), {.positions = positions.view().slice(0, b, 1)}),
          want.view().slice(0, b, 1)));
    }
    Workspace workspace(layer.workspace_size(backend, 3, 70));
    const test::Strided<float, 3> strided(x);
    const test::Strided<std::int64_t, 2> strided_positions(positions);
    test::Strided<float, 3> out{Tensor<float, 3>({3, 70, hidden})};
    layer.forward(backend, strided.view(), out.view(), workspace, {.positions = strided_positions.view()});
    CHECK(test::same_bits(out.view(), want));
    CHECK(out.intact());

    Tensor<float, 3> in_place = x;
    layer.forward(backend, in_place, in_place, workspace, call);
    CHECK(test::same_bits(in_place, want));
  });
}

TEST_CASE("case 32: dropout .5 in evaluation is no dropout; in training the seed alone decides") {
  const auto weights = random_weights<float>();
  const auto x = random_tensor<float>({2, 9, hidden}, 5);
  test::for_each_backend([&](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const Layer<float, B> layer(weights, {.dropout = 0.5}, small, backend);
    const Layer<float, B> without(weights, {}, small, backend);
    Tensor<float, 4> kept({2, 4, 9, 9});
    Tensor<float, 4> all({2, 4, 9, 9});
    CHECK(test::same_bits(layer.forward(backend, x, {.weights = all}), without.forward(backend, x)));
    const auto y = layer.forward(backend, x, {.training = true, .dropout_seed = 3, .weights = kept});
    Index dropped = 0;
    for (Index i = 0; i < all.size(); ++i) {
      if (all.data()[i] == 0) continue;
      if (kept.data()[i] == 0) {
        ++dropped;
      } else {
        CHECK(kept.data()[i] == doctest::Approx(2 * all.data()[i]).epsilon(1e-5));
      }
    }
    CHECK(dropped > 120);  // of 360, expected 180, deviation 9.5
    CHECK(dropped < 240);
    CHECK(test::same_bits(layer.forward(backend, x, {.training = true, .dropout_seed = 3}), y));
    CHECK_FALSE(test::same_bits(layer.forward(backend, x, {.training = true, .dropout_seed = 4}), y));
  });
}

TEST_CASE("case 34: a sink of logit 0 beside one key of logit 0 leaves the key half") {
  auto weights = averaging_weights();
  weights.sinks = Tensor<float, 1>({1});
  const Layer<float, heed::Cpu> layer(weights, {.positions = TokenPositions::none}, single);
  Tensor<float, 4> attention_weights({1, 1, 1, 1});
  CHECK(layer.forward(heed::Cpu(), tokens({6}), {.weights = attention_weights})(0, 0, 0) == doctest::Approx(3));
  CHECK(attention_weights(0, 0, 0, 0) == doctest::Approx(0.5));
}

TEST_CASE_TEMPLATE("GroupedQueryAttention: with padding anywhere, the other tokens have the bits they have alone", T,
                   float, double) {
  auto weights = random_weights<T>();
  weights.alibi_slopes = random_tensor<heed::accumulator_t<T>>({4}, 45, 0.1, 0.6);  // distances count tokens only
  const GroupedQueryAttentionOptions options{.window = {20, 0}};
  auto x = random_tensor<T>({5, 60, hidden}, 5);
  Tensor<bool, 2> valid({5, 60});
  test::Random random(3);
  for (Index t = 0; t < 60; ++t) {
    valid(0, t) = true;
    valid(1, t) = t >= 25;                // left
    valid(2, t) = t < 41;                 // right
    valid(3, t) = random.uniform() < .6;  // anywhere; row 4 has no token at all
  }
  for (Index b = 0; b < 5; ++b) {
    for (Index t = 0; t < 60; ++t) {
      if (valid(b, t)) continue;
      for (T& element : x.view()[b][t].span()) element = std::numeric_limits<T>::quiet_NaN();
    }
  }
  test::for_each_backend([&](const auto& backend) {
    const Layer<T, std::remove_cvref_t<decltype(backend)>> layer(weights, options, small, backend);
    const auto y = layer.forward(backend, x, {.valid = valid});
    for (Index b = 0; b < 5; ++b) {
      CAPTURE(b);
      Tensor<T, 3> alone({Index{1}, Index{60}, hidden});
      Index count = 0;
      for (Index t = 0; t < 60; ++t) {
        if (!valid(b, t)) continue;
        for (Index e = 0; e < hidden; ++e) alone(0, count, e) = x(b, t, e);
        ++count;
      }
      const auto want = layer.forward(backend, alone.view().slice(1, 0, count));
      Index next = 0;
      for (Index t = 0; t < 60; ++t) {
        if (valid(b, t)) {
          CHECK(test::same_bits(y.view()[b][t], want.view()[0][next++]));
        } else {
          CHECK(test::same_bits(y.view()[b][t], Tensor<T, 1>({hidden})));
        }
      }
    }
    // In place, from a strided mask, and with positions of its own.
    Workspace workspace(layer.workspace_size(backend, 5, 60));
    Tensor<T, 3> in_place = x;
    const test::Strided<std::uint8_t, 2> bytes{[&] {
      Tensor<std::uint8_t, 2> copy({5, 60});
      for (Index i = 0; i < copy.size(); ++i) copy.data()[i] = valid.data()[i] ? 1 : 0;
      return copy;
    }()};
    const View<const bool, 2> strided_valid(reinterpret_cast<const bool*>(bytes.view().data_handle()), {5, 60},
                                            {bytes.view().stride(0), bytes.view().stride(1)});
    layer.forward(backend, in_place, in_place, workspace, {.valid = strided_valid});
    CHECK(test::same_bits(in_place, y));
    Tensor<std::int64_t, 2> positions({5, 60});
    for (Index b = 0; b < 5; ++b) {
      Index next = 0;
      for (Index t = 0; t < 60; ++t) positions(b, t) = valid(b, t) ? next++ : 77;
    }
    CHECK(test::same_bits(layer.forward(backend, x, {.valid = valid, .positions = positions}), y));
  });
}

TEST_CASE("GroupedQueryAttention: lengths are padding at the end") {
  const auto weights = random_weights<float>();
  const auto x = random_tensor<float>({3, 9, hidden}, 5);
  Tensor<std::int64_t, 1> lengths({3});
  lengths(0) = 9;
  lengths(1) = 4;
  Tensor<bool, 2> valid({3, 9});
  for (Index b = 0; b < 3; ++b) {
    for (Index t = 0; t < 9; ++t) valid(b, t) = t < lengths(b);
  }
  test::for_each_backend([&](const auto& backend) {
    const Layer<float, std::remove_cvref_t<decltype(backend)>> layer(weights, {.causal = false}, small, backend);
    Tensor<float, 4> attention_weights({3, 4, 9, 9});
    Tensor<float, 3> log_sum_exp({3, 4, 9});
    attention_weights.fill(7);
    log_sum_exp.fill(7);
    const auto y =
        layer.forward(backend, x, {.lengths = lengths, .log_sum_exp = log_sum_exp, .weights = attention_weights});
    CHECK(test::same_bits(y, layer.forward(backend, x, {.valid = valid})));
    const auto alone = layer.forward(backend, x.view().slice(0, 1, 1).slice(1, 0, 4));
    CHECK(test::same_bits(y.view()[1].slice(0, 0, 4), alone.view()[0]));
    CHECK(y(2, 8, 0) == 0);
    // Further outputs: nothing for padding, neither as query nor as key.
    const float infinity = std::numeric_limits<float>::infinity();
    for (Index h = 0; h < 4; ++h) {
      CHECK(log_sum_exp(1, h, 4) == -infinity);
      CHECK(log_sum_exp(1, h, 3) > -infinity);
      double sum = 0;
      for (Index j = 0; j < 9; ++j) {
        CHECK(attention_weights(1, h, 4, j) == 0);
        if (j >= 4) CHECK(attention_weights(1, h, 3, j) == 0);
        sum += static_cast<double>(attention_weights(1, h, 3, j));
      }
      CHECK(sum == doctest::Approx(1));
    }
  });
}

TEST_CASE("GroupedQueryAttention: nothing after a token changes it, and everything before it in its window does") {
  const auto weights = random_weights<float>();
  const auto x = random_tensor<float>({1, 40, hidden}, 5);
  const heed::Cpu cpu;
  const Layer<float, heed::Cpu> layer(weights, {.window = {9, 0}}, small);
  const auto want = layer.forward(cpu, x);
  CHECK(test::same_bits(layer.forward(cpu, x.view().slice(1, 0, 17)), want.view().slice(1, 0, 17)));
  auto changed = x;
  changed(0, 20, 3) += 0.5F;
  const auto y = layer.forward(cpu, changed);
  for (Index t = 0; t < 40; ++t) {
    CAPTURE(t);
    CHECK(test::same_bits(y.view()[0][t], want.view()[0][t]) == (t < 20 || t > 29));
  }
}

TEST_CASE("GroupedQueryAttention: scores depend on differences of positions; the default is 0, 1, …") {
  const auto weights = random_weights<double>();
  const auto x = random_tensor<double>({2, 6, hidden}, 5);
  Tensor<std::int64_t, 2> positions({2, 6});
  Tensor<std::int64_t, 2> shifted({2, 6});
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 6; ++t) {
      positions(b, t) = t;
      shifted(b, t) = t + 100000 * (b + 1);
    }
  }
  const heed::Cpu cpu;
  const Layer<double, heed::Cpu> layer(weights, {}, small);
  const auto want = layer.forward(cpu, x);
  CHECK(test::same_bits(layer.forward(cpu, x, {.positions = positions}), want));
  CHECK(test::max_scaled_error(layer.forward(cpu, x, {.positions = shifted}), want) < 1e-9);
}

TEST_CASE("GroupedQueryAttention: rope_length is the length that dynamic scaling goes by") {
  const auto weights = random_weights<double>();
  const auto x = random_tensor<double>({1, 6, hidden}, 5);
  const heed::Cpu cpu;
  const heed::RopeScaling dynamic{.type = heed::RopeType::dynamic, .factor = 2, .max_position_embeddings = 4};
  const Layer<double, heed::Cpu> layer(weights, {.rope = {.scaling = dynamic}}, small);
  // θ · (factor · length / 4 − (factor − 1))^(6 / 4): Hugging Face's dynamic scaling for head_dim 6.
  const auto with_length = [&](double length) {
    const GroupedQueryAttentionOptions options{.rope = {.theta = 10000 * std::pow(2 * length / 4 - 1, 1.5)}};
    return formula_of<double>(weights, options, x).out;
  };
  CHECK(test::max_scaled_error(layer.forward(cpu, x), with_length(6)) < 1e-12);
  CHECK(test::max_scaled_error(layer.forward(cpu, x, {.rope_length = 9}), with_length(9)) < 1e-12);
  CHECK(test::max_scaled_error(layer.forward(cpu, x, {.rope_length = 3}), formula_of<double>(weights, {}, x).out) <
        1e-12);
}

TEST_CASE("GroupedQueryAttention: a score modifier") {
  const auto weights = random_weights<double>();
  const auto x = random_tensor<double>({2, 7, hidden}, 5);
  const auto parity = [](double score, heed::Position p) { return (p.query + p.key) % 2 == 0 ? score + 1 : score; };
  const auto want = formula_of<double>(weights, {}, x, {},
                                       [](Index, Index, Index i, Index j) { return (i + j) % 2 == 0 ? 1.0 : 0.0; });
  test::for_each_backend([&](const auto& backend) {
    const Layer<double, std::remove_cvref_t<decltype(backend)>> layer(weights, {}, small, backend);
    CHECK(test::max_scaled_error(layer.forward(backend, x, {}, heed::per_score(parity)), want.out) < 1e-12);
  });
}
