// ops::attention: values worked out by hand, and the faults that attention libraries have shipped.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "attention_calls.hpp"
#include "attention_formula.hpp"
#include "heed/ops/alibi.hpp"
#include "support/random.hpp"

namespace {

using heed::AttentionOptions;
using heed::Causal;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;

constexpr double infinity = test::infinity;

// Equal scores everywhere: one row, one head, q = k = 0, the values given as numbers (value head dim 1).
template <class T>
struct EqualScores {
  using A = heed::accumulator_t<T>;
  Tensor<T, 4> query, key, value, out;
  Tensor<A, 3> lse;

  EqualScores(Index queries, std::initializer_list<double> values)
      : query({Index{1}, queries, Index{1}, Index{4}}),
        key({Index{1}, static_cast<Index>(values.size()), Index{1}, Index{4}}),
        value({Index{1}, static_cast<Index>(values.size()), Index{1}, Index{1}}),
        out({Index{1}, queries, Index{1}, Index{1}}),
        lse({Index{1}, Index{1}, queries}) {
    Index s = 0;
    for (const double v : values) value(0, s++, 0, 0) = test::from_double<T>(v);
  }

  HEED_NOINLINE void run(AnyBackend backend, AttentionOptions<T> options) {
    out.fill(test::from_double<T>(-77));
    options.log_sum_exp = lse;
    test::attention(backend, query, key, value, out, options);
  }
  double result(Index t) const { return test::to_double(out(0, t, 0, 0)); }
};

Tensor<bool, 1> mask_of(std::initializer_list<bool> elements) {
  Tensor<bool, 1> mask({static_cast<Index>(elements.size())});
  Index s = 0;
  for (const bool element : elements) mask(s++) = element;
  return mask;
}

template <class A = float>
Tensor<A, 1> list_of(std::initializer_list<double> elements) {
  Tensor<A, 1> list({static_cast<Index>(elements.size())});
  Index i = 0;
  for (const double element : elements) list(i++) = static_cast<A>(element);
  return list;
}

Tensor<std::int64_t, 1> ints_of(std::initializer_list<std::int64_t> elements) {
  Tensor<std::int64_t, 1> list({static_cast<Index>(elements.size())});
  Index i = 0;
  for (const std::int64_t element : elements) list(i++) = element;
  return list;
}

}  // namespace

TEST_CASE_TEMPLATE("case 1: a query whose mask is [F, F] gives 0, not NaN and not the mean", T, float, double,
                   heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<T> call(1, {1, 3});
    const auto mask = mask_of({false, false});
    call.run(backend, {.mask = mask});
    CHECK(call.result(0) == 0);
    CHECK(call.lse(0, 0, 0) == -infinity);

    using A = heed::accumulator_t<T>;
    const auto sink = list_of<A>({-2.5});
    call.run(backend, {.mask = mask, .sinks = sink});
    CHECK(call.result(0) == 0);
    CHECK(call.lse(0, 0, 0) == A(-2.5));

    const auto lengths = ints_of({0});
    call.run(backend, {.key_lengths = lengths});
    CHECK(call.result(0) == 0);
    CHECK(call.lse(0, 0, 0) == -infinity);
  });
}

TEST_CASE("a call without keys gives 0 and log-sum-exp -inf, or the sink's logit") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(2, {});
    call.run(backend, {});
    CHECK(call.result(1) == 0);
    CHECK(call.lse(0, 0, 1) == -infinity);
    const auto sink = list_of({3});
    call.run(backend, {.sinks = sink});
    CHECK(call.result(1) == 0);
    CHECK(call.lse(0, 0, 1) == 3);
  });
}

TEST_CASE("case 2: additive -inf masks; a finite filler is a number like any other") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(1, {1, 3});
    for (const double filler : {-1e4, -1e30, static_cast<double>(std::numeric_limits<float>::lowest())}) {
      const auto bias = list_of({filler, filler});
      call.run(backend, {.bias = bias});
      CHECK(call.result(0) == 2);
    }
    const auto lowest = static_cast<double>(std::numeric_limits<float>::lowest());
    const auto one = list_of({lowest, 0});
    call.run(backend, {.bias = one});
    CHECK(call.result(0) == 3);
    const auto all = list_of({-infinity, -infinity});
    call.run(backend, {.bias = all});
    CHECK(call.result(0) == 0);
    const auto second = list_of({0, -infinity});
    call.run(backend, {.bias = second});
    CHECK(call.result(0) == 1);
  });
}

