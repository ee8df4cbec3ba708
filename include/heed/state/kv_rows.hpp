// What the caches have in common whose rows lie each in one piece: static, growing and sliding.
#pragma once

#include <utility>

#include "heed/state/kv_storage.hpp"

namespace heed::detail {

// Lengths and storage of a batch of rows, and all that is done to rows that are there already.
template <Scalar T, class Element>
class KvRows {
 public:
  using value_type = T;

  HEED_INLINE Index batch() const noexcept { return lengths_.extent(0); }
  HEED_INLINE const KvCacheLayout& layout() const noexcept { return layout_; }
  // [B]: tokens that each row was ever given, less those taken back; a new token's position.
  HEED_INLINE View<const std::int64_t, 1> lengths() const noexcept { return lengths_; }
  HEED_INLINE Index length(Index row) const noexcept { return static_cast<Index>(lengths_(row)); }
  // The first of a row's tokens that is kept, and how many are.
  HEED_INLINE Index first_kept(Index row) const noexcept {
    const auto first = static_cast<Index>(first_(row));
    const Index window_start = window_ > 0 ? length(row) - window_ : 0;
    return first > window_start ? first : window_start;
  }
  HEED_INLINE Index kept(Index row) const noexcept { return length(row) - first_kept(row); }
  // Bytes of all that is kept.
  HEED_INLINE Index size_bytes() const noexcept {
    return storage_.size_bytes() + 3 * lengths_.size() * static_cast<Index>(sizeof(std::int64_t));
  }

  // Copies what is kept of a row: key [kept(row), K, D], value [kept(row), K, Dv]. Errors: ShapeError, OptionError.
  HEED_INLINE void read(Index row, View<T, 3> key, View<T, 3> value) const {
    raise_if(check_kv_row(name_, "row", row, batch()));
    const Axis tokens{"tokens", kept(row)};
    const Axis heads{"kv heads", layout_.num_kv_heads};
    raise_if(first_problem(
        check_output(name_, "key", key, {tokens, heads, {"head dim", layout_.head_dim}}),
        check_output(name_, "value", value, {tokens, heads, {"value head dim", layout_.value_head_dim}})));
    read_kv_row(key_values(), row, first_kept(row), key, value);
  }

  // Takes back all tokens of a row but the first `length` ones: after a rejected draft, or to begin again with 0.
  // Errors: OptionError if the row is shorter, or no longer has what the next token would attend; the cache is then
  // unchanged.
  HEED_INLINE void truncate(Index row, Index length) {
    raise_if(check_truncate(row, length));
    lengths_(row) = length;
    if (length == 0) first_(row) = 0;
  }
  [[nodiscard]] HEED_INLINE Problem check_truncate(Index row, Index length) const noexcept {
    const Problem problem = check_kv_row(name_, "row", row, batch());
    if (problem) return problem;
    const auto first = static_cast<Index>(first_(row));
    const Index least = first > 0 && length > 0 ? first + window_ - 1 : 0;
    return check_kv_truncate(name_, row, length, least, this->length(row));
  }
  // All rows as if nothing had been appended.
  HEED_INLINE void reset() noexcept {
    lengths_.fill(0);
    first_.fill(0);
  }

  // Row `to` becomes a copy of row `from`. Errors: OptionError.
  HEED_INLINE void fork(Index from, Index to) {
    raise_if(first_problem(check_kv_row(name_, "from", from, batch()), check_kv_row(name_, "to", to, batch())));
    copy_row(from, to);
  }

