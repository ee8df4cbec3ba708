// ops::softmax and ops::log_sum_exp.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>

#include "heed/ops/softmax.hpp"
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

// The doors on a backend of any type, compiled once a scalar and rank.
template <class T, int Rank>
HEED_NOINLINE void softmax_on(AnyBackend backend, View<const T, Rank> x, View<T, Rank> out, int axis) {
  backend.visit([&](const auto& b) { ops::softmax(b, x, out, axis); });
}
template <class Out>
void softmax(AnyBackend backend, View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x, Out&& out,
             int axis = -1) {
  softmax_on(backend, x, heed::output_view(out), axis);
}
template <class T, int Rank>
HEED_NOINLINE void log_sum_exp_on(AnyBackend backend, View<const T, Rank + 1> x, View<T, Rank> out, int axis) {
  backend.visit([&](const auto& b) { ops::log_sum_exp(b, x, out, axis); });
}
template <class Out>
void log_sum_exp(AnyBackend backend, View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank() + 1> x, Out&& out,
                 int axis = -1) {
  log_sum_exp_on(backend, x, heed::output_view(out), axis);
}

constexpr double infinity = std::numeric_limits<double>::infinity();
const double not_a_number = std::nan("");

// [outer, n, inner]: how the elements along one axis of a contiguous tensor lie.
struct Along {
  Index outer = 1;
  Index n = 1;
  Index inner = 1;
};
template <int Rank>
Along along(const Tensor<double, Rank>& x, int axis) {
  Along a;
  for (int i = 0; i < Rank; ++i) (i < axis ? a.outer : i == axis ? a.n : a.inner) *= x.extent(i);
  return a;
}

// log Σ exp along the axis, in long double, as [outer, inner].
template <int Rank>
Tensor<long double, 2> expected_log_sum_exp(const Tensor<double, Rank>& x, int axis) {
  const Along a = along(x, axis);
  Tensor<long double, 2> result({a.outer, a.inner});
  for (Index o = 0; o < a.outer; ++o) {
    for (Index i = 0; i < a.inner; ++i) {
      long double largest = -HUGE_VALL;
      for (Index j = 0; j < a.n; ++j)
        largest = std::fmax(largest, static_cast<long double>(x.data()[(o * a.n + j) * a.inner + i]));
      long double sum = 0;
      for (Index j = 0; j < a.n; ++j)
        sum += std::exp(static_cast<long double>(x.data()[(o * a.n + j) * a.inner + i]) - largest);
      result(o, i) = largest + std::log(sum);
    }
  }
  return result;
}

template <int Rank>
Tensor<double, Rank> expected_softmax(const Tensor<double, Rank>& x, int axis) {
  const Along a = along(x, axis);
  const Tensor<long double, 2> log_sum = expected_log_sum_exp(x, axis);
  Tensor<double, Rank> result = x;
  for (Index o = 0; o < a.outer; ++o) {
    for (Index j = 0; j < a.n; ++j) {
      for (Index i = 0; i < a.inner; ++i) {
        double& element = result.data()[(o * a.n + j) * a.inner + i];
        element = static_cast<double>(std::exp(element - log_sum(o, i)));
      }
    }
  }
  return result;
}

// The largest error relative to what x in [−10, 10] and one rounding of the result allow; float16 has subnormals.
template <class T, int Rank>
double worst_error(View<const T, Rank> got, const Tensor<double, Rank>& want) {
  double worst = 0;
  test::for_each_element(
      [&](T value, double wanted) {
        const double allowed =
            (40 * test::unit_roundoff<heed::accumulator_t<T>> + test::unit_roundoff<T>)*std::fabs(wanted) +
            (std::is_same_v<T, heed::float16> ? 0x1p-25 : 0);
        worst = std::fmax(worst, test::difference(test::to_double(value), wanted) / allowed);
      },
      got, want.view());
  return worst;
}

template <class T, int Rank>
void check_axes(AnyBackend backend, const Tensor<T, Rank>& x) {
  Tensor<T, Rank> out(x);
  for (int axis = 0; axis < Rank; ++axis) {
    CAPTURE(axis);
    out.fill(test::from_double<T>(7));
    softmax(backend, x, out, axis);
    CHECK(worst_error<T, Rank>(out, expected_softmax(test::as_double(x), axis)) <= 1);
    Tensor<T, Rank> negative(x);
    softmax(backend, x, negative, axis - Rank);
    CHECK(test::same_bits(out, negative));
    // In place: x itself.
    Tensor<T, Rank> both = x;
    softmax(backend, both, both, axis);
    CHECK(test::same_bits(out, both));
  }
}