TEST_CASE_TEMPLATE("case 3: a masked key never matters, even if its key or value is NaN or infinite", T, float, double,
                   heed::bfloat16, heed::float16) {
  using A = heed::accumulator_t<T>;
  const auto mask = mask_of({true, false});
  const auto bias = list_of<A>({0, -infinity});
  const auto lengths = ints_of({1});
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for (const double poison : {test::nan_value, infinity, -infinity}) {
      EqualScores<T> call(1, {5, poison});
      call.key(0, 1, 0, 2) = test::from_double<T>(poison);
      const AttentionOptions<T> ways[] = {
          {.mask = mask}, {.bias = bias}, {.key_lengths = lengths}, {.causal = Causal::top_left}, {.window = {-1, 0}}};
      for (const auto& options : ways) {
        call.run(backend, options);
        CHECK(call.result(0) == 5);
        CHECK(call.lse(0, 0, 0) == 0);
      }
    }
  });
}

TEST_CASE("NaN that is attended is in the result of every row that attends it, and of no other") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(3, {1, test::nan_value, 4});
    call.run(backend, {.causal = Causal::top_left});
    CHECK(call.result(0) == 1);
    CHECK(std::isnan(call.result(1)));
    CHECK(std::isnan(call.result(2)));
    CHECK(call.lse(0, 0, 1) == doctest::Approx(std::log(2)));

    EqualScores<float> by_key(3, {1, 2, 4});
    by_key.key(0, 1, 0, 3) = static_cast<float>(test::nan_value);
    by_key.run(backend, {.causal = Causal::top_left});
    CHECK(by_key.result(0) == 1);
    CHECK(std::isnan(by_key.result(1)));
    CHECK(std::isnan(by_key.result(2)));
    CHECK(std::isnan(by_key.lse(0, 0, 2)));

    EqualScores<float> only(1, {test::nan_value});
    only.key(0, 0, 0, 0) = static_cast<float>(test::nan_value);
    for (std::uint64_t seed = 0; seed < 8; ++seed) {  // dropped or not
      only.run(backend, {.dropout = 0.5F, .dropout_seed = seed});
      CHECK(std::isnan(only.result(0)));
    }
  });
}

TEST_CASE("NaN in an early tile of keys is not lost in later ones, whatever the order") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index where : {Index{0}, Index{255}, Index{256}, Index{599}}) {
      Tensor<float, 4> query = test::random_tensor<float>({1, 1, 1, 8}, 1);
      Tensor<float, 4> key = test::random_tensor<float>({1, 600, 1, 8}, 2);
      const Tensor<float, 4> value = test::random_tensor<float>({1, 600, 1, 3}, 3);
      key(0, where, 0, 7) = static_cast<float>(test::nan_value);
      const auto out = test::attention(backend, query, key, value);
      for (const float x : out.span()) CHECK(std::isnan(x));
    }
  });
}

TEST_CASE("a score of +inf gives NaN, one of -inf is a masked key") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(1, {1, 3});
    call.query(0, 0, 0, 0) = 1;
    call.key(0, 1, 0, 0) = static_cast<float>(infinity);
    call.run(backend, {});
    CHECK(std::isnan(call.result(0)));
    call.key(0, 1, 0, 0) = static_cast<float>(-infinity);
    call.run(backend, {});
    CHECK(call.result(0) == 1);
  });
}

TEST_CASE("case 5: softcap comes before the mask") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(1, {0, 1000});
    const auto bias = list_of({0, -infinity});
    call.run(backend, {.softcap = 0.5F, .bias = bias});
    CHECK(call.result(0) == 0);
  });
}

