// ops::attention on EigenMap against the formula in double.
#include "eigen/checked_eigen.hpp"

#include <doctest/doctest.h>

#include "heed/backend/eigen_map.hpp"
#include "heed/ops/attention.hpp"
#include "ops/random_attention.hpp"
#include "support/strided.hpp"

using heed::bfloat16;
using heed::float16;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::max_scaled_error;
using test::random_tensor;

namespace {

const heed::EigenMap eigen;

// Output, log-sum-exp and weights of a random call, in memory with gaps, in a workspace of just the size asked for.
template <class T>
void check_against_formula(std::uint64_t seed, double tolerance) {
  CAPTURE(seed);
  using A = heed::accumulator_t<T>;
  const test::RandomAttention<T> call(seed);
  const auto want = test::attention_formula<T>(call.query, call.key, call.value, call.options);
  const Index batch = call.query.extent(0), queries = call.query.extent(1), heads = call.query.extent(2);
  const Index keys = call.key.extent(1), kv_heads = call.key.extent(2);
  const Index depth = call.key.extent(3), width = call.value.extent(3);
  const test::Strided<T, 4> query(call.query), key(call.key), value(call.value);
  test::Strided<T, 4> out(Tensor<T, 4>({batch, queries, heads, width}));
  test::Strided<T, 4> weights(Tensor<T, 4>({batch, heads, queries, keys}));
  test::Strided<A, 3> lse(Tensor<A, 3>({batch, heads, queries}));
  heed::AttentionOptions<T> options = call.options;
  options.log_sum_exp = lse.view();
  options.weights = weights.view();
  heed::Workspace workspace(
      heed::ops::attention_workspace_size<T>(eigen, {batch, queries, keys, heads, kv_heads, depth, width}));
  CHECK(test::eigen_allocations_in([&] {
          heed::ops::attention(eigen, query.view(), key.view(), value.view(), out.view(), options, workspace);
        }) == 0);
  CHECK(max_scaled_error(out.view(), want.out) <= tolerance);
  CHECK(max_scaled_error(weights.view(), want.weights) <= tolerance);
  CHECK(max_scaled_error(lse.view(), want.log_sum_exp) <= (std::is_same_v<A, double> ? 1e-12 : 5e-6));
  CHECK((out.intact() && weights.intact() && lse.intact()));
}

// Every third key, and a penalty that grows.
struct EveryThird {
  template <class A>
  void operator()(heed::ScoreTile<A>& tile) const noexcept {
    for (Index row = 0; row < tile.rows; ++row) {
      for (Index column = 0; column < tile.columns; ++column) {
        A& score = tile(row, column);
        score = (tile.key + column) % 3 == 0 ? score - static_cast<A>(tile.head) : static_cast<A>(-test::infinity);
      }
    }
  }
  heed::KeyRange keys(Index, Index, Index query) const noexcept { return {query / 2, query + 100}; }
};

}  // namespace

TEST_CASE("EigenMap: 200 random calls of attention in double equal the formula") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) check_against_formula<double>(seed, 1e-12);
}

TEST_CASE("EigenMap: 200 random calls of attention in float equal the formula") {
  for (std::uint64_t seed = 1000; seed < 1200; ++seed) check_against_formula<float>(seed, 5e-6);
}

TEST_CASE("EigenMap: 40 random calls of attention in 16-bit storage equal the formula up to the output's rounding") {
  for (std::uint64_t seed = 2000; seed < 2040; ++seed) {
    check_against_formula<bfloat16>(seed, 5e-6 + test::unit_roundoff<bfloat16>);
    check_against_formula<float16>(seed, 5e-6 + test::unit_roundoff<float16>);
  }
}

TEST_CASE("EigenMap: attention with a score modifier that selects keys") {
  const auto query = random_tensor<double>({1, 40, 2, 20}, 1);
  const auto key = random_tensor<double>({1, 600, 1, 20}, 2);
  const auto value = random_tensor<double>({1, 600, 1, 20}, 3);
  const heed::AttentionOptions<double> options;
  const auto want = test::attention_formula<double>(
      query, key, value, options, [](double score, Index, Index head, Index position, Index s) {
        const bool kept = s % 3 == 0 && s >= position / 2 && s < position + 100;
        return kept ? score - static_cast<double>(head) : -test::infinity;
      });
  CHECK(max_scaled_error(heed::ops::attention(eigen, query, key, value, options, EveryThird{}), want.out) < 1e-13);
}

TEST_CASE("EigenMap: attention_varlen equals one attention for each sequence") {
  const auto query = random_tensor<float>({60, 4, 16}, 1);
  const auto key = random_tensor<float>({330, 2, 16}, 2);
  const auto value = random_tensor<float>({330, 2, 8}, 3);
  Tensor<std::int64_t, 1> queries({4}), keys({4});
  const std::int64_t query_ends[] = {0, 1, 1, 60}, key_ends[] = {0, 300, 310, 330};
  for (Index i = 0; i < 4; ++i) {
    queries(i) = query_ends[i];
    keys(i) = key_ends[i];
  }
  Tensor<float, 3> out({60, 4, 8});
  const heed::AttentionOptions<float> options{.causal = heed::Causal::bottom_right};
  heed::ops::attention_varlen(eigen, query, key, value, queries, keys, out, {}, options);
  for (const Index i : {0, 2}) {
    const auto part = [&](const Tensor<float, 3>& tensor, const std::int64_t* ends) {
      const View<const float, 3> rows = tensor.view().slice(0, ends[i], ends[i + 1] - ends[i]);
      return Tensor<float, 4>(test::repeated(1, rows));
    };
    const auto want =
        test::attention_formula<float>(part(query, query_ends), part(key, key_ends), part(value, key_ends), options);
    CHECK(max_scaled_error(part(out, query_ends), want.out) < 5e-6);
  }
}
