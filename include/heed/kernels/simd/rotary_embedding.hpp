// Simd kernel of ops::rotary_embedding. (The tables are Reference's: their time is in the C library's sin and cos.)
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/core/simd.hpp"
#include "heed/kernels/reference/rotary_embedding.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// x1 · c − x2 · s and x2 · c + x1 · s: the same two roundings in vectors and scalars, so that a pair's bits depend
// neither on its lane nor on the layout.
template <class V>
HEED_INLINE void rotate_pair(V x1, V x2, V c, V s, V& y1, V& y2) noexcept {
  y1 = simd::fma(x1, c, x2 * (s * V(-1)));  // a vector's unary minus may be 0 − s, which has another zero
  y2 = simd::fma(x2, c, x1 * s);
}

// One head, pair i in dims i and pairs + i.
template <class T>
HEED_INLINE void rotate_head_half(const T* x, const accumulator_t<T>* cos, const accumulator_t<T>* sin, Index pairs,
                                  T* out) noexcept {
  using A = accumulator_t<T>;
  constexpr Index width = simd::width<A>;
  Index i = 0;
  for (; i + width <= pairs; i += width) {
    simd::Vec<A> y1, y2;
    rotate_pair<simd::Vec<A>>(simd::load(x + i), simd::load(x + pairs + i), simd::load(cos + i), simd::load(sin + i),
                              y1, y2);
    simd::store(out + i, y1);
    simd::store(out + pairs + i, y2);
  }
  if (i < pairs) {
    const Index rest = pairs - i;
    simd::Vec<A> y1, y2;
    rotate_pair<simd::Vec<A>>(simd::load_partial(x + i, rest), simd::load_partial(x + pairs + i, rest),
                              simd::load_partial(cos + i, rest), simd::load_partial(sin + i, rest), y1, y2);
    simd::store_partial(out + i, rest, y1);
    simd::store_partial(out + pairs + i, rest, y2);
  }
}

// One head, pair i in dims 2i and 2i + 1.
template <class T>
HEED_INLINE void rotate_head_interleaved(const T* x, const accumulator_t<T>* cos, const accumulator_t<T>* sin,
                                         Index pairs, T* out) noexcept {
  using A = accumulator_t<T>;
  for (Index i = 0; i < pairs; ++i) {
    A y1, y2;
    rotate_pair<A>(widen(x[2 * i]), widen(x[2 * i + 1]), cos[i], sin[i], y1, y2);
    out[2 * i] = narrow<T>(y1);
    out[2 * i + 1] = narrow<T>(y2);
  }
}

}  // namespace impl

template <class T>
void rotary_embedding_kernel(const Simd&, View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                             View<const accumulator_t<T>, 3> sin, RopeLayout layout, View<T, 4> out) noexcept {
  const Index pairs = cos.extent(2);
  const bool in_place = x.data_handle() == out.data_handle();
  for (Index b = 0; b < out.extent(0); ++b) {
    for (Index t = 0; t < out.extent(1); ++t) {
      const accumulator_t<T>* c = cos.pointer(b, t);
      const accumulator_t<T>* s = sin.pointer(b, t);
      for (Index h = 0; h < out.extent(2); ++h) {
        const T* from = x.pointer(b, t, h);
        T* to = out.pointer(b, t, h);
        if (layout == RopeLayout::half) {
          impl::rotate_head_half(from, c, s, pairs, to);
        } else {
          impl::rotate_head_interleaved(from, c, s, pairs, to);
        }
        if (in_place) continue;
        for (Index d = 2 * pairs; d < out.extent(3); ++d) to[d] = from[d];
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
