// Simd kernel of ops::linear_attention: chunks of tokens on the one micro-kernel.
//
// With S the state before a chunk, Pₜ the product of the decay factors of its tokens up to t, and k̂ₛ key s decayed by
// the tokens after s up to t, the state after token t is diag(Pₜ) S + Σ_{s ≤ t} k̂ₛ uₛᵀ. So
//
//   retrieved for kₜ    (Pₜ kₜ)ᵀ S + Σ_{s < t} (k̂ₛ·kₜ) uₛᵀ     uₜ = βₜ (vₜ − that), or vₜ: forward substitution
//   answered to qₜ      (Pₜ qₜ)ᵀ S + Σ_{s ≤ t} (k̂ₛ·qₜ) uₛᵀ
//   the next state      diag(P) S + K̂ᵀ U
//
// are products of a chunk's matrices. (The UT transform inverts the triangle 1 + β L instead; with chunks one after the
// other the solution alone is enough.) Every factor is multiplied up as in the recurrence, never e^(−sum), which
// overflows where a state is forgotten fast.
//
// Bits: an element of the state is one fma chain in ascending token that begins with its decayed old value; an answer
// is one chain, in ascending d over S and then in ascending token over U. Tokens after t are in no chain of token t.
#pragma once

#include <cmath>

#include "heed/backend/simd.hpp"
#include "heed/kernels/reference/linear_attention.hpp"
#include "heed/kernels/simd/compressive_memory.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// e^x for any x, within 3 units in the last place; infinite from 87.4 on (708.4 in double).
template <class A>
HEED_INLINE simd::Vec<A> decay_factor(simd::Vec<A> x) noexcept {
  const simd::Vec<A> shrunk = simd::exp_nonpositive<A>(simd::broadcast<A>(0) - simd::abs<A>(x));
  return simd::select<A>(x > simd::broadcast<A>(0), simd::divide<A>(simd::broadcast<A>(1), shrunk), shrunk);
}

// to [n] *= by [n].
template <class A>
HEED_INLINE void multiply_row(const A* by, Index n, A* to) noexcept {
  for (Index i = 0; i < n; i += simd::width<A>) {
    simd::store_partial(to + i, n - i, simd::load_partial(to + i, n - i) * simd::load_partial(by + i, n - i));
  }
}

// to [n] *= by.
template <class A>
HEED_INLINE void scale_row(A by, Index n, A* to) noexcept {
  for (Index i = 0; i < n; i += simd::width<A>) {
    simd::store_partial(to + i, n - i, simd::load_partial(to + i, n - i) * simd::broadcast<A>(by));
  }
}

// A worker's scratch: where a chunk's matrices lie in it, counted in elements.
struct LinearAttentionScratch {
  Index chunk;       // C
  Index key_stride;  // C, padded to whole panels
  Index padded;      // Dv, padded to whole panels
  Index state = 0;   // [D, padded]: the state, where its own columns do not fill panels
  Index keys;        // [D, key_stride]: K̂ᵀ
  Index questions;   // [C · rows, D]: the group's queries of a token, then, with a beta, its key
  Index scores;      // [C · rows, key_stride]: questions · K̂ᵀ
  Index answers;     // [C · rows, Dv]
  Index written;     // [C, padded]: U
  Index factors;     // [D + C]: decay factors of a token, or of each key
  Index products;    // [D + 1]: P
  Index size;

