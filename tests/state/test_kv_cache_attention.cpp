// ops::attention over the keys and values of a cache: the bits of the same keys in one tensor, wherever they lie.
#include <doctest/doctest.h>

#include <limits>

#include "heed/ops/attention.hpp"
#include "state/kv_cache_support.hpp"
#include "support/backends.hpp"
#include "support/error_text.hpp"

using heed::bfloat16;
using heed::Causal;
using heed::float16;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;
using test::AnyCache;
using test::error_text;
using test::for_each_any_backend;
using test::for_each_cache;
using test::random_tensor;
using test::same_bits;
using test::tokens_of;

namespace ops = heed::ops;

namespace {

using Numbers = std::vector<double>;

// The doors on a backend of any type, compiled once a scalar and modifier.
template <class T, class Modifier = heed::NoModifier>
HEED_NOINLINE void attention(AnyBackend backend, View<const T, 4> query, const heed::KeyValues<T>& keys, View<T, 4> out,
                             const heed::AttentionOptions<T>& options = {}, const Modifier& modifier = {}) {
  backend.visit([&](const auto& b) { ops::attention(b, query, keys, out, options, modifier); });
}
template <class T, class Modifier = heed::NoModifier>
HEED_NOINLINE void attention(AnyBackend backend, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                             View<T, 4> out, const heed::AttentionOptions<T>& options = {},
                             const Modifier& modifier = {}) {
  backend.visit([&](const auto& b) { ops::attention(b, query, key, value, out, options, modifier); });
}

// The attention of `count` queries of 0, which take the mean of what they attend, at the end of each row.
template <class Cache>
Numbers means(const Cache& cache, Index count, const heed::Window& window = {}) {
  using T = typename Cache::value_type;
  const Tensor<T, 4> query({1, count, 1, 1});
  Tensor<T, 4> out({1, count, 1, 1});
  Numbers first;
  for_each_any_backend([&](AnyBackend backend) {
    attention<T>(backend, query, cache.key_values(), out, {.causal = Causal::bottom_right, .window = window});
    Numbers numbers;
    for (const T& number : out.span()) numbers.push_back(test::to_double(number));
    if (first.empty()) first = numbers;
    REQUIRE(numbers.size() == first.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == doctest::Approx(first[i]));
  });
  for (double& number : first) number = std::round(number * 1e6) / 1e6;
  return first;
}

template <class Cache>
void append(Cache& cache, const Numbers& numbers) {
  const auto tokens = tokens_of<typename Cache::value_type>(1, static_cast<Index>(numbers.size()), numbers);
  cache.append(tokens, tokens);
}

}  // namespace

TEST_CASE("case 4: NaN in the unused part of a cache changes nothing, nor does the capacity") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  heed::StaticKvCache<float> tight({1, 3}, 1, 2);
  const auto used = random_tensor<float>({1, 2, 1, 3}, 1);
  tight.append(used, used);
  const auto query = random_tensor<float>({1, 1, 2, 3}, 2);
  for_each_cache<float>({1, 3}, 1, 4, [&](auto cache, const char* name) {
    INFO(name);
    const auto poison = tokens_of<float>(1, 4, {nan, nan, nan, nan}, 1, 3);
    cache.append(poison, poison);
    cache.truncate(0, 0);
    cache.append(used, used);
    for_each_any_backend([&](AnyBackend backend) {
      Tensor<float, 4> want({1, 1, 2, 3});
      Tensor<float, 4> got({1, 1, 2, 3});
      attention<float>(backend, query, tight.key_values(), want);
      attention<float>(backend, query, cache.key_values(), got);
      CHECK(same_bits(got, want));
      attention<float>(backend, query, used, used, want);
      CHECK(same_bits(got, want));
    });
  });
}

