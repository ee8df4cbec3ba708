// What the bits of an attention row may not depend on, and what its value may not depend on.
#include <doctest/doctest.h>

#include <limits>

#include "attention_calls.hpp"
#include "attention_formula.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

namespace {

using heed::AttentionOptions;
using heed::Causal;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;

// A call over several tiles of keys and more rows than go together, none of them whole.
template <class T>
struct Call {
  using A = heed::accumulator_t<T>;
  Index batch = 2, queries = 131, keys = 531, heads = 6, kv_heads = 2, depth = 24, width = 40;
  Tensor<T, 4> query = test::random_tensor<T>({batch, queries, heads, depth}, 1, -2, 2);
  Tensor<T, 4> key = test::random_tensor<T>({batch, keys, kv_heads, depth}, 2, -2, 2);
  Tensor<T, 4> value = test::random_tensor<T>({batch, keys, kv_heads, width}, 3);
  Tensor<A, 1> slopes = test::random_tensor<A>({heads}, 4, 0, 0.01);
  Tensor<A, 1> sinks = test::random_tensor<A>({heads}, 5);
};

template <class T>
struct Result {
  Tensor<T, 4> out;
  Tensor<heed::accumulator_t<T>, 3> lse;

  // Query t of batch row b.
  bool row_equals(Index b, Index t, const Result& other, Index other_b, Index other_t) const {
    const auto row = [](const Result& result, Index i, Index j) { return result.out.view()[i][j]; };
    const auto sums = [](const Result& result, Index i, Index j) { return result.lse.view()[i].slice(1, j, 1); };
    return test::same_bits(row(*this, b, t), row(other, other_b, other_t)) &&
           test::same_bits(sums(*this, b, t), sums(other, other_b, other_t));
  }
  bool equals(const Result& other) const { return test::same_bits(out, other.out) && test::same_bits(lse, other.lse); }
};

template <class T>
HEED_NOINLINE Result<T> run(AnyBackend backend, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                            AttentionOptions<T> options) {
  Result<T> result{Tensor<T, 4>({query.extent(0), query.extent(1), query.extent(2), value.extent(3)}),
                   Tensor<heed::accumulator_t<T>, 3>({query.extent(0), query.extent(2), query.extent(1)})};
  options.log_sum_exp = result.lse;
  test::attention(backend, query, key, value, result.out, options);
  return result;
}

template <class T>
Tensor<std::int64_t, 1> repeated_int(Index count, std::int64_t value) {
  Tensor<std::int64_t, 1> list({count});
  list.fill(value);
  return list;
}

// The options that bits are tested under; T's accumulator views must outlive them.
template <class T, class F>
void for_each_option(const Call<T>& call, F&& f) {
  const Causal orders[] = {Causal::none, Causal::top_left, Causal::bottom_right};
  for (const Causal causal : orders) {
    CAPTURE(static_cast<int>(causal));
    f(AttentionOptions<T>{.causal = causal});
  }
  f(AttentionOptions<T>{.softcap = 3,
                        .causal = Causal::bottom_right,
                        .window = {290, 3},
                        .alibi_slopes = call.slopes,
                        .sinks = call.sinks});
}

}  // namespace

TEST_CASE_TEMPLATE("case 31: a row alone, its batch row alone, its kv head alone: the same bits", T, float, double,
                   heed::bfloat16) {
  const Call<T> call;
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    for_each_option<T>(call, [&](const AttentionOptions<T>& options) {
      const auto whole = run<T>(backend, call.query, call.key, call.value, options);
      for (Index b = 0; b < call.batch; ++b) {
        const auto alone = run<T>(backend, call.query.view().slice(0, b, 1), call.key.view().slice(0, b, 1),
                                  call.value.view().slice(0, b, 1), options);
        for (Index t = 0; t < call.queries; ++t) CHECK(alone.row_equals(0, t, whole, b, t));
      }
      // One query, its position given.
      const Index offset = options.causal == Causal::bottom_right ? call.keys - call.queries : 0;
      for (const Index t : {Index{0}, Index{1}, Index{56}, Index{130}}) {
        const auto positions = repeated_int<T>(1, offset + t);
        AttentionOptions<T> at = options;
        at.query_offsets = positions;
        const auto alone = run<T>(backend, call.query.view().slice(0, 1, 1).slice(1, t, 1),
                                  call.key.view().slice(0, 1, 1), call.value.view().slice(0, 1, 1), at);
        CHECK(alone.row_equals(0, 0, whole, 1, t));
      }
      // One kv head with its group.
      const Index group = call.heads / call.kv_heads;
      AttentionOptions<T> second = options;
      if (options.sinks.present()) {
        second.sinks = options.sinks.slice(0, group, group);
        second.alibi_slopes = options.alibi_slopes.slice(0, group, group);
      }
      const auto alone = run<T>(backend, call.query.view().slice(2, group, group), call.key.view().slice(2, 1, 1),
                                call.value.view().slice(2, 1, 1), second);
      CHECK(test::same_bits(alone.out, whole.out.view().slice(2, group, group)));
      CHECK(test::same_bits(alone.lse, whole.lse.view().slice(1, group, group)));
    });
  });
}

