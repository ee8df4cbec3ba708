// GroupedQueryAttention through KV caches: decoding equals one causal call, whatever the cache and the cut into calls.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "heed/layers/grouped_query_attention.hpp"
#include "layers/self_attention_formula.hpp"
#include "state/kv_cache_support.hpp"
#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/error_text.hpp"

using heed::bfloat16;
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

namespace {

constexpr heed::HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 4};
constexpr heed::KvCacheLayout cache_layout{2, 6, 4};
constexpr Index hidden = 16;

template <class T, class B>
heed::GroupedQueryAttention<T, heads, B> layer_of(const heed::GroupedQueryAttentionOptions& options = {}) {
  return heed::GroupedQueryAttention<T, heads, B>(heed::GroupedQueryAttentionWeights<T>::random(5, hidden, heads, true),
                                                  options);
}

// The layer on a backend of any type, compiled once a scalar.
template <class T>
class AnyLayer {
 public:
  using Call = heed::GroupedQueryAttentionCall<T>;

  HEED_NOINLINE explicit AnyLayer(AnyBackend backend, const heed::GroupedQueryAttentionOptions& options = {})
      : backend_(backend),
        reference_(layer_of<T, heed::Reference>(options)),
        simd_(layer_of<T, heed::Simd>(options)),
        cpu_(layer_of<T, heed::Cpu>(options)) {}

  HEED_NOINLINE Tensor<T, 3> forward(View<const T, 3> x, const Call& call = {}) const {
    Tensor<T, 3> out;
    backend_.visit([&](const auto& backend) { out = on(backend).forward(backend, x, call); });
    return out;
  }
  HEED_NOINLINE Tensor<T, 3> forward(View<const T, 3> x, AnyCache<T>& cache, const Call& call = {}) const {
    Tensor<T, 3> out;
    backend_.visit([&](const auto& backend) { out = on(backend).forward(backend, x, cache, call); });
    return out;
  }
  // Calls of these lengths one after the other.
  HEED_NOINLINE Tensor<T, 3> forward(View<const T, 3> x, AnyCache<T>& cache, const std::vector<Index>& pieces) const {
    Tensor<T, 3> out({x.extent(0), x.extent(1), x.extent(2)});
    Index first = 0;
    for (const Index piece : pieces) {
      const Tensor<T, 3> part = forward(x.slice(1, first, piece), cache);
      test::for_each_element([](T from, T& to) { to = from; }, part.view(), out.view().slice(1, first, piece));
      first += piece;
    }
    return out;
  }

 private:
  const auto& on(const heed::Reference&) const { return reference_; }
  const auto& on(const heed::Simd&) const { return simd_; }
  const auto& on(const heed::Cpu&) const { return cpu_; }

  AnyBackend backend_;
  heed::GroupedQueryAttention<T, heads, heed::Reference> reference_;
  heed::GroupedQueryAttention<T, heads, heed::Simd> simd_;
  heed::GroupedQueryAttention<T, heads, heed::Cpu> cpu_;
};

}  // namespace

TEST_CASE_TEMPLATE("decoding through every cache has the bits of one causal call", T, float, double, bfloat16,
                   float16) {
  const auto x = random_tensor<T>({2, 20, hidden}, 1);
  const std::vector<std::vector<Index>> cuts = {{20}, {9, 1, 1, 4, 1, 1, 3}, std::vector<Index>(20, 1)};
  for_each_any_backend([&](AnyBackend backend) {
    const AnyLayer<T> layer(backend);
    const auto want = layer.forward(x);
    for_each_cache<T>(cache_layout, 2, 20, [&](auto fresh, const char* name) {
      INFO(name);
      for (const auto& pieces : cuts) {
        auto cache = fresh.clone();
        CHECK(same_bits(layer.forward(x, cache, pieces), want));
        CHECK(cache.length(1) == 20);
      }
    });
  });
}

