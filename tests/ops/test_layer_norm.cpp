// ops::layer_norm.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/ops/layer_norm.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;
namespace ops = heed::ops;

namespace {

// The door on a backend of any type, compiled once a scalar and rank.
template <class T, int Rank>
HEED_NOINLINE void layer_norm_on(AnyBackend backend, View<const T, Rank> x, View<const T, 1> weight,
                                 View<const T, 1> bias, View<T, Rank> out, const heed::LayerNormOptions& options) {
  backend.visit([&](const auto& b) { ops::layer_norm(b, x, weight, bias, out, options); });
}
template <class Out>
void layer_norm(AnyBackend backend, View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
                View<const heed::scalar_t<Out>, 1> weight, View<const heed::scalar_t<Out>, 1> bias, Out&& out,
                const heed::LayerNormOptions& options = {}) {
  layer_norm_on(backend, x, weight, bias, heed::output_view(out), options);
}

// The largest error of out against the formula in double, relative to what two sums over n elements, the difference to
// the mean and one rounding of the result allow.
template <class T>
double worst_error(View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias, double eps,
                   View<const T, 2> out) {
  const Index n = x.extent(1);
  double worst = 0;
  for (Index i = 0; i < x.extent(0); ++i) {
    double mean = 0;
    double largest = 0;
    for (Index j = 0; j < n; ++j) {
      mean += test::to_double(x(i, j)) / static_cast<double>(n);
      largest = std::fmax(largest, std::fabs(test::to_double(x(i, j))));
    }
    double variance = 0;
    for (Index j = 0; j < n; ++j) variance += std::pow(test::to_double(x(i, j)) - mean, 2) / static_cast<double>(n);
    const double root = std::sqrt(variance + eps);
    for (Index j = 0; j < n; ++j) {
      const double factor = weight.present() ? test::to_double(weight(j)) : 1;
      const double addend = bias.present() ? test::to_double(bias(j)) : 0;
      const double want = (test::to_double(x(i, j)) - mean) / root * factor + addend;
      const double rounding = (8 + std::sqrt(static_cast<double>(n))) * test::unit_roundoff<heed::accumulator_t<T>>;
      const double allowed = rounding * (largest / root * std::fabs(factor) + std::fabs(addend)) +
                             test::unit_roundoff<T> * std::fabs(want) + 0x1p-25;
      worst = std::fmax(worst, test::difference(test::to_double(out(i, j)), want) / allowed);
    }
  }
  return worst;
}

}  // namespace

TEST_CASE_TEMPLATE("layer_norm: values by hand", T, float, double, heed::bfloat16, heed::float16) {
  const auto t = [](double value) { return test::from_double<T>(value); };
  const T x[] = {t(1), t(3), t(5), t(7), t(4), t(4), t(4), t(4)};  // mean 4, variance 5 and 0
  const T weight[] = {t(1), t(2), t(0), t(-1)};
  const T bias[] = {t(0), t(1), t(0.5), t(2)};
  const View<const T, 2> rows(x, {2, 4});
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 2> out({2, 4});
    const auto check = [&](const double(&want)[8]) {
      for (Index j = 0; j < 8; ++j) {
        CAPTURE(j);
        CHECK(test::difference(test::to_double(out.data()[j]), want[j]) <= 4 * test::unit_roundoff<T>);
      }
    };
    const heed::LayerNormOptions options{.eps = 4};  // √(5 + 4) = 3: (x − 4) / 3 is −1, −1/3, 1/3, 1
    layer_norm(backend, rows, {}, {}, out, options);
    check({-1, -1. / 3, 1. / 3, 1, 0, 0, 0, 0});
    layer_norm(backend, rows, View<const T, 1>(weight, {4}), {}, out, options);
    check({-1, -2. / 3, 0, -1, 0, 0, 0, 0});
    layer_norm(backend, rows, {}, View<const T, 1>(bias, {4}), out, options);
    check({-1, 2. / 3, 5. / 6, 3, 0, 1, 0.5, 2});
    layer_norm(backend, rows, View<const T, 1>(weight, {4}), View<const T, 1>(bias, {4}), out, options);
    check({-1, 1. / 3, 0.5, 1, 0, 1, 0.5, 2});
    // By default eps is 1e-5: a tenth of this variance.
    const T small[] = {t(0.01), t(-0.01)};
    Tensor<T, 1> small_out({2});
    layer_norm(backend, View<const T, 1>(small, {2}), {}, {}, small_out);
    CHECK(test::difference(test::to_double(small_out(0)), std::sqrt(1 / 1.1)) <= 4 * test::unit_roundoff<T>);
  });
}

