// ops::attention against the formula in double, over random sizes and options.
#include <doctest/doctest.h>

#include <cstring>

#include "attention_calls.hpp"
#include "attention_formula.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

namespace {

using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;

// One call: random sizes around those of vectors, register tiles and key tiles, and random options.
template <class T>
struct RandomCall {
  using A = heed::accumulator_t<T>;

  Tensor<T, 4> query, key, value;
  Tensor<bool, 4> mask;
  Tensor<A, 4> bias;
  Tensor<A, 1> slopes, sinks;
  Tensor<std::int64_t, 1> lengths, offsets;
  heed::AttentionOptions<T> options;

  explicit RandomCall(std::uint64_t seed) {
    test::Random random(seed);
    const auto pick = [&](auto... choices) {
      const Index list[] = {choices...};
      return list[random.below(static_cast<Index>(sizeof...(choices)))];
    };
    const auto sometimes = [&](Index one_in) { return random.below(one_in) == 0; };
    Index batch, kv_heads, group, queries, keys, depth, width;
    do {
      batch = pick(1, 1, 2, 3);
      kv_heads = pick(1, 1, 2, 3);
      group = pick(1, 1, 2, 3, 4, 7);
      depth = pick(1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 64, 80, 100, 128, 256);
      width = sometimes(2) ? depth : pick(1, 2, 5, 8, 15, 16, 17, 32, 33, 64, 65, 192);
      queries = pick(0, 1, 1, 2, 3, 5, 7, 16, 29, 55, 56, 57, 64, 113, 230);
      keys = pick(0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 65, 100, 255, 256, 257, 300, 511, 512, 513, 700);
    } while (batch * kv_heads * group * queries * keys * (depth + width) > 1500000);
    const Index heads = kv_heads * group;

    query = test::random_tensor<T>({batch, queries, heads, depth}, seed + 1, -2, 2);
    key = test::random_tensor<T>({batch, keys, kv_heads, depth}, seed + 2, -2, 2);
    value = test::random_tensor<T>({batch, keys, kv_heads, width}, seed + 3);

    if (sometimes(3)) options.scale = static_cast<A>(pick(-1, 0, 1, 2)) / 4;
    if (sometimes(4)) options.softcap = static_cast<A>(pick(1, 5, 50));
    options.causal = static_cast<heed::Causal>(random.below(3));
    if (sometimes(3)) options.window = {pick(-1, 0, 1, 5, 100, 300), pick(-1, 0, 1, 5, 300)};
    if (sometimes(3)) {
      mask = Tensor<bool, 4>({pick(1, batch), pick(1, heads), pick(1, queries), pick(1, keys, keys, keys)});
      for (bool& attend : mask.span()) attend = !sometimes(3);
      options.mask = mask;
    }
    if (sometimes(3)) {
      bias = Tensor<A, 4>({pick(1, batch), pick(1, heads), pick(1, queries), pick(1, keys, keys, keys)});
      for (A& element : bias.span()) element = static_cast<A>(sometimes(5) ? -test::infinity : random.uniform(-3, 3));
      options.bias = bias;
    }
    if (sometimes(4)) {
      slopes = test::random_tensor<A>({heads}, seed + 4, 0, 0.05);  // no weight underflows: 0 · inf is NaN
      options.alibi_slopes = slopes;
    }
    if (sometimes(4)) {
      sinks = test::random_tensor<A>({heads}, seed + 5, -3, 3);
      if (sometimes(3)) sinks(0) = static_cast<A>(-test::infinity);
      options.sinks = sinks;
    }
    if (sometimes(3)) {
      lengths = test::random_ids({batch}, seed + 6, keys + 1);
      options.key_lengths = lengths;
    }
    if (sometimes(4)) {
      offsets = test::random_ids({batch}, seed + 7, keys + 20);
      for (std::int64_t& offset : offsets.span()) offset -= 10;
      options.query_offsets = offsets;
    }
    if (sometimes(4)) {
      options.dropout = A(0.25);
      options.dropout_seed = random.bits();
    }
    // Keys that nobody attends are NaN, and now and then a value is not finite that somebody may attend.
    poison_unattended();
    if (sometimes(3) && !value.empty()) {
      for (int i = 0; i < 3; ++i) {
        const double poison = sometimes(2) ? test::nan_value : sometimes(2) ? test::infinity : -test::infinity;
        value.data()[random.below(value.size())] = test::from_double<T>(poison);
      }
    }
    if (sometimes(8) && !key.empty()) key.data()[random.below(key.size())] = test::from_double<T>(test::nan_value);
  }

  void poison_unattended() {
    const Index queries = query.extent(1), heads = query.extent(2), keys = key.extent(1), kv_heads = key.extent(2);
    for (Index b = 0; b < query.extent(0); ++b) {
      for (Index s = 0; s < keys; ++s) {
        for (Index k = 0; k < kv_heads; ++k) {
          bool attended = false;
          for (Index h = k * (heads / kv_heads); h < (k + 1) * (heads / kv_heads); ++h) {
            for (Index t = 0; t < queries; ++t)
              attended = attended || test::may_attend(options, b, h, t, s, queries, keys);
          }
          if (attended) continue;
          for (Index d = 0; d < key.extent(3); ++d) key(b, s, k, d) = test::from_double<T>(test::nan_value);
          for (Index d = 0; d < value.extent(3); ++d) value(b, s, k, d) = test::from_double<T>(test::nan_value);
        }
      }
    }
  }
};

// Output, log-sum-exp and weights of every backend, each into memory of its own kind, with a workspace that is not a
// byte too large.
template <class T>
void check_against_formula(std::uint64_t seed, double tolerance) {
  CAPTURE(seed);
  using A = heed::accumulator_t<T>;
  RandomCall<T> call(seed);
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
