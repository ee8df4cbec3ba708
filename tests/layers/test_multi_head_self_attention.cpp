// MultiHeadSelfAttention against attention written out in double, and as a value.
#include "heed/layers/multi_head_self_attention.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "layers/self_attention_formula.hpp"
#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"
#include "support/tensor_map.hpp"

namespace {

using heed::HeadLayout;
using heed::Index;
using heed::MultiHeadSelfAttention;
using heed::ProjectionWeights;
using heed::Tensor;
using heed::View;
using heed::Workspace;
using test::error_text;
using test::random_tensor;

constexpr HeadLayout dynamic_heads{};

HeadLayout layout_of(Index hidden_size, Index num_heads) {
  return {.num_heads = num_heads, .head_dim = hidden_size / num_heads};
}

template <class T>
ProjectionWeights<T> random_weights(Index hidden_size, bool bias = true) {
  const auto linear = [&](std::uint64_t seed) {
    heed::LinearWeights<T> weights{random_tensor<T>({hidden_size, hidden_size}, seed), {}};
    if (bias) weights.bias = random_tensor<T>({hidden_size}, seed + 1);
    return weights;
  };
  return {linear(21), linear(23), linear(25), linear(27)};
}

// A layer of one head of one dim that averages the tokens it attends: scores are 0, values and output are x itself.
ProjectionWeights<float> averaging_weights() {
  Tensor<float, 2> zero({1, 1});
  Tensor<float, 2> one({1, 1});
  one(0, 0) = 1;
  return {{zero, {}}, {zero, {}}, {one, {}}, {one, {}}};
}

template <class T>
Tensor<T, 3> tokens(std::initializer_list<T> values) {
  Tensor<T, 3> x({1, static_cast<Index>(values.size()), 1});
  T* to = x.data();
  for (const T value : values) *to++ = value;
  return x;
}

Tensor<bool, 2> causal_mask(Index length) {
  Tensor<bool, 2> mask({length, length});
  for (Index i = 0; i < length; ++i) {
    for (Index j = 0; j <= i; ++j) mask(i, j) = true;
  }
  return mask;
}

// Tolerances for hidden sizes to 24 and weights in [−1, 1]: scores of some tens, rounded by float's or double's unit;
// 16-bit types round queries, keys, values and context as well.
template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-12 : (std::is_same_v<T, float> ? 2e-4 : 0.1);

}  // namespace

TEST_CASE_TEMPLATE("MultiHeadSelfAttention: output and weights, with each kind of mask", T, float, double) {
  test::for_each_backend([](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const struct {
      Index hidden_size, num_heads, batch, length;
    } sizes[] = {{24, 3, 2, 7}, {6, 6, 1, 5}, {5, 1, 3, 1}, {12, 4, 2, 37}};
    for (const auto& size : sizes) {
      const auto weights = random_weights<T>(size.hidden_size, size.num_heads != 6);
      const auto x = random_tensor<T>({size.batch, size.length, size.hidden_size}, 5);
      const MultiHeadSelfAttention<T, dynamic_heads, B> layer(weights, {}, {.num_heads = size.num_heads}, backend);
      CHECK(layer.hidden_size() == size.hidden_size);
      CHECK(layer.heads() == layout_of(size.hidden_size, size.num_heads));

      // The last key of each row but the first is padding; the additive mask falls with the distance.
      Tensor<bool, 4> padding({size.batch, Index{1}, Index{1}, size.length});
      for (Index b = 0; b < size.batch; ++b) {
        for (Index j = 0; j < size.length; ++j) padding(b, 0, 0, j) = b == 0 || j + 1 < size.length;
      }
      const auto causal = causal_mask(size.length);
      const auto bias = random_tensor<heed::accumulator_t<T>>({size.num_heads, size.length, size.length}, 9, -2, 2);
      for (int kind = 0; kind < 4; ++kind) {
        CAPTURE(size.hidden_size);
        CAPTURE(kind);
        test::SelfAttentionFormula formula{.heads = layout_of(size.hidden_size, size.num_heads)};
        typename decltype(layer)::Call call;
        if (kind == 1) {
          call.mask = causal;
          formula.causal = true;
        } else if (kind == 2) {
          call.mask = padding;
          formula.bias = [&](Index b, Index, Index, Index j) { return padding(b, 0, 0, j) ? 0 : -HUGE_VAL; };
        } else if (kind == 3) {
          call.bias = bias;
          formula.bias = [&](Index, Index h, Index i, Index j) { return static_cast<double>(bias(h, i, j)); };
        }
        const auto want = test::self_attention<T>(weights, x, formula);
        const auto plain = layer.forward(backend, x, call);
        CHECK(test::max_scaled_error(plain, want.out) < tolerance<T>);

        Tensor<T, 4> attention_weights({size.batch, size.num_heads, size.length, size.length});
        call.weights = attention_weights;
        const auto with_weights = layer.forward(backend, x, call);
        CHECK(test::max_scaled_error(attention_weights, want.weights) < tolerance<T>);
        CHECK(test::same_bits(with_weights, plain));
      }
    }
  });
}

