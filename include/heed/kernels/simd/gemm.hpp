// The one micro-kernel family of the Simd backend: C = A · B with B in packed panels. It serves Linear, Q·Kᵀ, P·V and
// the compressive memory.
//
//   A  [m, k]   rows of X, any row and k stride (a transposed operand is the same code)
//   B  [k, n]   panels: panel j holds columns j·w … j·w + w − 1 as [k][w], the last one padded with zeros
//   C  [m, n]   accumulator type, contiguous columns
//
// Bits: every element of C is one chain of fma in ascending k, whatever the tile it falls into, so a row of C depends
// only on its row of A, on B and on where the chain starts. A chain cut into blocks of k resumes from the partial
// stored in C.
#pragma once

#include "heed/core/simd.hpp"

namespace heed::inline HEED_ABI::simd {

// Vectors in a full panel. Two keep the broadcast of A's element busy; a matrix narrower than one vector uses one.
inline constexpr Index panel_vectors = 2;

// The width of the panels for a matrix of n columns.
template <class A>
HEED_INLINE constexpr Index panel_width(Index n) noexcept {
  return n <= width<A> ? width<A> : panel_vectors * width<A>;
}

// Columns after padding: the panels of a [k, n] matrix take k · padded_columns(n) elements.
template <class A>
HEED_INLINE constexpr Index padded_columns(Index n) noexcept {
  const Index w = panel_width<A>(n);
  return (n + w - 1) / w * w;
}

// Rows of a register tile: as many as leave registers for one panel row and a broadcast.
template <class A>
inline constexpr int tile_rows =
#if defined(__AVX512F__)
    14;  // 28 of 32 registers accumulate
#elif defined(__aarch64__)
    10;  // 20 of 32: with more, g++ runs out of them
#elif defined(__AVX__)
    6;  // 12 of 16
#else
    4;  // 8 of 16; without fma the product needs one more
#endif

// Where the chains of a product begin.
enum class Start {
  zero,    // C = A·B
  resume,  // C += A·B, the chain continuing from what C holds
};

// A's elements: row i, depth p at data[i · row_stride + p · k_stride].
template <class X>
struct Rows {
  const X* data;
  Index row_stride;
  Index k_stride;
};

// Panels of one matrix: panel j starts at data + j · panel_stride, its rows are row_stride apart. A row-major matrix
// whose columns fill whole panels is read where it lies: {data, panel, panel, the matrix's row stride}.
template <class P>
struct Panels {
  const P* data;
  Index panel_stride;
  Index panel;               // width<A> or panel_vectors · width<A>
  Index row_stride = panel;  // packed: rows without gaps
};

namespace detail {

// One element of each of a few rows. Seven rows share a pointer, which they are off by multiples of the stride that an
// addressing mode of x86 can form of three registers; a compiler left alone takes a register for every row, has too few,
// and moves some in and out of vectors, in the loop.
template <int RowCount, class X>
class RowElements {
 public:
  HEED_INLINE explicit RowElements(const Rows<X>& a) noexcept
      : one_(a.row_stride * size), three_(3 * one_), five_(5 * one_) {
    for (int i = 0; i < groups; ++i) {
      base_[i] = reinterpret_cast<const char*>(a.data) + 7 * i * one_;
      hide(base_[i]);
    }
    hide(one_);
    hide(three_);
    hide(five_);
  }

  HEED_INLINE X operator[](int i) const noexcept {
    const Index offsets[7] = {0, one_, 2 * one_, three_, 4 * one_, five_, 2 * three_};
    return *reinterpret_cast<const X*>(base_[i / 7] + offsets[i % 7]);
  }
  HEED_INLINE void next(Index stride) noexcept {
    HEED_UNROLL
    for (int i = 0; i < groups; ++i) base_[i] += stride * size;
  }

 private:
  static constexpr int groups = (RowCount + 6) / 7;
  static constexpr Index size = static_cast<Index>(sizeof(X));

  // Keeps the compiler from forming what it would rather keep.
  template <class V>
  HEED_INLINE static void hide(V& value) noexcept {
#if defined(__GNUC__)
    asm("" : "+r"(value));
#endif
  }

