// The KV caches as containers: what is kept of each row after appends, cuts, forks and reorderings, and what is
// refused. What attention makes of them is tested in test_kv_cache_attention.cpp.
#include <doctest/doctest.h>

#include <limits>

#include "state/kv_cache_support.hpp"
#include "support/allocation_counter.hpp"
#include "support/errors.hpp"

using heed::bfloat16;
using heed::float16;
using heed::Index;
using heed::KvCacheLayout;
using heed::PresentTokens;
using heed::Tensor;
using heed::View;
using test::error_text;
using test::for_each_cache;
using test::kept_values;
using test::random_tensor;
using test::tokens_of;

namespace {

static_assert(heed::KvCache<heed::StaticKvCache<float>> && heed::KvCache<heed::Int8KvCache<float>>);
static_assert(heed::KvCache<heed::GrowingKvCache<bfloat16>> && heed::KvCache<heed::SlidingKvCache<double>>);
static_assert(heed::KvCache<heed::PagedKvCache<float16>> && !heed::KvCache<Tensor<float, 4>>);
static_assert(heed::KvCache<test::AnyCache<float>>);
static_assert(!std::is_copy_constructible_v<heed::StaticKvCache<float>> &&
              !std::is_copy_constructible_v<heed::PagedKvCache<float>>);
static_assert(std::is_nothrow_move_constructible_v<heed::GrowingKvCache<float>> &&
              std::is_nothrow_move_assignable_v<heed::PagedKvCache<float>>);

using Numbers = std::vector<double>;

// What a cache should hold: each row a list of tokens, each token its key and value in a row.
template <class T>
struct Model {
  KvCacheLayout layout;
  std::vector<std::vector<std::vector<T>>> rows;

  void append(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which) {
    for (Index b = 0; b < key.extent(0); ++b) {
      for (Index t = 0; t < key.extent(1); ++t) {
        if (which.valid.present() && !which.valid(b, t)) continue;
        if (which.lengths.present() && t >= which.lengths(b)) continue;
        std::vector<T> token;
        for (const auto& part : {key, value}) {
          for (Index h = 0; h < part.extent(2); ++h) {
            for (Index d = 0; d < part.extent(3); ++d) token.push_back(part(b, t, h, d));
          }
        }
        rows[static_cast<std::size_t>(b)].push_back(token);
      }
    }
  }

