// ops::silu and ops::gelu.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "heed/ops/activations.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::GeluForm;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;
namespace ops = heed::ops;

namespace {

// The three functions and their formulas.
struct Function {
  const char* name;
  const char* door;
  long double (*formula)(long double x);
};
long double silu_formula(long double x) {
  return x / (1 + std::exp(-x));
}
long double gelu_erf_formula(long double x) {
  return x / 2 * std::erfc(-x / std::sqrt(2.0L));
}
long double gelu_tanh_formula(long double x) {
  const long double u = std::sqrt(2 / 3.14159265358979323846L) * (x + 0.044715L * x * x * x);
  return x / (1 + std::exp(-2 * u));
}
constexpr Function functions[] = {{"silu", "silu", silu_formula},
                                  {"gelu, erf form", "gelu", gelu_erf_formula},
                                  {"gelu, tanh form", "gelu", gelu_tanh_formula}};

// One of them on a backend of any type, compiled once a scalar and rank.
template <class T, int Rank>
HEED_NOINLINE void run_on(AnyBackend backend, const Function& function, View<const T, Rank> x, View<T, Rank> out) {
  backend.visit([&](const auto& b) {
    if (function.formula == silu_formula) {
      ops::silu(b, x, out);
    } else {
      ops::gelu(b, x, out, function.formula == gelu_erf_formula ? GeluForm::erf : GeluForm::tanh);
    }
  });
}
template <class Out>
void run(AnyBackend backend, const Function& function,
         View<const heed::scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x, Out&& out) {
  run_on(backend, function, x, heed::output_view(out));
}

// Relative to an absolute error of a few roundings of x (1 + erf and 1 + tanh cancel) and one rounding of the result.
template <class T>
double worst_error(const Function& function, View<const T, 2> x, View<const T, 2> out) {
  double worst = 0;
  test::for_each_element(
      [&](T from, T got) {
        const double value = test::to_double(from);
        const auto want = static_cast<double>(function.formula(value));
        const double allowed = 4 * test::unit_roundoff<heed::accumulator_t<T>> * std::fabs(value) +
                               test::unit_roundoff<T> * std::fabs(want) +
                               (std::is_same_v<T, heed::float16> ? 0x1p-25 : 1e-300);
        worst = std::fmax(worst, test::difference(test::to_double(got), want) / allowed);
      },
      x, out);
  return worst;
}

template <class F>
void for_each_function(F&& check) {
  for (const Function& function : functions) {
    INFO(function.name);
    check(function);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("silu and gelu: published values", T, float, double, heed::bfloat16, heed::float16) {
  const double x[] = {1, -1, 0, 3};
  Tensor<T, 1> input({4});
  for (Index i = 0; i < 4; ++i) input(i) = test::from_double<T>(x[i]);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<T, 1> out({4});
    const auto check = [&](const double(&want)[4]) {
      for (Index i = 0; i < 4; ++i) {
        CAPTURE(i);
        CHECK(test::difference(test::to_double(out(i)), want[i]) <= 8 * test::unit_roundoff<T>);
      }
    };
    run(backend, functions[0], input, out);
    check({0.7310585786300049, -0.2689414213699951, 0, 2.8577223804672997});
    run(backend, functions[1], input, out);
    check({0.8413447460685429, -0.15865525393145707, 0, 2.99595030590511});
    run(backend, functions[2], input, out);
    check({0.8411919906082768, -0.15880800939172324, 0, 2.996362607918227});
  });
}

TEST_CASE_TEMPLATE("silu and gelu: ragged sizes, small and large values, in place", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for_each_function([&](const Function& function) {
      for (const Index n : {1, 2, 7, 16, 33, 500}) {
        for (const double range : {0.01, 1.0, 8.0, 100.0}) {
          CAPTURE(n);
          CAPTURE(range);
          const auto x = test::random_tensor<T>({3, n}, 1, -range, range);
          Tensor<T, 2> out({Index{3}, n});
          run(backend, function, x, out);
          CHECK(worst_error<T>(function, x, out) <= 1);
          Tensor<T, 2> both = x;
          run(backend, function, both, both);
          CHECK(test::same_bits(out, both));
        }
      }
    });
  });
}

TEST_CASE("silu and tanh gelu keep their relative accuracy where nothing cancels") {
  const auto x = test::random_tensor<double>({4, 500}, 1, -20, 0);
  test::for_each_fast_backend([&](const AnyBackend& backend) {
    Tensor<double, 2> out({4, 500});
    double worst = 0;
    const auto measure = [&](const Function& function) {
      test::for_each_element(
          [&](double from, double got) {
            const auto want = static_cast<double>(function.formula(from));
            if (std::fabs(want) > 1e-300) worst = std::fmax(worst, std::fabs(got / want - 1));
          },
          x.view(), test::const_view(out));
    };
    run(backend, functions[0], x, out);
    measure(functions[0]);
    CHECK(worst < 1e-15);
    run(backend, functions[2], x, out);
    measure(functions[2]);
    CHECK(worst < 1e-12);  // the exponent is up to 700
  });
}