TEST_CASE_TEMPLATE("MultiHeadSelfAttention: 16-bit types", T, heed::bfloat16, heed::float16) {
  const auto weights = random_weights<T>(12);
  const auto x = random_tensor<T>({2, 6, 12}, 5);
  const auto want = test::self_attention<T>(weights, x, {.heads = layout_of(12, 3)});
  const MultiHeadSelfAttention<T> layer(weights, {}, {.num_heads = 3});
  CHECK(test::max_scaled_error(layer.forward(heed::Cpu(), x), want.out) < tolerance<T>);
}

TEST_CASE("MultiHeadSelfAttention: a scale of its own") {
  const auto weights = random_weights<double>(12);
  const auto x = random_tensor<double>({1, 5, 12}, 5);
  const MultiHeadSelfAttention<double> layer(weights, {.scale = 0.125}, {.num_heads = 3});
  const auto want = test::self_attention<double>(weights, x, {.heads = layout_of(12, 3), .scale = 0.125});
  CHECK(test::max_scaled_error(layer.forward(heed::Cpu(), x), want.out) < tolerance<double>);
}

TEST_CASE("case 6: causal holds whether weights are returned or not") {
  test::for_each_backend([](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const MultiHeadSelfAttention<float, dynamic_heads, B> layer(averaging_weights(), {}, {.num_heads = 1}, backend);
    const auto mask = causal_mask(3);
    Tensor<float, 4> weights({1, 1, 3, 3});
    for (const bool returned : {false, true}) {
      const auto y = layer.forward(backend, tokens<float>({1, 2, 3}),
                                   {.mask = mask, .weights = returned ? weights.view() : View<float, 4>()});
      CHECK(y(0, 0, 0) == doctest::Approx(1));
      CHECK(y(0, 1, 0) == doctest::Approx(1.5));
      CHECK(y(0, 2, 0) == doctest::Approx(2));
    }
    CHECK(weights(0, 0, 1, 0) == doctest::Approx(0.5));
    CHECK(weights(0, 0, 1, 2) == 0);
  });
}

TEST_CASE("case 7: training with dropout 0 is evaluation, bit for bit") {
  const auto weights = random_weights<float>(12);
  const auto x = random_tensor<float>({2, 6, 12}, 5);
  const MultiHeadSelfAttention<float> layer(weights, {.dropout = 0}, {.num_heads = 3});
  const heed::Cpu cpu;
  CHECK(test::same_bits(layer.forward(cpu, x, {.training = true, .dropout_seed = 3}), layer.forward(cpu, x)));
}

TEST_CASE("case 8: a mask [B, 1, 1, S] with B equal to the heads touches its own sample only") {
  const auto weights = random_weights<float>(4);
  const auto x = random_tensor<float>({2, 3, 4}, 5);
  const MultiHeadSelfAttention<float> layer(weights, {}, {.num_heads = 2});
  Tensor<bool, 4> mask({2, 1, 1, 3});
  mask.fill(true);
  mask(0, 0, 0, 1) = false;
  const heed::Cpu cpu;
  const auto masked = layer.forward(cpu, x, {.mask = mask});
  const auto open = layer.forward(cpu, x);
  CHECK(test::same_bits(masked.view()[1], open.view()[1]));
  CHECK_FALSE(test::same_bits(masked.view()[0], open.view()[0]));
}