  void check(const test::AnyCache<T>& cache) const {
    for (Index b = 0; b < cache.batch(); ++b) {
      const auto& row = rows[static_cast<std::size_t>(b)];
      const auto length = static_cast<Index>(row.size());
      REQUIRE(cache.length(b) == length);
      REQUIRE(cache.lengths()(b) == length);
      const Index kept = cache.kept(b);
      Tensor<T, 3> key({kept, layout.num_kv_heads, layout.head_dim});
      Tensor<T, 3> value({kept, layout.num_kv_heads, layout.value_head_dim});
      cache.read(b, key, value);
      bool same = true;
      for (Index s = 0; s < kept; ++s) {
        const std::vector<T>& token = row[static_cast<std::size_t>(length - kept + s)];
        std::size_t i = 0;
        for (const auto& part : {test::const_view(key), test::const_view(value)}) {
          for (Index h = 0; h < part.extent(1); ++h) {
            for (Index d = 0; d < part.extent(2); ++d) same = same && test::same_bits_of(part(s, h, d), token[i++]);
          }
        }
      }
      CHECK(same);
    }
  }
};

// Hundreds of random calls, each compared with the model.
template <class T>
void run_script(test::AnyCache<T> cache, Model<T> model, std::uint64_t seed, Index capacity) {
  test::Random random(seed);
  const Index batch = cache.batch();
  const auto longest = [&] {
    std::size_t most = 0;
    for (const auto& row : model.rows) most = std::max(most, row.size());
    return static_cast<Index>(most);
  };
  for (int step = 0; step < 150; ++step) {
    CAPTURE(step);
    const Index row = random.below(batch);
    auto& tokens = model.rows[static_cast<std::size_t>(row)];
    switch (random.below(6)) {
      case 0:
      case 1:
      case 2: {
        const Index length = random.below(6);
        if (longest() + length > capacity) break;
        const auto key =
            random_tensor<T>({batch, length, model.layout.num_kv_heads, model.layout.head_dim}, random.bits());
        const auto value =
            random_tensor<T>({batch, length, model.layout.num_kv_heads, model.layout.value_head_dim}, random.bits());
        Tensor<bool, 2> valid({batch, length});
        for (bool& flag : valid.span()) flag = random.below(3) > 0;
        Tensor<std::int64_t, 1> lengths({batch});
        for (auto& one : lengths.span()) one = random.below(length + 1);
        PresentTokens which;
        const Index kind = random.below(4);
        if (kind % 2 == 1) which.valid = valid;
        if (kind >= 2) which.lengths = lengths;
        cache.append(key, value, which);
        model.append(key, value, which);
        break;
      }
      case 3: {
        const Index length = random.below(static_cast<Index>(tokens.size()) + 1);
        cache.truncate(row, length);
        tokens.resize(static_cast<std::size_t>(length));
        break;
      }
      case 4: {
        const Index to = random.below(batch);
        cache.fork(row, to);
        if (to != row) model.rows[static_cast<std::size_t>(to)] = tokens;
        break;
      }
      default: {
        const auto sources = test::random_ids({batch}, random.bits(), batch);
        cache.reorder(sources);
        auto rows = model.rows;
        for (Index b = 0; b < batch; ++b)
          rows[static_cast<std::size_t>(b)] = model.rows[static_cast<std::size_t>(sources(b))];
        model.rows = rows;
      }
    }
    model.check(cache);
  }
  const auto copy = cache.clone();
  cache.reset();
  model.check(copy);
  CHECK(cache.length(0) == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("every cache holds what a list would, whatever is done to it", T, float, double, bfloat16, float16) {
  const KvCacheLayout layouts[] = {{1, 1}, {2, 3, 5}};
  for (const auto& layout : layouts) {
    for (const Index batch : {1, 4}) {
      for_each_cache<T>(layout, batch, 40, [&](auto cache, const char* name) {
        INFO(name << ", batch " << batch);
        CHECK(cache.batch() == batch);
        CHECK(cache.layout() == layout);
        Model<T> model{layout, std::vector<std::vector<std::vector<T>>>(static_cast<std::size_t>(batch))};
        model.check(cache);
        run_script<T>(std::move(cache), std::move(model), 7 + static_cast<std::uint64_t>(batch), 40);
      });
    }
  }
}

TEST_CASE("reorder moves rows along chains and rings, from any order of the sources") {
  for_each_cache<float>({1, 1}, 5, 4, [](auto fresh, const char* name) {
    INFO(name);
    const auto tokens = tokens_of<float>(5, 2, {0, 10, 1, 11, 2, 12, 3, 13, 4, 14});
    const Tensor<std::int64_t, 1> lengths = [] {
      Tensor<std::int64_t, 1> list({5});
      for (Index b = 0; b < 5; ++b) list(b) = 1 + b % 2;
      return list;
    }();
    fresh.append(tokens, tokens, {{}, lengths});
    // All 5^5 sources.
    for (Index code = 0; code < 3125; ++code) {
      auto cache = fresh.clone();
      Tensor<std::int64_t, 1> sources({5});
      Index rest = code;
      for (auto& source : sources.span()) {
        source = rest % 5;
        rest /= 5;
      }
      cache.reorder(sources);
      bool same = true;
      for (Index b = 0; b < 5; ++b) {
        const auto source = static_cast<double>(sources(b));
        same = same && kept_values(cache, b) == (sources(b) % 2 == 0 ? Numbers{source} : Numbers{source, source + 10});
      }
      CHECK(same);
    }
  });
}

TEST_CASE("case 11: a sliding cache keeps the last tokens, at the positions they had") {
  heed::SlidingKvCache<float> cache({1, 1}, 1, 4, 6);
  const auto append = [&](const Numbers& numbers) {
    const auto tokens = tokens_of<float>(1, static_cast<Index>(numbers.size()), numbers);
    cache.append(tokens, tokens);
  };
  append({1, 2, 3, 4});
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3, 4});
  append({5});
  CHECK(kept_values(cache, 0) == Numbers{2, 3, 4, 5});
  append({6});
  CHECK(kept_values(cache, 0) == Numbers{3, 4, 5, 6});
  CHECK(cache.length(0) == 6);
  CHECK(cache.first_kept(0) == 2);
  cache.reset();
  append({1, 2, 3, 4, 5, 6});  // a prompt longer than the window
  CHECK(kept_values(cache, 0) == Numbers{3, 4, 5, 6});
  CHECK(cache.key_values().first_token(0) == 0);  // all six are still there for this call's attention
  for (int i = 7; i < 100; ++i) append({static_cast<double>(i)});
  CHECK(kept_values(cache, 0) == Numbers{96, 97, 98, 99});
  CHECK(cache.length(0) == 99);

  heed::SlidingKvCache<float> two({1, 1}, 1, 2);
  const auto append_two = [&](const Numbers& numbers) {
    const auto tokens = tokens_of<float>(1, static_cast<Index>(numbers.size()), numbers);
    two.append(tokens, tokens);
  };
  append_two({20, 30});
  append_two({50});
  CHECK(kept_values(two, 0) == Numbers{30, 50});
  append_two({60, 70});
  CHECK(kept_values(two, 0) == Numbers{60, 70});
  CHECK(two.key_values().first_token(0) <= 2);  // 50 is still there for this call's attention
}

TEST_CASE("case 12: a full static cache names its capacity and is unchanged") {
  heed::StaticKvCache<double> cache({1, 1}, 1, 4);
  const auto append = [&](const Numbers& numbers) {
    const auto tokens = tokens_of<double>(1, static_cast<Index>(numbers.size()), numbers);
    cache.append(tokens, tokens);
  };
  append({1, 2});
  append({3});
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3});
  append({4});
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3, 4});
  CHECK(error_text<heed::CapacityError>([&] { append({5}); }) ==
        "heed: StaticKvCache::append: cache: holds at most 4 tokens a row (its capacity); row 0 has 4 and would get 1");
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3, 4});
  CHECK(cache.check_append(1).kind() == heed::ErrorKind::capacity);
  CHECK_FALSE(cache.check_append(0));
  CHECK(cache.capacity() == 4);
}