TEST_CASE("decoding is the double formula with positions that count on (case 13)") {
  const auto weights = heed::GroupedQueryAttentionWeights<double>::random(5, hidden, heads, true);
  const auto x = random_tensor<double>({2, 9, hidden}, 1);
  test::SelfAttentionFormula formula{.heads = heads, .causal = true};
  formula.turn = [](Index, Index t, Index, bool, std::vector<double>& v) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / 6);
      const double a = v[i];
      const double b = v[i + 3];
      v[i] = a * std::cos(angle) - b * std::sin(angle);
      v[i + 3] = b * std::cos(angle) + a * std::sin(angle);
    }
  };
  const auto want = test::self_attention<double>({weights.query, weights.key, weights.value, weights.output},
                                                 test::const_view(x), formula);
  for_each_any_backend([&](AnyBackend backend) {
    const AnyLayer<double> layer(backend);
    for_each_cache<double>(cache_layout, 2, 9, [&](auto cache, const char* name) {
      INFO(name);
      CHECK(test::max_error(layer.forward(x, cache, std::vector<Index>{6, 1, 1, 1}), want.out) < 1e-13);
    });
    // Positions 6, 7, 8 said in so many words are the ones that are counted.
    AnyCache<double> counted(heed::StaticKvCache<double>(cache_layout, 2, 9));
    AnyCache<double> said = counted.clone();
    layer.forward(x.view().slice(1, 0, 6), counted);
    layer.forward(x.view().slice(1, 0, 6), said);
    for (Index t = 6; t < 9; ++t) {
      Tensor<std::int64_t, 2> positions({2, 1});
      positions.fill(t);
      const auto token = x.view().slice(1, t, 1);
      CHECK(same_bits(layer.forward(token, said, {.positions = positions}), layer.forward(token, counted)));
    }
  });
}

TEST_CASE_TEMPLATE("case 14: rows of different lengths, padded left, right or within, decode as each alone", T, float,
                   double) {
  const Index prompt = 7;
  const Index steps = 4;
  const auto x = random_tensor<T>({3, prompt + steps, hidden}, 2);
  // Row 0: all; row 1: padding left; row 2: padding inside and right. In the steps row 1 pauses once.
  Tensor<bool, 2> valid({3, prompt + steps});
  valid.fill(true);
  for (Index t = 0; t < 3; ++t) valid(1, t) = false;
  valid(2, 1) = valid(2, 4) = valid(2, 6) = false;
  valid(1, prompt + 1) = false;
  for_each_any_backend([&](AnyBackend backend) {
    const AnyLayer<T> layer(backend);
    for_each_cache<T>(cache_layout, 3, 11, [&](auto cache, const char* name) {
      INFO(name);
      Tensor<T, 3> got({3, prompt + steps, hidden});
      const auto run = [&](Index first, Index count) {
        const Tensor<bool, 2> part(heed::View<const bool, 2>(valid.view()).slice(1, first, count));
        const auto out = layer.forward(x.view().slice(1, first, count), cache, {.valid = part});
        test::for_each_element([](T from, T& to) { to = from; }, test::const_view(out),
                               got.view().slice(1, first, count));
      };
      run(0, prompt);
      for (Index t = 0; t < steps; ++t) run(prompt + t, 1);
      for (Index b = 0; b < 3; ++b) {
        std::vector<Index> tokens;
        for (Index t = 0; t < prompt + steps; ++t) {
          if (valid(b, t)) tokens.push_back(t);
        }
        const auto count = static_cast<Index>(tokens.size());
        CHECK(cache.length(b) == count);
        Tensor<T, 3> alone({1, count, hidden});
        for (Index i = 0; i < count; ++i) {
          for (Index e = 0; e < hidden; ++e) alone(0, i, e) = x(b, tokens[static_cast<std::size_t>(i)], e);
        }
        const auto want = layer.forward(alone);
        bool same = true;
        Index next = 0;
        for (Index t = 0; t < prompt + steps; ++t) {
          for (Index e = 0; e < hidden; ++e) {
            same = same && test::same_bits_of(got(b, t, e), valid(b, t) ? want(0, next, e) : T{});
          }
          next += valid(b, t) ? 1 : 0;
        }
        CHECK(same);
      }
    });
  });
}

