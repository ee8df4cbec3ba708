// PagedKvCache: a KV cache whose rows share a pool of pages, and where rows that begin alike share the pages themselves.
#pragma once

#include <utility>

#include "heed/state/kv_storage.hpp"

namespace heed {

// Rows take pages of `page_length` tokens from a pool as they grow, and give them back. fork() makes a row that begins
// as another one does without copying: both tables name the same pages, which are counted. A page that several rows
// hold is never written: a row that appends to one takes a copy of it first.
//
//   auto cache = attention.make_cache<heed::PagedKvCache<float>>(batch, pages, page_length);
//   attention.forward(cpu, prompt, cache, out, workspace, {.lengths = only_row_0});
//   for (Index row = 1; row < batch; ++row) cache.fork(0, row);      // one prompt, many continuations
//
// Attention has the bits that it has through the other caches. Movable, not copyable. Used by one call at a time.
// Source: Kwon et al. 2023 (arXiv 2309.06180).
template <Scalar T, class Element = T>
class PagedKvCache {
 public:
  using value_type = T;

  HEED_INLINE PagedKvCache() noexcept {}
  // Layers' make_cache() says the layout. row_pages is the most pages of one row, 0: all. Allocates all it will ever
  // need. Errors: OptionError.
  HEED_INLINE PagedKvCache(const KvCacheLayout& layout, Index batch, Index pages, Index page_length = 64,
                           Index row_pages = 0)
      : layout_(layout) {
    raise_if(first_problem(check_kv_layout(name, layout, batch), check_kv_size(name, "pages", pages, 0),
                           check_kv_size(name, "page_length", page_length, 1),
                           check_kv_size(name, "row_pages", row_pages, 0)));
    if (row_pages == 0 || row_pages > pages) row_pages = pages;
    page_length_ = page_length;
    storage_ = detail::KvStorage<T, Element>(pages, page_length, layout);
    lengths_ = Tensor<std::int64_t, 1>({batch});
    other_lengths_ = Tensor<std::int64_t, 1>({batch});
    held_ = Tensor<std::int64_t, 1>({batch});
    table_ = Tensor<std::int64_t, 2>({batch, row_pages});
    other_table_ = Tensor<std::int64_t, 2>({batch, row_pages});
    references_ = Tensor<std::int64_t, 1>({pages});
    free_ = Tensor<std::int64_t, 1>({pages});
    reset();
  }
  HEED_INLINE PagedKvCache(PagedKvCache&&) noexcept = default;
  HEED_INLINE PagedKvCache& operator=(PagedKvCache&&) noexcept = default;
  HEED_INLINE ~PagedKvCache() = default;

  // A copy with a pool of its own. Allocates.
  [[nodiscard]] HEED_INLINE PagedKvCache clone() const { return *this; }

  HEED_INLINE Index batch() const noexcept { return lengths_.extent(0); }
  HEED_INLINE const KvCacheLayout& layout() const noexcept { return layout_; }
  HEED_INLINE Index pages() const noexcept { return free_.extent(0); }
  HEED_INLINE Index page_length() const noexcept { return page_length_; }
  HEED_INLINE Index free_pages() const noexcept { return free_count_; }
  // Tokens that one row can have, if it finds the pages.
  HEED_INLINE Index capacity() const noexcept { return table_.extent(1) * page_length(); }
  HEED_INLINE Index most_keys() const noexcept { return capacity(); }
  HEED_INLINE static constexpr Index append_limit() noexcept { return unlimited_tokens; }
  // [B]: tokens of each row; a new token's position.
  HEED_INLINE View<const std::int64_t, 1> lengths() const noexcept { return lengths_; }
  HEED_INLINE Index length(Index row) const noexcept { return static_cast<Index>(lengths_(row)); }
  HEED_INLINE Index kept(Index row) const noexcept { return length(row); }
  // Bytes of all that is kept.
  HEED_INLINE Index size_bytes() const noexcept {
    const Index numbers = 3 * lengths_.size() + table_.size() + other_table_.size() + references_.size() + free_.size();
    return storage_.size_bytes() + numbers * static_cast<Index>(sizeof(std::int64_t));
  }

