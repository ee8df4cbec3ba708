// Score modifiers: the user's own function of attention scores, run inside the tiles of ops::attention.
//
// A modifier is any object with
//
//     void operator()(ScoreTile<A>& tile) const noexcept;                          A is float or double
//     KeyRange keys(Index batch, Index head, Index query) const noexcept;          optional
//
// The first changes scores in place, each one as a function of itself and its position only: how the scores are cut
// into tiles is the backend's business. It runs after the scale and softcap and before ALiBi, bias and mask; −inf means
// "do not attend". The second gives the keys that a query at this position may attend; the others are masked, and tiles
// that no query attends are never computed. Both are called by several threads at once.
#pragma once

#include "heed/core/view.hpp"

namespace heed {

// Scores of one query head: row r, column c is the query at position query + r and the key at position key + c.
template <class A>
struct ScoreTile {
  A* data = nullptr;  // row-major
  Index row_stride = 0;
  Index rows = 0;
  Index columns = 0;
  Index batch = 0;  // with packed sequences: which sequence
  Index head = 0;   // of num_heads
  Index query = 0;  // position of row 0; counts on through a cache, may be negative
  Index key = 0;    // position of column 0

  HEED_ANYWHERE A& operator()(Index row, Index column) const noexcept { return data[row * row_stride + column]; }
};

// Where one score stands.
struct Position {
  Index batch;
  Index head;
  Index query;
  Index key;
};

// Keys begin … end − 1, as positions; what lies outside the sequence is ignored.
struct KeyRange {
  Index begin;
  Index end;
};

// No modifier: the default, for which no code is generated.
struct NoModifier {
  template <class A>
  HEED_ANYWHERE void operator()(ScoreTile<A>&) const noexcept {}
};

template <class M, class A>
concept ScoreModifier = requires(const M& modifier, ScoreTile<A>& tile) {
  modifier(tile);
};

template <class M>
concept SelectsKeys = requires(const M& modifier, Index i) {
  static_cast<KeyRange>(modifier.keys(i, i, i));
};

// What per_score() makes.
template <class F>
struct PerScore {
  F function;

  template <class A>
  HEED_ANYWHERE void operator()(ScoreTile<A>& tile) const noexcept {
    for (Index row = 0; row < tile.rows; ++row) {
      A* scores = tile.data + row * tile.row_stride;
      for (Index column = 0; column < tile.columns; ++column) {
        scores[column] = function(scores[column], Position{tile.batch, tile.head, tile.query + row, tile.key + column});
      }
    }
  }
};

// A modifier from a function of one score: per_score([](float score, Position p) { return p.key % 2 ? score : 0; }).
template <class F>
HEED_ANYWHERE PerScore<F> per_score(F function) {
  return PerScore<F>{static_cast<F&&>(function)};
}

}  // namespace heed
