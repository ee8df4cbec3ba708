// ops::rms_norm.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/ops/rms_norm.hpp"
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
HEED_NOINLINE void rms_norm_on(AnyBackend backend, View<const T, Rank> x, View<const T, 1> weight, View<T, Rank> out,
                               const heed::RmsNormOptions& options) {
  backend.visit([&](const auto& b) { ops::rms_norm(b, x, weight, out, options); });
}
template <class Out>
void rms_norm(AnyBackend backend, View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
              View<const heed::scalar_t<Out>, 1> weight, Out&& out, const heed::RmsNormOptions& options = {}) {
  rms_norm_on(backend, x, weight, heed::output_view(out), options);
}

// The largest error of out against the formula in double, relative to what a sum of n squares and one rounding of the
// result allow.
template <class T>
double worst_error(View<const T, 2> x, View<const T, 1> weight, const heed::RmsNormOptions& options,
                   View<const T, 2> out) {
  const Index n = x.extent(1);
  double worst = 0;
  for (Index i = 0; i < x.extent(0); ++i) {
    double squares = 0;
    for (Index j = 0; j < n; ++j) squares += std::pow(test::to_double(x(i, j)), 2);
    const double root = std::sqrt(squares / static_cast<double>(n) + options.eps);
    for (Index j = 0; j < n; ++j) {
      const double factor = weight.present() ? options.weight_offset + test::to_double(weight(j)) : 1;
      const double want = test::to_double(x(i, j)) / root * factor;
      const double rounding = (8 + std::sqrt(static_cast<double>(n))) * test::unit_roundoff<heed::accumulator_t<T>>;
      const double allowed = (rounding + test::unit_roundoff<T>)*std::fabs(want) + 0x1p-25;  // float16's subnormals
      worst = std::fmax(worst, test::difference(test::to_double(out(i, j)), want) / allowed);
    }
  }
  return worst;
}

}  // namespace

TEST_CASE_TEMPLATE("rms_norm: values by hand", T, float, double, heed::bfloat16, heed::float16) {
  const auto t = [](double value) { return test::from_double<T>(value); };
  const T x[] = {t(1), t(-7), t(5), t(5), t(0), t(0), t(0), t(0)};  // mean of squares 25 and 0
  const T weight[] = {t(1), t(2), t(0), t(-1)};
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 2> out({2, 4});
    const auto check = [&](const double(&want)[4]) {
      for (Index j = 0; j < 4; ++j) {
        CAPTURE(j);
        CHECK(test::difference(test::to_double(out(0, j)), want[j]) <= 4 * test::unit_roundoff<T>);
        CHECK(test::to_double(out(1, j)) == 0);  // eps keeps a row of zeros from being NaN
      }
    };
    const View<const T, 2> rows(x, {2, 4});
    rms_norm(backend, rows, {}, out, {.eps = 1e-30});
    check({0.2, -1.4, 1, 1});
    rms_norm(backend, rows, View<const T, 1>(weight, {4}), out, {.eps = 1e-30});
    check({0.2, -2.8, 0, -1});
    rms_norm(backend, rows, View<const T, 1>(weight, {4}), out, {.eps = 1e-30, .weight_offset = 1});  // Gemma
    check({0.4, -4.2, 1, 0});
    rms_norm(backend, rows, {}, out, {.eps = 75, .weight_offset = 1});  // √(25 + 75) = 10
    check({0.1, -0.7, 0.5, 0.5});
    // By default eps is 1e-6: as much as the mean square of 0.001.
    const Tensor<T, 1> small = test::random_tensor<T>({5}, 1, 0.001, 0.001);
    Tensor<T, 1> small_out({5});
    rms_norm(backend, small, {}, small_out);
    CHECK(test::difference(test::to_double(small_out(4)), std::sqrt(0.5)) <= 4 * test::unit_roundoff<T>);
  });
}

TEST_CASE_TEMPLATE("rms_norm: ragged sizes", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index n : {1, 2, 7, 16, 33, 64, 301}) {
      CAPTURE(n);
      const auto x = test::random_tensor<T>({5, n}, 1, -3, 3);
      const auto weight = test::random_tensor<T>({n}, 2);
      Tensor<T, 2> out({Index{5}, n});
      for (const double eps : {1e-6, 0.1, 0.0}) {
        for (const double offset : {0.0, 1.0}) {
          const heed::RmsNormOptions options{.eps = eps, .weight_offset = offset};
          rms_norm(backend, x, weight, out, options);
          CHECK(worst_error<T>(x, weight, options, out) <= 1);
          rms_norm(backend, x, {}, out, options);
          CHECK(worst_error<T>(x, {}, options, out) <= 1);
        }
      }
      Tensor<T, 2> both = x;
      rms_norm(backend, x, weight, out);
      rms_norm(backend, both, weight, both);
      CHECK(test::same_bits(out, both));
    }
  });
}

TEST_CASE_TEMPLATE("rms_norm: scaling a row by a power of two changes nothing", A, float, double) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    auto x = test::random_tensor<A>({3, 45}, 1);
    Tensor<A, 2> out({3, 45});
    rms_norm(backend, x, {}, out, {.eps = 0});
    for (A& element : x.span()) element *= 1024;
    Tensor<A, 2> scaled({3, 45});
    rms_norm(backend, x, {}, scaled, {.eps = 0});
    CHECK(test::same_bits(out, scaled));
  });
}