  template <class A>
  static LinearAttentionScratch of(const LinearAttentionExtents& extents) noexcept {
    LinearAttentionScratch scratch;
    const Index group = extents.num_kv_heads > 0 ? extents.num_heads / extents.num_kv_heads : 0;
    const Index rows = extents.chunk_size * (group + 1);
    scratch.chunk = extents.chunk_size;
    scratch.key_stride = simd::padded_columns<A>(extents.chunk_size);
    scratch.padded = simd::padded_columns<A>(extents.value_head_dim);
    scratch.keys = extents.head_dim * scratch.padded;
    scratch.questions = scratch.keys + extents.head_dim * scratch.key_stride;
    scratch.scores = scratch.questions + rows * extents.head_dim;
    scratch.answers = scratch.scores + rows * scratch.key_stride;
    scratch.written = scratch.answers + rows * extents.value_head_dim;
    scratch.factors = scratch.written + extents.chunk_size * scratch.padded;
    scratch.products = scratch.factors + extents.head_dim + extents.chunk_size;
    scratch.size = scratch.products + extents.head_dim + 1;
    return scratch;
  }
};

// One kv head of one batch row. Product is simd::PanelProduct, or what stands for it.
template <class T, class Product>
class LinearAttentionHead {
 public:
  using A = accumulator_t<T>;

  LinearAttentionHead(View<const T, 4> query, View<const T, 4> key, View<const T, 4> value, View<A, 4> state,
                      View<T, 4> out, const LinearAttentionOptions<T>& options, A* scratch, Index b, Index k) noexcept
      : group_(query.extent(2) / key.extent(2)),
        head_dim_(state.extent(2)),
        columns_(state.extent(3)),
        scale_(options.scale.value(head_dim_)),
        key_(head_rows(key, b, k, key.extent(1))),
        value_(head_rows(value, b, k, value.extent(1))),
        state_(state[b][k]),
        query_(query[b].slice(1, k * group_, group_)),
        out_(out[b].slice(1, k * group_, group_)),
        layout_(LinearAttentionScratch::of<A>(
            {group_, 1, head_dim_, columns_, key.extent(1) < options.chunk_size ? key.extent(1) : options.chunk_size})),
        panel_(Product::template panel_width<A>(columns_)),
        copy_(scratch + layout_.state),
        keys_(scratch + layout_.keys),
        questions_(scratch + layout_.questions),
        scores_(scratch + layout_.scores),
        answers_(scratch + layout_.answers),
        written_(scratch + layout_.written),
        factors_(scratch + layout_.factors),
        products_(scratch + layout_.products) {
    if (options.decay.present()) decay_ = head_rows(options.decay, b, k, key.extent(1));
    if (options.beta.present()) {
      const View<const A, 3>& beta = options.beta;
      beta_ = View<const A, 1>(beta.pointer(b, 0, k), {beta.extent(1)}, {beta.stride(1)});
    }
    rows_ = group_ + (beta_.present() ? 1 : 0);
  }

  // Tokens first … first + count − 1, count at most a chunk.
  void run(Index first, Index count) noexcept {
    load(first, count);
    if (decay_.present() && decay_.extent(1) == head_dim_) {
      score_decayed_dims(first, count);
    } else {
      score(first, count);
    }
    Product::multiply(count * rows_, columns_, head_dim_, simd::Rows<A>{questions_, head_dim_, 1},
                      memory_panels<Product, A>(state_, copy_), answers_, columns_, simd::Start::zero);
    answer(first, count);
    Product::multiply(head_dim_, columns_, count, simd::Rows<A>{keys_, layout_.key_stride, 1}, written(0), next_state(),
                      state_.stride(0), simd::Start::resume);
  }

 private:
  void load(Index first, Index count) noexcept {
    for (Index t = 0; t < count; ++t) {
      for (Index r = 0; r < rows_; ++r) {
        const T* const from = r < group_ ? query_.pointer(first + t, r) : key_.pointer(first + t);
        const simd::Vec<A> by = simd::broadcast<A>(r < group_ ? scale_ : A(1));
        A* const to = question(t) + r * head_dim_;
        for (Index d = 0; d < head_dim_; d += simd::width<A>) {
          simd::store_partial(to + d, head_dim_ - d, simd::load_partial(from + d, head_dim_ - d) * by);
        }
      }
      const T* const from = value_.pointer(first + t);
      A* const to = written_ + t * layout_.padded;
      for (Index j = 0; j < layout_.padded; ++j) to[j] = j < columns_ ? widen(from[j]) : A(0);
    }
    for (Index i = 0; i < head_dim_ * layout_.key_stride; ++i) keys_[i] = 0;
    for (Index d = 0; d <= head_dim_; ++d) products_[d] = 1;
  }