  // Copies a row: key [length, K, D], value [length, K, Dv]. Errors: ShapeError, OptionError.
  HEED_INLINE void read(Index row, View<T, 3> key, View<T, 3> value) const {
    raise_if(check_kv_row(name, "row", row, batch()));
    const Axis tokens{"tokens", length(row)};
    const Axis heads{"kv heads", layout_.num_kv_heads};
    raise_if(
        first_problem(check_output(name, "key", key, {tokens, heads, {"head dim", layout_.head_dim}}),
                      check_output(name, "value", value, {tokens, heads, {"value head dim", layout_.value_head_dim}})));
    detail::read_kv_row(key_values(), row, 0, key, value);
  }

  // What ops::attention reads; the views hold as long as the cache lives.
  HEED_INLINE KeyValues<T> key_values() const noexcept {
    return {storage_.key(), storage_.value(), lengths_, {}, table_, 0};
  }

  // Appends tokens that are there to each row: key [B, T, K, D], value [B, T, K, Dv], which of them. Allocates nothing.
  // Errors: ShapeError, OptionError, CapacityError if the pool or a row's table has too few pages; the cache is then
  // unchanged.
  HEED_INLINE void append(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which = {}) {
    raise_if(check_kv_append("PagedKvCache::append", layout(), batch(), key, value, which));
    raise_if(check_append(key.extent(1), which));
    reserve(key.extent(1), which);
    store(key, value, which);
  }

  // Are there pages for these of `tokens` tokens?
  [[nodiscard]] HEED_INLINE Problem check_append(Index tokens, const PresentTokens& which = {}) const noexcept {
    const char* door = "PagedKvCache::append";
    Index needed = 0;
    for (Index b = 0; b < batch(); ++b) {
      const Index more = which.count(b, tokens);
      if (more == 0) continue;
      if (length(b) + more > capacity()) return row_is_full(door, capacity(), b, length(b), more);
      const Index lacking = pages_for(length(b) + more) - held(b);
      if (lacking > 0) needed += lacking;
      if (!writes_shared_page(b)) continue;
      // The last holder of a page keeps it; those that come to it before, take copies.
      Index holders = static_cast<Index>(references_(last_page(b)));
      for (Index before = 0; before < b; ++before) {
        if (which.count(before, tokens) > 0 && is_partial(before) && last_page(before) == last_page(b)) --holders;
      }
      if (holders > 1) ++needed;
    }
    if (needed <= free_pages()) return {};
    return problem_at(ErrorKind::capacity, door, "cache")
        .append("has ")
        .append(pages())
        .append(" pages of ")
        .append(page_length())
        .append(" tokens (its capacity), ")
        .append(free_pages())
        .append(" of them free; ")
        .append(needed)
        .append(" would be needed");
  }
  // Gives each row the pages for these of `tokens` tokens, and a page of its own where it would write a shared one.
  HEED_INLINE void reserve(Index tokens, const PresentTokens& which = {}) noexcept {
    for (Index b = 0; b < batch(); ++b) {
      const Index more = which.count(b, tokens);
      if (more == 0) continue;
      if (writes_shared_page(b)) {
        const Index shared = last_page(b);
        const Index own = take_page();
        storage_.move(shared, 0, own, 0, length(b) % page_length());
        --references_(shared);
        table_(b, length(b) / page_length()) = own;
      }
      while (held(b) < pages_for(length(b) + more)) table_(b, held_(b)++) = take_page();
    }
  }
  // Writes tokens that reserve() has made room for.
  HEED_INLINE void store(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which = {}) noexcept {
    for (Index b = 0; b < batch(); ++b) {
      for (Index t = 0; t < key.extent(1); ++t) {
        if (!which(b, t)) continue;
        const Index at = length(b);
        storage_.write(static_cast<Index>(table_(b, at / page_length())), at % page_length(), key[b][t], value[b][t]);
        ++lengths_(b);
      }
    }
  }