TEST_CASE("a row that is full refuses the call for all rows") {
  const auto three = tokens_of<float>(2, 3, {1, 2, 3, 4, 5, 6});
  Tensor<std::int64_t, 1> lengths({2});
  lengths(0) = 1;
  lengths(1) = 3;
  heed::StaticKvCache<float> cache({1, 1}, 2, 4);
  cache.append(three, three, {{}, lengths});
  CHECK(error_text<heed::CapacityError>([&] {
          cache.append(three, three, {{}, lengths});
        }) ==
        "heed: StaticKvCache::append: cache: holds at most 4 tokens a row (its capacity); row 1 has 3 and would get 3");
  CHECK(kept_values(cache, 0) == Numbers{1});
  CHECK(kept_values(cache, 1) == Numbers{4, 5, 6});
  lengths(1) = 1;  // what is padding needs no room
  cache.append(three, three, {{}, lengths});
  CHECK(kept_values(cache, 1) == Numbers{4, 5, 6, 4});
}

TEST_CASE("case 14: padding is never appended, wherever it is") {
  const auto tokens = tokens_of<float>(2, 3, {1, 2, 3, -1, 4, -1});
  Tensor<bool, 2> valid({2, 3});
  valid.fill(true);
  valid(1, 0) = valid(1, 2) = false;
  for_each_cache<float>({1, 1}, 2, 8, [&](auto cache, const char* name) {
    INFO(name);
    cache.append(tokens, tokens, {valid, {}});
    CHECK(kept_values(cache, 0) == Numbers{1, 2, 3});
    CHECK(kept_values(cache, 1) == Numbers{4});
    cache.append(tokens, tokens, {valid, {}});
    CHECK(kept_values(cache, 1) == Numbers{4, 4});
  });
}