// x [a, b, c] without one axis.
template <class T>
Tensor<T, 2> reduced(const Tensor<T, 3>& x, int axis) {
  return Tensor<T, 2>({x.extent(axis == 0 ? 1 : 0), x.extent(axis == 2 ? 1 : 2)});
}

template <class T>
Tensor<T, 2> one_row(std::initializer_list<double> values) {
  Tensor<T, 2> x({Index{1}, static_cast<Index>(values.size())});
  T* to = x.data();
  for (const double value : values) *to++ = test::from_double<T>(value);
  return x;
}

// The softmax of one row, along the row and again with the row standing upright as column 1 of 3, whose neighbours are
// zeros: both are checked.
template <class T>
void both_ways(AnyBackend backend, std::initializer_list<double> values,
               const std::function<void(double, Index)>& check) {
  const Tensor<T, 2> row = one_row<T>(values);
  const Index n = row.extent(1);
  Tensor<T, 2> out(row);
  softmax(backend, row, out);
  Tensor<T, 2> upright({n, Index{3}});
  for (Index i = 0; i < n; ++i) upright(i, 1) = row(0, i);
  softmax(backend, upright, upright, 0);
  for (Index i = 0; i < n; ++i) {
    CAPTURE(i);
    check(test::to_double(out(0, i)), i);
    check(test::to_double(upright(i, 1)), i);
    CHECK(test::difference(test::to_double(upright(i, 0)), 1 / static_cast<double>(n)) <= 2 * test::unit_roundoff<T>);
    CHECK(test::same_bits_of(upright(i, 2), upright(i, 0)));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("softmax: values by hand", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    // Equal elements share equally; 1/4 is exact.
    both_ways<T>(backend, {-3, -3, -3, -3}, [](double y, Index) { CHECK(y == 0.25); });
    // log 3 apart: 1 : 3.
    both_ways<T>(backend, {0, 1.0986122886681098}, [](double y, Index i) {
      CHECK(test::difference(y, i == 0 ? 0.25 : 0.75) <= 2 * test::unit_roundoff<T>);
    });
    both_ways<T>(backend, {5}, [](double y, Index) { CHECK(y == 1); });
  });
}

TEST_CASE_TEMPLATE("softmax: any axis of ragged shapes, in place or not", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index n : {1, 2, 7, 16, 33, 70}) {
      CAPTURE(n);
      check_axes(backend, test::random_tensor<T>({2, n, 19}, 1, -10, 10));
      check_axes(backend, test::random_tensor<T>({n, 5, 1}, 2, -10, 10));
    }
  });
}

TEST_CASE("softmax: any number of axes") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    check_axes(backend, test::random_tensor<float>({70}, 1, -10, 10));
    check_axes(backend, test::random_tensor<float>({7, 33}, 2, -10, 10));
    check_axes(backend, test::random_tensor<float>({2, 3, 4, 5}, 3, -10, 10));
    check_axes(backend, test::random_tensor<float>({2, 1, 3, 4, 3}, 4, -10, 10));
  });
}

TEST_CASE_TEMPLATE("softmax: adding a constant changes nothing, large numbers do not overflow", A, float, double) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<A, 2> x({4, 37});
    test::Random random(1);
    for (A& element : x.span()) element = static_cast<A>(random.below(200)) / 8;  // so that every sum is exact
    Tensor<A, 2> out({4, 37});
    Tensor<A, 2> shifted({4, 37});
    for (const int axis : {0, 1}) {
      softmax(backend, x, out, axis);
      for (const A constant : {A(1000), A(-65536)}) {
        shifted = x;
        for (A& element : shifted.span()) element += constant;
        softmax(backend, shifted, shifted, axis);
        CHECK(test::same_bits(out, shifted));
      }
    }
    constexpr double most = std::numeric_limits<A>::max();
    both_ways<A>(backend, {most, -most, most}, [](double y, Index i) { CHECK(y == (i == 1 ? 0.0 : 0.5)); });
  });
}