  // Row i becomes what row sources(i) was, for all rows at once: the step of a beam search. Copies only what changes
  // its place; allocates nothing. Errors: ShapeError, OptionError.
  HEED_INLINE void reorder(View<const std::int64_t, 1> sources) {
    raise_if(check_kv_sources(name_, sources, batch()));
    // How often a row is still to be copied; −1: it is in its place.
    const View<std::int64_t, 1> uses = uses_;
    for (Index i = 0; i < batch(); ++i) uses(i) = sources(i) == i ? -1 : 0;
    for (Index i = 0; i < batch(); ++i) {
      if (uses(i) >= 0 && uses(static_cast<Index>(sources(i))) >= 0) ++uses(static_cast<Index>(sources(i)));
    }
    // A row that no other one waits for can be written. What it was a copy of may then be free in turn.
    for (bool progress = true; progress;) {
      progress = false;
      for (Index i = 0; i < batch(); ++i) {
        if (uses(i) != 0) continue;
        const auto from = static_cast<Index>(sources(i));
        copy_row(from, i);
        uses(i) = -1;
        if (uses(from) > 0) --uses(from);
        progress = true;
      }
    }
    // What is left are rings of rows, each the source of one other: exchanged along the ring.
    for (Index i = 0; i < batch(); ++i) {
      for (Index row = i; uses(row) > 0;) {
        const auto from = static_cast<Index>(sources(row));
        uses(row) = -1;
        if (uses(from) > 0) exchange_rows(row, from);
        row = from;
      }
    }
  }

  // What ops::attention reads. The views hold until the next append to a growing cache, and as long as the cache lives.
  HEED_INLINE KeyValues<T> key_values() const noexcept {
    return {storage_.key(), storage_.value(), lengths_, first_, {}, window_};
  }

  // append() in three steps, for layers: check_append() of the cache itself, reserve(), and this, which has room.
  HEED_INLINE void store(View<const T, 4> key, View<const T, 4> value, const PresentTokens& which = {}) noexcept {
    for (Index b = 0; b < batch(); ++b) {
      for (Index t = 0; t < key.extent(1); ++t) {
        if (!which(b, t)) continue;
        HEED_ASSERT(slots_used(b) < storage_.slots());
        storage_.write(b, slots_used(b), key[b][t], value[b][t]);
        ++lengths_(b);
      }
    }
  }

 protected:
  HEED_INLINE KvRows() noexcept {}
  HEED_INLINE KvRows(const char* name, const KvCacheLayout& layout, Index batch, Index slots, Index window)
      : name_(name), window_(window), layout_(layout) {
    raise_if(first_problem(check_kv_layout(name, layout, batch), check_kv_size(name, "capacity", slots, 0)));
    storage_ = KvStorage<T, Element>(batch, slots, layout);
    lengths_ = Tensor<std::int64_t, 1>({batch});
    first_ = Tensor<std::int64_t, 1>({batch});
    uses_ = Tensor<std::int64_t, 1>({batch});
  }
  HEED_INLINE KvRows(const KvRows&) = default;
  HEED_INLINE KvRows(KvRows&&) noexcept = default;
  HEED_INLINE KvRows& operator=(const KvRows&) = delete;
  HEED_INLINE KvRows& operator=(KvRows&&) noexcept = default;
  HEED_INLINE ~KvRows() = default;

  // Slots of a row that hold tokens, from slot 0 on.
  HEED_INLINE Index slots_used(Index row) const noexcept { return static_cast<Index>(lengths_(row) - first_(row)); }

  HEED_INLINE void copy_row(Index from, Index to) noexcept {
    if (from == to) return;
    storage_.move(from, 0, to, 0, slots_used(from));
    lengths_(to) = lengths_(from);
    first_(to) = first_(from);
  }
  HEED_INLINE void exchange_rows(Index a, Index b) noexcept {
    storage_.exchange(a, b, slots_used(a) > slots_used(b) ? slots_used(a) : slots_used(b));
    std::swap(lengths_(a), lengths_(b));
    std::swap(first_(a), first_(b));
  }
  // Forgets all but the last `count` tokens of a row, which move to slot 0.
  HEED_INLINE void keep_last(Index row, Index count) noexcept {
    const Index dropped = slots_used(row) - count;
    if (dropped <= 0) return;
    storage_.move(row, dropped, row, 0, count);
    first_(row) += dropped;
  }

  const char* name_ = "";
  Index window_ = 0;  // 0: all tokens are kept
  KvCacheLayout layout_;
  KvStorage<T, Element> storage_;
  Tensor<std::int64_t, 1> lengths_;
  Tensor<std::int64_t, 1> first_;  // the token in slot 0
  Tensor<std::int64_t, 1> uses_;   // for reorder()
};

}  // namespace heed::detail
