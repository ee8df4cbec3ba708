// Linear against the sum of products in double, and as a value: copies, threads, sources that are gone.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "heed/layers/linear.hpp"
#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"
#include "support/tensor_map.hpp"

namespace {

using heed::Index;
using heed::Linear;
using heed::LinearWeights;
using heed::Tensor;
using heed::View;
using test::error_text;
using test::random_tensor;

// x · weightᵀ + bias for a matrix x.
template <class T>
Tensor<double, 2> linear_formula(View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias) {
  Tensor<double, 2> y({x.extent(0), weight.extent(0)});
  for (Index i = 0; i < x.extent(0); ++i) {
    for (Index j = 0; j < weight.extent(0); ++j) {
      double sum = bias.present() ? test::to_double(bias(j)) : 0;
      for (Index p = 0; p < x.extent(1); ++p) sum += test::to_double(x(i, p)) * test::to_double(weight(j, p));
      y(i, j) = sum;
    }
  }
  return y;
}

template <class T>
LinearWeights<T> random_weights(Index out_features, Index in_features, std::uint64_t seed) {
  return {random_tensor<T>({out_features, in_features}, seed), random_tensor<T>({out_features}, seed + 1)};
}

// Of a sum of 40 products in [−1, 1], and of its rounding to T.
template <class T>
double tolerance() {
  return 40 * test::unit_roundoff<heed::accumulator_t<T>> + test::unit_roundoff<T>;
}

}  // namespace