TEST_CASE_TEMPLATE("case 1: softmax: a row of nothing but -inf gives 0", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    both_ways<T>(backend, {-infinity, -infinity, -infinity}, [](double y, Index) { CHECK(y == 0); });
    both_ways<T>(backend, {-infinity}, [](double y, Index) { CHECK(y == 0); });
    // −inf beside numbers has no share.
    both_ways<T>(backend, {-infinity, 2, -infinity, 2},
                 [](double y, Index i) { CHECK(y == (i % 2 == 0 ? 0.0 : 0.5)); });
  });
}

TEST_CASE_TEMPLATE("softmax: NaN or +inf make their row NaN, wherever they stand, and no other", T, float, double,
                   heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto all_nan = [](double y, Index) { CHECK(std::isnan(y)); };
    both_ways<T>(backend, {1, not_a_number, 3}, all_nan);
    both_ways<T>(backend, {not_a_number, -infinity}, all_nan);  // must not pass for a row of −inf
    both_ways<T>(backend, {-infinity, not_a_number}, all_nan);
    both_ways<T>(backend, {infinity, 0, 1}, all_nan);
    both_ways<T>(backend, {infinity, not_a_number}, all_nan);

    // In every place of a row of several vectors and a tail.
    const auto clean = test::random_tensor<T>({3, 41}, 1);
    Tensor<T, 2> want({3, 41});
    softmax(backend, clean, want);
    for (Index at = 0; at < 41; ++at) {
      Tensor<T, 2> x = clean;
      x(1, at) = test::from_double<T>(not_a_number);
      Tensor<T, 2> out({3, 41});
      softmax(backend, x, out);
      bool nan = true;
      for (Index j = 0; j < 41; ++j) nan = nan && std::isnan(test::to_double(out(1, j)));
      CHECK(nan);
      CHECK(test::same_bits(out.view()[0], want.view()[0]));
      CHECK(test::same_bits(out.view()[2], want.view()[2]));
    }
  });
}

TEST_CASE_TEMPLATE("case 20: softmax and log_sum_exp: strided, permuted and repeated views equal their copies", T,
                   float, double, heed::bfloat16, heed::float16) {
  const auto x = test::random_tensor<T>({3, 4, 5, 19}, 1, -10, 10);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for (int axis = 0; axis < 4; ++axis) {
      CAPTURE(axis);
      Tensor<T, 4> want({3, 4, 5, 19});
      softmax(backend, x, want, axis);
      const test::Strided strided(x);
      test::Strided out(Tensor<T, 4>({3, 4, 5, 19}));
      softmax(backend, strided.view(), out.view(), axis);
      CHECK(test::same_bits(out.view(), want));
      CHECK(out.intact());
      // In place in a strided view.
      test::Strided both(x);
      softmax(backend, both.view(), both.view(), axis);
      CHECK(test::same_bits(both.view(), want));
      CHECK(both.intact());
    }
    Tensor<T, 4> want({3, 4, 5, 19});
    softmax(backend, x, want, 1);
    Tensor<T, 4> permuted({4, 5, 3, 19});
    softmax(backend, x.view().permute({1, 2, 0, 3}), permuted, 0);
    CHECK(test::same_bits(permuted.view().permute({2, 0, 1, 3}), want));

    Tensor<T, 4> repeated({2, 4, 5, 19});
    softmax(backend, test::repeated(2, x.view()[1]), repeated, 1);
    CHECK(test::same_bits(repeated.view()[0], want.view()[1]));
    CHECK(test::same_bits(repeated.view()[1], want.view()[1]));

    const test::Strided strided(x);
    Tensor<T, 3> sums({3, 5, 19});
    test::Strided sums_out(sums);
    log_sum_exp(backend, x, sums, 1);
    log_sum_exp(backend, strided.view(), sums_out.view(), 1);
    CHECK(test::same_bits(sums, sums_out.view()));
    CHECK(sums_out.intact());
    Tensor<T, 3> last({3, 4, 5});
    test::Strided last_out(last);
    log_sum_exp(backend, x, last, 3);
    log_sum_exp(backend, strided.view(), last_out.view(), 3);
    CHECK(test::same_bits(last, last_out.view()));
    CHECK(last_out.intact());
  });
}

