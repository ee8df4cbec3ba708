// Score modifiers, packed sequences, and the functions of scores that Simd has vectors for.
#include <doctest/doctest.h>

#include <cmath>

#include "attention_calls.hpp"
#include "attention_formula.hpp"
#include "support/random.hpp"

namespace {

using heed::AttentionOptions;
using heed::Causal;
using heed::Index;
using heed::KeyRange;
using heed::Position;
using heed::ScoreTile;
using heed::Tensor;
using heed::View;
using test::AnyBackend;

struct Inputs {
  Tensor<double, 4> query = test::random_tensor<double>({2, 67, 4, 8}, 1);
  Tensor<double, 4> key = test::random_tensor<double>({2, 301, 2, 8}, 2);
  Tensor<double, 4> value = test::random_tensor<double>({2, 301, 2, 5}, 3);
};

// Depends on everything a modifier is told.
double change(double score, Index batch, Index head, Index query, Index key) {
  return score * (1 + 0.1 * static_cast<double>(batch)) + 0.01 * static_cast<double>(head) +
         0.3 * std::sin(static_cast<double>(query) * 0.7) * std::cos(static_cast<double>(key) * 1.3);
}

// Keys in blocks of 16 that begin with the query's own block of 64; a modifier without a template.
struct BlockSparse {
  void operator()(ScoreTile<double>& tile) const noexcept {
    for (Index row = 0; row < tile.rows; ++row) {
      for (Index column = 0; column < tile.columns; ++column) {
        if ((tile.key + column) % 32 >= 16) tile(row, column) = -test::infinity;
      }
    }
  }
  KeyRange keys(Index, Index head, Index query) const noexcept {
    return {query / 64 * 64 + 16 * head, query / 64 * 64 + 64 + 100 * head};
  }
};

}  // namespace

TEST_CASE("per_score: a function of one score sees batch, head and positions, on every backend") {
  const Inputs in;
  const auto modifier =
      heed::per_score([](double score, Position p) { return change(score, p.batch, p.head, p.query, p.key); });
  for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
    const AttentionOptions<double> options{.softcap = 2, .causal = causal, .window = {200, -1}};
    const auto want = test::attention_formula<double>(in.query, in.key, in.value, options, change);
    test::for_each_any_backend([&](const AnyBackend& backend) {
      const auto out = test::attention(backend, in.query, in.key, in.value, options, modifier);
      CHECK(test::max_error(out, want.out) < 1e-13);
    });
  }
}

TEST_CASE("a modifier's bits do not depend on the cut of the call") {
  const Inputs in;
  const auto modifier =
      heed::per_score([](double score, Position p) { return change(score, 0, p.head, p.query, p.key); });
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    const auto whole = test::attention(backend, in.query, in.key, in.value, {.causal = Causal::bottom_right}, modifier);
    for (Index t = 0; t < 67; t += 11) {
      Tensor<std::int64_t, 1> offset({2});
      offset.fill(301 - 67 + t);
      const auto row = test::attention(backend, in.query.view().slice(1, t, 1), in.key, in.value,
                                       {.causal = Causal::bottom_right, .query_offsets = offset}, modifier);
      CHECK(test::same_bits(row, whole.view().slice(1, t, 1)));
    }
  });
}

TEST_CASE("a modifier masks by -inf, and selects keys: the formula with the same mask") {
  const Inputs in;
  const BlockSparse modifier;
  Tensor<bool, 3> mask({4, 67, 301});
  for (Index h = 0; h < 4; ++h) {
    for (Index t = 0; t < 67; ++t) {
      const KeyRange keys = modifier.keys(0, h, t);
      for (Index s = 0; s < 301; ++s) mask(h, t, s) = s >= keys.begin && s < keys.end && s % 32 < 16;
    }
  }
  const auto want = test::attention_formula<double>(in.query, in.key, in.value, {.mask = mask});
  test::for_each_any_backend([&](const AnyBackend& backend) {
    const auto out = test::attention(backend, in.query, in.key, in.value, {}, modifier);
    CHECK(test::max_error(out, want.out) < 1e-13);
    CHECK(test::same_bits(out, test::attention(backend, in.query, in.key, in.value, {.mask = mask})));
  });
}

TEST_CASE("keys() may promise more than there is, or nothing") {
  struct Keys {
    KeyRange range;
    void operator()(ScoreTile<double>&) const noexcept {}
    KeyRange keys(Index, Index, Index) const noexcept { return range; }
  };
  const Inputs in;
  test::for_each_any_backend([&](const AnyBackend& backend) {
    const auto all = test::attention(backend, in.query, in.key, in.value);
    CHECK(test::same_bits(test::attention(backend, in.query, in.key, in.value, {}, Keys{{-1000, 100000}}), all));
    const auto none = test::attention(backend, in.query, in.key, in.value, {}, Keys{{500, 100}});
    for (const double x : none.span()) CHECK(x == 0);
    const auto beyond = test::attention(backend, in.query, in.key, in.value, {}, Keys{{301, 400}});
    for (const double x : beyond.span()) CHECK(x == 0);
  });
}