  // Scores where the whole state has one decay, or none.
  void score(Index first, Index count) noexcept {
    for (Index t = 0; t < count; ++t) add_key(first, t);
    Product::multiply(count * rows_, count, head_dim_, simd::Rows<A>{questions_, head_dim_, 1}, keys(), scores_,
                      layout_.key_stride, simd::Start::zero);
    if (!decay_.present()) return;
    A product = 1;
    for (Index t = 0; t < count; ++t) {
      const A factor = std::exp(decay_(first + t, 0));
      product *= factor;
      scale_row(factor, t, factors_);  // what is left of keys 0 … t
      factors_[t] = 1;
      for (Index r = 0; r < rows_; ++r) multiply_row(factors_, t + 1, score_row(t, r));
      scale_row(product, rows_ * head_dim_, question(t));
    }
    for (Index d = 0; d < head_dim_; ++d) {
      products_[d] = product;
      multiply_row(factors_, count, keys_ + d * layout_.key_stride);
    }
  }

  // Scores where each key dim has its own decay: the keys are decayed token by token.
  void score_decayed_dims(Index first, Index count) noexcept {
    for (Index t = 0; t < count; ++t) {
      const A* const decay = decay_.pointer(first + t);
      for (Index d = 0; d < head_dim_; d += simd::width<A>) {
        simd::store_partial(factors_ + d, head_dim_ - d, decay_factor<A>(simd::load_partial(decay + d, head_dim_ - d)));
      }
      for (Index d = 0; d < head_dim_; ++d) scale_row(factors_[d], t, keys_ + d * layout_.key_stride);
      add_key(first, t);
      Product::multiply(rows_, t + 1, head_dim_, simd::Rows<A>{question(t), head_dim_, 1}, keys(), score_row(t, 0),
                        layout_.key_stride, simd::Start::zero);
      multiply_row(factors_, head_dim_, products_);
      for (Index r = 0; r < rows_; ++r) multiply_row(products_, head_dim_, question(t) + r * head_dim_);
    }
  }

  // The chunk's own part of the answers; with a beta, what the tokens write. A block of tokens takes what came before
  // it in one product, and what its own tokens write one by one.
  void answer(Index first, Index count) noexcept {
    constexpr Index block = 8;
    for (Index begin = 0; begin < count; begin += block) {
      const Index end = count - begin < block ? count : begin + block;
      add_answers(begin * rows_, (end - begin) * rows_, 0, begin);
      for (Index t = begin; t < end; ++t) {
        if (beta_.present()) {
          add_answers(t * rows_ + group_, 1, begin, t);
          correct(t, beta_(first + t));
        }
        add_answers(t * rows_, group_, begin, t + 1);
        for (Index r = 0; r < group_; ++r) {
          const A* const from = answers_ + (t * rows_ + r) * columns_;
          T* const to = out_.pointer(first + t, r);
          for (Index j = 0; j < columns_; j += simd::width<A>) {
            simd::store_partial(to + j, columns_ - j, simd::load_partial(from + j, columns_ - j));
          }
        }
      }
    }
  }

  // Answers row … row + n − 1 += their scores of keys begin … end − 1 · what was written for those.
  void add_answers(Index row, Index n, Index begin, Index end) noexcept {
    if (begin == end) return;
    Product::multiply(n, columns_, end - begin,
                      simd::Rows<A>{scores_ + row * layout_.key_stride + begin, layout_.key_stride, 1}, written(begin),
                      answers_ + row * columns_, columns_, simd::Start::resume);
  }

