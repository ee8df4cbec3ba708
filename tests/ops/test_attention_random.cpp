// ops::attention against the formula in double, over random sizes and options.
#include <doctest/doctest.h>

#include "ops/attention_calls.hpp"
#include "ops/random_attention.hpp"
#include "support/strided.hpp"

namespace {

using heed::Index;
using heed::Tensor;
using test::AnyBackend;

// Output, log-sum-exp and weights of every backend, each into memory of its own kind, with a workspace that is not a
// byte too large.
template <class T>
void check_against_formula(std::uint64_t seed, double tolerance) {
  CAPTURE(seed);
  using A = heed::accumulator_t<T>;
  test::RandomAttention<T> call(seed);
  const auto want = test::attention_formula<T>(call.query, call.key, call.value, call.options);
  const Index batch = call.query.extent(0), queries = call.query.extent(1), heads = call.query.extent(2);
  const test::Strided<T, 4> query(call.query), key(call.key), value(call.value);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    test::Strided<T, 4> out(Tensor<T, 4>({batch, queries, heads, call.value.extent(3)}));
    test::Strided<T, 4> weights(Tensor<T, 4>({batch, heads, queries, call.key.extent(1)}));
    test::Strided<A, 3> lse(Tensor<A, 3>({batch, heads, queries}));
    heed::AttentionOptions<T> options = call.options;
    options.log_sum_exp = lse.view();
    options.weights = weights.view();
    test::attention(backend, query.view(), key.view(), value.view(), out.view(), options);
    CHECK(test::max_scaled_error(out.view(), want.out) <= tolerance);
    CHECK(test::max_scaled_error(weights.view(), want.weights) <= tolerance);
    CHECK(test::max_scaled_error(lse.view(), want.log_sum_exp) <= (std::is_same_v<A, double> ? 1e-12 : 5e-6));
    CHECK((out.intact() && weights.intact() && lse.intact()));
  });
}

}  // namespace

TEST_CASE("attention: 200 random calls in double equal the formula") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) check_against_formula<double>(seed, 1e-12);
}

TEST_CASE("attention: 200 random calls in float equal the formula") {
  for (std::uint64_t seed = 1000; seed < 1200; ++seed) check_against_formula<float>(seed, 5e-6);
}

TEST_CASE("attention: 40 random calls in 16-bit storage equal the formula up to the rounding of the output") {
  for (std::uint64_t seed = 2000; seed < 2040; ++seed) {
    check_against_formula<heed::bfloat16>(seed, 5e-6 + test::unit_roundoff<heed::bfloat16>);
    check_against_formula<heed::float16>(seed, 5e-6 + test::unit_roundoff<heed::float16>);
  }
}