TEST_CASE_TEMPLATE("Linear: values, with and without a bias, over ragged sizes", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_backend([](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    for (const Index out_features : {1, 2, 17, 33, 70}) {
      for (const Index in_features : {1, 3, 16, 40}) {
        for (const Index rows : {1, 2, 9}) {
          CAPTURE(out_features);
          CAPTURE(in_features);
          CAPTURE(rows);
          const auto weights = random_weights<T>(out_features, in_features, 1);
          const auto x = random_tensor<T>({rows, in_features}, 3);
          const Linear<T, B> layer(weights, backend);
          CHECK(layer.in_features() == in_features);
          CHECK(layer.out_features() == out_features);
          CHECK(layer.has_bias());
          Tensor<T, 2> out({rows, out_features});
          layer.forward(backend, x, out);
          CHECK(test::max_scaled_error(out, linear_formula<T>(x, weights.weight, weights.bias)) <= tolerance<T>());

          const Linear<T, B> plain({.weight = weights.weight}, backend);
          CHECK_FALSE(plain.has_bias());
          CHECK(test::max_scaled_error(plain.forward(backend, x), linear_formula<T>(x, weights.weight, {})) <=
                tolerance<T>());
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("Linear: any number of leading axes, strided and repeated inputs, give the same bits", T, float,
                   double) {
  const auto weights = random_weights<T>(19, 13, 1);
  const auto x = random_tensor<T>({2, 3, 2, 13}, 3);
  test::for_each_backend([&](const auto& backend) {
    const Linear<T, std::remove_cvref_t<decltype(backend)>> layer(weights, backend);
    const Tensor<T, 4> want = layer.forward(backend, x);
    REQUIRE(test::max_scaled_error(want.view()[1][2],
                                   linear_formula<T>(x.view()[1][2], weights.weight, weights.bias)) <= tolerance<T>());
    CHECK(test::same_bits(layer.forward(backend, x.view()[1]), want.view()[1]));
    CHECK(test::same_bits(layer.forward(backend, x.view()[1][2]), want.view()[1][2]));
    CHECK(test::same_bits(layer.forward(backend, x.view()[1][2][0]), want.view()[1][2][0]));

    const test::Strided<T, 4> strided(x);
    test::Strided<T, 4> out{Tensor<T, 4>({2, 3, 2, 19})};
    layer.forward(backend, strided.view(), out.view());
    CHECK(test::same_bits(out.view(), want));
    CHECK(out.intact());

    const auto many = layer.forward(backend, test::repeated(5, x.view()[1]));
    for (Index i = 0; i < 5; ++i) CHECK(test::same_bits(many.view()[i], want.view()[1]));

    const auto turned = x.view().permute({2, 1, 0, 3});
    CHECK(test::same_bits(layer.forward(backend, turned), want.view().permute({2, 1, 0, 3})));
  });
}

TEST_CASE("Linear: sizes of 0") {
  test::for_each_backend([](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto weights = random_weights<float>(4, 3, 1);
    const Linear<float, B> layer(weights, backend);
    CHECK(layer.forward(backend, Tensor<float, 3>({2, 0, 3})).size() == 0);

    // No input features: the bias alone.
    const Linear<float, B> constant({.weight = Tensor<float, 2>({4, 0}), .bias = weights.bias}, backend);
    CHECK(test::same_bits(constant.forward(backend, Tensor<float, 2>({2, 0})).view()[1], weights.bias));

    const Linear<float, B> nothing({.weight = Tensor<float, 2>({0, 3})}, backend);
    CHECK(nothing.out_features() == 0);
    CHECK(nothing.forward(backend, Tensor<float, 2>({2, 3})).size() == 0);
  });
}

TEST_CASE("Linear: the weights' source may die, and so may the layer that was copied") {
  test::for_each_backend([](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto weights = random_weights<float>(20, 7, 1);
    const auto x = random_tensor<float>({3, 7}, 3);
    const auto want = Linear<float, B>(weights, backend).forward(backend, x);

    std::optional<LinearWeights<float>> source(weights);
    std::optional<Linear<float, B>> first(
        std::in_place, heed::LinearWeightsView<float>{.weight = source->weight, .bias = source->bias}, backend);
    source->weight.fill(-1e30F);
    source->bias.fill(-1e30F);
    source.reset();
    CHECK(test::same_bits(first->forward(backend, x), want));

    const Linear<float, B> copy = *first;
    const Linear<float, B> moved = std::move(*first);
    first.reset();
    CHECK(test::same_bits(copy.forward(backend, x), want));
    CHECK(test::same_bits(moved.forward(backend, x), want));
  });
}

TEST_CASE("Linear: a copy shares the weights; forward into a given output allocates nothing") {
  const Linear<float> layer(random_weights<float>(64, 32, 1));
  CHECK(test::allocations_in([&] { const Linear<float> copy = layer; }) == 0);

  const auto x = random_tensor<float>({2, 40, 32}, 3);
  Tensor<float, 3> out({2, 40, 64});
  test::for_each_fast_backend([&](const auto& backend) {
    const Linear<float, std::remove_cvref_t<decltype(backend)>> mine(random_weights<float>(64, 32, 1), backend);
    CHECK(test::allocations_in([&] { mine.forward(backend, x, out); }) == 0);
  });
}

TEST_CASE("Linear: two threads share one layer") {
  const Linear<double> layer(random_weights<double>(65, 33, 1));
  const auto x = random_tensor<double>({2, 50, 33}, 3);
  const heed::Cpu cpu;
  const auto want = layer.forward(cpu, x);
  Tensor<double, 3> out({2, 50, 65});
  std::thread threads[2];
  for (Index i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      for (int round = 0; round < 50; ++round) layer.forward(cpu, x.view()[i], out.view()[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(test::same_bits(out, want));
}

TEST_CASE("Linear: a backend derived from the layer's own") {
  struct Mine : heed::Cpu {};
  const auto weights = random_weights<float>(5, 4, 1);
  const auto x = random_tensor<float>({3, 4}, 3);
  const Linear<float> layer(weights);
  CHECK(test::same_bits(layer.forward(Mine(), x), layer.forward(heed::Cpu(), x)));
  const Linear<float, Mine> own(weights);
  CHECK(test::same_bits(own.forward(Mine(), x), layer.forward(heed::Cpu(), x)));
}

TEST_CASE("LinearWeights::from_file: names under a prefix, the bias optional") {
  test::TensorMap file;
  const auto weights = random_weights<double>(4, 3, 1);
  file.add("layers.0.query.weight", weights.weight);
  file.add("layers.0.query.bias", weights.bias);
  file.add("weight", weights.weight);

  const auto read = LinearWeights<double>::from_file(file, "layers.0.query");
  CHECK(test::same_bits(read.weight, weights.weight));
  CHECK(test::same_bits(read.bias, weights.bias));
  const auto bare = LinearWeights<double>::from_file(file, "");
  CHECK(test::same_bits(bare.weight, weights.weight));
  CHECK(bare.bias.empty());
  CHECK_FALSE(Linear<double>(bare).has_bias());
  CHECK(LinearWeights<float>::from_file(file, "layers.0.query").weight(3, 2) ==
        static_cast<float>(weights.weight(3, 2)));
  CHECK_THROWS_AS(LinearWeights<double>::from_file(file, "layers.1.query"), heed::FormatError);
}

TEST_CASE("LinearWeights::random: PyTorch's range, the same for the same seed, its streams apart") {
  const auto weights = LinearWeights<double>::random(7, 50, 16);
  double largest = 0;
  double sum = 0;
  for (const double w : weights.weight.span()) {
    largest = std::fmax(largest, std::fabs(w));
    sum += w;
  }
  CHECK(largest <= 0.25);  // 1 / √16
  CHECK(largest > 0.24);
  CHECK(std::fabs(sum / 800) < 0.03);  // deviation 0.25 / √3 / √800 = 0.005
  for (const double b : weights.bias.span()) CHECK(std::fabs(b) <= 0.25);
  CHECK(weights.bias(0) != weights.weight(0, 0));

  CHECK(test::same_bits(LinearWeights<double>::random(7, 50, 16).weight, weights.weight));
  CHECK_FALSE(test::same_bits(LinearWeights<double>::random(8, 50, 16).weight, weights.weight));
  CHECK_FALSE(test::same_bits(LinearWeights<double>::random(7, 50, 16, true, 2).weight, weights.weight));
  CHECK(LinearWeights<double>::random(7, 50, 16, false).bias.empty());
  CHECK(LinearWeights<float>::random(7, 50, 16).weight(49, 15) == static_cast<float>(weights.weight(49, 15)));
  CHECK(LinearWeights<float>::random(7, 2, 0).weight.empty());
}

TEST_CASE("Linear: describe") {
  const heed::Reference reference;
  const Linear<double, heed::Reference> layer({.weight = Tensor<double, 2>({4, 3}), .bias = Tensor<double, 1>({4})},
                                              reference);
  CHECK(layer.weight_bytes() == (4 * 3 + 4) * 8);
  CHECK(layer.describe() ==
        std::string("Linear<double>: in_features 3, out_features 4, bias; 128 bytes of weights; backend reference, ") +
            heed::instruction_set());
  const Linear<heed::bfloat16> plain({.weight = Tensor<heed::bfloat16, 2>({4, 3})});
  const std::string text = plain.describe();
  CHECK(text.find("Linear<bfloat16>: in_features 3, out_features 4, no bias; ") == 0);
  CHECK(text.find("; backend cpu, ") != std::string::npos);
#if defined(__AVX512F__) && defined(__AVX512BW__)
  CHECK(std::string(heed::instruction_set()) == "avx512 with fma");
#elif defined(__AVX2__) && defined(__FMA__)
  CHECK(std::string(heed::instruction_set()) == "avx2 with fma");
#elif defined(__x86_64__) && !defined(__SSE3__)
  CHECK(std::string(heed::instruction_set()) == "sse2");
#endif
}

TEST_CASE("Linear: errors") {
  using Weights = heed::LinearWeightsView<float>;
  const Tensor<float, 2> weight({4, 3});
  const Tensor<float, 1> bias({5});
  CHECK(error_text([&] { Linear<float>({.weight = weight, .bias = bias}); }) ==
        "heed: Linear: bias: expected [4] (out features), got [5]");
  CHECK(error_text([&] {
          Linear<float>({.weight = View<const float, 2>(weight.data(), {3, 2}, {1, 2})});
        }) == "heed: Linear: weight: the last axis must be contiguous (stride 1), got stride 2 on in features");
  CHECK_THROWS_AS(Linear<float>(Weights{.weight = weight, .bias = bias}), heed::ShapeError);

  const heed::Cpu cpu;
  const Linear<float> layer({.weight = weight});
  Tensor<float, 3> x({2, 5, 3});
  Tensor<float, 3> out({2, 5, 4});
  Tensor<float, 3> narrow({2, 5, 3});
  CHECK(error_text([&] { layer.forward(cpu, out, out); }) ==
        "heed: Linear::forward: x: expected [*, *, 3] (axis 0, axis 1, in features), got [2, 5, 4]");
  CHECK(error_text([&] { static_cast<void>(layer.forward(cpu, out)); }) ==
        "heed: Linear::forward: x: expected [*, *, 3] (axis 0, axis 1, in features), got [2, 5, 4]");
  CHECK(error_text([&] { layer.forward(cpu, x, narrow); }) ==
        "heed: Linear::forward: out: expected [2, 5, 4] (axis 0, axis 1, out features), got [2, 5, 3]");
  CHECK(error_text([&] {
          layer.forward(cpu, x, View<float, 3>(out.data(), {2, 5, 4}, {0, 4, 1}));
        }) == "heed: Linear::forward: out: an output must not repeat elements (stride 0), got stride 0 on axis 0");
  CHECK(error_text([&] {
          layer.forward(cpu, x, View<float, 3>(x.data(), {2, 5, 4}, {15, 3, 1}));
        }) == "heed: Linear::forward: out: must not overlap x");
  CHECK_FALSE(layer.check_forward<3>(x, out));
  const heed::Problem problem = layer.check_forward<3>(x, narrow);
  CHECK(problem.kind() == heed::ErrorKind::shape);
  CHECK(std::strcmp(problem.text(),
                    "heed: Linear::forward: out: expected [2, 5, 4] (axis 0, axis 1, out features), got [2, 5, 3]") ==
        0);
}