TEST_CASE_TEMPLATE("case 31: Simd and Cpu with any number of workers give the same bits", T, float, double) {
  const Call<T> call;
  for_each_option<T>(call, [&](const AttentionOptions<T>& options) {
    const auto want = run<T>(heed::Simd(), call.query, call.key, call.value, options);
    test::for_each_fast_any_backend([&](const AnyBackend& backend) {
      CHECK(run<T>(backend, call.query, call.key, call.value, options).equals(want));
    });
  });
  // One head of one sequence is cut into blocks, too.
  test::ReversePool pool;
  const auto query = call.query.view().slice(0, 0, 1).slice(2, 0, 1);
  const auto key = call.key.view().slice(0, 0, 1).slice(2, 0, 1);
  const auto value = call.value.view().slice(0, 0, 1).slice(2, 0, 1);
  const auto threaded = run<T>(heed::Cpu(pool), query, key, value, {});
  CHECK(pool.parts_elsewhere() > 0);
  CHECK(threaded.equals(run<T>(heed::Simd(), query, key, value, {})));
}

TEST_CASE_TEMPLATE("any cut of the queries into calls, token by token included, gives the same bits", T, float, double,
                   heed::float16) {
  const Call<T> call;
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    const Index past = call.keys - call.queries;
    const auto whole = run<T>(backend, call.query, call.key, call.value, {.causal = Causal::bottom_right});
    // Each call sees only the keys up to its own last query, as with a growing cache.
    test::Random random(7);
    for (int trial = 0; trial < 4; ++trial) {
      for (Index t = 0; t < call.queries;) {
        const Index most = call.queries - t;
        const Index count = trial == 0 ? 1 : 1 + random.below(trial == 1 ? (most < 4 ? most : 4) : most);
        const Index seen = past + t + count;
        const auto part = run<T>(backend, call.query.view().slice(1, t, count), call.key.view().slice(1, 0, seen),
                                 call.value.view().slice(1, 0, seen), {.causal = Causal::bottom_right});
        for (Index i = 0; i < count; ++i) {
          CHECK(part.row_equals(0, i, whole, 0, t + i));
          CHECK(part.row_equals(1, i, whole, 1, t + i));
        }
        t += count;
      }
    }
  });
}

TEST_CASE_TEMPLATE("case 4: a cache of any capacity, with anything beyond its length: the same bits", T, float,
                   double) {
  const Call<T> call;
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    for (const Index capacity : {call.keys + 1, Index{768}, Index{1000}}) {
      Tensor<T, 4> key({call.batch, capacity, call.kv_heads, call.depth});
      Tensor<T, 4> value({call.batch, capacity, call.kv_heads, call.width});
      key.fill(test::from_double<T>(test::nan_value));
      value.fill(test::from_double<T>(test::nan_value));
      test::for_each_element([](T& to, T from) { to = from; }, key.view().slice(1, 0, call.keys), call.key.view());
      test::for_each_element([](T& to, T from) { to = from; }, value.view().slice(1, 0, call.keys), call.value.view());
      const auto lengths = repeated_int<T>(call.batch, call.keys);
      for_each_option<T>(call, [&](AttentionOptions<T> options) {
        const auto whole = run<T>(backend, call.query, call.key, call.value, options);
        options.key_lengths = lengths;
        CHECK(run<T>(backend, call.query, key, value, options).equals(whole));
      });
    }
  });
}

TEST_CASE("case 4: capacity 4 with 2 used and NaN in slots 2 and 3") {
  const auto query = test::random_tensor<float>({1, 1, 1, 4}, 1);
  auto key = test::random_tensor<float>({1, 4, 1, 4}, 2);
  auto value = test::random_tensor<float>({1, 4, 1, 4}, 3);
  for (Index s = 2; s < 4; ++s) {
    for (Index d = 0; d < 4; ++d) key(0, s, 0, d) = value(0, s, 0, d) = std::numeric_limits<float>::quiet_NaN();
  }
  Tensor<std::int64_t, 1> length({1});
  length(0) = 2;
  test::for_each_any_backend([&](const AnyBackend& backend) {
    const auto used = test::attention(backend, query, key.view().slice(1, 0, 2), value.view().slice(1, 0, 2));
    CHECK(test::same_bits(test::attention(backend, query, key, value, {.key_lengths = length}), used));
    CHECK(std::isfinite(used(0, 0, 0, 0)));
  });
}