TEST_CASE("case 21: hidden 10 and heads 3 is an error that names both") {
  const auto weights = random_weights<float>(10);
  const char* text = "heed: MultiHeadSelfAttention: hidden_size: 10 is not a multiple of num_heads 3";
  CHECK(error_text([&] { MultiHeadSelfAttention<float>(weights, {}, {.num_heads = 3}); }) == text);
  // The weights that a silent truncation to head_dim 3 would make.
  ProjectionWeights<float> truncated{{Tensor<float, 2>({9, 10}), {}},
                                     {Tensor<float, 2>({9, 10}), {}},
                                     {Tensor<float, 2>({9, 10}), {}},
                                     {Tensor<float, 2>({10, 9}), {}}};
  CHECK(error_text([&] { MultiHeadSelfAttention<float>(truncated, {}, {.num_heads = 3, .head_dim = 3}); }) == text);
  CHECK_THROWS_AS(MultiHeadSelfAttention<float>(weights, {}, {.num_heads = 3}), heed::ShapeError);
}

TEST_CASE("case 32: dropout .5 in evaluation is no dropout; in training weights are 0 or doubled, by the seed alone") {
  test::for_each_backend([](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto weights = random_weights<float>(12);
    const auto x = random_tensor<float>({2, 9, 12}, 5);
    const MultiHeadSelfAttention<float, dynamic_heads, B> layer(weights, {.dropout = 0.5}, {.num_heads = 3}, backend);
    const MultiHeadSelfAttention<float, dynamic_heads, B> without(weights, {}, {.num_heads = 3}, backend);
    Tensor<float, 4> kept({2, 3, 9, 9});
    Tensor<float, 4> all({2, 3, 9, 9});
    CHECK(test::same_bits(layer.forward(backend, x, {.weights = all}), without.forward(backend, x)));

    const auto y = layer.forward(backend, x, {.training = true, .dropout_seed = 3, .weights = kept});
    Index dropped = 0;
    for (Index i = 0; i < all.size(); ++i) {
      if (kept.data()[i] == 0) {
        ++dropped;
      } else {
        CHECK(kept.data()[i] == doctest::Approx(2 * all.data()[i]).epsilon(1e-5));
      }
    }
    CHECK(dropped > 190);  // of 486, expected 243, deviation 11
    CHECK(dropped < 296);
    CHECK(test::same_bits(layer.forward(backend, x, {.training = true, .dropout_seed = 3}), y));
    CHECK_FALSE(test::same_bits(layer.forward(backend, x, {.training = true, .dropout_seed = 4}), y));
    // A row alone is row 0 of a batch: the same are dropped.
    CHECK(test::same_bits(layer.forward(backend, x.view().slice(0, 0, 1), {.training = true, .dropout_seed = 3}),
                          y.view().slice(0, 0, 1)));
  });
}

TEST_CASE("MultiHeadSelfAttention: padding that holds NaN never matters") {
  const auto weights = random_weights<float>(12);
  auto x = random_tensor<float>({2, 8, 12}, 5);
  for (Index t = 5; t < 8; ++t) {
    for (float& element : x.view()[1][t].span()) element = std::numeric_limits<float>::quiet_NaN();
  }
  Tensor<bool, 4> mask({2, 1, 1, 8});
  mask.fill(true);
  for (Index t = 5; t < 8; ++t) mask(1, 0, 0, t) = false;
  test::for_each_backend([&](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const MultiHeadSelfAttention<float, dynamic_heads, B> layer(weights, {}, {.num_heads = 3}, backend);
    const auto y = layer.forward(backend, x, {.mask = mask});
    const auto alone = layer.forward(backend, x.view().slice(0, 1, 1).slice(1, 0, 5));
    CHECK(test::max_scaled_error(y.view()[1].slice(0, 0, 5), alone.view()[0]) < tolerance<float>);
  });
}

TEST_CASE("MultiHeadSelfAttention: a row without keys gives the output's bias") {
  const auto weights = random_weights<float>(6);
  const MultiHeadSelfAttention<float> layer(weights, {}, {.num_heads = 2});
  const Tensor<bool, 1> nothing({4});
  const auto y = layer.forward(heed::Cpu(), random_tensor<float>({1, 4, 6}, 5), {.mask = nothing});
  for (Index t = 0; t < 4; ++t) CHECK(test::same_bits(y.view()[0][t], weights.output.bias));
}

