// What may be done to attention scores, on vectors: softcap, ALiBi, bias, mask, softmax.
//
// Scores lie key by key, with the rows (queries) in the lanes: whatever a row's scores have in common is an operation of
// whole vectors, and a row's maximum and sum need no lane of another row. Every function works on each score alone, or
// on a row's scores in ascending key, by one formula in every lane, so that a result's bits do not depend on the lane or
// on how a tile is cut.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "heed/kernels/simd/tanh.hpp"
#include "heed/kernels/simd/transpose.hpp"
#include "heed/ops/attention_options.hpp"
#include "heed/ops/score_modifier.hpp"

namespace heed::inline HEED_ABI::impl {

template <class A>
inline constexpr A masked_score = -std::numeric_limits<A>::infinity();

// Keys keys.begin … keys.end − 1 of a tile, for `lanes` rows (whole vectors of them).
template <class A>
struct ScoreLanes {
  A* data;       // key c, row i: data[c · stride + i]
  Index stride;  // of a key
  Index lanes;
  KeyRange keys;
};

// Calls change(score, key, lane) for every vector and stores what it returns.
template <class A, class Change>
HEED_INLINE void for_each_vector(const ScoreLanes<A>& scores, Change&& change) noexcept {
  for (Index key = scores.keys.begin; key < scores.keys.end; ++key) {
    A* const row = scores.data + key * scores.stride;
    for (Index lane = 0; lane < scores.lanes; lane += simd::width<A>)
      simd::store(row + lane, change(simd::load(row + lane), key, lane));
  }
}

// score = cap · tanh(score / cap).
template <class A>
void softcap_scores(const ScoreLanes<A>& scores, A cap) noexcept {
  const simd::Vec<A> limit = simd::broadcast<A>(cap);
  for_each_vector(scores,
                  [&](simd::Vec<A> score, Index, Index) { return limit * simd::tanh(simd::divide<A>(score, limit)); });
}

// score −= slope · |query − key|; slopes and queries for each lane, queries and the tile's key 0 (`first`) counted from
// a common origin near them, so that the distance is exact.
template <class A>
void alibi_scores(const ScoreLanes<A>& scores, const A* slopes, const A* queries, Index first) noexcept {
  for_each_vector(scores, [&](simd::Vec<A> score, Index key, Index lane) {
    const simd::Vec<A> position = simd::broadcast<A>(static_cast<A>(first + key));
    const simd::Vec<A> slope = simd::broadcast<A>(0) - simd::load(slopes + lane);
    return simd::fma(slope, simd::abs(simd::load(queries + lane) - position), score);
  });
}

// A row's own elements of a mask or bias, by lane; lanes without a row repeat the last one.
template <class M>
struct LaneElements {
  static constexpr Index most = 64;
  const M* rows[most];  // for the tile's key 0
  Index key_stride;     // 1, or 0
  bool same;            // all lanes have the same row
};

// The elements of keys first … first + width − 1 for lanes lane … lane + width − 1, turned so that lanes are lanes.
template <class A, class M, class Convert>
HEED_INLINE void turn_elements(const LaneElements<M>& elements, Index lane, Index first, Index count,
                               simd::Vec<A> (&turned)[simd::width<A>], Convert&& convert) noexcept {
  HEED_UNROLL
  for (Index i = 0; i < simd::width<A>; ++i) turned[i] = convert(elements.rows[lane + i] + first, count);
  simd::transpose<A>(turned);
}

// Calls add(score, element) for every vector; `convert` makes width<A> numbers of elements in memory, `one` of one.
template <class A, class M, class Convert, class One, class Add>
HEED_INLINE void combine_elements(const ScoreLanes<A>& scores, const LaneElements<M>& elements, Convert&& convert,
                                  One&& one, Add&& add) noexcept {
  constexpr Index w = simd::width<A>;
  if (elements.same) {
    for (Index key = scores.keys.begin; key < scores.keys.end; ++key) {
      const simd::Vec<A> element = one(elements.rows[0][key * elements.key_stride]);
      A* const row = scores.data + key * scores.stride;
      for (Index lane = 0; lane < scores.lanes; lane += w)
        simd::store(row + lane, add(simd::load(row + lane), element));
    }
    return;
  }
  if (elements.key_stride == 0) {
    for (Index lane = 0; lane < scores.lanes; lane += w) {
      alignas(64) A lanes[w];
      for (Index i = 0; i < w; ++i) simd::store_partial(lanes + i, 1, one(*elements.rows[lane + i]));
      const simd::Vec<A> element = simd::load(lanes);
      for (Index key = scores.keys.begin; key < scores.keys.end; ++key) {
        A* const to = scores.data + key * scores.stride + lane;
        simd::store(to, add(simd::load(to), element));
      }
    }
    return;
  }
  for (Index lane = 0; lane < scores.lanes; lane += w) {
    for (Index key = scores.keys.begin; key < scores.keys.end; key += w) {
      const Index count = scores.keys.end - key < w ? scores.keys.end - key : w;
      simd::Vec<A> turned[w];
      turn_elements<A>(elements, lane, key, count, turned, convert);
      A* to = scores.data + key * scores.stride + lane;
      for (Index i = 0; i < count; ++i, to += scores.stride) simd::store(to, add(simd::load(to), turned[i]));
    }
  }
}

// score += bias; a bias of −inf masks, whatever the score is.
template <class A>
void bias_scores(const ScoreLanes<A>& scores, const LaneElements<A>& bias) noexcept {
  const simd::Vec<A> masked = simd::broadcast<A>(masked_score<A>);
  combine_elements(
      scores, bias, [](const A* from, Index count) { return simd::load_partial(from, count); },
      [](A element) { return simd::broadcast<A>(element); },
      [&](simd::Vec<A> score, simd::Vec<A> element) {
        return simd::select<A>(element == masked, masked, score + element);
      });
}

// True if every lane's mask is true for all keys: most masks are long runs of true.
HEED_INLINE bool all_attend(const LaneElements<bool>& mask, Index lanes, KeyRange keys) noexcept {
  if (mask.key_stride == 0) return false;
  constexpr std::uint64_t all = 0x0101010101010101U;
  for (Index lane = 0; lane < lanes; ++lane) {
    const bool* const row = mask.rows[lane];
    std::uint64_t seen = all;
    Index key = keys.begin;
    for (; key + 8 <= keys.end; key += 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, row + key, sizeof eight);
      seen &= eight;
    }
    if (seen != all) return false;
    for (; key < keys.end; ++key) {
      if (!row[key]) return false;
    }
    if (mask.same) return true;
  }
  return true;
}