TEST_CASE_TEMPLATE("case 20: strided views, permuted views and stride-0 keys equal their copies, bit for bit", T, float,
                   double, heed::bfloat16) {
  const Call<T> call;
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    for_each_option<T>(call, [&](const AttentionOptions<T>& options) {
      const auto whole = run<T>(backend, call.query, call.key, call.value, options);
      const test::Strided<T, 4> query(call.query), key(call.key), value(call.value);
      CHECK(run<T>(backend, query.view(), key.view(), value.view(), options).equals(whole));

      // [B, K, S, D], as others store it, and an output of that kind.
      const Tensor<T, 4> transposed(View<const T, 4>(call.key).permute({0, 2, 1, 3}));
      Tensor<T, 4> out({call.batch, call.heads, call.queries, call.width});
      test::attention(backend, call.query, transposed.view().permute({0, 2, 1, 3}), call.value,
                      out.view().permute({0, 2, 1, 3}), options);
      CHECK(test::same_bits(View<const T, 4>(out).permute({0, 2, 1, 3}), whole.out));

      // One sequence of keys for all batch rows, and one kv head's keys for all kv heads.
      const auto shared_key = test::repeated<T, 3>(call.batch, call.key.view()[1]);
      const auto shared_value = test::repeated<T, 3>(call.batch, call.value.view()[1]);
      const auto shared = run<T>(backend, call.query, shared_key, shared_value, options);
      const auto copied = run<T>(backend, call.query, Tensor<T, 4>(shared_key), Tensor<T, 4>(shared_value), options);
      CHECK(shared.equals(copied));
    });
    // Any stride on an axis of extent 1.
    const auto one_query = test::random_tensor<T>({1, 1, 1, 24}, 8);
    const auto one_key = test::random_tensor<T>({1, 1, 1, 24}, 9);
    const View<const T, 4> odd(one_key.data(), {1, 1, 1, 24}, {Index{-7}, Index{0}, Index{123456789}, Index{1}});
    CHECK(run<T>(backend, one_query, odd, odd, {}).equals(run<T>(backend, one_query, one_key, one_key, {})));
  });
}

TEST_CASE_TEMPLATE("order, boolean mask and additive -inf say the same with the same bits", T, float, double) {
  // So a key that is not attended counts for nothing, be its tile skipped, cut short or computed.
  using A = heed::accumulator_t<T>;
  Call<T> call;
  const AttentionOptions<T> orders[] = {{.causal = Causal::top_left},
                                        {.causal = Causal::bottom_right},
                                        {.window = {40, 17}},
                                        {.causal = Causal::bottom_right, .window = {3, 0}}};
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    for (const auto& options : orders) {
      Tensor<bool, 2> mask({call.queries, call.keys});
      Tensor<A, 2> bias({call.queries, call.keys});
      for (Index t = 0; t < call.queries; ++t) {
        for (Index s = 0; s < call.keys; ++s) {
          mask(t, s) = test::in_order(options, 0, t, s, call.queries, call.keys);
          bias(t, s) = mask(t, s) ? A(0) : static_cast<A>(-test::infinity);
        }
      }
      const auto want = run<T>(backend, call.query, call.key, call.value, options);
      CHECK(run<T>(backend, call.query, call.key, call.value, {.mask = mask}).equals(want));
      CHECK(run<T>(backend, call.query, call.key, call.value, {.bias = bias}).equals(want));
    }
  });
}

TEST_CASE_TEMPLATE("values that are not finite and not attended change no bit of the rows that do not attend them", T,
                   float, double) {
  Call<T> call;
  Tensor<bool, 2> mask({call.queries, call.keys});
  test::Random random(3);
  for (bool& attend : mask.span()) attend = random.below(4) > 0;
  const Index poisoned[] = {0, 17, 255, 256, 400, 530};
  for (Index t = 0; t < call.queries; ++t) {
    if (t % 3 == 0) {
      for (const Index s : poisoned) mask(t, s) = false;
    }
  }
  Tensor<T, 4> value = call.value;
  for (const Index s : poisoned) {
    for (Index b = 0; b < call.batch; ++b)
      value(b, s, 1, 5) = static_cast<T>(s % 2 == 0 ? test::nan_value : test::infinity);
  }
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    const auto clean = run<T>(backend, call.query, call.key, call.value, {.mask = mask});
    const auto dirty = run<T>(backend, call.query, call.key, value, {.mask = mask});
    for (Index t = 0; t < call.queries; t += 3) CHECK(dirty.row_equals(1, t, clean, 1, t));
    CHECK_FALSE(test::same_bits(dirty.out, clean.out));
  });
}