TEST_CASE_TEMPLATE("layer_norm: ragged sizes", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index n : {1, 2, 7, 16, 33, 64, 301}) {
      CAPTURE(n);
      const auto x = test::random_tensor<T>({5, n}, 1, -3, 4);
      const auto weight = test::random_tensor<T>({n}, 2);
      const auto bias = test::random_tensor<T>({n}, 3);
      Tensor<T, 2> out({Index{5}, n});
      for (const double eps : {1e-5, 0.1}) {
        const heed::LayerNormOptions options{.eps = eps};
        layer_norm(backend, x, weight, bias, out, options);
        CHECK(worst_error<T>(x, weight, bias, eps, out) <= 1);
        layer_norm(backend, x, weight, {}, out, options);
        CHECK(worst_error<T>(x, weight, {}, eps, out) <= 1);
        layer_norm(backend, x, {}, bias, out, options);
        CHECK(worst_error<T>(x, {}, bias, eps, out) <= 1);
        layer_norm(backend, x, {}, {}, out, options);
        CHECK(worst_error<T>(x, {}, {}, eps, out) <= 1);
      }
      Tensor<T, 2> both = x;
      layer_norm(backend, x, weight, bias, out);
      layer_norm(backend, both, weight, bias, both);
      CHECK(test::same_bits(out, both));
    }
  });
}

TEST_CASE("layer_norm: a mean far from 0 does not spoil the variance") {
  // In float, mean(x²) − mean(x)² would lose a variance of 1 under squares of 10⁸.
  test::for_each_any_backend([](const AnyBackend& backend) {
    const Index n = 515;
    Tensor<float, 2> x({Index{1}, n});
    test::Random random(1);
    for (float& element : x.span()) element = static_cast<float>(10000 + random.normal());
    Tensor<float, 2> out({Index{1}, n});
    layer_norm(backend, x, {}, {}, out);
    double mean = 0;
    double squares = 0;
    for (const float element : out.span()) mean += element / static_cast<double>(n);
    for (const float element : out.span()) squares += element * static_cast<double>(element) / static_cast<double>(n);
    CHECK(std::fabs(mean) < 5e-3);
    CHECK(std::fabs(squares - 1) < 1e-3);
  });
}

TEST_CASE_TEMPLATE("layer_norm: NaN stays in its row; an empty tensor is left alone", T, float, double,
                   heed::bfloat16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    auto x = test::random_tensor<T>({3, 45}, 1);
    x(1, 44) = test::from_double<T>(std::nan(""));
    Tensor<T, 2> out({3, 45});
    layer_norm(backend, x, {}, {}, out);
    bool right = true;
    for (Index i = 0; i < 3; ++i) {
      for (Index j = 0; j < 45; ++j) right = right && std::isnan(test::to_double(out(i, j))) == (i == 1);
    }
    CHECK(right);
    Tensor<T, 3> no_rows({2, 0, 4});
    layer_norm(backend, no_rows, Tensor<T, 1>({4}), Tensor<T, 1>({4}), no_rows);
    Tensor<T, 2> no_features({2, 0});
    layer_norm(backend, no_features, {}, {}, no_features);
    CHECK(no_features.empty());
  });
}