TEST_CASE("rows of given lengths: the rest is padding, which is not appended") {
  const auto x = random_tensor<float>({2, 5, hidden}, 3);
  Tensor<std::int64_t, 1> lengths({2});
  lengths(0) = 5;
  lengths(1) = 2;
  const heed::Cpu cpu;
  const auto layer = layer_of<float, heed::Cpu>();
  auto cache = layer.make_cache<heed::PagedKvCache<float>>(2, 6, 4);
  const auto got = layer.forward(cpu, x, cache, {.lengths = lengths});
  CHECK(same_bits(got, layer.forward(cpu, x, {.lengths = lengths})));
  CHECK(cache.length(0) == 5);
  CHECK(cache.length(1) == 2);
  lengths.fill(0);
  const auto nothing = layer.forward(cpu, x, cache, {.lengths = lengths});
  CHECK(test::max_error(nothing, Tensor<float, 3>({2, 5, hidden})) == 0);
  CHECK(cache.length(1) == 2);
}

TEST_CASE_TEMPLATE("case 11: a sliding cache is a window, for prompts longer than it and for any cut", T, float, double,
                   bfloat16) {
  const auto x = random_tensor<T>({2, 30, hidden}, 4);
  const std::vector<std::vector<Index>> cuts = {{30}, {17, 1, 1, 11}, std::vector<Index>(30, 1)};
  for_each_any_backend([&](AnyBackend backend) {
    for (const Index window : {1, 4, 7}) {
      CAPTURE(window);
      const AnyLayer<T> windowed(backend, {.window = {window - 1, 0}});
      const AnyLayer<T> open(backend);
      const auto want = windowed.forward(x);
      for (const auto& pieces : cuts) {
        AnyCache<T> first(heed::SlidingKvCache<T>(cache_layout, 2, window));
        AnyCache<T> second(heed::SlidingKvCache<T>(cache_layout, 2, window, 3));
        CHECK(same_bits(windowed.forward(x, first, pieces), want));
        CHECK(same_bits(open.forward(x, second, pieces), want));
        CHECK(first.length(0) == 30);
        CHECK(first.kept(0) == window);
      }
    }
  });
}

TEST_CASE("a sliding cache goes through padded prompts in pieces") {
  const auto x = random_tensor<float>({2, 20, hidden}, 4);
  Tensor<bool, 2> valid({2, 20});
  for (Index t = 0; t < 20; ++t) {
    valid(0, t) = true;
    valid(1, t) = t >= 15;
  }
  const heed::Cpu cpu;
  const auto layer = layer_of<float, heed::Cpu>({.window = {3, 0}});
  auto cache = layer.make_cache<heed::SlidingKvCache<float>>(2, 4);
  CHECK(same_bits(layer.forward(cpu, x, cache, {.valid = valid}), layer.forward(cpu, x, {.valid = valid})));
  CHECK(cache.length(1) == 5);

  Tensor<float, 3> want({2, 4, 20});
  Tensor<float, 3> got({2, 4, 20});
  cache.reset();
  layer.forward(cpu, x, {.log_sum_exp = want});
  layer.forward(cpu, x, cache, {.log_sum_exp = got});
  CHECK(same_bits(got, want));
}