TEST_CASE("case 9: one query over a cache of 8 is at its end") {
  for_each_cache<float>({1, 1}, 1, 8, [](auto cache, const char* name) {
    INFO(name);
    append(cache, {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(means(cache, 1) == Numbers{4.5});
    const Tensor<float, 4> query({1, 1, 1, 1});
    Tensor<float, 4> out({1, 1, 1, 1});
    ops::attention(heed::Cpu(), query, cache.key_values(), out, {.causal = Causal::top_left});
    CHECK(out(0, 0, 0, 0) == 1);
  });
}

TEST_CASE("case 10: a window of 2 holds the query's own token and one more") {
  for_each_cache<double>({1, 1}, 1, 8, [](auto cache, const char* name) {
    INFO(name);
    append(cache, {1, 2, 3, 4});
    CHECK(means(cache, 4, {1, 0}) == Numbers{1, 1.5, 2.5, 3.5});
    append(cache, {5});
    CHECK(means(cache, 1, {1, 0}) == Numbers{4.5});
  });
  heed::SlidingKvCache<double> sliding({1, 1}, 1, 2, 4);  // it is such a window
  append(sliding, {1, 2, 3, 4});
  CHECK(means(sliding, 4) == Numbers{1, 1.5, 2.5, 3.5});
  CHECK(means(sliding, 4, {0, 0}) == Numbers{1, 2, 3, 4});
  CHECK(means(sliding, 4, {3, 0}) == Numbers{1, 1.5, 2.5, 3.5});
}

TEST_CASE("case 11: through a sliding cache each token of a call attends its own window") {
  heed::SlidingKvCache<double> cache({1, 1}, 1, 4, 6);
  append(cache, {1, 2, 3, 4, 5, 6});
  CHECK(means(cache, 6) == Numbers{1, 1.5, 2, 2.5, 3.5, 4.5});
  append(cache, {7});
  CHECK(means(cache, 1) == Numbers{5.5});

  heed::SlidingKvCache<double> two({1, 1}, 1, 2);
  append(two, {20, 30});
  append(two, {50});
  CHECK(means(two, 1) == Numbers{40});
  append(two, {60, 70});
  CHECK(means(two, 2) == Numbers{55, 65});
}

TEST_CASE("case 15: attention over a half-full cache attends what is there") {
  heed::StaticKvCache<float> cache({1, 1}, 1, 8);
  append(cache, {2, 4});
  CHECK(means(cache, 1) == Numbers{3});
}

namespace {

// Everything in pieces through a cache, against one call over plain tensors: the same bits. The pieces are such that
// pages, panels and tiles end inside them.
template <class T, class Modifier = heed::NoModifier>
void check_pieces(AnyBackend backend, AnyCache<T> cache, const heed::AttentionOptions<T>& options, Index left,
                  const std::vector<Index>& pieces, const Modifier& modifier = {}) {
  const heed::KvCacheLayout layout = cache.layout();
  const Index batch = cache.batch();
  Index total = 0;
  for (const Index piece : pieces) total += piece;
  const Index heads = 2 * layout.num_kv_heads;
  const auto query = random_tensor<T>({batch, total, heads, layout.head_dim}, 3, -2, 2);
  const auto key = random_tensor<T>({batch, total, layout.num_kv_heads, layout.head_dim}, 4, -2, 2);
  const auto value = random_tensor<T>({batch, total, layout.num_kv_heads, layout.value_head_dim}, 5);
  Tensor<T, 4> want({batch, total, heads, layout.value_head_dim});
  Tensor<heed::accumulator_t<T>, 3> want_lse({batch, heads, total});
  heed::AttentionOptions<T> whole = options;
  whole.causal = Causal::top_left;
  whole.window.left = left;
  whole.log_sum_exp = want_lse;
  attention<T>(backend, query, key, value, want, whole, modifier);

  Tensor<T, 4> got({batch, total, heads, layout.value_head_dim});
  Tensor<heed::accumulator_t<T>, 3> got_lse({batch, heads, total});
  Index first = 0;
  for (const Index piece : pieces) {
    cache.append(key.view().slice(1, first, piece), value.view().slice(1, first, piece));
    heed::AttentionOptions<T> part = options;
    part.causal = Causal::bottom_right;
    part.window.left = left;
    part.log_sum_exp = got_lse.view().slice(2, first, piece);
    attention<T>(backend, query.view().slice(1, first, piece), cache.key_values(), got.view().slice(1, first, piece),
                 part, modifier);
    first += piece;
  }
  CHECK(same_bits(got, want));
  CHECK(same_bits(got_lse, want_lse));
}

}  // namespace

TEST_CASE_TEMPLATE("token by token or in pieces, every cache gives the bits of one call", T, float, double, bfloat16,
                   float16) {
  const heed::KvCacheLayout layout{2, 5, 3};
  const std::vector<Index> pieces = {7, 1, 1, 250, 1, 3, 40};  // past the first tile of 256 keys
  heed::Tensor<heed::accumulator_t<T>, 1> slopes({4});
  for (Index h = 0; h < 4; ++h) slopes(h) = heed::accumulator_t<T>(0.125) / static_cast<heed::accumulator_t<T>>(h + 1);
  for_each_any_backend([&](AnyBackend backend) {
    for_each_cache<T>(layout, 2, 303, [&](auto cache, const char* name) {
      INFO(name);
      check_pieces<T>(backend, cache.clone(), {}, -1, pieces);
      check_pieces<T>(backend, cache.clone(), {.softcap = 3, .alibi_slopes = slopes}, 33, pieces);
    });
  });
}

TEST_CASE_TEMPLATE("a sliding cache gives the bits of a window over everything, for any cut", T, float, double) {
  const heed::KvCacheLayout layout{1, 4, 6};
  const auto odd = heed::per_score([](heed::accumulator_t<T> score, heed::Position p) {
    return p.key % 3 == 0 ? score - 1 : score + static_cast<heed::accumulator_t<T>>(p.query % 2);
  });
  for_each_any_backend([&](AnyBackend backend) {
    for (const Index window : {1, 2, 5, 40}) {
      CAPTURE(window);
      const std::vector<Index> ones(300, 1);
      check_pieces<T>(backend, AnyCache<T>(heed::SlidingKvCache<T>(layout, 2, window)), {}, window - 1, ones, odd);
      const std::vector<Index> pieces = {50, 1, 1, 17, 60, 1, 1, 1, 60, 60, 60, 1, 1};
      check_pieces<T>(backend, AnyCache<T>(heed::SlidingKvCache<T>(layout, 2, window, 60)), {}, window - 1, pieces,
                      odd);
    }
  });
}

TEST_CASE("rows of different lengths attend each their own keys, with masks by position") {
  const heed::KvCacheLayout layout{1, 3};
  const auto key = random_tensor<float>({3, 5, 1, 3}, 1);
  const auto query = random_tensor<float>({3, 2, 2, 3}, 2);
  Tensor<std::int64_t, 1> lengths({3});
  lengths(0) = 5;
  lengths(1) = 0;
  lengths(2) = 2;
  Tensor<bool, 4> mask({3, 1, 1, 5});
  for (Index i = 0; i < mask.size(); ++i) mask.data()[i] = i % 2 == 0;
  for_each_any_backend([&](AnyBackend backend) {
    Tensor<float, 4> want({3, 2, 2, 3});
    Tensor<float, 4> want_weights({3, 2, 2, 5});
    attention<float>(backend, query, key, key, want, {.mask = mask, .key_lengths = lengths, .weights = want_weights});
    for_each_cache<float>(layout, 3, 9, [&](auto cache, const char* name) {
      INFO(name);
      cache.append(key, key, {{}, lengths});
      Tensor<float, 4> got({3, 2, 2, 3});
      Tensor<float, 4> weights({3, 2, 2, 5});
      attention<float>(backend, query, cache.key_values(), got, {.mask = mask, .weights = weights});
      CHECK(same_bits(got, want));
      CHECK(same_bits(weights, want_weights));
    });
  });
}

TEST_CASE_TEMPLATE("attention over an int8 cache is attention over what the cache reads as", T, float, double,
                   bfloat16) {
  const heed::KvCacheLayout layout{2, 6, 5};
  const auto key = random_tensor<T>({1, 300, 2, 6}, 1, -2, 2);
  const auto value = random_tensor<T>({1, 300, 2, 5}, 2, -2, 2);
  const auto query = random_tensor<T>({1, 3, 4, 6}, 3);
  for_each_cache<T, std::int8_t>(layout, 1, 300, [&](auto cache, const char* name) {
    INFO(name);
    cache.append(key, value);
    Tensor<T, 4> k({1, 300, 2, 6});
    Tensor<T, 4> v({1, 300, 2, 5});
    cache.read(0, k.view()[0], v.view()[0]);
    for_each_any_backend([&](AnyBackend backend) {
      Tensor<T, 4> exact({1, 3, 4, 5});
      Tensor<T, 4> widened({1, 3, 4, 5});
      Tensor<T, 4> got({1, 3, 4, 5});
      attention<T>(backend, query, key, value, exact, {.causal = Causal::bottom_right});
      attention<T>(backend, query, k, v, widened, {.causal = Causal::bottom_right});
      attention<T>(backend, query, cache.key_values(), got, {.causal = Causal::bottom_right});
      CHECK(test::max_error(got, widened) <= 8 * test::unit_roundoff<T>);
      // Scores are off by at most scale · Σ|q| · max|k| / 254 = 6 · 2 / (254 √6) < 0.02, so weights by a factor of
      // e^±0.04 at most; values by 2 / 254.
      CHECK(test::max_error(got, exact) <= 0.04 * 2 + 2.0 / 254 + 4 * test::unit_roundoff<T>);
      CHECK(test::max_error(got, exact) > 0);
    });
  });
}

TEST_CASE("a masked key never matters in an int8 cache either") {
  heed::Int8KvCache<float> cache({1, 2}, 1, 4);
  auto tokens = tokens_of<float>(1, 3, {1, 2, 3}, 1, 2);
  tokens(0, 1, 0, 0) = std::numeric_limits<float>::quiet_NaN();
  cache.append(tokens, tokens);
  Tensor<bool, 1> mask({3});
  mask(0) = mask(2) = true;
  const Tensor<float, 4> query({1, 1, 1, 2});
  for_each_any_backend([&](AnyBackend backend) {
    Tensor<float, 4> out({1, 1, 1, 2});
    attention<float>(backend, query, cache.key_values(), out, {.mask = mask});
    CHECK(out(0, 0, 0, 0) == doctest::Approx(2));
  });
}

TEST_CASE("a sliding cache needs no more workspace after a million tokens than after a few hundred") {
  const heed::KvCacheLayout layout{1, 2};
  heed::SlidingKvCache<float> cache(layout, 1, 8, 1000);
  const Tensor<float, 4> thousand({1, 1000, 1, 2});
  for (int i = 0; i < 1000; ++i) cache.append(thousand, thousand);
  CHECK(cache.length(0) == 1000000);
  const Tensor<float, 4> query({1, 1, 1, 2});
  Tensor<float, 4> out({1, 1, 1, 2});
  heed::Workspace workspace(ops::attention_workspace_size<float>(
      heed::Reference(), {.batch = 1, .queries = 1, .keys = cache.most_keys(), .num_heads = 1, .head_dim = 2}));
  ops::attention(heed::Reference(), query, cache.key_values(), out, {.causal = Causal::bottom_right}, workspace);
  CHECK(out(0, 0, 0, 0) == 0);
}

TEST_CASE("what attention over a cache refuses") {
  heed::StaticKvCache<float> cache({2, 4, 3}, 2, 8);
  Tensor<float, 4> out({2, 1, 4, 3});
  const auto text = [&](View<const float, 4> query, const heed::AttentionOptions<float>& options = {}) {
    return error_text([&] { ops::attention(heed::Cpu(), query, cache.key_values(), out, options); });
  };
  const Tensor<float, 4> query({2, 1, 4, 4});
  CHECK(text(query) == "no error");
  CHECK(text(Tensor<float, 4>({3, 1, 4, 4})) ==
        "heed: attention: query: expected [2, *, *, 4] (batch, queries, heads, head dim), got [3, 1, 4, 4]");
  CHECK(text(Tensor<float, 4>({2, 1, 3, 4})) ==
        "heed: attention: query: its number of heads, 3, is not a multiple of key's kv heads, 2");
  CHECK(text(Tensor<float, 4>({2, 2, 4, 4})) ==
        "heed: attention: out: expected [2, 2, 4, 3] (batch, queries, heads, value head dim), got [2, 1, 4, 3]");
  Tensor<std::int64_t, 1> lengths({2});
  CHECK(text(query, {.key_lengths = lengths}) ==
        "heed: attention: key_lengths: must be absent: the cache knows how many keys each row has");
  Tensor<bool, 1> mask({5});
  CHECK(
      text(query, {.mask = mask}) ==
      "heed: attention: mask: expected a shape that broadcasts to [2, 4, 1, 0] (batch, heads, queries, keys), got [5]");
}
