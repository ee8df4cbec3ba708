// Simd kernels of ops::linear: panels of the weight, packed at construction or block by block, under one micro-kernel.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/packed_weight.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Depth of a block of k: a panel of that depth (32 columns in AVX-512) stays in the level-1 cache.
inline constexpr Index linear_depth = 256;
// Rows of a block of x, which are copied (and widened) once for all panels of a step: where they lie they may all be a
// power of two apart, and in each other's way in the cache.
template <class A>
inline constexpr Index linear_rows = 2 * simd::tile_rows<A>;
// Panels of a step, and the depth to which they stay in the level-2 cache for all rows.
inline constexpr Index linear_step = 4;
inline constexpr Index linear_cached_depth = 4 * linear_depth;

// Panels of each step over n features, where sums need no room of their own: more where they are shallow, in equal
// steps, because every step reads all of x.
HEED_INLINE Index linear_even_step(Index panel, Index n, Index k) noexcept {
  constexpr Index deepest = linear_cached_depth * 5 / 4;
  const Index fold = k < linear_depth ? deepest / linear_depth : deepest / k;
  const Index most = linear_step * (fold > 1 ? fold : 1);
  const Index panels = (n + panel - 1) / panel;
  const Index steps = (panels + most - 1) / most;
  return steps > 0 ? (panels + steps - 1) / steps : 1;
}

// A block of x.
template <class A>
struct LinearBlock {
  static constexpr Index stride = linear_depth + simd::width<A>;  // no power of two
  alignas(64) A elements[linear_rows<A> * stride];

  template <class T>
  HEED_INLINE simd::Rows<A> take(View<const T, 2> x, Index row, Index rows, Index p, Index depth) noexcept {
    for (Index i = 0; i < rows; ++i) {
      const T* const from = x.pointer(row + i, p);
      const Index next = row + rows + i < x.extent(0) ? rows * x.stride(0) : 0;  // the block below is asked for
      for (Index q = 0; q < depth; q += simd::width<A>) {
        simd::store(elements + i * stride + q, simd::load_partial(from + q, depth - q));
        simd::prefetch(from + next + q);
      }
    }
    return {elements, stride, 1};
  }
};

// C [m, n] begins with the bias of features first, first + 1, …
template <class T>
HEED_INLINE void begin_with_bias(View<const T, 1> bias, Index first, Index m, Index n, accumulator_t<T>* c,
                                 Index stride) noexcept {
  using A = accumulator_t<T>;
  for (Index j = 0; j < n; j += simd::width<A>) {
    const auto start = bias.present() ? simd::load_partial(bias.pointer(first + j), n - j) : simd::broadcast<A>(0);
    for (Index i = 0; i < m; ++i) simd::store_partial(c + i * stride + j, n - j, start);
  }
}

// Rows of `out`, columns first … first + n − 1 (a step's at most), from panels that `panels_at(k_begin, k_count)`
// provides. All rows are done with a depth of cached_depth, a multiple of linear_depth, before the next one begins.
template <class T, class PanelsAt>
HEED_INLINE void linear_columns(View<const T, 2> x, View<const T, 1> bias, Index first, Index n, View<T, 2> out,
                                Index cached_depth, PanelsAt&& panels_at) noexcept {
  using A = accumulator_t<T>;
  constexpr Index block_rows = linear_rows<A>;
  const Index m = out.extent(0);
  const Index k = x.extent(1);
  const auto at_most = [](Index value, Index limit) { return value < limit ? value : limit; };
  LinearBlock<A> block;
  if constexpr (std::is_same_v<T, A>) {                                      // out itself is the accumulator
    for (Index begin = 0; begin == 0 || begin < k; begin += cached_depth) {  // once without k, for the bias
      const Index end = at_most(k, begin + cached_depth);
      for (Index i = 0; i < m; i += block_rows) {
        const Index rows = at_most(m - i, block_rows);
        const bool few = rows <= simd::tile_rows<A>;  // not worth a copy
        if (begin == 0) begin_with_bias<T>(bias, first, rows, n, out.pointer(i, first), out.stride(0));
        for (Index p = begin; p < end; p += linear_depth) {
          const Index depth = at_most(end - p, linear_depth);
          simd::multiply(rows, n, depth,
                         few ? simd::Rows<A>{x.pointer(i, p), x.stride(0), 1} : block.take(x, i, rows, p, depth),
                         panels_at(p, depth), out.pointer(i, first), out.stride(0), simd::Start::resume);
        }
      }
    }
  } else {
    constexpr Index columns = linear_step * simd::panel_vectors * simd::width<A>;
    alignas(64) A sums[block_rows * columns];
    for (Index i = 0; i < m; i += block_rows) {
      const Index rows = at_most(m - i, block_rows);
      begin_with_bias<T>(bias, first, rows, n, sums, columns);
      for (Index p = 0; p < k; p += linear_depth) {
        const Index depth = at_most(k - p, linear_depth);
        simd::multiply(rows, n, depth, block.take(x, i, rows, p, depth), panels_at(p, depth), sums, columns,
                       simd::Start::resume);
      }
      for (Index row = 0; row < rows; ++row) {
        T* const to = out.pointer(i + row, first);
        for (Index j = 0; j < n; j += simd::width<A>)
          simd::store_partial(to + j, n - j, simd::load(sums + row * columns + j));
      }
    }
  }
}

}  // namespace impl

template <class T>
Index weight_panel_kernel(const Simd&, Index out_features) noexcept {
  return simd::panel_width<accumulator_t<T>>(out_features);
}

template <class T>
void linear_kernel(const Simd&, View<const T, 2> x, const WeightPanels<T>& weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  const Index n = weight.out_features;
  constexpr bool in_out = std::is_same_v<T, accumulator_t<T>>;
  const Index panels_a_step = in_out ? impl::linear_even_step(weight.panel, n, weight.in_features) : impl::linear_step;
  const Index step = panels_a_step * weight.panel;
  for (Index first = 0; first < n; first += step) {
    const T* panels = weight.slice(first, 0).data;
    impl::linear_columns<T>(x, bias, first, n - first < step ? n - first : step, out, impl::linear_cached_depth,
                            [&](Index p, Index /*depth*/) {
                              return simd::Panels<T>{panels + p * weight.panel, weight.panel_stride(), weight.panel};
                            });
  }
}

template <class T>
void linear_kernel(const Simd&, View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  const Index n = weight.extent(0);
  const Index panel = simd::panel_width<A>(n);
  alignas(64) A packed[impl::linear_depth * simd::panel_vectors * simd::width<A>];
  for (Index first = 0; first < n; first += panel) {
    const Index columns = n - first < panel ? n - first : panel;
    Index packed_at = -1;
    impl::linear_columns<T>(x, bias, first, columns, out, impl::linear_depth, [&](Index p, Index depth) {
      if (p != packed_at) {
        simd::pack_panel(weight.pointer(first, p), 1, weight.stride(0), depth, columns, panel, packed);
        packed_at = p;
      }
      return simd::Panels<A>{packed, 0, panel};
    });
  }
}

}  // namespace heed::inline HEED_ABI
