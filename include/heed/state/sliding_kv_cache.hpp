// SlidingKvCache: a KV cache that keeps the last tokens of each row, for sliding windows, in constant memory.
#pragma once

#include "heed/state/kv_rows.hpp"

namespace heed {

// Keeps the last `window` tokens of each row. Positions count on: lengths() are those of the whole rows, and a key is
// still at the position it was appended at. Attention through it is attention with a window of W tokens, {W − 1, 0}, or
// less if the options say so, bit for bit what a cache that keeps everything gives, for any cut into calls.
//
// A row has room for the window and for as many tokens as one call may append (append_limit(), as many again if not
// said otherwise); layers cut longer calls up, so that a prompt may be longer than the window. When the room is used
// up, the window moves to its beginning: one copy of W tokens for every append_limit() new ones.
template <Scalar T, class Element = T>
class SlidingKvCache : public detail::KvRows<T, Element> {
  using Rows = detail::KvRows<T, Element>;

 public:
  HEED_INLINE SlidingKvCache() noexcept {}
  // Layers' make_cache() says the layout. `append_limit` 0: as large as the window. Allocates all it will ever need.
  // Errors: OptionError.
  HEED_INLINE SlidingKvCache(const KvCacheLayout& layout, Index batch, Index window, Index append_limit = 0)
      : Rows("SlidingKvCache", layout, batch, slots_for(window, append_limit), window) {}
  HEED_INLINE SlidingKvCache(SlidingKvCache&&) noexcept = default;
  HEED_INLINE SlidingKvCache& operator=(SlidingKvCache&&) noexcept = default;
  HEED_INLINE ~SlidingKvCache() = default;

  // A copy. Allocates.
  [[nodiscard]] HEED_INLINE SlidingKvCache clone() const { return *this; }

  HEED_INLINE Index window() const noexcept { return this->window_; }
  // Keys that attention may meet in a row, however long it is; for workspaces.
  HEED_INLINE Index most_keys() const noexcept { return this->storage_.slots() + attention_tile_keys; }
  // The most tokens of one append().
  HEED_INLINE Index append_limit() const noexcept { return this->storage_.slots() - window(); }

  // Appends tokens that are there to each row: key [B, T, K, D], value [B, T, K, Dv], T at most append_limit(), which
  // of them. Until the next append() what the first of them attends is there, too. Allocates nothing. Errors:
  // ShapeError, OptionError, CapacityError; the cache is then unchanged.
  HEED_INLINE void append(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which = {}) {
    raise_if(check_kv_append("SlidingKvCache::append", this->layout(), this->batch(), key, value, which));
    raise_if(check_append(key.extent(1), which));
    reserve(key.extent(1), which);
    this->store(key, value, which);
  }
  [[nodiscard]] HEED_INLINE Problem check_append(Index tokens, const PresentTokens& = {}) const noexcept {
    if (tokens <= append_limit()) return {};
    return problem_at(ErrorKind::capacity, "SlidingKvCache::append", "cache")
        .append("takes at most ")
        .append(append_limit())
        .append(" tokens at once (its capacity beside the window), got ")
        .append(tokens);
  }
  // Forgets what has left the window, where the room is needed.
  HEED_INLINE void reserve(Index tokens, const PresentTokens& which = {}) noexcept {
    for (Index b = 0; b < this->batch(); ++b) {
      if (this->slots_used(b) + which.count(b, tokens) > this->storage_.slots()) this->keep_last(b, window());
    }
  }

 private:
  HEED_INLINE SlidingKvCache(const SlidingKvCache&) = default;

  HEED_INLINE static Index slots_for(Index window, Index append_limit) {
    raise_if(first_problem(check_kv_size("SlidingKvCache", "window", window, 1),
                           check_kv_size("SlidingKvCache", "append_limit", append_limit, 0)));
    return window + (append_limit > 0 ? append_limit : window);
  }
};

}  // namespace heed