TEST_CASE("case 15: a cache's length is what it holds, not its capacity") {
  for_each_cache<float>({1, 1}, 1, 64, [](auto cache, const char* name) {
    INFO(name);
    const auto tokens = tokens_of<float>(1, 2, {1, 2});
    cache.append(tokens, tokens);
    CHECK(cache.length(0) == 2);
    CHECK(cache.kept(0) == 2);
    CHECK(cache.key_values().longest() == 2);
  });
}

TEST_CASE("a growing cache doubles, keeps what it held, and reserves") {
  heed::GrowingKvCache<float> cache({2, 3}, 2);
  CHECK(cache.capacity() == 0);
  std::vector<Index> capacities;
  for (Index i = 0; i < 9; ++i) {
    const auto tokens = tokens_of<float>(2, 1, {static_cast<double>(i), 100 + static_cast<double>(i)}, 2, 3);
    cache.append(tokens, tokens);
    capacities.push_back(cache.capacity());
  }
  CHECK(capacities == std::vector<Index>{1, 2, 4, 4, 8, 8, 8, 8, 16});
  CHECK(kept_values(cache, 1) == Numbers{100, 101, 102, 103, 104, 105, 106, 107, 108});
  cache.reserve(91);
  CHECK(cache.capacity() == 100);
  const auto before = cache.key_values().key.elements.data_handle();
  const auto tokens = tokens_of<float>(2, 91, Numbers(182, 1), 2, 3);
  cache.append(tokens, tokens);
  CHECK(cache.key_values().key.elements.data_handle() == before);
  CHECK(cache.length(0) == 100);
}

TEST_CASE("a paged cache shares pages between rows that begin alike, and copies one before it is written") {
  heed::PagedKvCache<float> cache({1, 1}, 3, 8, 4);
  CHECK(cache.free_pages() == 8);
  const auto prompt = tokens_of<float>(3, 6, {1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  Tensor<std::int64_t, 1> first({3});
  first(0) = 6;
  cache.append(prompt, prompt, {{}, first});
  CHECK(cache.free_pages() == 6);
  cache.fork(0, 1);
  cache.fork(0, 2);
  cache.truncate(2, 5);
  CHECK(cache.free_pages() == 6);  // nothing was copied
  CHECK(kept_values(cache, 1) == Numbers{1, 2, 3, 4, 5, 6});

  const auto next = tokens_of<float>(3, 1, {7, 70, 700});
  cache.append(next, next);
  CHECK(cache.free_pages() == 4);  // of three holders of the second page two took copies
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3, 4, 5, 6, 7});
  CHECK(kept_values(cache, 1) == Numbers{1, 2, 3, 4, 5, 6, 70});
  CHECK(kept_values(cache, 2) == Numbers{1, 2, 3, 4, 5, 700});

  // Full pages are shared for ever.
  cache.truncate(0, 4);
  CHECK(cache.free_pages() == 5);
  cache.append(next, next);
  CHECK(cache.free_pages() == 4);
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3, 4, 7});
  for (Index row = 0; row < 3; ++row) cache.truncate(row, 0);
  CHECK(cache.free_pages() == 8);
}