TEST_CASE_TEMPLATE("case 6: causal holds whether weights are returned or not, with the same bits", T, float, double,
                   heed::bfloat16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<T> call(3, {1, 2, 3});
    call.run(backend, {.causal = Causal::top_left});
    const double means[] = {1, 1.5, 2};
    for (Index t = 0; t < 3; ++t) CHECK(call.result(t) == means[t]);

    Tensor<T, 4> weights({1, 1, 3, 3});
    weights.fill(test::from_double<T>(-1));
    call.run(backend, {.causal = Causal::top_left, .weights = weights});
    for (Index t = 0; t < 3; ++t) {
      CHECK(call.result(t) == means[t]);
      for (Index s = 0; s < 3; ++s) {
        const T want = test::from_double<T>(s <= t ? 1.0 / static_cast<double>(t + 1) : 0);
        CHECK(test::to_double(weights(0, 0, t, s)) == doctest::Approx(test::to_double(want)).epsilon(1e-7));
      }
    }
  });
}

TEST_CASE("case 8: a mask [B, 1, 1, S] with B = K masks its own batch row only") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const Tensor<float, 4> query({2, 1, 2, 4}), key({2, 2, 2, 4});
    Tensor<float, 4> value({2, 2, 2, 1});
    for (Index b = 0; b < 2; ++b) {
      for (Index k = 0; k < 2; ++k) {
        value(b, 0, k, 0) = 1;
        value(b, 1, k, 0) = 3;
      }
    }
    Tensor<bool, 4> mask({2, 1, 1, 2});
    mask.fill(true);
    mask(0, 0, 0, 1) = false;
    const auto out = test::attention(backend, query, key, value, {.mask = mask});
    for (Index h = 0; h < 2; ++h) {
      CHECK(out(0, 0, h, 0) == 1);
      CHECK(out(1, 0, h, 0) == 2);
    }
  });
}

TEST_CASE_TEMPLATE("case 9: one query over eight keys: top_left 1, bottom_right 4.5", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<T> call(1, {1, 2, 3, 4, 5, 6, 7, 8});
    call.run(backend, {.causal = Causal::top_left});
    CHECK(call.result(0) == 1);
    call.run(backend, {.causal = Causal::bottom_right});
    CHECK(call.result(0) == 4.5);
    const auto offset = ints_of({2});
    call.run(backend, {.causal = Causal::top_left, .query_offsets = offset});
    CHECK(call.result(0) == 2);
    call.run(backend, {.causal = Causal::bottom_right, .query_offsets = offset});
    CHECK(call.result(0) == 2);
    const auto length = ints_of({3});
    call.run(backend, {.causal = Causal::bottom_right, .key_lengths = length});
    CHECK(call.result(0) == 2);
  });
}

TEST_CASE("bottom_right with more queries than keys: the first queries have no key") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(4, {6, 8});
    call.run(backend, {.causal = Causal::bottom_right});
    const double want[] = {0, 0, 6, 7};
    for (Index t = 0; t < 4; ++t) CHECK(call.result(t) == want[t]);
    CHECK(call.lse(0, 0, 1) == -infinity);
    CHECK(call.lse(0, 0, 2) == 0);
  });
}

TEST_CASE("case 10: a window of 2 that includes the query itself") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(4, {1, 2, 3, 4});
    const double causal[] = {1, 1.5, 2.5, 3.5};
    call.run(backend, {.causal = Causal::top_left, .window = {1, 0}});
    for (Index t = 0; t < 4; ++t) CHECK(call.result(t) == causal[t]);
    call.run(backend, {.window = {1, 0}});  // {1, 0} alone says the same
    for (Index t = 0; t < 4; ++t) CHECK(call.result(t) == causal[t]);
    const double both[] = {1.5, 2, 3, 3.5};
    call.run(backend, {.window = {1, 1}});
    for (Index t = 0; t < 4; ++t) CHECK(call.result(t) == both[t]);
    const double ahead[] = {1.5, 2.5, 3.5, 4};
    call.run(backend, {.window = {0, 1}});
    for (Index t = 0; t < 4; ++t) CHECK(call.result(t) == ahead[t]);
    const Index widest = std::numeric_limits<Index>::max();
    call.run(backend, {.window = {widest, widest}});
    for (Index t = 0; t < 4; ++t) CHECK(call.result(t) == 2.5);
  });
}