TEST_CASE_TEMPLATE("packed sequences equal one call for each, bit for bit", T, float, double, heed::bfloat16) {
  using A = heed::accumulator_t<T>;
  const Index lengths_q[] = {3, 0, 70, 1, 5, 0};
  const Index lengths_k[] = {3, 4, 280, 257, 0, 0};
  constexpr Index count = 6;
  Tensor<std::int64_t, 1> cu_q({count + 1}), cu_k({count + 1}), offsets({count});
  for (Index i = 0; i < count; ++i) {
    cu_q(i + 1) = cu_q(i) + lengths_q[i];
    cu_k(i + 1) = cu_k(i) + lengths_k[i];
    offsets(i) = 3 * i;
  }
  const auto query = test::random_tensor<T>({cu_q(count), 4, 16}, 1);
  const auto key = test::random_tensor<T>({cu_k(count), 2, 16}, 2);
  const auto value = test::random_tensor<T>({cu_k(count), 2, 9}, 3);
  const auto sinks = test::random_tensor<A>({4}, 4);
  const auto one = [](const View<const T, 3>& packed, std::int64_t begin, Index length) {
    const Index extents[] = {1, length, packed.extent(1), packed.extent(2)};
    const Index strides[] = {0, packed.stride(0), packed.stride(1), 1};
    return View<const T, 4>(packed.data_handle() + begin * packed.stride(0), extents, strides);
  };
  const AttentionOptions<T> all[] = {{},
                                     {.causal = Causal::bottom_right},
                                     {.softcap = 4, .causal = Causal::top_left, .window = {20, -1}, .sinks = sinks},
                                     {.causal = Causal::top_left, .query_offsets = offsets}};
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for (const auto& options : all) {
      Tensor<T, 3> out({query.extent(0), 4, 9});
      Tensor<A, 2> lse({4, query.extent(0)});
      test::attention_varlen(backend, query, key, value, cu_q, cu_k, out, lse, options);
      for (Index i = 0; i < count; ++i) {
        AttentionOptions<T> alone = options;
        if (options.query_offsets.present()) alone.query_offsets = options.query_offsets.slice(0, i, 1);
        Tensor<A, 3> lse_alone({1, 4, lengths_q[i]});
        alone.log_sum_exp = lse_alone;
        const auto want = test::attention(backend, one(query, cu_q(i), lengths_q[i]), one(key, cu_k(i), lengths_k[i]),
                                          one(value, cu_k(i), lengths_k[i]), alone);
        if (lengths_q[i] == 0) continue;
        CHECK(test::same_bits(out.view().slice(0, cu_q(i), lengths_q[i]), want.view()[0]));
        CHECK(test::same_bits(lse.view().slice(1, cu_q(i), lengths_q[i]), lse_alone.view()[0]));
      }
    }
  });
}

TEST_CASE("packed sequences: dropout and modifiers count the sequences as the batch") {
  Tensor<std::int64_t, 1> cu({3});
  cu(1) = 40;
  cu(2) = 80;
  const auto query = test::random_tensor<double>({80, 2, 8}, 1);
  const View<const double, 4> padded(query.data(), {2, 40, 2, 8});
  const AttentionOptions<double> options{.dropout = 0.3, .dropout_seed = 9};
  const auto want = test::attention_formula<double>(padded, padded, padded, options, change);
  const auto modifier =
      heed::per_score([](double score, Position p) { return change(score, p.batch, p.head, p.query, p.key); });
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Tensor<double, 3> out({80, 2, 8});
    test::attention_varlen(backend, query, query, query, cu, cu, out, {}, options, modifier);
    CHECK(test::max_error(View<const double, 4>(out.data(), {2, 40, 2, 8}), want.out) < 1e-13);
  });
}

TEST_CASE("packed sequences: none at all, and none with a token") {
  Tensor<std::int64_t, 1> no_sequence({1}), empty_sequences({4});
  const Tensor<float, 3> none({0, 2, 8});
  Tensor<float, 3> out({0, 2, 8});
  test::for_each_any_backend([&](const AnyBackend& backend) {
    test::attention_varlen(backend, none, none, none, no_sequence, no_sequence, out);
    test::attention_varlen(backend, none, none, none, empty_sequences, empty_sequences, out);
  });
}

TEST_CASE_TEMPLATE("tanh on vectors: within 4 units in the last place, exact at the ends, alike in every lane", A,
                   float, double) {
  constexpr Index w = heed::simd::width<A>;
  const auto tanh_of = [](A x) {
    A lanes[w];
    heed::simd::store(lanes, heed::simd::tanh(heed::simd::broadcast<A>(x)));
    for (Index i = 1; i < w; ++i) CHECK(test::same_bits_of(lanes[i], lanes[0]));
    return lanes[0];
  };
  double worst = 0;
  const double ulp = 2 * test::unit_roundoff<A>;
  test::Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const double magnitude = std::exp2(random.uniform(-30, 6));
    const A x = static_cast<A>(random.below(2) == 0 ? magnitude : -magnitude);
    const long double want = std::tanh(static_cast<long double>(x));
    const long double error = std::fabs((static_cast<long double>(tanh_of(x)) - want) / want);
    worst = (std::max)(worst, static_cast<double>(error) / ulp);
  }
  CHECK(worst < 4);
  CHECK(worst > 0.1);
  CHECK(tanh_of(A(0)) == 0);
  CHECK(tanh_of(static_cast<A>(test::infinity)) == 1);
  CHECK(tanh_of(static_cast<A>(-test::infinity)) == -1);
  CHECK(tanh_of(A(1000)) == 1);
  CHECK(std::isnan(tanh_of(static_cast<A>(test::nan_value))));
}

TEST_CASE("softcap: small scores pass nearly unchanged, large ones end at the cap") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<double, 4> query({1, 1, 1, 1}), key({1, 1, 1, 1}), value({1, 1, 1, 1});
    query(0, 0, 0, 0) = 1;
    Tensor<double, 3> lse({1, 1, 1});  // of one key: its score
    for (const double score : {1e-9, 0.3, -4.0, 40.0, -1e6, 1e300}) {
      key(0, 0, 0, 0) = score;
      test::attention(backend, query, key, value, {.scale = 1, .softcap = 30, .log_sum_exp = lse});
      CHECK(lse(0, 0, 0) == doctest::Approx(30 * std::tanh(score / 30)).epsilon(1e-14));
    }
  });
}