TEST_CASE_TEMPLATE("rms_norm: NaN stays in its row; an empty tensor is left alone", T, float, double, heed::bfloat16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    auto x = test::random_tensor<T>({3, 45}, 1);
    x(1, 44) = test::from_double<T>(std::nan(""));
    Tensor<T, 2> out({3, 45});
    rms_norm(backend, x, {}, out);
    bool right = true;
    for (Index i = 0; i < 3; ++i) {
      for (Index j = 0; j < 45; ++j) right = right && std::isnan(test::to_double(out(i, j))) == (i == 1);
    }
    CHECK(right);
    Tensor<T, 3> no_rows({2, 0, 4});
    rms_norm(backend, no_rows, Tensor<T, 1>({4}), no_rows);
    Tensor<T, 2> no_features({2, 0});
    rms_norm(backend, no_features, {}, no_features);
    CHECK(no_features.empty());
  });
}

TEST_CASE_TEMPLATE("case 20: rms_norm: strided, permuted and repeated views equal their copies", T, float,
                   heed::bfloat16) {
  const auto x = test::random_tensor<T>({2, 3, 4, 37}, 1);
  const auto weight = test::random_tensor<T>({37}, 2);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 4> want({2, 3, 4, 37});
    rms_norm(backend, x, weight, want);
    test::Strided strided(x);
    const test::Strided strided_weight(weight);
    test::Strided out(Tensor<T, 4>({2, 3, 4, 37}));
    rms_norm(backend, strided.view(), strided_weight.view(), out.view());
    CHECK(test::same_bits(out.view(), want));
    CHECK(out.intact());
    rms_norm(backend, strided.view(), weight, strided.view());  // in place
    CHECK(test::same_bits(strided.view(), want));
    CHECK(strided.intact());

    Tensor<T, 4> permuted({4, 2, 3, 37});
    rms_norm(backend, x.view().permute({2, 0, 1, 3}), weight, permuted);
    CHECK(test::same_bits(permuted.view().permute({1, 2, 0, 3}), want));
    Tensor<T, 4> repeated({5, 3, 4, 37});
    rms_norm(backend, test::repeated(5, x.view()[1]), weight, repeated);
    for (Index i = 0; i < 5; ++i) CHECK(test::same_bits(repeated.view()[i], want.view()[1]));
    Tensor<T, 1> vector({37});
    rms_norm(backend, View<const T, 1>(x.data(), {37}), weight, vector);
    CHECK(test::same_bits(vector, want.view()[0][0][0]));
  });
}

TEST_CASE_TEMPLATE("case 31: rms_norm: a row's bits do not depend on the other rows or on the threads", T, float,
                   heed::bfloat16) {
  const auto x = test::random_tensor<T>({301, 203}, 1);
  const auto weight = test::random_tensor<T>({203}, 2);
  Tensor<T, 2> one({301, 203});
  Tensor<T, 2> three({301, 203});
  rms_norm(heed::Simd(), x, weight, one);
  test::ReversePool pool;
  rms_norm(heed::Cpu(pool), x, weight, three);
  CHECK(pool.parts_elsewhere() > 0);
  CHECK(test::same_bits(one, three));
  Tensor<T, 2> alone({1, 203});
  rms_norm(heed::Simd(), x.view().slice(0, 300, 1), weight, alone);
  CHECK(test::same_bits(alone, one.view().slice(0, 300, 1)));
}

TEST_CASE("rms_norm: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  const Tensor<float, 2> x({4, 3});
  const Tensor<float, 1> weight({3});
  Tensor<float, 2> out({4, 3});
  out.fill(7);
  Tensor<float, 2> wide({4, 5});
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, x, weight, wide),
                       "heed: rms_norm: out: expected [4, 3] (axis 0, features), got [4, 5]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, x, Tensor<float, 1>({4}), out),
                       "heed: rms_norm: weight: expected [3] (features), got [4]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, View<const float, 2>(x.data(), {4, 3}, {1, 4}), weight, out),
                       "heed: rms_norm: x: the last axis must be contiguous (stride 1), got stride 4 on features",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, x, weight, out, {.eps = -1}),
                       "heed: rms_norm: eps: must be finite and not negative, got -1", heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, x, weight, out, {.eps = HUGE_VAL}),
                       "heed: rms_norm: eps: must be finite and not negative, got inf", heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, x, weight, out, {.eps = 1e-60}),
                       "heed: rms_norm: eps: 1e-60 is 0 in float", heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, x, weight, out, {.weight_offset = HUGE_VAL}),
                       "heed: rms_norm: weight_offset: must be finite, got inf", heed::OptionError);
  Tensor<float, 1> memory({16});
  CHECK_THROWS_WITH_AS(ops::rms_norm(backend, View<const float, 2>(memory.data(), {4, 3}), weight,
                                     View<float, 2>(memory.data() + 3, {4, 3})),
                       "heed: rms_norm: out: must not overlap x", heed::ShapeError);
  for (const float value : out.span()) CHECK(value == 7);

  Tensor<double, 2> in_double({1, 3});
  ops::rms_norm(backend, in_double, {}, in_double, {.eps = 1e-60});  // not 0 in double
  CHECK(in_double(0, 0) == 0);
  CHECK(std::string(ops::check_rms_norm<float, 2>(x, weight, out, {.eps = -1}).text()) ==
        "heed: rms_norm: eps: must be finite and not negative, got -1");
  CHECK_FALSE(ops::check_rms_norm<float, 2>(x, weight, out));
  CHECK_FALSE(ops::check_rms_norm<float, 2>(out, {}, out));
}