// score = −inf where the mask is false.
template <class A>
void mask_scores(const ScoreLanes<A>& scores, const LaneElements<bool>& mask) noexcept {
  if (all_attend(mask, scores.lanes, scores.keys)) return;
  const simd::Vec<A> masked = simd::broadcast<A>(masked_score<A>);
  const simd::Vec<A> one = simd::broadcast<A>(1);
  combine_elements(
      scores, mask,
      [](const bool* from, Index count) {
        alignas(64) A lanes[simd::width<A>] = {};
        if (count == simd::width<A>) {
          for (Index i = 0; i < simd::width<A>; ++i) lanes[i] = static_cast<A>(from[i]);
        } else {
          for (Index i = 0; i < count; ++i) lanes[i] = static_cast<A>(from[i]);
        }
        return simd::load(lanes);
      },
      [](bool element) { return simd::broadcast<A>(element ? A(1) : A(0)); },
      [&](simd::Vec<A> score, simd::Vec<A> element) { return simd::select<A>(element == one, score, masked); });
}

// −inf for keys that lie outside of a row's range: first[lane] … end[lane] − 1. For keys of `inside` every row is within
// its range.
template <class A>
void exclude_scores(const ScoreLanes<A>& scores, const A* first, const A* end, KeyRange inside) noexcept {
  const simd::Vec<A> masked = simd::broadcast<A>(masked_score<A>);
  const auto exclude = [&](Index begin_key, Index end_key) {
    for_each_vector(ScoreLanes<A>{scores.data, scores.stride, scores.lanes, {begin_key, end_key}},
                    [&](simd::Vec<A> score, Index key, Index lane) {
                      const simd::Vec<A> number = simd::broadcast<A>(static_cast<A>(key));
                      const simd::Vec<A> before_end = simd::select<A>(number < simd::load(end + lane), score, masked);
                      return simd::select<A>(number < simd::load(first + lane), masked, before_end);
                    });
  };
  if (inside.begin >= inside.end) return exclude(scores.keys.begin, scores.keys.end);
  exclude(scores.keys.begin, inside.begin);
  exclude(inside.end, scores.keys.end);
}