TEST_CASE_TEMPLATE("case 31: softmax and log_sum_exp: bits do not depend on neighbours or threads", T, float,
                   heed::bfloat16) {
  // Rows; several blocks; one block, cut into columns.
  const struct {
    Index extents[3];
    int axis;
  } cases[] = {{{3, 100, 203}, 2}, {{300, 10, 21}, 1}, {{1, 41, 1207}, 1}};
  for (const auto& c : cases) {
    CAPTURE(c.axis);
    const auto x = test::random_tensor<T>(c.extents, 1, -10, 10);
    Tensor<T, 3> one(c.extents);
    Tensor<T, 3> three(c.extents);
    softmax(heed::Simd(), x, one, c.axis);
    Tensor<T, 2> sums_one = reduced(x, c.axis);
    Tensor<T, 2> sums_three = reduced(x, c.axis);
    log_sum_exp(heed::Simd(), x, sums_one, c.axis);

    test::ReversePool pool;
    softmax(heed::Cpu(pool), x, three, c.axis);
    CHECK(pool.parts_elsewhere() > 0);
    CHECK(test::same_bits(one, three));
    const Index before = pool.parts_elsewhere();
    log_sum_exp(heed::Cpu(pool), x, sums_three, c.axis);
    CHECK(pool.parts_elsewhere() > before);
    CHECK(test::same_bits(sums_one, sums_three));
  }
  // One row or column alone.
  const auto x = test::random_tensor<T>({2, 35, 37}, 2, -10, 10);
  for (const int axis : {1, 2}) {
    Tensor<T, 3> all({2, 35, 37});
    softmax(heed::Simd(), x, all, axis);
    const int other = 3 - axis;
    for (Index i = 0; i < x.extent(other); ++i) {
      const Tensor<T, 3> part(x.view().slice(other, i, 1));
      Tensor<T, 3> alone = part;
      softmax(heed::Simd(), part, alone, axis);
      CHECK(test::same_bits(alone, all.view().slice(other, i, 1)));
    }
  }
}

TEST_CASE_TEMPLATE("log_sum_exp: any axis of ragged shapes", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index n : {1, 2, 7, 16, 33, 70}) {
      const auto x = test::random_tensor<T>({3, n, 19}, 1, -10, 10);
      for (int axis = 0; axis < 3; ++axis) {
        CAPTURE(n);
        CAPTURE(axis);
        Tensor<T, 2> out = reduced(x, axis);
        log_sum_exp(backend, x, out, axis);
        Tensor<double, 2> want = test::as_double(out);
        const Tensor<long double, 2> sums = expected_log_sum_exp(test::as_double(x), axis);
        for (Index i = 0; i < want.size(); ++i) want.data()[i] = static_cast<double>(sums.data()[i]);
        CHECK(test::max_scaled_error(out, want) <=
              40 * test::unit_roundoff<heed::accumulator_t<T>> + test::unit_roundoff<T>);
        Tensor<T, 2> negative = reduced(x, axis);
        log_sum_exp(backend, x, negative, axis - 3);
        CHECK(test::same_bits(out, negative));
      }
    }
  });
}

TEST_CASE_TEMPLATE("log_sum_exp: what is not finite", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto check = [&](std::initializer_list<double> values, double want) {
      const double allowed = std::isfinite(want) ? 8 * test::unit_roundoff<T> * (1 + std::fabs(want)) : 0;
      const Tensor<T, 2> row = one_row<T>(values);
      Tensor<T, 1> out({1});
      log_sum_exp(backend, row, out);
      CHECK(test::difference(test::to_double(out(0)), want) <= allowed);
      // The same as column 2 of 3.
      Tensor<T, 2> upright({row.extent(1), Index{3}});
      for (Index i = 0; i < row.extent(1); ++i) upright(i, 2) = row(0, i);
      Tensor<T, 1> columns({3});
      log_sum_exp(backend, upright, columns, 0);
      CHECK(test::difference(test::to_double(columns(2)), want) <= allowed);
      CHECK(test::difference(test::to_double(columns(0)), std::log(static_cast<double>(row.extent(1)))) <=
            8 * test::unit_roundoff<T>);
    };
    check({-infinity, -infinity, -infinity}, -infinity);
    check({-infinity, 1.5, -infinity}, 1.5);
    check({1000, 1000}, 1000.6931471805599);
    check({1, infinity, infinity, -infinity}, infinity);
    check({not_a_number, infinity}, not_a_number);
    check({infinity, not_a_number}, not_a_number);
    check({-infinity, not_a_number}, not_a_number);
  });
}