TEST_CASE("a rejected draft is taken back, and beams go on as if each had been alone") {
  const heed::Cpu cpu;
  const AnyLayer<float> layer(cpu);
  const auto x = random_tensor<float>({3, 9, hidden}, 6);
  const auto row = [&](Index b, Index first, Index count) {
    return Tensor<float, 3>(test::const_view(x).slice(0, b, 1).slice(1, first, count));
  };
  for_each_cache<float>(cache_layout, 3, 12, [&](auto cache, const char* name) {
    INFO(name);
    // One prompt in row 0, shared with the others; then each goes on with tokens of its own.
    Tensor<float, 3> prompt({3, 5, hidden});
    for (Index t = 0; t < 5; ++t) {
      for (Index e = 0; e < hidden; ++e) prompt(0, t, e) = x(0, t, e);
    }
    Tensor<std::int64_t, 1> only_first({3});
    only_first(0) = 5;
    layer.forward(prompt, cache, {.lengths = only_first});
    cache.fork(0, 1);
    cache.fork(0, 2);
    layer.forward(x.view().slice(1, 5, 2), cache);       // drafts of two tokens
    for (Index b = 0; b < 3; ++b) cache.truncate(b, 6);  // of which one is taken
    Tensor<std::int64_t, 1> sources({3});
    sources(0) = 2;
    sources(1) = 0;
    sources(2) = 2;
    cache.reorder(sources);
    const auto got = layer.forward(x.view().slice(1, 7, 1), cache);
    for (Index b = 0; b < 3; ++b) {
      AnyCache<float> alone(heed::StaticKvCache<float>(cache_layout, 1, 12));
      layer.forward(row(0, 0, 5), alone);
      layer.forward(row(static_cast<Index>(sources(b)), 5, 1), alone);
      const auto want = layer.forward(row(b, 7, 1), alone);
      CHECK(same_bits(test::const_view(got).slice(0, b, 1), test::const_view(want)));
    }
  });
}

TEST_CASE("an int8 cache decodes near the exact one") {
  const heed::Cpu cpu;
  const AnyLayer<float> layer(cpu);
  const auto x = random_tensor<float>({1, 40, hidden}, 7);
  const auto want = layer.forward(x);
  for_each_cache<float, std::int8_t>(cache_layout, 1, 40, [&](auto cache, const char* name) {
    INFO(name);
    const auto got = layer.forward(x, cache, std::vector<Index>{33, 1, 1, 1, 1, 1, 1, 1});
    CHECK(test::max_error(got, want) < 0.01);
    CHECK(test::max_error(got, want) > 0);
  });
}

TEST_CASE("case 25: with dynamic scaling, cached keys keep the base they were turned with") {
  const heed::Cpu cpu;
  heed::RopeOptions rope{.scaling = {.type = heed::RopeType::dynamic, .factor = 2, .max_position_embeddings = 6}};
  const auto layer = layer_of<double, heed::Cpu>({.rope = rope});
  const auto x = random_tensor<double>({1, 9, hidden}, 8);
  const auto keys_of = [](const auto& cache) {
    Tensor<double, 3> key({6, 2, 6});
    Tensor<double, 4> all({1, cache.length(0), 2, 6});
    Tensor<double, 4> value({1, cache.length(0), 2, 4});
    cache.read(0, all.view()[0], value.view()[0]);
    for (Index i = 0; i < key.size(); ++i) key.data()[i] = all.data()[i];
    return key;
  };
  auto cache = layer.make_cache(1, 9);
  layer.forward(cpu, x.view().slice(1, 0, 6), cache);
  const auto before = keys_of(cache);
  const auto seventh = layer.forward(cpu, x.view().slice(1, 6, 1), cache);
  CHECK(same_bits(keys_of(cache), before));
  auto stretched = layer.make_cache(1, 9);
  layer.forward(cpu, x.view().slice(1, 0, 7), stretched);  // all seven with the base of length 7
  CHECK_FALSE(same_bits(keys_of(stretched), before));
  // No state between calls: the same call again has the same bits, and a length that is said is the one that is used.
  cache.truncate(0, 6);
  CHECK(same_bits(layer.forward(cpu, x.view().slice(1, 6, 1), cache), seventh));
  cache.truncate(0, 6);
  CHECK(same_bits(layer.forward(cpu, x.view().slice(1, 6, 1), cache, {.rope_length = 7}), seventh));
  cache.truncate(0, 6);
  CHECK_FALSE(same_bits(layer.forward(cpu, x.view().slice(1, 6, 1), cache, {.rope_length = 9}), seventh));
  // With one length for all calls, decoding is one call.
  const auto want = layer.forward(cpu, x, {.rope_length = 9});
  auto steady = layer.make_cache(1, 9);
  const auto head = layer.forward(cpu, x.view().slice(1, 0, 5), steady, {.rope_length = 9});
  const auto tail = layer.forward(cpu, x.view().slice(1, 5, 4), steady, {.rope_length = 9});
  CHECK(same_bits(test::const_view(head), test::const_view(want).slice(1, 0, 5)));
  CHECK(same_bits(test::const_view(tail), test::const_view(want).slice(1, 5, 4)));
}