TEST_CASE("positions far from the keys: offsets of 2^61, before and after them") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(1, {1, 3});
    const auto far = ints_of({std::int64_t{1} << 61});
    const auto before = ints_of({-(std::int64_t{1} << 61)});
    const Index widest = std::numeric_limits<Index>::max();
    call.run(backend, {.causal = Causal::top_left, .query_offsets = far});
    CHECK(call.result(0) == 2);
    call.run(backend, {.window = {5, widest}, .query_offsets = far});
    CHECK(call.result(0) == 0);
    call.run(backend, {.window = {widest, widest}, .query_offsets = far});
    CHECK(call.result(0) == 2);
    call.run(backend, {.window = {widest, 5}, .query_offsets = before});
    CHECK(call.result(0) == 0);
    call.run(backend, {.causal = Causal::top_left, .query_offsets = before});
    CHECK(call.result(0) == 0);
    CHECK(call.lse(0, 0, 0) == -infinity);
  });
}

TEST_CASE("case 16: query heads 0, 1 read kv head 0 and heads 2, 3 read kv head 1") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const Tensor<float, 4> query({1, 1, 4, 8}), key({1, 1, 2, 8});
    Tensor<float, 4> value({1, 1, 2, 1});
    value(0, 0, 0, 0) = 10;
    value(0, 0, 1, 0) = 20;
    const auto out = test::attention(backend, query, key, value);
    const double want[] = {10, 10, 20, 20};
    for (Index h = 0; h < 4; ++h) CHECK(out(0, 0, h, 0) == want[h]);
  });
}

TEST_CASE("case 28: scores are scaled before they could overflow; their range is that of the accumulator") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<heed::float16, 4> query({1, 1, 1, 128}), key({1, 2, 1, 128}), value({1, 2, 1, 1});
    query.fill(heed::float16(30.0F));
    for (Index d = 0; d < 128; ++d) key(0, 0, 0, d) = key(0, 1, 0, d) = heed::float16(30.0F);  // q · k = 115200
    value(0, 0, 0, 0) = heed::float16(1.0F);
    value(0, 1, 0, 0) = heed::float16(3.0F);
    Tensor<float, 3> lse({1, 1, 1});
    const auto out = test::attention(backend, query, key, value, {.log_sum_exp = lse});
    CHECK(test::to_double(out(0, 0, 0, 0)) == 2);
    CHECK(lse(0, 0, 0) == doctest::Approx(115200 / std::sqrt(128.0) + std::log(2)));
  });
}

TEST_CASE("scores beyond the range of exp: the largest one takes all, equal ones share") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(1, {1, 3, 5});
    call.query(0, 0, 0, 0) = 1e6F;
    call.key(0, 0, 0, 0) = call.key(0, 2, 0, 0) = 1e6F;
    call.key(0, 1, 0, 0) = -1e6F;
    call.run(backend, {.scale = 1});
    CHECK(call.result(0) == 3);
    CHECK(call.lse(0, 0, 0) == doctest::Approx(1e12));
    call.run(backend, {.scale = -1});
    CHECK(call.result(0) == 3);  // the middle one
    call.run(backend, {.scale = 0});
    CHECK(call.result(0) == 3);  // the mean
    CHECK(call.lse(0, 0, 0) == doctest::Approx(std::log(3)));
  });
}

TEST_CASE("case 30: index arithmetic in 64 bits") {
  // Batch row 0 lies in the heap and row 1 on the stack, further apart than 2^31 elements; the output lies before both.
  Tensor<float, 1> heap({64});
  alignas(64) float stack[16] = {0, 0, 0, 0, 9, 11};
  heap(32 + 4) = 5;
  heap(32 + 5) = 7;
  const auto distance = reinterpret_cast<const char*>(stack) - reinterpret_cast<const char*>(heap.data() + 32);
  const Index stride = distance / static_cast<Index>(sizeof(float));
  if (stride < (Index{1} << 32)) {
    MESSAGE("not tested: this machine's stack is near its heap");
    return;
  }
  const View<const float, 4> query(heap.data() + 32, {2, 1, 1, 4}, {stride, Index{4}, Index{4}, Index{1}});
  const View<const float, 4> key(heap.data() + 32, {2, 2, 1, 2}, {stride, Index{2}, Index{2}, Index{1}});
  const View<const float, 4> value(heap.data() + 36, {2, 2, 1, 1}, {stride, Index{1}, Index{1}, Index{1}});
  const View<float, 4> out(heap.data(), {2, 1, 1, 1});
  test::for_each_any_backend([&](const AnyBackend& backend) {
    test::attention(backend, query.slice(3, 0, 2), key, value, out);
    CHECK(out(0, 0, 0, 0) == 6);
    CHECK(out(1, 0, 0, 0) == 10);
  });
}

