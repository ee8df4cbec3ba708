// KV caches: the keys and values of the tokens a layer has seen, kept so that the next token costs one row.
//
//   StaticKvCache<T>    a fixed capacity for each row
//   GrowingKvCache<T>   takes more memory when full
//   SlidingKvCache<T>   the last tokens of each row, for sliding windows
//   PagedKvCache<T>     rows share a pool of pages; rows that begin alike share pages
//
// Each of them also as 8-bit codes with a scale for each token and head: StaticKvCache<T, std::int8_t> (Int8KvCache<T>),
// PagedKvCache<T, std::int8_t>, …. A cache belongs to one layer and one batch of rows. Rows have lengths of their own;
// padding is never appended. Cached keys carry the position, and the RoPE frequencies, that they were appended with.
#pragma once

#include <concepts>

#include "heed/state/growing_kv_cache.hpp"
#include "heed/state/paged_kv_cache.hpp"
#include "heed/state/sliding_kv_cache.hpp"
#include "heed/state/static_kv_cache.hpp"

namespace heed {

// What layers ask of a cache; a cache of your own needs no more.
//
//   cache.check_append(tokens, which)   is there room? noexcept; changes nothing
//   cache.reserve(tokens, which)        makes it: the only one that may allocate
//   cache.store(key, value, which)      appends; noexcept
//   cache.key_values()                  where all of it lies
//   cache.append_limit()                the most tokens that one round of these takes
template <class Cache>
concept KvCache = Scalar<typename Cache::value_type> &&
    requires(Cache& cache, const Cache& same, Index tokens, const PresentTokens& which,
             View<const typename Cache::value_type, 4> heads) {
  { same.batch() } -> std::convertible_to<Index>;
  { same.layout() } -> std::convertible_to<KvCacheLayout>;
  { same.lengths() } -> std::convertible_to<View<const std::int64_t, 1>>;
  { same.most_keys() } -> std::convertible_to<Index>;
  { same.append_limit() } -> std::convertible_to<Index>;
  { same.check_append(tokens, which) }
  noexcept->std::same_as<Problem>;
  { same.key_values() }
  noexcept->std::same_as<KeyValues<typename Cache::value_type>>;
  { cache.store(heads, heads, which) }
  noexcept;
  cache.reserve(tokens, which);
};

}  // namespace heed