TEST_CASE_TEMPLATE("case 20: layer_norm: strided, permuted and repeated views equal their copies", T, float,
                   heed::bfloat16) {
  const auto x = test::random_tensor<T>({2, 3, 4, 37}, 1);
  const auto weight = test::random_tensor<T>({37}, 2);
  const auto bias = test::random_tensor<T>({37}, 3);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 4> want({2, 3, 4, 37});
    layer_norm(backend, x, weight, bias, want);
    test::Strided strided(x);
    const test::Strided strided_weight(weight);
    const test::Strided strided_bias(bias);
    test::Strided out(Tensor<T, 4>({2, 3, 4, 37}));
    layer_norm(backend, strided.view(), strided_weight.view(), strided_bias.view(), out.view());
    CHECK(test::same_bits(out.view(), want));
    CHECK(out.intact());
    layer_norm(backend, strided.view(), weight, bias, strided.view());  // in place
    CHECK(test::same_bits(strided.view(), want));
    CHECK(strided.intact());

    Tensor<T, 4> permuted({4, 2, 3, 37});
    layer_norm(backend, x.view().permute({2, 0, 1, 3}), weight, bias, permuted);
    CHECK(test::same_bits(permuted.view().permute({1, 2, 0, 3}), want));
    Tensor<T, 4> repeated({5, 3, 4, 37});
    layer_norm(backend, test::repeated(5, x.view()[1]), weight, bias, repeated);
    for (Index i = 0; i < 5; ++i) CHECK(test::same_bits(repeated.view()[i], want.view()[1]));
  });
}

TEST_CASE_TEMPLATE("case 31: layer_norm: a row's bits do not depend on the other rows or on the threads", T, float,
                   heed::bfloat16) {
  const auto x = test::random_tensor<T>({301, 203}, 1);
  const auto weight = test::random_tensor<T>({203}, 2);
  const auto bias = test::random_tensor<T>({203}, 3);
  Tensor<T, 2> one({301, 203});
  Tensor<T, 2> three({301, 203});
  layer_norm(heed::Simd(), x, weight, bias, one);
  test::ReversePool pool;
  layer_norm(heed::Cpu(pool), x, weight, bias, three);
  CHECK(pool.parts_elsewhere() > 0);
  CHECK(test::same_bits(one, three));
  Tensor<T, 2> alone({1, 203});
  layer_norm(heed::Simd(), x.view().slice(0, 300, 1), weight, bias, alone);
  CHECK(test::same_bits(alone, one.view().slice(0, 300, 1)));
}

TEST_CASE("layer_norm: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  const Tensor<float, 2> x({4, 3});
  const Tensor<float, 1> weight({3});
  Tensor<float, 2> out({4, 3});
  out.fill(7);
  Tensor<float, 2> wide({4, 5});
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, x, weight, weight, wide),
                       "heed: layer_norm: out: expected [4, 3] (axis 0, features), got [4, 5]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, x, Tensor<float, 1>({4}), {}, out),
                       "heed: layer_norm: weight: expected [3] (features), got [4]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, x, weight, Tensor<float, 1>({2}), out),
                       "heed: layer_norm: bias: expected [3] (features), got [2]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, View<const float, 2>(x.data(), {4, 3}, {1, 4}), {}, {}, out),
                       "heed: layer_norm: x: the last axis must be contiguous (stride 1), got stride 4 on features",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, x, weight, {}, out, {.eps = std::nan("")}),
                       "heed: layer_norm: eps: must be finite and not negative, got nan", heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, x, weight, {}, out, {.eps = 1e-60}),
                       "heed: layer_norm: eps: 1e-60 is 0 in float", heed::OptionError);
  Tensor<float, 1> memory({16});
  CHECK_THROWS_WITH_AS(ops::layer_norm(backend, View<const float, 2>(memory.data(), {4, 3}), {}, {},
                                       View<float, 2>(memory.data() + 3, {4, 3})),
                       "heed: layer_norm: out: must not overlap x", heed::ShapeError);
  for (const float value : out.span()) CHECK(value == 7);
  CHECK(std::string(ops::check_layer_norm<float, 2>(x, {}, {}, out, {.eps = -1}).text()) ==
        "heed: layer_norm: eps: must be finite and not negative, got -1");
  CHECK_FALSE(ops::check_layer_norm<float, 2>(x, weight, weight, out));
}