TEST_CASE_TEMPLATE("silu and gelu: no overflow; infinity and NaN", T, float, double, heed::bfloat16, heed::float16) {
  const double most = std::is_same_v<T, heed::float16> ? 65504 : std::is_same_v<T, double> ? 1e300 : 1e38;
  const double x[] = {most, -most, HUGE_VAL, -HUGE_VAL, std::nan("")};
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for_each_function([&](const Function& function) {
      // Each value as the last of a row of two vectors and a tail of one.
      for (const double value : x) {
        CAPTURE(value);
        const Index n = 33;
        Tensor<T, 1> input({n});
        Tensor<T, 1> out({n});
        input(n - 1) = test::from_double<T>(value);
        run(backend, function, input, out);
        const double got = test::to_double(out(n - 1));
        if (value == most || value == HUGE_VAL) {
          CHECK(got == test::to_double(input(n - 1)));
        } else if (value == -most) {
          CHECK(got == 0);
        } else {
          CHECK(std::isnan(got));
        }
        for (Index j = 0; j < n - 1; ++j) CHECK(test::to_double(out(j)) == 0);
      }
    });
  });
}

TEST_CASE_TEMPLATE("case 20: silu and gelu: strided, permuted and repeated views equal their copies", T, float, double,
                   heed::bfloat16, heed::float16) {
  const auto x = test::random_tensor<T>({2, 3, 4, 37}, 1, -5, 5);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for_each_function([&](const Function& function) {
      Tensor<T, 4> want({2, 3, 4, 37});
      run(backend, function, x, want);
      test::Strided strided(x);
      test::Strided out(Tensor<T, 4>({2, 3, 4, 37}));
      run(backend, function, strided.view(), out.view());
      CHECK(test::same_bits(out.view(), want));
      CHECK(out.intact());
      run(backend, function, strided.view(), strided.view());
      CHECK(test::same_bits(strided.view(), want));
      CHECK(strided.intact());
      Tensor<T, 4> permuted({4, 2, 3, 37});
      run(backend, function, x.view().permute({2, 0, 1, 3}), permuted);
      CHECK(test::same_bits(permuted.view().permute({1, 2, 0, 3}), want));
      Tensor<T, 4> repeated({5, 3, 4, 37});
      run(backend, function, test::repeated(5, x.view()[1]), repeated);
      for (Index i = 0; i < 5; ++i) CHECK(test::same_bits(repeated.view()[i], want.view()[1]));
      Tensor<T, 2> nothing({3, 0});
      run(backend, function, nothing, nothing);
    });
  });
}

TEST_CASE_TEMPLATE("case 31: silu and gelu: bits do not depend on neighbours, place or threads", T, float,
                   heed::bfloat16) {
  for_each_function([&](const Function& function) {
    for (const Index rows : {1, 301}) {  // one row is cut into columns
      const Index n = 60501 / rows;
      const auto x = test::random_tensor<T>({rows, n}, 1, -9, 9);
      Tensor<T, 2> one({rows, n});
      Tensor<T, 2> three({rows, n});
      run(heed::Simd(), function, x, one);
      test::ReversePool pool;
      run(heed::Cpu(pool), function, x, three);
      CHECK(pool.parts_elsewhere() > 0);
      CHECK(test::same_bits(one, three));
      // Every element alone.
      bool same = true;
      for (Index j = 0; j < 100; ++j) {
        Tensor<T, 1> alone({1});
        run(heed::Simd(), function, View<const T, 1>(x.view().pointer(0, j), {1}), alone);
        same = same && test::same_bits_of(alone(0), one(0, j));
      }
      CHECK(same);
    }
  });
}

TEST_CASE("silu and gelu: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  const Tensor<float, 2> x({4, 3});
  Tensor<float, 2> out({4, 3});
  out.fill(7);
  Tensor<float, 1> memory({16});
  for_each_function([&](const Function& function) {
    const std::string door = std::string("heed: ") + function.door;
    CHECK_THROWS_WITH_AS(run(backend, function, x, View<float, 2>(out.data(), {3, 3})),
                         (door + ": out: expected [4, 3] (axis 0, features), got [3, 3]").c_str(), heed::ShapeError);
    CHECK_THROWS_WITH_AS(run(backend, function, View<const float, 2>(x.data(), {4, 3}, {1, 4}), out),
                         (door + ": x: the last axis must be contiguous (stride 1), got stride 4 on features").c_str(),
                         heed::ShapeError);
    CHECK_THROWS_WITH_AS(
        run(backend, function, View<const float, 2>(memory.data(), {4, 3}), View<float, 2>(memory.data() + 1, {4, 3})),
        (door + ": out: must not overlap x").c_str(), heed::ShapeError);
  });
  for (const float value : out.span()) CHECK(value == 7);
  CHECK(std::string(ops::check_activation<float, 2>("silu", x, View<float, 2>(out.data(), {3, 3})).text()) ==
        "heed: silu: out: expected [4, 3] (axis 0, features), got [3, 3]");
  CHECK_FALSE(ops::check_activation<float, 2>("silu", x, out));
}