// What is subtracted from the scores of a row: its maximum, or 0 where no key is attended, because −inf − −inf is NaN.
template <class A>
HEED_INLINE simd::Vec<A> finite_maximum(simd::Vec<A> maximum) noexcept {
  return simd::select<A>(maximum == simd::broadcast<A>(masked_score<A>), simd::broadcast<A>(0), maximum);
}

// Scores become e^(score − maximum), with each row's maximum and sum. NaN in a score may escape the maximum, but never
// the sum.
template <int Vectors, class A>
HEED_INLINE void softmax_vectors(A* scores, Index stride, KeyRange keys, A* maximum, A* sum) noexcept {
  constexpr Index w = simd::width<A>;
  simd::Vec<A> largest[2][Vectors];
  for (auto& each : largest) {
    for (auto& vector : each) vector = simd::broadcast<A>(masked_score<A>);
  }
  for (Index key = keys.begin; key < keys.end; ++key) {
    HEED_UNROLL
    for (int v = 0; v < Vectors; ++v)
      largest[0][v] = simd::max(largest[0][v], simd::load(scores + key * stride + v * w));
    if (++key == keys.end) break;
    HEED_UNROLL
    for (int v = 0; v < Vectors; ++v)
      largest[1][v] = simd::max(largest[1][v], simd::load(scores + key * stride + v * w));
  }
  simd::Vec<A> subtracted[Vectors];
  simd::Vec<A> total[Vectors];
  HEED_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const simd::Vec<A> most = simd::max(largest[0][v], largest[1][v]);
    simd::store(maximum + v * w, most);
    subtracted[v] = finite_maximum<A>(most);
    total[v] = simd::broadcast<A>(0);
  }
  for (Index key = keys.begin; key < keys.end; ++key) {
    HEED_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      A* const at = scores + key * stride + v * w;
      const simd::Vec<A> weight = simd::exp_difference(simd::load(at) - subtracted[v]);
      simd::store(at, weight);
      total[v] = total[v] + weight;
    }
  }
  HEED_UNROLL
  for (int v = 0; v < Vectors; ++v) simd::store(sum + v * w, total[v]);
}

template <class A>
void softmax_scores(const ScoreLanes<A>& scores, A* maximum, A* sum) noexcept {
  constexpr Index w = simd::width<A>;
  Index lane = 0;
  for (; lane + 2 * w <= scores.lanes; lane += 2 * w)
    softmax_vectors<2>(scores.data + lane, scores.stride, scores.keys, maximum + lane, sum + lane);
  if (lane < scores.lanes)
    softmax_vectors<1>(scores.data + lane, scores.stride, scores.keys, maximum + lane, sum + lane);
}

// Two partial softmaxes made one: α and β, by which the first one's and the second one's numbers are multiplied.
template <class A>
struct Merged {
  simd::Vec<A> keep, take, maximum, sum;
};

template <class A>
HEED_INLINE Merged<A> merge(simd::Vec<A> maximum, simd::Vec<A> sum, simd::Vec<A> other_maximum,
                            simd::Vec<A> other_sum) noexcept {
  const simd::Vec<A> most = simd::max(maximum, other_maximum);
  const simd::Vec<A> subtracted = finite_maximum<A>(most);  // no key in either: −inf − −inf would be NaN
  const simd::Vec<A> keep = simd::exp_difference(maximum - subtracted);
  const simd::Vec<A> take = simd::exp_difference(other_maximum - subtracted);
  return {keep, take, most, simd::fma(sum, keep, other_sum * take)};
}

}  // namespace heed::inline HEED_ABI::impl
