// Attention for few rows, as in decoding: one token or some, of all heads that share a kv head. The time is that of
// reading keys and values once, so both are read where they lie, and the products of gemm.hpp, whose panels few rows
// do not fill, give way to two of their own:
//
//   scores   = k · qᵀ          as many keys as a vector has lanes are turned in registers, so that keys are lanes
//   tile_out = weightsᵀ · v    some vectors of a value for all rows at a time
//
// The memory is at work throughout: while keys are multiplied, the values of the tile are asked for, a few at a time,
// and while values are weighted, the keys of the next tile. Bits: each number is the same chain of fma that the product
// makes, in ascending d, or key.
#pragma once

#include "heed/kernels/simd/attention_pack.hpp"
#include "heed/kernels/simd/attention_scores.hpp"

namespace heed::inline HEED_ABI::impl {

// Rows that count as few: one vector of them.
template <class A>
inline constexpr Index attention_few_rows = simd::width<A>;

// Asks for tokens next … end − 1, spread evenly over so many steps: all at once they would keep other reads waiting.
template <class T>
class TokensAhead {
 public:
  HEED_INLINE TokensAhead(const HeadTokens<T>& tokens, Index next, Index end, Index steps) noexcept
      : tokens_(tokens), next_(next), end_(end), count_(end - next), steps_(steps) {}

  HEED_INLINE void step() noexcept {
    for (due_ += count_; due_ >= steps_ && next_ < end_; due_ -= steps_) tokens_.fetch(next_++);
  }