TEST_CASE_TEMPLATE("MultiHeadSelfAttention: batch, threads, views and in place give the same bits", T, float, double) {
  const auto weights = random_weights<T>(24);
  const auto x = random_tensor<T>({3, 70, 24}, 5);
  const MultiHeadSelfAttention<T> cpu_layer(weights, {}, {.num_heads = 3});
  const auto want = cpu_layer.forward(heed::Cpu(), x);
  test::for_each_fast_backend([&](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const MultiHeadSelfAttention<T, dynamic_heads, B> layer(weights, {}, {.num_heads = 3}, backend);
    CHECK(test::same_bits(layer.forward(backend, x), want));
    for (Index b = 0; b < 3; ++b) {
      CHECK(test::same_bits(layer.forward(backend, x.view().slice(0, b, 1)), want.view().slice(0, b, 1)));
    }
    Workspace workspace(layer.workspace_size(backend, 3, 70));
    const test::Strided<T, 3> strided(x);
    test::Strided<T, 3> out{Tensor<T, 3>({3, 70, 24})};
    layer.forward(backend, strided.view(), out.view(), workspace);
    CHECK(test::same_bits(out.view(), want));
    CHECK(out.intact());

    Tensor<T, 3> in_place = x;
    layer.forward(backend, in_place, in_place, workspace);
    CHECK(test::same_bits(in_place, want));

    const auto repeated = layer.forward(backend, test::repeated(2, x.view()[1]));
    CHECK(test::same_bits(repeated.view()[1], want.view()[1]));
  });
}

TEST_CASE("MultiHeadSelfAttention: sizes given in the type, in the constructor, or both are one layer") {
  constexpr HeadLayout fixed{.num_heads = 3};
  constexpr HeadLayout all{.num_heads = 3, .head_dim = 4};
  const auto weights = random_weights<float>(12);
  const auto x = random_tensor<float>({2, 5, 12}, 5);
  const heed::Cpu cpu;
  const auto want = MultiHeadSelfAttention<float>(weights, {}, {.num_heads = 3}).forward(cpu, x);
  CHECK(test::same_bits(MultiHeadSelfAttention<float, fixed>(weights).forward(cpu, x), want));
  CHECK(test::same_bits(MultiHeadSelfAttention<float, all>(weights).forward(cpu, x), want));
  CHECK(test::same_bits(MultiHeadSelfAttention<float, fixed>(weights, {}, all).forward(cpu, x), want));
}

TEST_CASE("MultiHeadSelfAttention: sizes of 0") {
  const MultiHeadSelfAttention<float> layer(random_weights<float>(6), {}, {.num_heads = 2});
  CHECK(layer.forward(heed::Cpu(), Tensor<float, 3>({0, 4, 6})).size() == 0);
  CHECK(layer.forward(heed::Cpu(), Tensor<float, 3>({2, 0, 6})).size() == 0);
}

TEST_CASE("MultiHeadSelfAttention: a second forward allocates nothing; the workspace's size is enough and monotone") {
  const auto weights = random_weights<float>(24);
  const auto x = random_tensor<float>({2, 40, 24}, 5);
  const auto mask = causal_mask(40);
  Tensor<float, 3> out({2, 40, 24});
  test::for_each_backend([&](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const MultiHeadSelfAttention<float, dynamic_heads, B> layer(weights, {}, {.num_heads = 3}, backend);
    Workspace workspace(layer.workspace_size(backend, 2, 40));
    const auto forward = [&] { layer.forward(backend, x, out, workspace, {.mask = mask}); };
    forward();
    CHECK(test::allocations_in(forward) == 0);
    CHECK(workspace.size_left() == workspace.size());
    CHECK(workspace.size_needed() <= layer.workspace_size(backend, 2, 40));
    for (Index batch = 1; batch < 4; ++batch) {
      for (Index length = 1; length < 70; ++length) {
        CHECK(layer.workspace_size(backend, batch, length) <= layer.workspace_size(backend, batch + 1, length));
        CHECK(layer.workspace_size(backend, batch, length) <= layer.workspace_size(backend, batch, length + 1));
      }
    }
  });
}