TEST_CASE_TEMPLATE("returned weights and log-sum-exp change no bit of the output; the weights' rows sum to one", T,
                   float, double) {
  const Call<T> call;
  test::for_each_any_backend([&](const AnyBackend& backend) {
    for_each_option<T>(call, [&](AttentionOptions<T> options) {
      const auto want = test::attention(backend, call.query, call.key, call.value, options);
      Tensor<T, 4> weights({call.batch, call.heads, call.queries, call.keys});
      options.weights = weights;
      const auto with = run<T>(backend, call.query, call.key, call.value, options);
      CHECK(test::same_bits(with.out, want));
      if (options.sinks.present()) return;
      double worst = 0;
      for (Index b = 0; b < call.batch; ++b) {
        for (Index h = 0; h < call.heads; ++h) {
          for (Index t = 0; t < call.queries; ++t) {
            double sum = 0;
            for (Index s = 0; s < call.keys; ++s) sum += static_cast<double>(weights(b, h, t, s));
            worst = (std::max)(worst, std::fabs(sum - 1));
          }
        }
      }
      CHECK(worst < (std::is_same_v<T, double> ? 1e-13 : 1e-5));
    });
  });
}

TEST_CASE("causality by perturbation: a changed token changes nothing before it and everything from it on") {
  Tensor<float, 4> query = test::random_tensor<float>({1, 70, 2, 16}, 1);
  Tensor<float, 4> key = test::random_tensor<float>({1, 70, 2, 16}, 2);
  Tensor<float, 4> value = test::random_tensor<float>({1, 70, 2, 16}, 3);
  test::for_each_any_backend([&](const AnyBackend& backend) {
    const auto before = test::attention(backend, query, key, value, {.causal = Causal::top_left});
    for (const Index token : {Index{0}, Index{15}, Index{16}, Index{55}, Index{69}}) {
      Tensor<float, 4> other_key = key, other_value = value;
      for (Index h = 0; h < 2; ++h) {
        other_key(0, token, h, 3) += 1;
        other_value(0, token, h, 3) += 1;
      }
      const auto after = test::attention(backend, query, other_key, other_value, {.causal = Causal::top_left});
      for (Index t = 0; t < 70; ++t) CHECK(test::same_bits(before.view()[0][t], after.view()[0][t]) == (t < token));
    }
  });
}

TEST_CASE("no output is -0") {
  // Products of tiny weights and values underflow to -0; whether a masked key follows must not show.
  Tensor<float, 4> query({1, 1, 1, 1}), key({1, 2, 1, 1}), value({1, 2, 1, 1});
  query(0, 0, 0, 0) = 80;
  key(0, 1, 0, 0) = 1;
  value(0, 0, 0, 0) = -1e-30F;
  value(0, 1, 0, 0) = -0.0F;
  test::for_each_fast_any_backend([&](const AnyBackend& backend) {
    const auto out = test::attention(backend, query, key, value);
    CHECK(test::same_bits_of(out(0, 0, 0, 0), 0.0F));
  });
}

TEST_CASE("the workspace's size grows with every size, and suffices for smaller calls") {
  test::ReversePool pool;
  const auto check = [](const auto& backend) {
    test::Random random(11);
    for (int trial = 0; trial < 300; ++trial) {
      heed::AttentionExtents small{1 + random.below(3), random.below(400),     random.below(700),    0,
                                   1 + random.below(3), 1 + random.below(130), 1 + random.below(130)};
      small.num_heads = small.num_kv_heads * (1 + random.below(5));
      const auto bytes = heed::ops::attention_workspace_size<float>(backend, small);
      const auto grown = [&](Index heed::AttentionExtents::*size, Index by) {
        heed::AttentionExtents large = small;
        large.*size += by;
        return heed::ops::attention_workspace_size<float>(backend, large);
      };
      CHECK(grown(&heed::AttentionExtents::batch, 1 + random.below(3)) >= bytes);
      CHECK(grown(&heed::AttentionExtents::queries, 1 + random.below(300)) >= bytes);
      CHECK(grown(&heed::AttentionExtents::keys, 1 + random.below(300)) >= bytes);
      CHECK(grown(&heed::AttentionExtents::num_heads, small.num_kv_heads * random.below(300)) >= bytes);
      CHECK(grown(&heed::AttentionExtents::head_dim, 1 + random.below(40)) >= bytes);
      CHECK(grown(&heed::AttentionExtents::value_head_dim, 1 + random.below(40)) >= bytes);
    }
  };
  check(heed::Reference());
  check(heed::Simd());
  check(heed::Cpu(pool));
  // It does not grow with S² or T · S: that would be a matrix of scores.
  const auto bytes = [](Index length) {
    return heed::ops::attention_workspace_size<float>(heed::Simd(), {1, length, length, 8, 8, 64, 64});
  };
  CHECK(bytes(1000000) == bytes(2000));
}