TEST_CASE_TEMPLATE("softmax and log_sum_exp: empty axes", T, float, double, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<T, 3> out({2, 0, 3});
    for (int axis = 0; axis < 3; ++axis) softmax(backend, Tensor<T, 3>({2, 0, 3}), out, axis);
    CHECK(out.empty());
    // The sum of nothing is 0, its logarithm −inf.
    Tensor<T, 2> sums({2, 3});
    log_sum_exp(backend, Tensor<T, 3>({2, 0, 3}), sums, 1);
    for (const T value : sums.span()) CHECK(test::to_double(value) == -infinity);
    Tensor<T, 2> last({2, 3});
    log_sum_exp(backend, Tensor<T, 3>({2, 3, 0}), last);
    for (const T value : last.span()) CHECK(test::to_double(value) == -infinity);
    Tensor<T, 2> nothing({0, 3});
    log_sum_exp(backend, Tensor<T, 3>({0, 4, 3}), nothing, 1);
    CHECK(nothing.empty());
  });
}

TEST_CASE("softmax and log_sum_exp: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  Tensor<float, 2> x({4, 3});
  Tensor<float, 2> out({4, 3});
  Tensor<float, 1> sums({4});
  out.fill(7);
  sums.fill(7);
  CHECK_THROWS_WITH_AS(ops::softmax(backend, x, out, 2), "heed: softmax: axis: expected -2 <= axis < 2, got 2",
                       heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::softmax(backend, x, out, -3), "heed: softmax: axis: expected -2 <= axis < 2, got -3",
                       heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::softmax(backend, Tensor<float, 2>({4, 5}), out),
                       "heed: softmax: out: expected [4, 5] (axis 0, last axis), got [4, 3]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::softmax(backend, View<const float, 2>(x.data(), {4, 3}, {1, 4}), out),
                       "heed: softmax: x: the last axis must be contiguous (stride 1), got stride 4 on last axis",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::softmax(backend, x, View<float, 2>(out.data(), {4, 3}, {0, 1})),
                       "heed: softmax: out: an output must not repeat elements (stride 0), got stride 0 on axis 0",
                       heed::ShapeError);
  // Exactly the same view is fine, a shifted one is not.
  Tensor<float, 1> memory({16});
  CHECK_THROWS_WITH_AS(
      ops::softmax(backend, View<const float, 2>(memory.data(), {4, 3}), View<float, 2>(memory.data() + 1, {4, 3})),
      "heed: softmax: out: must not overlap x", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::softmax(backend, View<const float, 2>(memory.data(), {4, 3}, {4, 1}),
                                    View<float, 2>(memory.data(), {4, 3}, {3, 1})),
                       "heed: softmax: out: must not overlap x", heed::ShapeError);

  CHECK_THROWS_WITH_AS(ops::log_sum_exp(backend, x, sums, 5), "heed: log_sum_exp: axis: expected -2 <= axis < 2, got 5",
                       heed::OptionError);
  CHECK_THROWS_WITH_AS(ops::log_sum_exp(backend, x, sums, 0),
                       "heed: log_sum_exp: out: expected [3] (last axis), got [4]", heed::ShapeError);
  const Tensor<float, 3> cube({2, 3, 4});
  CHECK_THROWS_WITH_AS(ops::log_sum_exp(backend, cube, out, 1),
                       "heed: log_sum_exp: out: expected [2, 4] (axis 0, last axis), got [4, 3]", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::log_sum_exp(backend, View<const float, 2>(sums.data(), {4, 1}), sums),
                       "heed: log_sum_exp: out: must not overlap x", heed::ShapeError);
  for (const float value : out.span()) CHECK(value == 7);
  for (const float value : sums.span()) CHECK(value == 7);

  CHECK(std::string(ops::check_softmax<float, 2>(x, out, 2).text()) ==
        "heed: softmax: axis: expected -2 <= axis < 2, got 2");
  CHECK_FALSE(ops::check_softmax<float, 2>(x, out, 1));
  CHECK_FALSE(ops::check_softmax<float, 2>(out, out, -2));
  CHECK_FALSE(ops::check_log_sum_exp<float, 2>(x, sums));
}
