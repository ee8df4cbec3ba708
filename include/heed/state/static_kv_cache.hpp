// StaticKvCache: a KV cache of fixed capacity.
#pragma once

#include "heed/state/kv_rows.hpp"

namespace heed {

// Keys and values of one layer for a batch of rows, at most `capacity` tokens each, all memory taken at construction.
//
//   auto cache = attention.make_cache(batch, capacity);
//   attention.forward(cpu, x, cache, out, workspace);     // appends and attends
//   cache.truncate(row, length);                          // takes tokens back
//   cache.reorder(sources);                               // beam search: row i becomes row sources(i)
//   auto copy = cache.clone();                            // copies are explicit: a cache may be large
//
// Element is T, or std::int8_t: then each token and head is kept as 8-bit codes with a scale of its own, off by at most
// max |x| / 254 of that head, in a quarter of float's memory. Movable, not copyable. Used by one call at a time.
template <Scalar T, class Element = T>
class StaticKvCache : public detail::KvRows<T, Element> {
  using Rows = detail::KvRows<T, Element>;

 public:
  HEED_INLINE StaticKvCache() noexcept {}
  // Layers' make_cache() says the layout. Allocates all it will ever need. Errors: OptionError.
  HEED_INLINE StaticKvCache(const KvCacheLayout& layout, Index batch, Index capacity)
      : Rows("StaticKvCache", layout, batch, capacity, 0) {}
  HEED_INLINE StaticKvCache(StaticKvCache&&) noexcept = default;
  HEED_INLINE StaticKvCache& operator=(StaticKvCache&&) noexcept = default;
  HEED_INLINE ~StaticKvCache() = default;

  // A copy. Allocates.
  [[nodiscard]] HEED_INLINE StaticKvCache clone() const { return *this; }

  // Tokens that a row has room for.
  HEED_INLINE Index capacity() const noexcept { return this->storage_.slots(); }
  // The most tokens that a row can have; for workspaces.
  HEED_INLINE Index most_keys() const noexcept { return capacity(); }
  HEED_INLINE static constexpr Index append_limit() noexcept { return unlimited_tokens; }

  // Appends tokens that are there to each row.
  //
  //   key    [B, T, K, D]
  //   value  [B, T, K, Dv]
  //   which  of the tokens; left out: all
  //
  // Allocates nothing. Errors: ShapeError, OptionError, CapacityError; the cache is then unchanged.
  HEED_INLINE void append(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which = {}) {
    raise_if(check_kv_append("StaticKvCache::append", this->layout(), this->batch(), key, value, which));
    raise_if(check_append(key.extent(1), which));
    this->store(key, value, which);
  }
  // Is there room for these of `tokens` tokens?
  [[nodiscard]] HEED_INLINE Problem check_append(Index tokens, const PresentTokens& which = {}) const noexcept {
    for (Index b = 0; b < this->batch(); ++b) {
      const Index more = which.count(b, tokens);
      if (this->length(b) + more > capacity())
        return row_is_full("StaticKvCache::append", capacity(), b, this->length(b), more);
    }
    return {};
  }
  HEED_INLINE void reserve(Index, const PresentTokens& = {}) noexcept {}

 private:
  HEED_INLINE StaticKvCache(const StaticKvCache&) = default;
};

// 8-bit codes with a scale for each token and head.
template <Scalar T>
using Int8KvCache = StaticKvCache<T, std::int8_t>;

}  // namespace heed
