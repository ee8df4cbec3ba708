// The keys and values of one tile as the products of attention read them: where they lie, or copied and widened.
#pragma once

#include <type_traits>

#include "heed/kernels/simd/attention_pack.hpp"
#include "heed/kernels/simd/attention_scratch.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI::impl {

template <class T>
class AttentionTokens {
 public:
  using A = accumulator_t<T>;

  // Of one kv head of a sequence. read_once: so few rows want them that the time is that of memory.
  AttentionTokens(const AttentionSequence<T>& sequence, const AttentionExtents& extents, Index kv_head,
                  const AttentionScratch<A>& scratch, Index value_panel, bool read_once) noexcept
      : key_(sequence.key),
        value_(sequence.value),
        kv_head_(kv_head),
        head_dim_(extents.head_dim),
        value_head_dim_(extents.value_head_dim),
        scratch_(scratch),
        room_(extents.keys < attention_tile_keys ? extents.keys : attention_tile_keys),
        value_panel_(value_panel),
        read_once_(read_once) {}

  // Keys that a tile has room for.
  Index room() const noexcept { return room_; }

  // The tile at key `key` of the sequence, of which `columns` are needed; nothing of the sequence from `end` on is.
  void take_keys(Index key, KeyRange columns, Index end) noexcept {
    tile_ = key;
    columns_ = columns;
    end_ = end;
    if constexpr (std::is_same_v<T, A>) {
      if (lie_well(key_, head_dim_)) {
        keys_ = {key_.token(key + columns.begin, kv_head_).elements, key_.heads.elements.stride(1), 1};
        return;
      }
    }
    keys_ = {scratch_.tile_keys, scratch_.key_stride, 1};
    for (Index column = columns.begin; column < columns.end; ++column) {
      const TokenHead<T> token = key_.token(key + column, kv_head_);
      fetch(key_, column + copied_ahead(), 1, head_dim_);
      A* const to = scratch_.tile_keys + (column - columns.begin) * scratch_.key_stride;
      for (Index d = 0; d < head_dim_; d += width) simd::store(to + d, load_token(token, d, head_dim_ - d));
    }
  }

  // The values of the same tile. full: every row attends all of them. Where one does not, it matters whether all are
  // finite, and they are copied to find that out.
  void take_values(bool full) noexcept {
    values_are_finite_ = true;
    if constexpr (std::is_same_v<T, A>) {
      if (full && value_head_dim_ % value_panel_ == 0 && lie_well(value_, value_head_dim_)) {
        values_ = {value_.token(tile_ + columns_.begin, kv_head_).elements, value_panel_, value_panel_,
                   value_.heads.elements.stride(1)};
        return;
      }
    }
    values_ = {scratch_.tile_values, room_ * value_panel_, value_panel_};
    simd::Vec<A> zeros = simd::broadcast<A>(0);
    for (Index column = columns_.begin; column < columns_.end; ++column) {
      const TokenHead<T> token = value_.token(tile_ + column, kv_head_);
      fetch(value_, column + copied_ahead(), 1, value_head_dim_);
      A* const to = scratch_.tile_values + (column - columns_.begin) * value_panel_;
      for (Index d = 0; d < scratch_.out_stride; d += width) {
        const simd::Vec<A> value =
            d < value_head_dim_ ? load_token(token, d, value_head_dim_ - d) : simd::broadcast<A>(0);
        simd::store(to + d / value_panel_ * values_.panel_stride + d % value_panel_, value);
        zeros = simd::fma(value, simd::broadcast<A>(0), zeros);  // NaN · 0 and inf · 0 are NaN
      }
    }
    values_are_finite_ = simd::reduce_add<A>(zeros) == 0;
  }

  bool values_are_finite() const noexcept { return values_are_finite_; }
  // From a column on: keys as rows [columns, D], values as panels [columns, Dv].
  simd::Rows<A> keys(Index column) const noexcept { return from(keys_, column); }
  simd::Panels<A> values(Index column) const noexcept { return from(values_, column); }

  // Calls f(first, count) for pieces of a range of columns; once, if there is none. Before a piece is read, what comes
  // some pieces later is asked for.
  template <class F>
  HEED_INLINE void for_each_piece_of_keys(KeyRange columns, F&& f) const noexcept {
    for_each_piece(key_, head_dim_, columns, f);
  }
  template <class F>
  HEED_INLINE void for_each_piece_of_values(KeyRange columns, F&& f) const noexcept {
    for_each_piece(value_, value_head_dim_, columns, f);
  }

 private:
  static constexpr Index width = simd::width<A>;
  static constexpr Index piece = 28;  // two register tiles of AVX-512

  // How far ahead of its copying or its use a token is asked for.
  static constexpr Index used_ahead = 2 * piece;
  Index copied_ahead() const noexcept { return read_once_ ? used_ahead : 16; }

  // True if tokens can be read where they lie: numbers of the accumulator's type, one behind the other, or for few rows.
  // (Tokens far apart are in each other's way in the cache.)
  bool lie_well(const RowHeads<T>& heads, Index dim) const noexcept {
    return heads.is_strided(tile_ + columns_.begin, columns_.end - columns_.begin) &&
           (heads.heads.elements.stride(1) == dim || read_once_);
  }

  template <class F>
  HEED_INLINE void for_each_piece(const RowHeads<T>& heads, Index dim, KeyRange columns, F& f) const noexcept {
    const Index most = read_once_ ? piece : attention_tile_keys;
    Index first = columns.begin;
    do {
      const Index count = columns.end - first < most ? columns.end - first : most;
      if (read_once_) fetch(heads, first + used_ahead, count, dim);
      f(first, count);
      first += count;
    } while (first < columns.end);
  }

  // Asks for `count` tokens from a column on, as far as they are going to be read. (Inline, because g++ takes a function
  // that does nothing else for one that does nothing.)
  HEED_INLINE void fetch(const RowHeads<T>& heads, Index column, Index count, Index dim) const noexcept {
    Index key = tile_ + column;
    for (const Index end = key + count; key < end && key < end_; ++key) {
      const TokenHead<T> token = heads.token(key, kv_head_);
      const char* const from = token.codes == nullptr ? reinterpret_cast<const char*>(token.elements)
                                                      : reinterpret_cast<const char*>(token.codes);
      const Index bytes = dim * (token.codes == nullptr ? static_cast<Index>(sizeof(T)) : 1);
      for (Index offset = 0; offset < bytes; offset += 64) simd::prefetch(from + offset);
    }
  }

  template <class Matrix>
  Matrix from(Matrix matrix, Index column) const noexcept {
    if (column > columns_.begin) matrix.data += (column - columns_.begin) * matrix.row_stride;  // else nothing is read
    return matrix;
  }

  const RowHeads<T> key_;
  const RowHeads<T> value_;
  const Index kv_head_;
  const Index head_dim_;
  const Index value_head_dim_;
  const AttentionScratch<A>& scratch_;
  const Index room_;
  const Index value_panel_;
  const bool read_once_;
  Index tile_ = 0;
  KeyRange columns_ = {0, 0};
  Index end_ = 0;
  simd::Rows<A> keys_ = {};      // from columns_.begin on
  simd::Panels<A> values_ = {};  // the same
  bool values_are_finite_ = true;
};

}  // namespace heed::inline HEED_ABI::impl