TEST_CASE("a paged cache says how many pages it lacks, copies included, and is unchanged") {
  heed::PagedKvCache<float> cache({1, 1}, 2, 3, 4);
  const auto tokens = tokens_of<float>(2, 6, {1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0});
  Tensor<std::int64_t, 1> lengths({2});
  lengths(0) = 6;
  cache.append(tokens, tokens, {{}, lengths});
  cache.fork(0, 1);
  const auto one = tokens_of<float>(2, 1, {7, 8});
  const auto nine = tokens_of<float>(2, 9, Numbers(18, 9));
  CHECK_FALSE(cache.check_append(1));  // one copy for two holders
  CHECK(error_text<heed::CapacityError>([&] { cache.append(nine, nine); }) ==
        "heed: PagedKvCache::append: cache: holds at most 12 tokens a row (its capacity); row 0 has 6 and would get 9");
  CHECK(error_text<heed::CapacityError>([&] { cache.append(tokens, tokens); }) ==
        "heed: PagedKvCache::append: cache: has 3 pages of 4 tokens (its capacity), 1 of them free; 3 would be needed");
  CHECK(kept_values(cache, 1) == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(cache.free_pages() == 1);
  cache.append(one, one);
  CHECK(cache.free_pages() == 0);
  CHECK(kept_values(cache, 1) == Numbers{1, 2, 3, 4, 5, 6, 8});

  // Only one of two holders appends: it must copy, too, and cannot.
  heed::PagedKvCache<float> full({1, 1}, 2, 2, 4);
  full.append(tokens, tokens, {{}, lengths});
  full.fork(0, 1);
  lengths(0) = 1;
  CHECK(error_text<heed::CapacityError>([&] {
          full.append(one, one, {{}, lengths});
        }) ==
        "heed: PagedKvCache::append: cache: has 2 pages of 4 tokens (its capacity), 0 of them free; 1 would be needed");
  CHECK(kept_values(full, 0) == Numbers{1, 2, 3, 4, 5, 6});

  // Room that was reserved is a row's own, and is there when it appends.
  heed::PagedKvCache<float> reserved({1, 1}, 2, 4, 4);
  lengths(0) = 0;
  lengths(1) = 6;
  for (int i = 0; i < 2; ++i) reserved.reserve(6, {{}, lengths});
  CHECK(reserved.free_pages() == 2);
  reserved.append(tokens, tokens);
  CHECK(reserved.free_pages() == 0);
  CHECK(kept_values(reserved, 0) == Numbers{1, 2, 3, 4, 5, 6});
  reserved.fork(0, 1);
  CHECK(reserved.free_pages() == 2);

  heed::PagedKvCache<float> narrow({1, 1}, 1, 8, 4, 2);
  CHECK(narrow.capacity() == 8);
}

TEST_CASE("a sliding cache takes back what it can, and says what it cannot") {
  heed::SlidingKvCache<float> cache({1, 1}, 1, 4, 4);
  const auto four = tokens_of<float>(1, 4, {1, 2, 3, 4});
  cache.append(four, four);
  cache.append(four, four);
  cache.truncate(0, 1);  // all 8 are there still
  CHECK(kept_values(cache, 0) == Numbers{1});
  cache.append(four, four);
  cache.append(four, four);  // 9 tokens: the first one is gone, or more
  cache.append(four, four);
  CHECK(cache.length(0) == 13);
  const Index first = static_cast<Index>(cache.key_values().first_tokens(0));
  CHECK(first == 5);
  cache.truncate(0, 8);
  CHECK(kept_values(cache, 0) == Numbers{1, 2, 3});
  CHECK(error_text<heed::OptionError>([&] { cache.truncate(0, 7); }) ==
        "heed: SlidingKvCache: length: row 0 has 8 tokens and can be cut to 8 of them, got 7");
  cache.truncate(0, 8);
  cache.truncate(0, 0);
  CHECK(cache.kept(0) == 0);
  CHECK(error_text<heed::CapacityError>([&] {
          const auto five = tokens_of<float>(1, 5, {1, 2, 3, 4, 5});
          cache.append(five, five);
        }) ==
        "heed: SlidingKvCache::append: cache: takes at most 4 tokens at once (its capacity beside the window), got 5");
}

TEST_CASE_TEMPLATE("an int8 cache is off by at most 1/254 of each head's largest element", T, float, double, bfloat16,
                   float16) {
  const KvCacheLayout layout{2, 7, 5};
  for_each_cache<T, std::int8_t>(layout, 2, 32, [&](auto cache, const char* name) {
    INFO(name);
    auto key = random_tensor<T>({2, 20, 2, 7}, 1, -3, 3);
    auto value = random_tensor<T>({2, 20, 2, 5}, 2, -3, 3);
    // Heads of very different sizes next to each other, and one of zeros: each has its own scale.
    for (Index d = 0; d < 7; ++d) {
      key(0, 3, 1, d) = test::from_double<T>(test::to_double(key(0, 3, 1, d)) * 4096);
      key(1, 4, 0, d) = test::from_double<T>(test::to_double(key(1, 4, 0, d)) / 1024);
      key(1, 5, 0, d) = T{};
    }
    cache.append(key.view().slice(1, 0, 9), value.view().slice(1, 0, 9));
    cache.append(key.view().slice(1, 9, 11), value.view().slice(1, 9, 11));
    double worst = 0;
    for (Index b = 0; b < 2; ++b) {
      Tensor<T, 3> k({20, 2, 7});
      Tensor<T, 3> v({20, 2, 5});
      cache.read(b, k, v);
      const auto check = [&](View<const T, 3> got, View<const T, 3> want) {
        for (Index s = 0; s < 20; ++s) {
          for (Index h = 0; h < 2; ++h) {
            double largest = 0;
            double error = 0;
            for (Index d = 0; d < want.extent(2); ++d) {
              largest = std::max(largest, std::fabs(test::to_double(want(s, h, d))));
              error = std::max(error, std::fabs(test::to_double(want(s, h, d)) - test::to_double(got(s, h, d))));
            }
            // Reading rounds to T once more.
            CHECK(error <= largest * (1.0 / 254 + 2 * test::unit_roundoff<T> + 1e-6));
            if (largest > 0) worst = std::max(worst, error / largest);
          }
        }
      };
      check(k, key.view()[b]);
      check(v, value.view()[b]);
    }
    CHECK(worst > 0.8 / 254);  // the bound is no larger than it must be
  });
  CHECK(100 * heed::Int8KvCache<float>({8, 64}, 2, 100).size_bytes() <
        27 * heed::StaticKvCache<float>({8, 64}, 2, 100).size_bytes());
}

TEST_CASE("an int8 head that is not finite reads as NaN, as a whole and alone") {
  heed::Int8KvCache<float> cache({2, 2}, 1, 4);
  auto tokens = tokens_of<float>(1, 2, {1, 2}, 2, 2);
  tokens(0, 0, 1, 1) = std::numeric_limits<float>::infinity();
  tokens(0, 1, 0, 0) = std::numeric_limits<float>::quiet_NaN();
  cache.append(tokens, tokens);
  Tensor<float, 3> key({2, 2, 2});
  Tensor<float, 3> value({2, 2, 2});
  cache.read(0, key, value);
  CHECK(std::isnan(value(0, 1, 0)));
  CHECK(std::isnan(value(0, 1, 1)));
  CHECK(std::isnan(value(1, 0, 1)));
  CHECK(value(0, 0, 0) == doctest::Approx(1));
  CHECK(value(1, 1, 1) == doctest::Approx(2));

  // Numbers whose scale is below float's smallest: zeros, which is within the bound.
  heed::Int8KvCache<double> tiny({1, 1}, 1, 1);
  const auto denormal = tokens_of<double>(1, 1, {1e-320});
  tiny.append(denormal, denormal);
  CHECK(kept_values(tiny, 0) == Numbers{0});
}

TEST_CASE("what append, read, fork, reorder and truncate refuse, and how") {
  heed::StaticKvCache<float> cache({2, 4, 3}, 2, 8);
  const Tensor<float, 4> key({2, 5, 2, 4});
  const Tensor<float, 4> value({2, 5, 2, 3});
  CHECK(error_text<heed::ShapeError>([&] { cache.append(value, value); }) ==
        "heed: StaticKvCache::append: key: expected [2, *, 2, 4] (batch, seq, kv heads, head dim), got [2, 5, 2, 3]");
  CHECK(error_text<heed::ShapeError>([&] { cache.append(key, value.view().slice(1, 0, 4)); }) ==
        "heed: StaticKvCache::append: value: expected [2, 5, 2, 3] (batch, seq, kv heads, value head dim), got [2, 4, "
        "2, 3]");
  const Tensor<bool, 2> valid({2, 4});
  CHECK(error_text<heed::ShapeError>([&] {
          cache.append(key, value, {valid, {}});
        }) == "heed: StaticKvCache::append: valid: expected [2, 5] (batch, seq), got [2, 4]");
  Tensor<std::int64_t, 1> lengths({2});
  lengths(1) = 6;
  CHECK(error_text<heed::OptionError>([&] {
          cache.append(key, value, {{}, lengths});
        }) == "heed: StaticKvCache::append: lengths: must be from 0 to 5, got 6 for batch row 1");
  CHECK(error_text<heed::OptionError>([&] { cache.truncate(2, 0); }) ==
        "heed: StaticKvCache: row: must be in 0 to 1, got 2");
  CHECK(error_text<heed::OptionError>([&] { cache.truncate(1, 1); }) ==
        "heed: StaticKvCache: length: row 1 has 0 tokens, got 1");
  CHECK(error_text<heed::OptionError>([&] { cache.truncate(1, -1); }) ==
        "heed: StaticKvCache: length: row 1 has 0 tokens, got -1");
  CHECK(error_text<heed::OptionError>([&] { cache.fork(0, -1); }) ==
        "heed: StaticKvCache: to: must be in 0 to 1, got -1");
  Tensor<std::int64_t, 1> sources({2});
  sources(0) = 2;
  CHECK(error_text<heed::OptionError>([&] { cache.reorder(sources); }) ==
        "heed: StaticKvCache: sources: must be in 0 to 1, got 2");
  Tensor<float, 3> out({1, 2, 4});
  CHECK(error_text<heed::ShapeError>([&] { cache.read(0, out, out); }) ==
        "heed: StaticKvCache: key: expected [0, 2, 4] (tokens, kv heads, head dim), got [1, 2, 4]");
  CHECK(error_text<heed::OptionError>([] {
          heed::StaticKvCache<float>({2, 0}, 1, 1);
        }) == "heed: StaticKvCache: head_dim: must be at least 1, got 0");
  const volatile Index below_zero = -1;  // g++ 12 would warn of the allocation that the check before it prevents
  CHECK(error_text<heed::OptionError>([&] {
          heed::StaticKvCache<float>({2, 4}, 1, below_zero);
        }) == "heed: StaticKvCache: capacity: must be at least 0, got -1");
  CHECK(error_text<heed::OptionError>([] {
          heed::SlidingKvCache<float>({2, 4}, 1, 0);
        }) == "heed: SlidingKvCache: window: must be at least 1, got 0");
  CHECK(error_text<heed::OptionError>([] {
          heed::PagedKvCache<float>({2, 4}, 1, 4, 0);
        }) == "heed: PagedKvCache: page_length: must be at least 1, got 0");
  heed::PagedKvCache<float> paged({2, 4}, 2, 4, 4);
  CHECK(error_text<heed::OptionError>([&] { paged.truncate(0, 3); }) ==
        "heed: PagedKvCache: length: row 0 has 0 tokens, got 3");
}

TEST_CASE("sizes of zero: no rows, no capacity, no tokens") {
  for_each_cache<float>({1, 2}, 0, 4, [](auto cache, const char*) {
    const Tensor<float, 4> none({0, 3, 1, 2});
    cache.append(none, none);
    CHECK(cache.key_values().longest() == 0);
  });
  heed::StaticKvCache<float> full({1, 2}, 1, 0);
  const Tensor<float, 4> empty({1, 0, 1, 2});
  full.append(empty, empty);
  CHECK(full.check_append(1).kind() == heed::ErrorKind::capacity);
  heed::PagedKvCache<float> pageless({1, 2}, 1, 0);
  CHECK(pageless.check_append(1).kind() == heed::ErrorKind::capacity);
  heed::StaticKvCache<float> made_of_nothing;
  CHECK(made_of_nothing.batch() == 0);
  made_of_nothing = heed::StaticKvCache<float>({1, 2}, 3, 1);
  CHECK(made_of_nothing.batch() == 3);
  CHECK(made_of_nothing.capacity() == 1);
}
