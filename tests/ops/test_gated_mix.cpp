// ops::gated_mix against its formula in double.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "heed/ops/gated_mix.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::EmptyMemory;
using heed::Index;
using heed::Tensor;
using heed::View;
namespace ops = heed::ops;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

template <class T>
Tensor<T, 4> filled(const Index (&extents)[4], double value) {
  Tensor<T, 4> result(extents);
  result.fill(test::from_double<T>(value));
  return result;
}

template <class A>
Tensor<A, 1> list(std::initializer_list<double> values) {
  Tensor<A, 1> result({static_cast<Index>(values.size())});
  Index i = 0;
  for (const double value : values) result(i++) = static_cast<A>(value);
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("gated_mix: g · memory + (1 - g) · local, one gate a head", T, float, double, heed::bfloat16,
                   heed::float16) {
  using A = heed::accumulator_t<T>;
  test::for_each_backend([](const auto& backend) {
    for (const Index heads : {1, 4, 70}) {  // 70: more than the Simd kernel holds gates at a time
      for (const Index dim : {1, 7, 16, 37}) {
        CAPTURE(heads);
        CAPTURE(dim);
        const auto memory = test::random_tensor<T>({2, 5, heads, dim}, 1);
        const auto local = test::random_tensor<T>({2, 5, heads, dim}, 2);
        const auto beta = test::random_tensor<A>({heads}, 3, -6, 6);
        Tensor<T, 4> out({2, 5, heads, dim});
        ops::gated_mix(backend, memory, local, beta, out);
        double worst = 0;
        for (Index b = 0; b < 2; ++b) {
          for (Index t = 0; t < 5; ++t) {
            for (Index h = 0; h < heads; ++h) {
              for (Index j = 0; j < dim; ++j) {
                const double beta_h = test::to_double(beta(h));
                const double from_memory = sigmoid(beta_h) * test::to_double(memory(b, t, h, j));
                const double from_local = sigmoid(-beta_h) * test::to_double(local(b, t, h, j));
                const double want = from_memory + from_local;
                const double allowed = 8 * test::unit_roundoff<A> * (std::fabs(from_memory) + std::fabs(from_local)) +
                                       test::unit_roundoff<T> * std::fabs(want) + 1e-8 * (sizeof(T) == 2);
                const double error = test::difference(test::to_double(out(b, t, h, j)), want);
                worst = std::fmax(worst, error / allowed);
              }
            }
          }
        }
        CHECK(worst <= 1);
      }
    }
  });
}

TEST_CASE("gated_mix: the small side of an almost closed gate keeps its precision") {
  test::for_each_backend([](const auto& backend) {
    Tensor<float, 4> out({1, 1, 2, 1});
    const auto beta = list<float>({30, -30});
    Tensor<float, 4> one({1, 1, 2, 1});
    Tensor<float, 4> other({1, 1, 2, 1});
    other(0, 0, 0, 0) = 1;  // local beside β = 30
    one(0, 0, 1, 0) = 1;    // memory beside β = −30
    ops::gated_mix(backend, one, other, beta, out);
    CHECK(out(0, 0, 0, 0) == doctest::Approx(std::exp(-30.0)).epsilon(1e-6));  // 1 − g in float would be 0
    CHECK(out(0, 0, 1, 0) == doctest::Approx(std::exp(-30.0)).epsilon(1e-6));
  });
}

TEST_CASE_TEMPLATE("gated_mix: g = 0 is local bit for bit, g = 1 memory; the other part may hold NaN", T, float, double,
                   heed::bfloat16) {
  using A = heed::accumulator_t<T>;
  test::for_each_backend([](const auto& backend) {
    auto memory = test::random_tensor<T>({1, 3, 2, 19}, 1);
    auto local = test::random_tensor<T>({1, 3, 2, 19}, 2);
    local(0, 1, 0, 3) = test::from_double<T>(-0.0);
    local(0, 1, 0, 4) = test::from_double<T>(infinity);
    local(0, 1, 0, 5) = test::from_double<T>(std::nan(""));
    Tensor<T, 4> want({1, 3, 2, 19});
    for (Index t = 0; t < 3; ++t) {
      for (Index j = 0; j < 19; ++j) {
        want(0, t, 0, j) = local(0, t, 0, j);
        want(0, t, 1, j) = memory(0, t, 1, j);
        memory(0, t, 0, j) = test::from_double<T>(std::nan(""));
        local(0, t, 1, j) = test::from_double<T>(std::nan(""));
      }
    }
    Tensor<T, 4> out({1, 3, 2, 19});
    ops::gated_mix(backend, memory, local, list<A>({-infinity, infinity}), out);
    CHECK(test::same_bits(out, want));
  });
}

TEST_CASE("gated_mix: an empty memory bypasses the gate, or is mixed in as 0; it is not read") {
  test::for_each_backend([](const auto& backend) {
    auto memory = filled<double>({1, 2, 3, 5}, 7);
    const auto local = filled<double>({1, 2, 3, 5}, 3);
    const auto beta = list<double>({std::log(3.0), -infinity, infinity});  // g = 3/4, 0, 1
    Tensor<double, 3> denominator({1, 2, 3});
    for (Index h = 0; h < 3; ++h) denominator(0, 1, h) = 2;  // token 0 has an empty memory
    for (Index h = 0; h < 3; ++h) {
      for (Index j = 0; j < 5; ++j) memory(0, 0, h, j) = std::nan("");
    }
    Tensor<double, 4> out({1, 2, 3, 5});
    ops::gated_mix(backend, memory, local, beta, out, {.denominator = denominator});
    CHECK(out(0, 0, 0, 4) == 3);
    CHECK(out(0, 0, 1, 4) == 3);
    CHECK(out(0, 0, 2, 4) == 3);
    CHECK(out(0, 1, 0, 4) == doctest::Approx(6).epsilon(1e-15));
    CHECK(out(0, 1, 1, 4) == 3);
    CHECK(out(0, 1, 2, 4) == 7);
    ops::gated_mix(backend, memory, local, beta, out,
                   {.empty_memory = EmptyMemory::apply_gate, .denominator = denominator});
    CHECK(out(0, 0, 0, 4) == doctest::Approx(0.75).epsilon(1e-15));
    CHECK(out(0, 0, 1, 4) == 3);
    CHECK(out(0, 0, 2, 4) == 0);
    CHECK(out(0, 1, 0, 4) == doctest::Approx(6).epsilon(1e-15));
  });
}

TEST_CASE("gated_mix: a NaN denominator or beta is not an empty memory and shows") {
  test::for_each_backend([](const auto& backend) {
    const auto memory = filled<float>({1, 1, 1, 2}, std::nan(""));
    const auto local = filled<float>({1, 1, 1, 2}, 3);
    Tensor<float, 3> denominator({1, 1, 1});
    denominator(0, 0, 0) = std::numeric_limits<float>::quiet_NaN();
    Tensor<float, 4> out({1, 1, 1, 2});
    ops::gated_mix(backend, memory, local, list<float>({0}), out, {.denominator = denominator});
    CHECK(std::isnan(out(0, 0, 0, 1)));
    ops::gated_mix(backend, local, local, list<float>({std::nan("")}), out);
    CHECK(std::isnan(out(0, 0, 0, 1)));
  });
}

TEST_CASE_TEMPLATE("gated_mix: views, in place, threads and batches: the same bits", T, float, double, heed::bfloat16) {
  using A = heed::accumulator_t<T>;
  const auto memory = test::random_tensor<T>({3, 700, 4, 21}, 1);
  const auto local = test::random_tensor<T>({3, 700, 4, 21}, 2);
  const auto beta = test::random_tensor<A>({4}, 3, -2, 2);
  auto denominator = test::random_tensor<A>({3, 700, 4}, 4, 1, 2);
  denominator(1, 5, 2) = 0;
  const heed::GatedMixOptions<T> options{.denominator = denominator};
  Tensor<T, 4> want({3, 700, 4, 21});
  ops::gated_mix(heed::Simd(), memory, local, beta, want, options);
  test::for_each_fast_backend([&](const auto& backend) {
    Tensor<T, 4> out({3, 700, 4, 21});
    ops::gated_mix(backend, memory, local, beta, out, options);
    CHECK(test::same_bits(out, want));
    out = local;
    ops::gated_mix(backend, memory, out, beta, out, options);
    CHECK(test::same_bits(out, want));
    out = memory;
    ops::gated_mix(backend, out, local, beta, out, options);
    CHECK(test::same_bits(out, want));
    test::Strided<T, 4> strided(Tensor<T, 4>({3, 700, 4, 21}));
    ops::gated_mix(backend, test::Strided<T, 4>(memory).view(), test::Strided<T, 4>(local).view(), beta, strided.view(),
                   {.denominator = test::Strided<A, 3>(denominator).view()});
    CHECK(test::same_bits(strided.view(), want));
    CHECK(strided.intact());
    Tensor<T, 4> part({1, 1, 4, 21});
    ops::gated_mix(backend, memory.view().slice(0, 2, 1).slice(1, 699, 1), local.view().slice(0, 2, 1).slice(1, 699, 1),
                   beta, part);
    CHECK(test::same_bits(part, want.view().slice(0, 2, 1).slice(1, 699, 1)));
    Tensor<T, 4> nothing({3, 0, 4, 21});
    ops::gated_mix(backend, nothing, nothing, beta, Tensor<T, 4>({3, 0, 4, 21}));
  });
  test::ReversePool pool;
  ops::gated_mix(heed::Cpu(pool), memory, local, beta, Tensor<T, 4>({3, 700, 4, 21}));
  CHECK(pool.parts_elsewhere() > 0);
}

TEST_CASE("gated_mix: error texts") {
  const Tensor<float, 4> memory({2, 5, 4, 6});
  const Tensor<float, 4> local({2, 5, 4, 6});
  const auto text = [](View<const float, 4> m, View<const float, 4> l, View<const float, 1> beta, View<float, 4> out,
                       View<const float, 3> denominator = {}) {
    return test::error_text<heed::ShapeError>(
        [&] { ops::gated_mix(heed::Cpu(), m, l, beta, out, {.denominator = denominator}); });
  };
  Tensor<float, 4> out({2, 5, 4, 6});
  const auto beta = list<float>({0, 0, 0, 0});
  CHECK(text(memory, local, beta, out) == "(no error)");
  CHECK(text(Tensor<float, 4>({2, 5, 4, 5}), local, beta, out) ==
        "heed: gated_mix: memory: expected [2, 5, 4, 6] (batch, seq, heads, value head dim), got [2, 5, 4, 5]");
  CHECK(text(memory, local, list<float>({0}), out) == "heed: gated_mix: beta: expected [4] (heads), got [1]");
  CHECK(text(memory, local, beta, Tensor<float, 4>({2, 5, 2, 6})) ==
        "heed: gated_mix: out: expected [2, 5, 4, 6] (batch, seq, heads, value head dim), got [2, 5, 2, 6]");
  CHECK(text(memory, local, beta, out, Tensor<float, 3>({2, 4, 5})) ==
        "heed: gated_mix: denominator: expected [2, 5, 4] (batch, seq, heads), got [2, 4, 5]");
  const View<const float, 4> turned(out.data(), {2, 5, 4, 6}, {120, 6, 30, 1});
  CHECK(text(memory, turned, beta, out) == "heed: gated_mix: out: must not overlap local");
  CHECK(text(turned, local, beta, out) == "heed: gated_mix: out: must not overlap memory");
  CHECK(text(memory, local, beta, out, View<const float, 3>(out.data(), {2, 5, 4})) ==
        "heed: gated_mix: out: must not overlap denominator");
}