 private:
  const HeadTokens<T>& tokens_;
  Index next_, end_, count_, steps_;
  Index due_ = 0;
};

// A vector of a token's elements from d on, of which it is known whether they are codes, and whether they are whole
// (else there are `count`, and the other lanes are 0).
template <bool Codes, bool Whole, class T>
HEED_INLINE simd::Vec<accumulator_t<T>> load_elements(const TokenHead<T>& token, Index d, Index count) noexcept {
  using A = accumulator_t<T>;
  if constexpr (Whole) count = simd::width<A>;
  if constexpr (Codes) {
    return load_codes<A>(token.codes + d, count) * simd::broadcast<A>(token.scale);
  } else if constexpr (Whole) {
    return simd::load(token.elements + d);
  } else {
    return simd::load_partial(token.elements + d, count);
  }
}

// scores = k · qᵀ for RowCount rows: keys scores.keys of the tile that begins at token `tile`; queries in a panel
// [D, panel]. The lanes of the scores that are no rows become 0.
template <int RowCount, bool Codes, class T>
HEED_NOINLINE void score_few_rows(const HeadTokens<T>& key, Index tile, const accumulator_t<T>* query, Index panel,
                                  const ScoreLanes<accumulator_t<T>>& scores, const HeadTokens<T>& value) noexcept {
  using A = accumulator_t<T>;
  constexpr Index w = simd::width<A>;
  const KeyRange keys = scores.keys;
  const Index steps = (keys.end - keys.begin + w - 1) / w * (key.dim / w);
  TokensAhead<T> ahead(value, tile + keys.begin, tile + keys.end, steps);
  for (Index first = keys.begin; first < keys.end; first += w) {
    const Index count = keys.end - first < w ? keys.end - first : w;
    TokenHead<T> tokens[w];
    for (Index i = 0; i < w; ++i) tokens[i] = key[tile + first + (i < count ? i : 0)];
    simd::Vec<A> sum[RowCount];
    for (auto& each : sum) each = simd::broadcast<A>(0);
    const auto add = [&](simd::Vec<A> keys_d, const A* q) {
      HEED_UNROLL
      for (int row = 0; row < RowCount; ++row) sum[row] = simd::fma(keys_d, simd::broadcast<A>(q[row]), sum[row]);
    };
    const A* q = query;
    Index d = 0;
    for (; d + w <= key.dim; d += w, q += w * panel) {
#if defined(__GNUC__)
      asm volatile("" : : "r"(tokens) : "memory");  // they stay there: no register is left for where they are
#endif
      simd::Vec<A> block[w];
      HEED_UNROLL
      for (Index i = 0; i < w; ++i) block[i] = load_elements<Codes, true>(tokens[i], d, w);
      simd::transpose<A>(block);
      HEED_UNROLL
      for (Index i = 0; i < w; ++i) add(block[i], q + i * panel);
      ahead.step();
    }
    for (; d < key.dim; ++d, q += panel) {  // what does not fill a vector: few, if any
      alignas(64) A lanes[w];
      for (Index i = 0; i < w; ++i) lanes[i] = tokens[i][d];
      add(simd::load(lanes), q);
    }
    simd::Vec<A> turned[w];
    HEED_UNROLL
    for (Index i = 0; i < w; ++i) turned[i] = i < RowCount ? sum[i < RowCount ? i : 0] : simd::broadcast<A>(0);
    simd::transpose<A>(turned);
    A* to = scores.data + first * scores.stride;
    for (Index i = 0; i < count; ++i, to += scores.stride) simd::store(to, turned[i]);
  }
}

// Vectors of a value that are weighted together: as many sums as keep the units busy and leave registers.
template <int RowCount>
inline constexpr int attention_few_vectors = RowCount > 8   ? 1
                                             : RowCount > 4 ? 2
                                                            : 4;

// Elements d … d + Vectors · width − 1 of tile_out, for RowCount rows.
template <int RowCount, int Vectors, bool Codes, bool Whole, class T>
HEED_INLINE void weigh_few_columns(const HeadTokens<T>& value, Index tile, KeyRange keys, Index d,
                                   const accumulator_t<T>* weights, Index stride, accumulator_t<T>* out,
                                   Index out_stride, TokensAhead<T>& ahead) noexcept {
  using A = accumulator_t<T>;
  constexpr Index w = simd::width<A>;
  simd::Vec<A> sum[RowCount][Vectors];
  for (auto& row : sum) {
    for (auto& each : row) each = simd::broadcast<A>(0);
  }
  for (Index key = keys.begin; key < keys.end; ++key) {
    const TokenHead<T> token = value[tile + key];
    simd::Vec<A> element[Vectors];
    HEED_UNROLL
    for (int v = 0; v < Vectors; ++v) element[v] = load_elements<Codes, Whole>(token, d + v * w, value.dim - d);
    HEED_UNROLL
    for (int row = 0; row < RowCount; ++row) {
      const simd::Vec<A> weight = simd::broadcast<A>(weights[key * stride + row]);
      HEED_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[row][v] = simd::fma(weight, element[v], sum[row][v]);
    }
    ahead.step();
  }
  HEED_UNROLL
  for (int row = 0; row < RowCount; ++row) {
    HEED_UNROLL
    for (int v = 0; v < Vectors; ++v) simd::store(out + row * out_stride + d + v * w, sum[row][v]);
  }
}

// tile_out [rows, out_stride] = weightsᵀ · v for RowCount rows, whose weights are lanes 0 … of weights [keys, stride];
// meanwhile asks for keys next … next_end − 1.
template <int RowCount, bool Codes, class T>
HEED_NOINLINE void weigh_few_rows(const HeadTokens<T>& value, Index tile, KeyRange keys,
                                  const accumulator_t<T>* weights, Index stride, accumulator_t<T>* out,
                                  Index out_stride, const HeadTokens<T>& key, Index next, Index next_end) noexcept {
  using A = accumulator_t<T>;
  constexpr Index w = simd::width<A>;
  constexpr int together = attention_few_vectors<RowCount>;
  const Index whole = value.dim / (together * w);
  const Index rest = (value.dim + w - 1) / w - whole * together;
  TokensAhead<T> ahead(key, next, next_end, (whole + rest) * (keys.end - keys.begin));
  Index d = 0;
  for (; d + together * w <= value.dim; d += together * w)
    weigh_few_columns<RowCount, together, Codes, true>(value, tile, keys, d, weights, stride, out, out_stride, ahead);
  for (; d < value.dim; d += w)
    weigh_few_columns<RowCount, 1, Codes, false>(value, tile, keys, d, weights, stride, out, out_stride, ahead);
}

// Calls f with a constant that is no less than rows, at most attention_few_rows<A>. (Not with each: fewer than four rows
// wait for memory all the same, and every constant is compiled.)
template <class A, class F>
HEED_INLINE void with_few_rows(Index rows, F&& f) noexcept {
  constexpr int most = static_cast<int>(attention_few_rows<A>);
  if constexpr (most > 8) {
    if (rows > 8) return f(std::integral_constant<int, most>());
  }
  if constexpr (most > 4) {
    if (rows > 4) return f(std::integral_constant<int, 8>());
  }
  f(std::integral_constant<int, (most < 4 ? most : 4)>());
}

}  // namespace heed::inline HEED_ABI::impl