TEST_CASE("case 32: dropout 0 is no dropout; kept weights are scaled; the sum is that of all weights") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> one(1, {1});
    int dropped = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      one.run(backend, {.dropout = 0.2F, .dropout_seed = seed});
      CHECK((one.result(0) == 0 || one.result(0) == doctest::Approx(1.25)));
      CHECK(one.lse(0, 0, 0) == 0);
      dropped += one.result(0) == 0;
    }
    CHECK((dropped > 20 && dropped < 60));  // 40 expected, standard deviation 5.7

    EqualScores<float> many(3, {1, 2, 3, 4, 5});
    many.run(backend, {.dropout = 0, .dropout_seed = 5});
    const auto without = many.out;
    many.run(backend, {});
    CHECK(test::same_bits(without, many.out));
  });
}

TEST_CASE("case 32: what is dropped is a pure function of seed, batch, head and positions") {
  const Tensor<double, 4> query = test::random_tensor<double>({2, 9, 4, 8}, 1);
  const Tensor<double, 4> key = test::random_tensor<double>({2, 300, 2, 8}, 2);
  const Tensor<double, 4> value = test::random_tensor<double>({2, 300, 2, 8}, 3);
  AttentionOptions<double> options{.causal = Causal::bottom_right, .dropout = 0.5, .dropout_seed = 0x123456789abcdefU};
  const auto want = test::attention_formula<double>(query, key, value, options);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<double, 4> weights({2, 4, 9, 300});
    options.weights = weights;
    const auto out = test::attention(backend, query, key, value, options);
    CHECK(test::max_error(out, want.out) < 1e-12);
    CHECK(test::max_error(weights, want.weights) < 1e-12);
    Index zeros = 0;
    for (const double weight : weights.span()) zeros += weight == 0;
    const Index masked = 2 * 4 * (9 * 8 / 2);  // by causal order
    CHECK(static_cast<double>(zeros - masked) / static_cast<double>(weights.size() - masked) ==
          doctest::Approx(0.5).epsilon(0.03));

    // The last query alone, at its position, drops the same keys.
    const auto offsets = ints_of({299, 299});
    AttentionOptions<double> alone = options;
    alone.weights = {};
    alone.query_offsets = offsets;
    const auto last = test::attention(backend, query.view().slice(1, 8, 1), key, value, alone);
    CHECK(test::max_error(last, out.view().slice(1, 8, 1)) < 1e-15);
  });
}

TEST_CASE("case 33: ALiBi slopes") {
  Tensor<double, 1> eight({8});
  heed::ops::alibi_slopes(eight);
  for (Index h = 0; h < 8; ++h) CHECK(eight(h) == std::exp2(-static_cast<double>(h + 1)));
  Tensor<float, 1> six({6});  // those of four heads, then every other one of eight
  heed::ops::alibi_slopes(six);
  const double exponents[] = {-2, -4, -6, -8, -1, -3};
  for (Index h = 0; h < 6; ++h) CHECK(six(h) == static_cast<float>(std::exp2(exponents[h])));
  Tensor<float, 1> one({1});
  heed::ops::alibi_slopes(one.view());
  CHECK(one(0) == 0.00390625F);
  Tensor<float, 1> none({0});
  heed::ops::alibi_slopes(none);
}

TEST_CASE("ALiBi lowers scores by slope times distance, on both sides") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<double> call(1, {1, 10, 100, 1000});
    const auto slope = list_of<double>({std::log(2.0)});  // each step halves the weight
    const auto offset = ints_of({1});
    call.run(backend, {.alibi_slopes = slope, .query_offsets = offset});
    CHECK(call.result(0) == doctest::Approx((0.5 * 1 + 10 + 0.5 * 100 + 0.25 * 1000) / 2.25).epsilon(1e-14));
  });
}

