// Caches of every kind, and a row's tokens as a plain list to compare them with.
#pragma once

#include <vector>

#include "heed/state/kv_cache.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"

namespace test {

// Calls check(cache, name) with a cache of every kind that holds `capacity` tokens a row without dropping any.
template <class T, class Element = T, class F>
void for_each_cache(const heed::KvCacheLayout& layout, Index batch, Index capacity, F&& check) {
  check(heed::StaticKvCache<T, Element>(layout, batch, capacity), "static");
  check(heed::GrowingKvCache<T, Element>(layout, batch), "growing");
  check(heed::SlidingKvCache<T, Element>(layout, batch, capacity), "sliding");
  // Pages of 3 tokens: no panel and no tile ends where a page does.
  check(heed::PagedKvCache<T, Element>(layout, batch, batch * (capacity / 3 + 1), 3), "paged");
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
  const auto& layout = cache.layout();
  heed::Tensor<T, 4> key({1, cache.kept(row), layout.num_kv_heads, layout.head_dim});
  heed::Tensor<T, 4> value({1, cache.kept(row), layout.num_kv_heads, layout.value_head_dim});
  cache.read(row, key.view()[0], value.view()[0]);
  std::vector<double> numbers;
  for (Index s = 0; s < cache.kept(row); ++s) numbers.push_back(to_double(value(0, s, 0, 0)));
  return numbers;
}

}  // namespace test
