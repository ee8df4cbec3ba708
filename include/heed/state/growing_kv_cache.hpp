// GrowingKvCache: a KV cache that takes more memory when it is full.
#pragma once

#include "heed/state/kv_rows.hpp"

namespace heed {

// As StaticKvCache, but append() and layers' forward() allocate when a row is full: at least twice the room there was,
// so that a token is copied a bounded number of times. That happens at the door, before anything is written; without
// memory it is std::bad_alloc and an unchanged cache. reserve() beforehand avoids it.
template <Scalar T, class Element = T>
class GrowingKvCache : public detail::KvRows<T, Element> {
  using Rows = detail::KvRows<T, Element>;

 public:
  HEED_INLINE GrowingKvCache() noexcept {}
  // Layers' make_cache() says the layout; `capacity` is what it begins with. Errors: OptionError.
  HEED_INLINE explicit GrowingKvCache(const KvCacheLayout& layout, Index batch = 1, Index capacity = 0)
      : Rows("GrowingKvCache", layout, batch, capacity, 0) {}
  HEED_INLINE GrowingKvCache(GrowingKvCache&&) noexcept = default;
  HEED_INLINE GrowingKvCache& operator=(GrowingKvCache&&) noexcept = default;
  HEED_INLINE ~GrowingKvCache() = default;

  // A copy. Allocates.
  [[nodiscard]] HEED_INLINE GrowingKvCache clone() const { return *this; }

  // Tokens that a row has room for at present.
  HEED_INLINE Index capacity() const noexcept { return this->storage_.slots(); }
  // The same, for workspaces: a workspace for this cache holds until the cache grows.
  HEED_INLINE Index most_keys() const noexcept { return capacity(); }
  HEED_INLINE static constexpr Index append_limit() noexcept { return unlimited_tokens; }

  // Appends tokens that are there to each row: key [B, T, K, D], value [B, T, K, Dv], which of them. Allocates if a row
  // is full. Errors: ShapeError, OptionError.
  HEED_INLINE void append(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which = {}) {
    raise_if(check_kv_append("GrowingKvCache::append", this->layout(), this->batch(), key, value, which));
    reserve(key.extent(1), which);
    this->store(key, value, which);
  }
  [[nodiscard]] HEED_INLINE Problem check_append(Index, const PresentTokens& = {}) const noexcept { return {}; }

  // Makes room for these of `tokens` more tokens.
  HEED_INLINE void reserve(Index tokens, const PresentTokens& which = {}) {
    Index needed = 0;
    Index used = 0;
    for (Index b = 0; b < this->batch(); ++b) {
      const Index length = this->length(b);
      const Index after = length + which.count(b, tokens);
      needed = after > needed ? after : needed;
      used = length > used ? length : used;
    }
    if (needed <= capacity()) return;
    const Index grown = needed > 2 * capacity() ? needed : 2 * capacity();
    detail::KvStorage<T, Element> storage(this->batch(), grown, this->layout());
    storage.copy_blocks(this->storage_, used);
    this->storage_.swap(storage);
  }

 private:
  HEED_INLINE GrowingKvCache(const GrowingKvCache&) = default;
};

}  // namespace heed