  // Takes back all tokens of a row but the first `length` ones; pages that nobody holds any more become free. Errors:
  // OptionError.
  HEED_INLINE void truncate(Index row, Index length) {
    raise_if(check_truncate(row, length));
    while (held(row) > pages_for(length)) release(static_cast<Index>(table_(row, --held_(row))));
    lengths_(row) = length;
  }
  [[nodiscard]] HEED_INLINE Problem check_truncate(Index row, Index length) const noexcept {
    const Problem problem = check_kv_row(name, "row", row, batch());
    return problem ? problem : check_kv_truncate(name, row, length, 0, this->length(row));
  }
  // All rows empty, all pages free.
  HEED_INLINE void reset() noexcept {
    lengths_.fill(0);
    held_.fill(0);
    references_.fill(0);
    free_count_ = pages();
    for (Index i = 0; i < pages(); ++i) free_(i) = pages() - 1 - i;
  }

  // Row `to` becomes what row `from` is, by holding the same pages; truncate(to, n) then shares a prefix of n tokens.
  // Errors: OptionError.
  HEED_INLINE void fork(Index from, Index to) {
    raise_if(first_problem(check_kv_row(name, "from", from, batch()), check_kv_row(name, "to", to, batch())));
    if (from == to) return;
    truncate(to, 0);
    while (held(to) < pages_for(length(from))) {
      const Index page = static_cast<Index>(table_(from, held(to)));
      ++references_(page);
      table_(to, held_(to)++) = page;
    }
    lengths_(to) = lengths_(from);
  }

  // Row i becomes what row sources(i) was, for all rows at once: the step of a beam search. Copies no keys, allocates
  // nothing. Errors: ShapeError, OptionError.
  HEED_INLINE void reorder(View<const std::int64_t, 1> sources) {
    raise_if(check_kv_sources(name, sources, batch()));
    for (Index b = 0; b < batch(); ++b) {
      const auto from = static_cast<Index>(sources(b));
      other_lengths_(b) = lengths_(from);
      for (Index i = 0; i < pages_for(length(from)); ++i) {
        other_table_(b, i) = table_(from, i);
        ++references_(static_cast<Index>(table_(from, i)));
      }
    }
    for (Index b = 0; b < batch(); ++b) {
      while (held(b) > 0) release(static_cast<Index>(table_(b, --held_(b))));
    }
    table_.swap(other_table_);
    lengths_.swap(other_lengths_);
    for (Index b = 0; b < batch(); ++b) held_(b) = pages_for(length(b));
  }

 private:
  static constexpr const char* name = "PagedKvCache";

  HEED_INLINE PagedKvCache(const PagedKvCache&) = default;

  HEED_INLINE Index held(Index row) const noexcept { return static_cast<Index>(held_(row)); }
  HEED_INLINE Index pages_for(Index length) const noexcept { return (length + page_length() - 1) / page_length(); }
  HEED_INLINE bool is_partial(Index row) const noexcept { return length(row) % page_length() != 0; }
  HEED_INLINE Index last_page(Index row) const noexcept {
    return static_cast<Index>(table_(row, (length(row) - 1) / page_length()));
  }
  HEED_INLINE bool writes_shared_page(Index row) const noexcept {
    return is_partial(row) && references_(last_page(row)) > 1;
  }
  HEED_INLINE Index take_page() noexcept {
    HEED_ASSERT(free_count_ > 0);
    const auto page = static_cast<Index>(free_(--free_count_));
    references_(page) = 1;
    return page;
  }
  HEED_INLINE void release(Index page) noexcept {
    if (--references_(page) == 0) free_(free_count_++) = page;
  }

  KvCacheLayout layout_;
  Index page_length_ = 1;
  detail::KvStorage<T, Element> storage_;
  Tensor<std::int64_t, 1> lengths_;
  Tensor<std::int64_t, 1> held_;        // [B]: pages of each row, reserved ones included
  Tensor<std::int64_t, 2> table_;       // [B, pages of a row]
  Tensor<std::int64_t, 1> references_;  // [pages]: rows that hold it
  Tensor<std::int64_t, 1> free_;        // [pages]: the first free_count_ are free
  Index free_count_ = 0;
  Tensor<std::int64_t, 1> other_lengths_;  // for reorder()
  Tensor<std::int64_t, 2> other_table_;
};

}  // namespace heed