TEST_CASE("case 34: a sink of logit 0 beside one key of logit 0 takes half") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    EqualScores<float> call(1, {3});
    const auto sink = list_of({0});
    Tensor<float, 4> weights({1, 1, 1, 1});
    call.run(backend, {.sinks = sink, .weights = weights});
    CHECK(call.result(0) == 1.5);
    CHECK(weights(0, 0, 0, 0) == 0.5F);
    CHECK(call.lse(0, 0, 0) == doctest::Approx(std::log(2)));
    const auto large = list_of({500});  // and where it outweighs all keys
    call.run(backend, {.sinks = large});
    CHECK(call.result(0) == 0);
    CHECK(call.lse(0, 0, 0) == 500);
    const auto none = list_of({-infinity});
    call.run(backend, {.sinks = none});
    CHECK(call.result(0) == 3);
  });
}

TEST_CASE("a boolean mask of every shape that broadcasts, and an additive one, against the formula") {
  const Tensor<double, 4> query = test::random_tensor<double>({2, 5, 4, 8}, 1);
  const Tensor<double, 4> key = test::random_tensor<double>({2, 37, 2, 8}, 2);
  const Tensor<double, 4> value = test::random_tensor<double>({2, 37, 2, 3}, 3);
  test::Random random(4);
  for (int shape = 0; shape < 16; ++shape) {
    CAPTURE(shape);
    const auto extent = [&](int axis, Index full) { return (shape >> axis & 1) != 0 ? full : Index{1}; };
    Tensor<bool, 4> mask({extent(0, 2), extent(1, 4), extent(2, 5), extent(3, 37)});
    Tensor<double, 4> bias({extent(0, 2), extent(1, 4), extent(2, 5), extent(3, 37)});
    for (bool& element : mask.span()) element = random.below(3) > 0;
    for (double& element : bias.span()) element = random.below(5) > 0 ? random.uniform(-2, 2) : -infinity;
    const AttentionOptions<double> options{.mask = mask, .bias = bias};
    const auto want = test::attention_formula<double>(query, key, value, options);
    test::for_each_any_backend([&](const AnyBackend& backend) {
      CHECK(test::max_error(test::attention(backend, query, key, value, options), want.out) < 1e-13);
    });
  }
  // Fewer axes are aligned from the right.
  const Tensor<bool, 1> keys = mask_of({true, false, true});
  const auto three = test::random_tensor<double>({2, 3, 1, 8}, 5);
  Tensor<bool, 4> full({2, 4, 5, 3});
  test::for_each_element([](bool& element) { element = true; }, full.view().slice(3, 0, 1));
  test::for_each_element([](bool& element) { element = true; }, full.view().slice(3, 2, 1));
  test::for_each_any_backend([&](const AnyBackend& backend) {
    const auto by_rank_1 = test::attention(backend, query, three, three, {.mask = keys});
    const auto by_rank_4 = test::attention(backend, query, three, three, {.mask = full});
    CHECK(test::same_bits(by_rank_1, by_rank_4));
  });
}

TEST_CASE("sizes of 0 are legal on every axis") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto run = [&](Index batch, Index queries, Index keys, Index heads, Index kv_heads, Index depth,
                         Index width) {
      const Tensor<float, 4> query({batch, queries, heads, depth}), key({batch, keys, kv_heads, depth});
      Tensor<float, 4> value({batch, keys, kv_heads, width});
      value.fill(2);
      Tensor<float, 3> lse({batch, heads, queries});
      lse.fill(-5);
      const auto out = test::attention(backend, query, key, value, {.log_sum_exp = lse});
      for (const float x : out.span()) CHECK(x == (keys == 0 ? 0.0F : 2.0F));
      for (const float x : lse.span())
        CHECK(test::difference(static_cast<double>(x), std::log(static_cast<double>(keys))) < 1e-6);
    };
    run(0, 3, 3, 2, 1, 4, 4);
    run(2, 0, 3, 2, 1, 4, 4);
    run(2, 3, 0, 2, 1, 4, 4);
    run(2, 3, 3, 0, 0, 4, 4);
    run(2, 3, 3, 0, 2, 4, 4);
    run(2, 3, 3, 2, 1, 0, 4);
    run(2, 3, 3, 2, 1, 4, 0);
  });
}
