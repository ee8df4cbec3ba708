// What may be done to a tile of attention scores, on vectors: softcap, ALiBi, bias, mask, softmax.
//
// Tiles here begin at a multiple of the vector width, and their rows have room for a whole last vector; what is left in
// that room, and in columns a row does not attend, is masked by softmax_row. Every function works on each score alone,
// by one formula in every lane, so a score's bits do not depend on how a tile is cut.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "heed/kernels/simd/tanh.hpp"
#include "heed/ops/attention_options.hpp"
#include "heed/ops/score_modifier.hpp"

namespace heed::inline HEED_ABI::impl {

template <class A>
inline constexpr A masked_score = -std::numeric_limits<A>::infinity();

// Calls change(scores, row, column) for every vector of a tile and stores what it returns.
template <class A, class Change>
HEED_INLINE void for_each_vector(const ScoreTile<A>& tile, Change&& change) noexcept {
  for (Index row = 0; row < tile.rows; ++row) {
    A* scores = tile.data + row * tile.row_stride;
    for (Index column = 0; column < tile.columns; column += simd::width<A>)
      simd::store(scores + column, change(simd::load(scores + column), row, column));
  }
}

// score = cap · tanh(score / cap).
template <class A>
void softcap_scores(const ScoreTile<A>& tile, A cap) noexcept {
  const simd::Vec<A> limit = simd::broadcast<A>(cap);
  for_each_vector(tile,
                  [&](simd::Vec<A> score, Index, Index) { return limit * simd::tanh(simd::divide<A>(score, limit)); });
}

// score −= slope · |query − key|. The distance is formed from the positions' offsets in blocks of 2^12 keys, so that it
// is the same number wherever the tile begins, and exact up to 2^24 (float).
template <class A>
void alibi_scores(const ScoreTile<A>& tile, A slope) noexcept {
  alignas(64) A lanes[simd::width<A>];
  for (Index i = 0; i < simd::width<A>; ++i) lanes[i] = static_cast<A>(i);
  const simd::Vec<A> lane = simd::load(lanes);
  const simd::Vec<A> factor = simd::broadcast<A>(-slope);
  const Index block = tile.key & ~Index{0xfff};
  for_each_vector(tile, [&](simd::Vec<A> score, Index row, Index column) {
    const auto query = simd::broadcast<A>(static_cast<A>(tile.query + row - block));
    const simd::Vec<A> key = simd::broadcast<A>(static_cast<A>(tile.key - block + column)) + lane;
    return simd::fma(factor, simd::abs(query - key), score);
  });
}

// score += bias; a bias of −inf masks, whatever the score is. t is the number of the tile's first query.
template <class A>
void bias_scores(const ScoreTile<A>& tile, const ScoreView<A>& bias, Index t) noexcept {
  const simd::Vec<A> masked = simd::broadcast<A>(masked_score<A>);
  const bool one = bias.key_stride() == 0;
  for_each_vector(tile, [&](simd::Vec<A> score, Index row, Index column) {
    const A* from = bias.row(tile.batch, tile.head, t + row);
    const simd::Vec<A> value =
        one ? simd::broadcast<A>(*from) : simd::load_partial(from + tile.key + column, tile.columns - column);
    return simd::select<A>(value == masked, masked, score + value);
  });
}

// score = −inf where the mask is false. Eight keys at a time, because most masks are long runs of true.
template <class A>
void mask_scores(const ScoreTile<A>& tile, const ScoreView<bool>& mask, Index t) noexcept {
  for (Index row = 0; row < tile.rows; ++row) {
    A* scores = tile.data + row * tile.row_stride;
    const bool* attend = mask.row(tile.batch, tile.head, t + row);
    if (mask.key_stride() == 0) {
      for (Index column = 0; !*attend && column < tile.columns; ++column) scores[column] = masked_score<A>;
      continue;
    }
    attend += tile.key;
    Index column = 0;
    for (; column + 8 <= tile.columns; column += 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, attend + column, sizeof eight);
      if (eight == 0x0101010101010101U) continue;
      for (Index i = column; i < column + 8; ++i) scores[i] = attend[i] ? scores[i] : masked_score<A>;
    }
    for (; column < tile.columns; ++column) scores[column] = attend[column] ? scores[column] : masked_score<A>;
  }
}

// A row's maximum, and the sum of e^(score − maximum), over the keys of one tile.
template <class A>
struct RowSum {
  A maximum = masked_score<A>;
  A sum = 0;
};

// −inf in the columns of first … last − 1 that lie outside of `attended`.
template <class A>
HEED_INLINE void mask_outside(A* scores, Index first, Index last, KeyRange attended) noexcept {
  for (Index column = first; column < attended.begin && column < last; ++column) scores[column] = masked_score<A>;
  for (Index column = attended.end; column < last; ++column) scores[column] = masked_score<A>;
}

// What is subtracted from the scores of a row: its maximum, or 0 where no key is attended, because −inf − −inf is NaN.
template <class A>
HEED_INLINE simd::Vec<A> finite_maximum(simd::Vec<A> maximum) noexcept {
  return simd::select<A>(maximum == simd::broadcast<A>(masked_score<A>), simd::broadcast<A>(0), maximum);
}

// Scores of columns first … last − 1 (multiples of the vector width) become e^(score − maximum). NaN in a score may
// escape the maximum, but never the sum.
template <class A>
HEED_INLINE RowSum<A> softmax_row(A* scores, Index first, Index last) noexcept {
  simd::Vec<A> largest = simd::broadcast<A>(masked_score<A>);
  for (Index column = first; column < last; column += simd::width<A>)
    largest = simd::max(largest, simd::load(scores + column));
  const A maximum = simd::reduce_max<A>(largest);
  const simd::Vec<A> subtracted = finite_maximum<A>(simd::broadcast<A>(maximum));

  simd::Vec<A> sum = simd::broadcast<A>(0);
  for (Index column = first; column < last; column += simd::width<A>) {
    const simd::Vec<A> weight = simd::exp_nonpositive(simd::load(scores + column) - subtracted);
    simd::store(scores + column, weight);
    sum = sum + weight;
  }
  return {maximum, simd::reduce_add<A>(sum)};
}

}  // namespace heed::inline HEED_ABI::impl