TEST_CASE("MultiHeadSelfAttention: the weights may die, so may a copied layer; two threads share one") {
  const auto x = random_tensor<float>({2, 30, 12}, 5);
  const heed::Cpu cpu;
  std::optional<ProjectionWeights<float>> weights(random_weights<float>(12));
  const auto want = MultiHeadSelfAttention<float>(*weights, {}, {.num_heads = 3}).forward(cpu, x);
  std::optional<MultiHeadSelfAttention<float>> first;
  {
    const heed::ProjectionWeightsView<float> views{
        .query = {.weight = weights->query.weight, .bias = weights->query.bias},
        .key = weights->key,
        .value = weights->value,
        .output = weights->output};
    first.emplace(views, heed::MultiHeadSelfAttentionOptions{}, HeadLayout{.num_heads = 3});
  }
  weights->query.weight.fill(1e30F);
  weights.reset();
  const MultiHeadSelfAttention<float> layer = *first;
  CHECK(test::allocations_in([&] { const MultiHeadSelfAttention<float> copy = layer; }) == 0);
  first.reset();
  CHECK(test::same_bits(layer.forward(cpu, x), want));

  Tensor<float, 3> out({2, 30, 12});
  std::thread threads[2];
  for (Index i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      Workspace workspace(layer.workspace_size(cpu, 1, 30));
      for (int round = 0; round < 20; ++round) {
        layer.forward(cpu, x.view().slice(0, i, 1), out.view().slice(0, i, 1), workspace);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(test::same_bits(out, want));
}

TEST_CASE("MultiHeadSelfAttention: weights under BERT's and the seed's names") {
  const auto weights = random_weights<float>(6);
  test::TensorMap file;
  const auto add = [&](const std::string& name, const heed::LinearWeights<float>& part) {
    file.add(name + ".weight", part.weight);
    file.add(name + ".bias", part.bias);
  };
  add("layer.0.self.query", weights.query);
  add("layer.0.self.key", weights.key);
  add("layer.0.self.value", weights.value);
  add("layer.0.output.dense", weights.output);
  add("Q", weights.query);
  add("K", weights.key);
  add("V", weights.value);
  add("dense", weights.output);
  const auto x = random_tensor<float>({1, 4, 6}, 5);
  const auto forward = [&](const ProjectionWeights<float>& read) {
    return MultiHeadSelfAttention<float>(read, {}, {.num_heads = 2}).forward(heed::Cpu(), x);
  };
  const auto want = forward(weights);
  CHECK(test::same_bits(forward(ProjectionWeights<float>::from_file(file, "layer.0", heed::bert_projections)), want));
  CHECK(test::same_bits(forward(ProjectionWeights<float>::from_file(file, "", heed::seed_projections)), want));
}

TEST_CASE("MultiHeadSelfAttention: describe") {
  const MultiHeadSelfAttention<double, dynamic_heads, heed::Reference> layer(random_weights<double>(6), {},
                                                                             {.num_heads = 2});
  CHECK(layer.weight_bytes() == 4 * (6 * 6 + 6) * 8);
  CHECK(layer.describe() ==
        std::string("MultiHeadSelfAttention<double>: hidden_size 6, num_heads 2, head_dim 3; 1344 bytes of weights; "
                    "backend reference, ") +
            heed::instruction_set());
}

TEST_CASE("MultiHeadSelfAttention: errors of the constructor") {
  const auto weights = random_weights<float>(12);
  const auto text = [&](const heed::MultiHeadSelfAttentionOptions& options, const HeadLayout& heads) {
    return error_text([&] { MultiHeadSelfAttention<float>(weights, options, heads); });
  };
  CHECK(text({}, {}) ==
        "heed: MultiHeadSelfAttention: num_heads: is dynamic in the layer's type and must be given at construction");
  CHECK(text({}, {.num_heads = 0}) == "heed: MultiHeadSelfAttention: hidden_size: 12 is not a multiple of num_heads 0");
  CHECK(text({}, {.num_heads = 3, .head_dim = 5}) ==
        "heed: MultiHeadSelfAttention: head_dim: must be hidden_size 12 / num_heads 3 = 4, got 5");
  CHECK(
      text({}, {.num_heads = 4, .num_kv_heads = 2}) ==
      "heed: MultiHeadSelfAttention: num_kv_heads: must be num_heads 4 (GroupedQueryAttention shares kv heads), got 2");
  CHECK(text({.dropout = 1}, {.num_heads = 3}) ==
        "heed: MultiHeadSelfAttention: dropout: must be at least 0 and below 1, got 1");
  CHECK(text({.scale = HUGE_VAL}, {.num_heads = 3}) == "heed: MultiHeadSelfAttention: scale: must be finite, got inf");
  constexpr HeadLayout fixed{.num_heads = 3};
  CHECK(error_text([&] { MultiHeadSelfAttention<float, fixed>(weights, {}, {.num_heads = 2}); }) ==
        "heed: MultiHeadSelfAttention: num_heads: the layer's type says 3, the constructor was given 2");
  auto narrow = random_weights<float>(12);
  narrow.key.weight = Tensor<float, 2>({12, 9});
  CHECK(error_text([&] { MultiHeadSelfAttention<float>(narrow, {}, {.num_heads = 3}); }) ==
        "heed: MultiHeadSelfAttention: key.weight: expected [12, 12] (num_kv_heads * head_dim, hidden size), got [12, "
        "9]");
}

TEST_CASE("MultiHeadSelfAttention: errors of forward, before anything is written") {
  const MultiHeadSelfAttention<float> layer(random_weights<float>(12), {}, {.num_heads = 3});
  const heed::Cpu cpu;
  const auto x = random_tensor<float>({2, 5, 12}, 5);
  Tensor<float, 3> out({2, 5, 12});
  Workspace workspace(layer.workspace_size(cpu, 2, 5));
  const std::string door = "heed: MultiHeadSelfAttention::forward: ";
  CHECK(error_text([&] {
          static_cast<void>(layer.forward(cpu, Tensor<float, 3>({2, 5, 11})));
        }) == door + "x: expected [*, *, 12] (batch, seq, hidden size), got [2, 5, 11]");
  Tensor<float, 3> short_out({2, 4, 12});
  CHECK(error_text([&] { layer.forward(cpu, x, short_out, workspace); }) ==
        door + "out: expected [2, 5, 12] (batch, seq, hidden size), got [2, 4, 12]");
  const View<float, 3> shifted(out.data() + 12, {1, 5, 12});
  CHECK(error_text([&] { layer.forward(cpu, out.view().slice(0, 0, 1), shifted, workspace); }) ==
        door + "out: must not overlap x");
  const Tensor<bool, 2> mask({5, 4});
  CHECK(error_text([&] { layer.forward(cpu, x, out, workspace, {.mask = mask}); }) ==
        door + "mask: expected a shape that broadcasts to [2, 3, 5, 5] (batch, heads, queries, keys), got [5, 4]");
  const Tensor<float, 1> bias({4});
  CHECK(error_text([&] { layer.forward(cpu, x, out, workspace, {.bias = bias}); }) ==
        door + "bias: expected a shape that broadcasts to [2, 3, 5, 5] (batch, heads, queries, keys), got [4]");
  Tensor<float, 4> weights({2, 3, 5, 4});
  CHECK(error_text([&] { layer.forward(cpu, x, out, workspace, {.weights = weights}); }) ==
        door + "weights: expected [2, 3, 5, 5] (batch, heads, seq, keys), got [2, 3, 5, 4]");
  Tensor<float, 4> large({2, 3, 5, 5});
  CHECK(error_text([&] {
          layer.forward(cpu, x, View<float, 3>(large.data(), {2, 5, 12}), workspace, {.weights = large});
        }) == door + "out: must not overlap weights");
  Workspace small(64);
  CHECK(error_text([&] { layer.forward(cpu, x, out, small); }) ==
        door + "workspace: needs " + std::to_string(layer.workspace_size(cpu, 2, 5)) + " bytes, has 64");
  CHECK_THROWS_AS(layer.forward(cpu, x, out, small), heed::WorkspaceError);
  CHECK(test::same_bits(out, Tensor<float, 3>({2, 5, 12})));
  CHECK_FALSE(layer.check_forward(cpu, x, out, workspace));
  CHECK(layer.check_forward(cpu, x, out, small).kind() == heed::ErrorKind::workspace);
}
