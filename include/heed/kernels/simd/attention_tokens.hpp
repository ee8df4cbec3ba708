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

  // Of one kv head of a sequence. read_in_place: so few rows want them that a copy is not worth it.
  AttentionTokens(const AttentionSequence<T>& sequence, const AttentionExtents& extents, Index kv_head,
                  const AttentionScratch<A>& scratch, Index value_panel, bool read_in_place) noexcept
      : key_{sequence.key, kv_head, extents.head_dim},
        value_{sequence.value, kv_head, extents.value_head_dim},
        scratch_(scratch),
        room_(extents.keys < attention_tile_keys ? extents.keys : attention_tile_keys),
        value_panel_(value_panel),
        read_in_place_(read_in_place) {}

  // Keys that a tile has room for.
  Index room() const noexcept { return room_; }

  // The tile is now the one at key `key` of the sequence, of which `columns` are needed; nothing of the sequence from
  // `end` on is. Then its keys and its values may be taken.
  void begin_tile(Index key, KeyRange columns, Index end) noexcept {
    tile_ = key;
    columns_ = columns;
    end_ = end;
  }

  // Keys as rows.
  void take_keys() noexcept {
    if constexpr (std::is_same_v<T, A>) {
      if (lie_well(key_)) {
        keys_ = {key_[tile_ + columns_.begin].elements, key_.stride(), 1};
        return;
      }
    }
    keys_ = {scratch_.tile_keys, scratch_.key_stride, 1};
    for (Index column = columns_.begin; column < columns_.end; ++column) {
      const TokenHead<T> token = key_[tile_ + column];
      fetch(key_, column + copied_ahead);
      A* const to = scratch_.tile_keys + (column - columns_.begin) * scratch_.key_stride;
      for (Index d = 0; d < key_.dim; d += width) simd::store(to + d, load_token(token, d, key_.dim - d));
    }
  }

  // full: every row attends all of the tile's keys. Where one does not, it matters whether all values are finite, and
  // they are copied to find that out.
  void take_values(bool full) noexcept {
    values_are_finite_ = true;
    if constexpr (std::is_same_v<T, A>) {
      if (full && value_.dim % value_panel_ == 0 && lie_well(value_)) {
        values_ = {value_[tile_ + columns_.begin].elements, value_panel_, value_panel_, value_.stride()};
        return;
      }
    }
    values_ = {scratch_.tile_values, room_ * value_panel_, value_panel_};
    simd::Vec<A> zeros = simd::broadcast<A>(0);
    for (Index column = columns_.begin; column < columns_.end; ++column) {
      const TokenHead<T> token = value_[tile_ + column];
      fetch(value_, column + copied_ahead);
      A* const to = scratch_.tile_values + (column - columns_.begin) * value_panel_;
      for (Index d = 0; d < scratch_.out_stride; d += width) {
        const simd::Vec<A> value = d < value_.dim ? load_token(token, d, value_.dim - d) : simd::broadcast<A>(0);
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

  // The tokens themselves.
  const HeadTokens<T>& key() const noexcept { return key_; }
  const HeadTokens<T>& value() const noexcept { return value_; }

 private:
  static constexpr Index width = simd::width<A>;
  static constexpr Index copied_ahead = 16;  // how far ahead of its copying a token is asked for

  // True if tokens can be read where they lie: numbers of the accumulator's type, one behind the other; for some rows,
  // also with gaps, unless all fall into the same few sets of a cache.
  bool lie_well(const HeadTokens<T>& tokens) const noexcept {
    if (!tokens.heads.is_strided(tile_ + columns_.begin, columns_.end - columns_.begin)) return false;
    constexpr Index page = 4096 / static_cast<Index>(sizeof(T));
    return tokens.stride() == tokens.dim || (read_in_place_ && tokens.stride() % page != 0);
  }

  HEED_INLINE void fetch(const HeadTokens<T>& tokens, Index column) const noexcept {
    if (tile_ + column < end_) tokens.fetch(tile_ + column);
  }

  template <class Matrix>
  Matrix from(Matrix matrix, Index column) const noexcept {
    if (column > columns_.begin) matrix.data += (column - columns_.begin) * matrix.row_stride;  // else nothing is read
    return matrix;
  }

  const HeadTokens<T> key_;
  const HeadTokens<T> value_;
  const AttentionScratch<A>& scratch_;
  const Index room_;
  const Index value_panel_;
  const bool read_in_place_;
  Index tile_ = 0;
  KeyRange columns_ = {0, 0};
  Index end_ = 0;
  simd::Rows<A> keys_ = {};      // from columns_.begin on
  simd::Panels<A> values_ = {};  // the same
  bool values_are_finite_ = true;
};

}  // namespace heed::inline HEED_ABI::impl
