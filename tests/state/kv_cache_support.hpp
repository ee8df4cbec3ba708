// Caches of every kind, and a row's tokens as a plain list to compare them with.
#pragma once

#include <memory>
#include <vector>

#include "heed/state/kv_cache.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"

namespace test {

// A cache whose kind is known at run time only, and a KvCache itself: a test is compiled once, not once a kind, which
// is most of the time it takes to compile.
template <class T>
class AnyCache {
  using Heads = heed::View<const T, 4>;
  using Which = heed::PresentTokens;
  using Sources = heed::View<const std::int64_t, 1>;

 public:
  using value_type = T;

  template <heed::KvCache Cache>
  explicit AnyCache(Cache cache) : kind_(std::make_unique<Kind<Cache>>(std::move(cache))) {}

  AnyCache clone() const { return AnyCache(kind_->clone()); }
  Index batch() const { return kind_->batch(); }
  heed::KvCacheLayout layout() const { return kind_->layout(); }
  heed::View<const std::int64_t, 1> lengths() const { return kind_->key_values().lengths; }
  Index length(Index row) const { return static_cast<Index>(lengths()(row)); }
  Index kept(Index row) const { return kind_->kept(row); }
  Index most_keys() const { return kind_->most_keys(); }
  Index append_limit() const { return kind_->append_limit(); }
  heed::KeyValues<T> key_values() const noexcept { return kind_->key_values(); }
  heed::Problem check_append(Index tokens, const Which& which) const noexcept {
    return kind_->check_append(tokens, which);
  }
  void reserve(Index tokens, const Which& which = {}) { kind_->reserve(tokens, which); }
  void store(Heads key, Heads value, const Which& which) noexcept { kind_->store(key, value, which); }
  void append(Heads key, Heads value, const Which& which = {}) { kind_->append(key, value, which); }
  void read(Index row, heed::View<T, 3> key, heed::View<T, 3> value) const { kind_->read(row, key, value); }
  void truncate(Index row, Index length) { kind_->truncate(row, length); }
  void fork(Index from, Index to) { kind_->fork(from, to); }
  void reorder(Sources sources) { kind_->reorder(sources); }
  void reset() { kind_->reset(); }

 private:
  struct Any {
    virtual ~Any() = default;
    virtual std::unique_ptr<Any> clone() const = 0;
    virtual Index batch() const = 0;
    virtual heed::KvCacheLayout layout() const = 0;
    virtual Index kept(Index row) const = 0;
    virtual Index most_keys() const = 0;
    virtual Index append_limit() const = 0;
    virtual heed::KeyValues<T> key_values() const noexcept = 0;
    virtual heed::Problem check_append(Index tokens, const Which& which) const noexcept = 0;
    virtual void reserve(Index tokens, const Which& which) = 0;
    virtual void store(Heads key, Heads value, const Which& which) noexcept = 0;
    virtual void append(Heads key, Heads value, const Which& which) = 0;
    virtual void read(Index row, heed::View<T, 3> key, heed::View<T, 3> value) const = 0;
    virtual void truncate(Index row, Index length) = 0;
    virtual void fork(Index from, Index to) = 0;
    virtual void reorder(Sources sources) = 0;
    virtual void reset() = 0;
  };
  template <class Cache>
  struct Kind final : Any {
    explicit Kind(Cache&& cache_) : cache(std::move(cache_)) {}
    std::unique_ptr<Any> clone() const override { return std::make_unique<Kind>(cache.clone()); }
    Index batch() const override { return cache.batch(); }
    heed::KvCacheLayout layout() const override { return cache.layout(); }
    Index kept(Index row) const override { return cache.kept(row); }
    Index most_keys() const override { return cache.most_keys(); }
    Index append_limit() const override { return cache.append_limit(); }
    heed::KeyValues<T> key_values() const noexcept override { return cache.key_values(); }
    heed::Problem check_append(Index tokens, const Which& which) const noexcept override {
      return cache.check_append(tokens, which);
    }
    void reserve(Index tokens, const Which& which) override { cache.reserve(tokens, which); }
    void store(Heads key, Heads value, const Which& which) noexcept override { cache.store(key, value, which); }
    void append(Heads key, Heads value, const Which& which) override { cache.append(key, value, which); }
    void read(Index row, heed::View<T, 3> key, heed::View<T, 3> value) const override { cache.read(row, key, value); }
    void truncate(Index row, Index length) override { cache.truncate(row, length); }
    void fork(Index from, Index to) override { cache.fork(from, to); }
    void reorder(Sources sources) override { cache.reorder(sources); }
    void reset() override { cache.reset(); }
    Cache cache;
  };
  explicit AnyCache(std::unique_ptr<Any> kind) : kind_(std::move(kind)) {}

  std::unique_ptr<Any> kind_;
};

// Calls check(cache, name) with a cache of every kind that holds `capacity` tokens a row without dropping any.
template <class T, class Element = T, class F>
void for_each_cache(const heed::KvCacheLayout& layout, Index batch, Index capacity, F&& check) {
  check(AnyCache<T>(heed::StaticKvCache<T, Element>(layout, batch, capacity)), "static");
  check(AnyCache<T>(heed::GrowingKvCache<T, Element>(layout, batch)), "growing");
  check(AnyCache<T>(heed::SlidingKvCache<T, Element>(layout, batch, capacity)), "sliding");
  // Pages of 3 tokens: no panel and no tile ends where a page does.
  check(AnyCache<T>(heed::PagedKvCache<T, Element>(layout, batch, batch * (capacity / 3 + 1), 3)), "paged");
}

// Tokens [B, T, K, dim] that hold these numbers, row after row, in every head and dim.
template <class T>
heed::Tensor<T, 4> tokens_of(Index batch, Index length, const std::vector<double>& numbers, Index heads = 1,
                             Index dim = 1) {
  heed::Tensor<T, 4> tokens({batch, length, heads, dim});
  for (Index i = 0; i < tokens.size(); ++i)
    tokens.data()[i] = from_double<T>(numbers[static_cast<std::size_t>(i / (heads * dim))]);
  return tokens;
}

// Element 0 of every value that is kept of a row.
template <class Cache>
std::vector<double> kept_values(const Cache& cache, Index row) {
  using T = typename Cache::value_type;
  const heed::KvCacheLayout layout = cache.layout();
  heed::Tensor<T, 4> key({1, cache.kept(row), layout.num_kv_heads, layout.head_dim});
  heed::Tensor<T, 4> value({1, cache.kept(row), layout.num_kv_heads, layout.value_head_dim});
  cache.read(row, key.view()[0], value.view()[0]);
  std::vector<double> numbers;
  for (Index s = 0; s < cache.kept(row); ++s) numbers.push_back(to_double(value(0, s, 0, 0)));
  return numbers;
}

}  // namespace test