TEST_CASE("masks, weights and log-sum-exp have the cache's keys as their axis") {
  const auto x = random_tensor<double>({2, 8, hidden}, 9);
  Tensor<bool, 4> mask({2, 1, 8, 8});
  test::Random random(3);
  for (bool& flag : mask.span()) flag = random.below(4) > 0;
  for_each_any_backend([&](AnyBackend backend) {
    const AnyLayer<double> layer(backend);
    Tensor<double, 4> want_weights({2, 4, 8, 8});
    Tensor<double, 3> want_lse({2, 4, 8});
    const auto want = layer.forward(x, {.mask = mask, .log_sum_exp = want_lse, .weights = want_weights});
    for_each_cache<double>(cache_layout, 2, 8, [&](auto cache, const char* name) {
      INFO(name);
      Index first = 0;
      for (const Index count : {5, 1, 2}) {
        const Index keys = first + count;
        const Tensor<bool, 4> part(test::const_view(mask).slice(2, first, count).slice(3, 0, keys));
        Tensor<double, 4> weights({2, 4, count, keys});
        Tensor<double, 3> lse({2, 4, count});
        const auto got = layer.forward(x.view().slice(1, first, count), cache,
                                       {.mask = part, .log_sum_exp = lse, .weights = weights});
        CHECK(same_bits(test::const_view(got), test::const_view(want).slice(1, first, count)));
        CHECK(same_bits(test::const_view(lse), test::const_view(want_lse).slice(2, first, count)));
        CHECK(same_bits(test::const_view(weights),
                        test::const_view(want_weights).slice(2, first, count).slice(3, 0, keys)));
        first = keys;
      }
    });
  });
}

namespace {

template <class B>
void check_allocations(const B& backend) {
  const auto x = random_tensor<float>({2, 6, hidden}, 10);
  const auto token = random_tensor<float>({2, 1, hidden}, 11);
  const auto layer = layer_of<float, B>();
  for_each_cache<float>(cache_layout, 2, 40, [&](auto cache, const char* name) {
    INFO(name);
    Tensor<float, 3> out({2, 6, hidden});
    heed::Workspace workspace(layer.workspace_size(backend, 2, 6, 40));
    const long first = test::allocations_in([&] { layer.forward(backend, x, cache, out, workspace); });
    CHECK((first > 0) == (std::string(name) == "growing"));
    cache.reserve(20);
    Tensor<std::int64_t, 1> sources({2});
    sources(0) = 1;
    const long more = test::allocations_in([&] {
      for (int i = 0; i < 20; ++i) layer.forward(backend, token, cache, out.view().slice(1, 0, 1), workspace);
      cache.truncate(0, 25);
      cache.fork(0, 1);
      cache.reorder(sources);
    });
    CHECK(more == 0);
  });
}

template <class B>
void check_full(const B& backend) {
  const auto layer = layer_of<float, B>();
  const auto token = random_tensor<float>({1, 1, hidden}, 11);
  Tensor<float, 3> out({1, 1, hidden});
  const auto fill = [&](AnyCache<float> cache, Index count) {
    heed::Workspace workspace(layer.workspace_size(backend, cache, 1));
    for (Index i = 0; i < count; ++i) layer.forward(backend, token, cache, out, workspace);
    CHECK(cache.length(0) == count);
  };
  fill(AnyCache<float>(layer.make_cache(1, 300)), 300);
  fill(AnyCache<float>(layer.template make_cache<heed::PagedKvCache<float>>(1, 30, 10)), 300);
  fill(AnyCache<float>(layer.template make_cache<heed::SlidingKvCache<float>>(1, 3)), 600);
}

}  // namespace

TEST_CASE("past the door nothing is allocated; only a growing cache that is full does, there") {
  for_each_any_backend([](AnyBackend any) { any.visit([](const auto& backend) { check_allocations(backend); }); });
}