  Index one_, three_, five_;
  const char* base_[groups];
};

// One register tile: Rows × (PanelCount · Vectors) vectors of C, over the whole depth.
template <int RowCount, int Vectors, int PanelCount, class A, class X, class P>
HEED_INLINE void multiply_tile(Index k, const Rows<X>& a, const Panels<P>& b, A* c, Index c_stride, Index columns,
                               Start start) noexcept {
  constexpr Index w = width<A>;
  constexpr int N = Vectors * PanelCount;
  Vec<A> sum[RowCount][N];
  HEED_UNROLL
  for (int i = 0; i < RowCount; ++i) {
    HEED_UNROLL
    for (int j = 0; j < N; ++j) {
      sum[i][j] =
          start == Start::zero ? simd::broadcast<A>(0) : simd::load_partial(c + i * c_stride + j * w, columns - j * w);
    }
  }
  RowElements<RowCount, X> element(a);
  const P* b_row = b.data;
  for (Index p = 0; p < k; ++p) {
    Vec<A> row[N];
    HEED_UNROLL
    for (int j = 0; j < N; ++j) row[j] = simd::load(b_row + (j / Vectors) * b.panel_stride + (j % Vectors) * w);
    HEED_UNROLL
    for (int i = 0; i < RowCount; ++i) {
      const Vec<A> each = simd::broadcast<A>(widen(element[i]));
      HEED_UNROLL
      for (int j = 0; j < N; ++j) sum[i][j] = simd::fma(each, row[j], sum[i][j]);
    }
    element.next(a.k_stride);
    b_row += b.row_stride;
  }
  HEED_UNROLL
  for (int i = 0; i < RowCount; ++i) {
    HEED_UNROLL
    for (int j = 0; j < N; ++j) {
      if (columns > j * w) simd::store_partial(c + i * c_stride + j * w, columns - j * w, sum[i][j]);
    }
  }
}

// All rows of one group of panels, in tiles of RowCount rows; what is left goes to the next smaller tile.
template <int RowCount, int Vectors, int PanelCount, class A, class X, class P>
HEED_INLINE void multiply_rows(Index m, Index k, Rows<X> a, const Panels<P>& b, A* c, Index c_stride, Index columns,
                               Start start) noexcept {
  Index i = 0;
  for (; i + RowCount <= m; i += RowCount) {
    multiply_tile<RowCount, Vectors, PanelCount>(k, a, b, c, c_stride, columns, start);
    a.data += RowCount * a.row_stride;
    c += RowCount * c_stride;
  }
  if constexpr (RowCount > 1) {
    constexpr int next = RowCount > 8 ? 8 : RowCount > 4 ? 4 : RowCount > 2 ? 2 : 1;
    if (i < m) multiply_rows<next, Vectors, PanelCount>(m - i, k, a, b, c, c_stride, columns, start);
  }
}

template <int Vectors, class A, class X, class P>
HEED_NOINLINE void multiply_panels(Index m, Index n, Index k, const Rows<X>& a, Panels<P> b, A* c, Index c_stride,
                                   Start start) noexcept {
  constexpr Index w = Vectors * width<A>;
  Index column = 0;
  // One or two rows alone would wait for each fma's result: several panels at a time keep the units busy.
  constexpr int together = 4;
  if (m <= 2) {
    for (; column + together * w <= n; column += together * w) {
      multiply_rows<2, Vectors, together>(m, k, a, b, c + column, c_stride, together * w, start);
      b.data += together * b.panel_stride;
    }
  }
  for (; column < n; column += w) {
    multiply_rows<tile_rows<A>, Vectors, 1>(m, k, a, b, c + column, c_stride, n - column, start);
    b.data += b.panel_stride;
  }
}

}  // namespace detail

// C [m, n] (+)= A [m, k] · B [k, n]. k = 0 leaves the start values.
template <class A, class X, class P>
HEED_INLINE void multiply(Index m, Index n, Index k, const Rows<X>& a, const Panels<P>& b, A* c, Index c_stride,
                          Start start) noexcept {
  if (m <= 0 || n <= 0) return;  // c may be null then, and takes no offset
  if (b.panel == width<A>) {
    detail::multiply_panels<1>(m, n, k, a, b, c, c_stride, start);
  } else {
    detail::multiply_panels<static_cast<int>(panel_vectors)>(m, n, k, a, b, c, c_stride, start);
  }
}

// The product as a template argument of kernels that are built on it: another one with these two members can take its
// place (kernels/eigen/product.hpp).
struct PanelProduct {
  static constexpr bool is_packed = true;  // its numbers are those of the chains above
  template <class A>
  HEED_INLINE static constexpr Index panel_width(Index n) noexcept {
    return simd::panel_width<A>(n);
  }
  template <class A, class X, class P>
  HEED_INLINE static void multiply(Index m, Index n, Index k, const Rows<X>& a, const Panels<P>& b, A* c,
                                   Index c_stride, Start start) noexcept {
    simd::multiply(m, n, k, a, b, c, c_stride, start);
  }
};

// Packs columns first … first + count − 1 of B [k, n], given as element (p, j) at from[p · k_stride + j ·
// column_stride], into one panel [k][panel] whose missing columns are zero. P may be wider than T.
template <class P, class T>
HEED_INLINE void pack_panel(const T* from, Index k_stride, Index column_stride, Index k, Index count, Index panel,
                            P* to) noexcept {
  if (column_stride == 1) {
    for (Index p = 0; p < k; ++p, from += k_stride, to += panel) {
      for (Index j = 0; j < count; ++j) to[j] = static_cast<P>(from[j]);
      for (Index j = count; j < panel; ++j) to[j] = P{};
    }
    return;
  }
  // Reading along the columns' own rows.
  for (Index j = 0; j < panel; ++j) {
    if (j < count) {
      const T* column = from + j * column_stride;
      for (Index p = 0; p < k; ++p) to[p * panel + j] = static_cast<P>(column[p * k_stride]);
    } else {
      for (Index p = 0; p < k; ++p) to[p * panel + j] = P{};
    }
  }
}

// Packs a whole matrix B [k, n] into panels of panel_width<A>(n).
template <class A, class P, class T>
HEED_INLINE void pack(const T* from, Index k_stride, Index column_stride, Index k, Index n, P* to) noexcept {
  const Index panel = panel_width<A>(n);
  for (Index j = 0; j < n; j += panel) {
    pack_panel(from + j * column_stride, k_stride, column_stride, k, n - j < panel ? n - j : panel, panel, to);
    to += k * panel;
  }
}

}  // namespace heed::inline HEED_ABI::simd
