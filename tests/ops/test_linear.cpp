// ops::linear and packed weights.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/ops/linear.hpp"
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

// The door on a backend of any type, compiled once a scalar and rank; packed_linear() packs the weight first.
template <class T, int Rank>
HEED_NOINLINE void linear_on(AnyBackend backend, View<const T, Rank> x, View<const T, 2> weight, View<const T, 1> bias,
                             View<T, Rank> out) {
  backend.visit([&](const auto& b) { ops::linear(b, x, weight, bias, out); });
}
template <class T, int Rank>
HEED_NOINLINE void packed_linear_on(AnyBackend backend, View<const T, Rank> x, View<const T, 2> weight,
                                    View<const T, 1> bias, View<T, Rank> out) {
  backend.visit([&](const auto& b) { ops::linear(b, x, ops::pack_weight<T>(b, weight), bias, out); });
}
template <class Out>
void linear(AnyBackend backend, View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
            View<const heed::scalar_t<Out>, 2> weight, View<const heed::scalar_t<Out>, 1> bias, Out&& out) {
  linear_on(backend, x, weight, bias, heed::output_view(out));
}
template <class Out>
void packed_linear(AnyBackend backend, View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
                   View<const heed::scalar_t<Out>, 2> weight, View<const heed::scalar_t<Out>, 1> bias, Out&& out) {
  packed_linear_on(backend, x, weight, bias, heed::output_view(out));
}

// Σ x w + bias in double. The error allowed grows with the magnitude Σ |x w| + |bias| of what is summed up and with the
// root of its length, plus one rounding of the result.
template <class T>
double worst_error(View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias, View<const T, 2> out) {
  using A = heed::accumulator_t<T>;
  double worst = 0;
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index j = 0; j < out.extent(1); ++j) {
      double want = bias.present() ? test::to_double(bias(j)) : 0;
      double magnitude = std::fabs(want);
      for (Index p = 0; p < x.extent(1); ++p) {
        const double product = test::to_double(x(i, p)) * test::to_double(weight(j, p));
        want += product;
        magnitude += std::fabs(product);
      }
      const double allowed = 4 * std::sqrt(static_cast<double>(x.extent(1) + 1)) * test::unit_roundoff<A> * magnitude +
                             test::unit_roundoff<T> * std::fabs(want);
      const double error = test::difference(test::to_double(out(i, j)), want);
      if (error > 0) worst = std::fmax(worst, error / allowed);
    }
  }
  return worst;
}

// The chain that Simd promises: from the bias, ascending input features, fused where the machine can.
template <class A>
A chain(View<const A, 2> x, View<const A, 2> weight, View<const A, 1> bias, Index i, Index j) {
  volatile A sum = bias(j);
  for (Index p = 0; p < x.extent(1); ++p) {
#if HEED_FMA
    sum = std::fma(x(i, p), weight(j, p), static_cast<A>(sum));
#else
    volatile A product = x(i, p) * weight(j, p);
    sum = sum + product;
#endif
  }
  return sum;
}

}  // namespace

TEST_CASE_TEMPLATE("linear: a value by hand", T, float, double, heed::bfloat16, heed::float16) {
  const auto t = [](double value) { return test::from_double<T>(value); };
  const T x[] = {t(1), t(2), t(-3), t(0.5)};
  const T weight[] = {t(3), t(4), t(5), t(-6), t(0), t(8)};
  const T bias[] = {t(0.5), t(0), t(-16)};
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 2> out({2, 3});
    linear(backend, View<const T, 2>(x, {2, 2}), View<const T, 2>(weight, {3, 2}), View<const T, 1>(bias, {3}), out);
    const double want[] = {11.5, -7, 0, -6.5, -18, -12};
    CHECK(test::max_error(out, View<const double, 2>(want, {2, 3})) == 0);
  });
}