TEST_CASE("a workspace for a cache serves it however full it is") {
  for_each_any_backend([](AnyBackend any) { any.visit([](const auto& backend) { check_full(backend); }); });
}

TEST_CASE("what a call with a cache refuses: nothing is appended, nothing is written") {
  const heed::Cpu cpu;
  const auto layer = layer_of<float, heed::Cpu>();
  auto cache = layer.make_cache(2, 4);
  const auto x = random_tensor<float>({2, 3, hidden}, 12);
  Tensor<float, 3> out({2, 3, hidden});
  heed::Workspace workspace(layer.workspace_size(cpu, cache, 3));
  layer.forward(cpu, x, cache, out, workspace);
  out.fill(7);
  const auto text = [&](auto& target, View<const float, 3> tokens, heed::Workspace& scratch,
                        const heed::GroupedQueryAttentionCall<float>& call = {}) {
    const std::string said = error_text(
        [&] { layer.forward(cpu, tokens, target, out.view().slice(1, 0, tokens.extent(1)), scratch, call); });
    CHECK(target.length(0) == (static_cast<const void*>(&target) == static_cast<const void*>(&cache) ? 3 : 0));
    CHECK(out(0, 0, 0) == 7);
    CHECK(out(1, 2, 3) == 7);
    return said;
  };
  CHECK(text(cache, x, workspace) ==
        "heed: StaticKvCache::append: cache: holds at most 4 tokens a row (its capacity); row 0 has 3 and would get 3");
  Tensor<bool, 2> valid({2, 3});
  valid(1, 0) = valid(1, 2) = true;
  CHECK(text(cache, x, workspace, {.valid = valid}) ==
        "heed: StaticKvCache::append: cache: holds at most 4 tokens a row (its capacity); row 1 has 3 and would get 2");
  heed::StaticKvCache<float> narrow({2, 6, 6}, 2, 4);
  CHECK(text(narrow, x, workspace) ==
        "heed: GroupedQueryAttention::forward: cache: expected num_kv_heads 2, head_dim 6, value_head_dim 4, got 2, 6, "
        "6; use the layer's make_cache()");
  heed::StaticKvCache<float> single(cache_layout, 1, 4);
  CHECK(text(single, x, workspace) ==
        "heed: GroupedQueryAttention::forward: cache: is for a batch of 1, the call's is 2");
  const Tensor<float, 3> token({2, 1, hidden});
  heed::Workspace none;
  CHECK(text(cache, token, none).rfind("heed: GroupedQueryAttention::forward: workspace: needs ", 0) == 0);
  Tensor<bool, 1> mask({1});
  Tensor<bool, 2> short_mask({1, 3});
  CHECK(text(cache, token, workspace, {.mask = short_mask}) ==
        "heed: GroupedQueryAttention::forward: mask: expected a shape that broadcasts to [2, 4, 1, 4] (batch, heads, "
        "queries, keys), got [1, 3]");
  Tensor<bool, 2> wrong({2, 2});
  CHECK(text(cache, token, workspace, {.valid = wrong}) ==
        "heed: GroupedQueryAttention::forward: valid: expected [2, 1] (batch, seq), got [2, 2]");
  auto sliding = layer.make_cache<heed::SlidingKvCache<float>>(2, 2);
  CHECK(text(sliding, x, workspace, {.mask = mask}) ==
        "heed: GroupedQueryAttention::forward: mask: must be absent in a call of more tokens than the cache takes at "
        "once, 2");
  CHECK(layer.check_forward(cpu, x, cache, out, workspace).kind() == heed::ErrorKind::capacity);
  CHECK_FALSE(layer.check_forward(cpu, token, cache, out.view().slice(1, 0, 1), workspace));

  // No tokens: nothing happens.
  const Tensor<float, 3> empty({2, 0, hidden});
  Tensor<float, 3> no_output({2, 0, hidden});
  layer.forward(cpu, empty, cache, no_output, workspace);
  CHECK(cache.length(0) == 3);
}