  // Token t writes beta (v − what its key retrieves).
  void correct(Index t, A beta) noexcept {
    const A* const retrieved = answers_ + (t * rows_ + group_) * columns_;
    A* const to = written_ + t * layout_.padded;
    for (Index j = 0; j < columns_; j += simd::width<A>) {
      const simd::Vec<A> off =
          simd::load_partial(to + j, columns_ - j) - simd::load_partial(retrieved + j, columns_ - j);
      simd::store_partial(to + j, columns_ - j, simd::broadcast<A>(beta) * off);
    }
  }

  // The old state, decayed over the chunk: where the next one's chains begin.
  A* next_state() noexcept {
    for (Index d = 0; d < head_dim_ && decay_.present(); ++d) scale_row(products_[d], columns_, state_.pointer(d));
    return state_.data_handle();
  }

  void add_key(Index first, Index t) noexcept {
    const T* const from = key_.pointer(first + t);
    for (Index d = 0; d < head_dim_; ++d) keys_[d * layout_.key_stride + t] = widen(from[d]);
  }

  A* question(Index t) const noexcept { return questions_ + t * rows_ * head_dim_; }
  A* score_row(Index t, Index r) const noexcept { return scores_ + (t * rows_ + r) * layout_.key_stride; }
  simd::Panels<A> keys() const noexcept {
    const Index panel = Product::template panel_width<A>(layout_.chunk);
    return {keys_, panel, panel, layout_.key_stride};
  }
  simd::Panels<A> written(Index first) const noexcept {
    return {written_ + first * layout_.padded, panel_, panel_, layout_.padded};
  }

  Index group_;     // query heads of this kv head
  Index rows_ = 0;  // questions a token asks: group_, and one more with a beta
  Index head_dim_;
  Index columns_;  // Dv
  A scale_;
  View<const T, 2> key_;         // [T, D]
  View<const T, 2> value_;       // [T, Dv]
  View<const A, 2> decay_ = {};  // [T, D or 1], or absent
  View<const A, 1> beta_ = {};   // [T], or absent
  View<A, 2> state_;             // [D, Dv]
  View<const T, 3> query_;       // [T, group, D]
  View<T, 3> out_;               // [T, group, Dv]
  LinearAttentionScratch layout_;
  Index panel_;
  A* copy_;
  A* keys_;
  A* questions_;
  A* scores_;
  A* answers_;
  A* written_;
  A* factors_;
  A* products_;
};

template <class Product, class T>
void linear_attention(View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                      View<accumulator_t<T>, 4> state, View<T, 4> out, const LinearAttentionOptions<T>& options,
                      View<accumulator_t<T>, 2> scratch) noexcept {
  for (Index b = 0; b < out.extent(0); ++b) {
    const Index tokens = tokens_of_row(options.key_lengths, b, out.extent(1));
    for (Index k = 0; k < key.extent(2); ++k) {
      LinearAttentionHead<T, Product> head(query, key, value, state, out, options, scratch.data_handle(), b, k);
      for (Index first = 0; first < tokens; first += options.chunk_size) {
        head.run(first, tokens - first < options.chunk_size ? tokens - first : options.chunk_size);
      }
    }
    for (Index t = tokens; t < out.extent(1); ++t) {
      for (Index h = 0; h < out.extent(2); ++h) {
        for (Index j = 0; j < out.extent(3); ++j) out(b, t, h, j) = T{};
      }
    }
  }
}

}  // namespace impl

template <class T>
Index linear_attention_scratch_kernel(const Simd&, const LinearAttentionExtents& extents) noexcept {
  return impl::LinearAttentionScratch::of<accumulator_t<T>>(extents).size;
}

template <class T>
void linear_attention_kernel(const Simd&, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                             View<accumulator_t<T>, 4> state, View<T, 4> out, const LinearAttentionOptions<T>& options,
                             View<accumulator_t<T>, 2> scratch) noexcept {
  impl::linear_attention<simd::PanelProduct, T>(query, key, value, state, out, options, scratch);
}

}  // namespace heed::inline HEED_ABI