TEST_CASE_TEMPLATE("linear: ragged sizes, with and without bias, packed and not", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for (const Index m : {1, 2, 3, 5, 19}) {
      for (const Index k : {1, 2, 31, 257, 520}) {
        for (const Index n : {1, 7, 16, 33, 130}) {
          CAPTURE(m);
          CAPTURE(k);
          CAPTURE(n);
          const auto x = test::random_tensor<T>({m, k}, 1);
          const auto weight = test::random_tensor<T>({n, k}, 2);
          const auto bias = test::random_tensor<T>({n}, 3);
          Tensor<T, 2> out({m, n});
          Tensor<T, 2> out_packed({m, n});
          linear(backend, x, weight, bias, out);
          CHECK(worst_error<T>(x, weight, bias, out) <= 1);
          packed_linear(backend, x, weight, bias, out_packed);
          CHECK(test::same_bits(out, out_packed));
          linear(backend, x, weight, {}, out);
          CHECK(worst_error<T>(x, weight, {}, out) <= 1);
          packed_linear(backend, x, weight, {}, out_packed);
          CHECK(test::same_bits(out, out_packed));
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("linear: one chain per output, in ascending input features from the bias", A, float, double) {
  for (const Index n : {5, 70}) {
    const auto x = test::random_tensor<A>({17, 530}, 1);
    const auto weight = test::random_tensor<A>({n, 530}, 2);
    const auto bias = test::random_tensor<A>({n}, 3);
    test::for_each_fast_backend([&](const AnyBackend& backend) {
      Tensor<A, 2> out({Index{17}, n});
      linear(backend, x, weight, bias, out);
      bool same = true;
      for (Index i = 0; i < 17; ++i) {
        for (Index j = 0; j < n; ++j) same = same && test::same_bits_of(out(i, j), chain<A>(x, weight, bias, i, j));
      }
      CHECK(same);
    });
  }
}

TEST_CASE_TEMPLATE("case 31: linear: a row's bits do not depend on the other rows or on the threads", T, float,
                   heed::bfloat16) {
  // Many rows are cut by rows, few by output features.
  const struct { Index m, k, n; } sizes[] = {{101, 70, 150}, {3, 300, 950}, {1, 800, 700}};
  for (const auto& size : sizes) {
    CAPTURE(size.m);
    const auto x = test::random_tensor<T>({size.m, size.k}, 1);
    const auto weight = test::random_tensor<T>({size.n, size.k}, 2);
    const auto bias = test::random_tensor<T>({size.n}, 3);
    Tensor<T, 2> one({size.m, size.n});
    Tensor<T, 2> three({size.m, size.n});
    Tensor<T, 2> packed({size.m, size.n});
    linear(heed::Simd(), x, weight, bias, one);

    test::ReversePool pool;
    const heed::Cpu cpu(pool);
    linear(cpu, x, weight, bias, three);
    CHECK(pool.parts_elsewhere() > 0);  // the work was cut
    CHECK(test::same_bits(one, three));
    packed_linear(cpu, x, weight, bias, packed);
    CHECK(test::same_bits(one, packed));

    for (const Index row : {Index{0}, size.m / 2, size.m - 1}) {
      Tensor<T, 2> alone({Index{1}, size.n});
      linear(heed::Simd(), x.view().slice(0, row, 1), weight, bias, alone);
      CHECK(test::same_bits(alone, one.view().slice(0, row, 1)));
    }
  }
}

TEST_CASE_TEMPLATE("case 20: linear: strided, permuted and repeated views equal their copies, bit for bit", T, float,
                   heed::bfloat16) {
  const auto x = test::random_tensor<T>({2, 3, 5, 37}, 1);
  const auto weight = test::random_tensor<T>({21, 37}, 2);
  const auto bias = test::random_tensor<T>({21}, 3);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 4> want({2, 3, 5, 21});
    linear(backend, x, weight, bias, want);

    const test::Strided strided_x(x);
    const test::Strided strided_weight(weight);
    const test::Strided strided_bias(bias);
    test::Strided out(Tensor<T, 4>({2, 3, 5, 21}));
    linear(backend, strided_x.view(), strided_weight.view(), strided_bias.view(), out.view());
    CHECK(test::same_bits(out.view(), want));
    CHECK(out.intact());
    Tensor<T, 4> packed({2, 3, 5, 21});
    packed_linear(backend, x, strided_weight.view(), strided_bias.view(), packed);
    CHECK(test::same_bits(packed, want));

    // [2, 3, 5] read as [5, 2, 3].
    Tensor<T, 4> permuted({5, 2, 3, 21});
    linear(backend, x.view().permute({2, 0, 1, 3}), weight, bias, permuted);
    CHECK(test::same_bits(permuted.view().permute({1, 2, 0, 3}), want));
    // And written.
    Tensor<T, 4> memory({5, 2, 3, 21});
    linear(backend, x, weight, bias, memory.view().permute({1, 2, 0, 3}));
    CHECK(test::same_bits(memory, permuted));

    Tensor<T, 4> repeated({4, 3, 5, 21});
    linear(backend, test::repeated(4, x.view()[1]), weight, bias, repeated);
    for (Index i = 0; i < 4; ++i) CHECK(test::same_bits(repeated.view()[i], want.view()[1]));

    // An axis of one element may have any stride.
    const View<const T, 2> odd(x.data(), {1, 37}, {-7, 1});
    Tensor<T, 2> single({1, 21});
    linear(backend, odd, weight, bias, single);
    CHECK(test::same_bits(single.view()[0], want.view()[0][0][0]));
    Tensor<T, 1> vector({21});
    linear(backend, View<const T, 1>(x.data(), {37}), weight, bias, vector);
    CHECK(test::same_bits(vector, want.view()[0][0][0]));
  });
}

TEST_CASE_TEMPLATE("linear: NaN and infinity stay in their row and their column", T, float, double, heed::bfloat16) {
  auto x = test::random_tensor<T>({9, 40}, 1);
  auto weight = test::random_tensor<T>({35, 40}, 2);
  x(4, 39) = test::from_double<T>(std::nan(""));
  weight(34, 0) = test::from_double<T>(HUGE_VAL);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 2> out({9, 35});
    linear(backend, x, weight, {}, out);
    bool right = true;
    for (Index i = 0; i < 9; ++i) {
      for (Index j = 0; j < 35; ++j) {
        const double value = test::to_double(out(i, j));
        right = right && (i == 4 ? std::isnan(value) : j == 34 ? std::isinf(value) : std::isfinite(value));
      }
    }
    CHECK(right);
  });
}

TEST_CASE_TEMPLATE("linear: empty axes", T, float, double, heed::float16) {
  test::for_each_any_backend([&](const AnyBackend& backend) {
    const auto bias = test::random_tensor<T>({3}, 1);
    // No input features: the bias, or 0.
    Tensor<T, 2> out({2, 3});
    const Tensor<T, 2> nothing({2, 0});
    const Tensor<T, 2> weight({3, 0});
    out.fill(test::from_double<T>(7));
    linear(backend, nothing, weight, bias, out);
    CHECK(test::same_bits(out, test::repeated<T, 1>(2, bias)));
    packed_linear(backend, nothing, weight, {}, out);
    CHECK(test::max_error(out, Tensor<T, 2>({2, 3})) == 0);
    // No rows, no output features: nothing happens.
    Tensor<T, 3> no_rows({2, 0, 3});
    linear(backend, Tensor<T, 3>({2, 0, 5}), Tensor<T, 2>({3, 5}), bias, no_rows);
    Tensor<T, 2> no_features({2, 0});
    const Tensor<T, 2> no_outputs({0, 5});
    linear(backend, Tensor<T, 2>({2, 5}), no_outputs, {}, no_features);
    packed_linear(backend, Tensor<T, 2>({2, 5}), no_outputs, {}, no_features);
    CHECK(no_features.empty());
  });
}

TEST_CASE("linear: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  const Tensor<float, 3> x({2, 4, 3});
  const Tensor<float, 2> weight({5, 3});
  const Tensor<float, 1> bias({5});
  Tensor<float, 3> out({2, 4, 5});
  out.fill(7);
  const auto packed = ops::pack_weight<float>(backend, weight);

  CHECK_THROWS_WITH_AS(ops::linear(backend, Tensor<float, 3>({2, 4, 6}), weight, bias, out),
                       "heed: linear: x: expected [*, *, 3] (axis 0, axis 1, in features), got [2, 4, 6]",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::linear(backend, Tensor<float, 3>({2, 4, 6}), packed, bias, out),
                       "heed: linear: x: expected [*, *, 3] (axis 0, axis 1, in features), got [2, 4, 6]",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::linear(backend, x, weight, Tensor<float, 1>({4}), out),
                       "heed: linear: bias: expected [5] (out features), got [4]", heed::ShapeError);
  Tensor<float, 3> wrong({2, 3, 5});
  CHECK_THROWS_WITH_AS(ops::linear(backend, x, weight, bias, wrong),
                       "heed: linear: out: expected [2, 4, 5] (axis 0, axis 1, out features), got [2, 3, 5]",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::linear(backend, x, weight.view().permute({1, 0}), bias, out),
                       "heed: linear: weight: the last axis must be contiguous (stride 1), got stride 3 on in features",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::pack_weight<float>(backend, weight.view().permute({1, 0})),
                       "heed: pack_weight: weight: the last axis must be contiguous (stride 1), got stride 3 on in "
                       "features",
                       heed::ShapeError);
  const View<float, 3> folded(out.data(), {2, 4, 5}, {0, 5, 1});
  CHECK_THROWS_WITH_AS(ops::linear(backend, x, weight, bias, folded),
                       "heed: linear: out: an output must not repeat elements (stride 0), got stride 0 on axis 0",
                       heed::ShapeError);
  const View<const float, 3> backwards(x.data(), {2, 4, 3}, {12, -3, 1});
  CHECK_THROWS_WITH_AS(ops::linear(backend, backwards, weight, bias, out),
                       "heed: linear: x: a stride must not be negative, got stride -3 on axis 1", heed::ShapeError);
  const Tensor<float, 2> square({5, 5});
  CHECK_THROWS_WITH_AS(ops::linear(backend, out, square, bias, out), "heed: linear: out: must not overlap x",
                       heed::ShapeError);
  for (const float value : out.span()) CHECK(value == 7);

  // The same without an exception.
  const heed::Problem problem = ops::check_linear<float, 3>(x, 5, 4, bias, out);
  CHECK(problem.kind() == heed::ErrorKind::shape);
  CHECK(std::string(problem.text()) ==
        "heed: linear: x: expected [*, *, 4] (axis 0, axis 1, in features), got [2, 4, 3]");
  CHECK_FALSE(ops::check_linear<float, 3>(x, 5, 3, bias, out));
}
