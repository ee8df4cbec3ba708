// Simd kernels of ops::linear: panels of the weight, packed at construction or block by block, under one micro-kernel.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/packed_weight.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Depth of a block of k: a panel of that depth (32 columns in AVX-512) stays in the level-1 cache.
inline constexpr Index linear_depth = 256;
// Rows of a block of x: with 16-bit storage they are widened once for all panels.
inline constexpr Index linear_rows = 32;

// C of at most linear_rows rows and one panel group begins with the bias.
template <class T>
HEED_INLINE void begin_with_bias(View<const T, 1> bias, Index first, Index m, Index n, accumulator_t<T>* c,
                                 Index stride) noexcept {
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) c[i * stride + j] = bias.present() ? widen(bias(first + j)) : 0;
  }
}

// Rows of `out`, columns first … first + n − 1, from panels that `panels_at(k_begin, k_count)` provides.
template <class T, class PanelsAt>
HEED_INLINE void linear_columns(View<const T, 2> x, View<const T, 1> bias, Index first, Index n, View<T, 2> out,
                                PanelsAt&& panels_at) noexcept {
  using A = accumulator_t<T>;
  constexpr bool direct = std::is_same_v<T, A>;  // out itself is the accumulator
  const Index m = out.extent(0);
  const Index k = x.extent(1);
  if constexpr (direct) {
    begin_with_bias<T>(bias, first, m, n, out.pointer(0, first), out.stride(0));
    for (Index p = 0; p < k; p += linear_depth) {
      const Index depth = k - p < linear_depth ? k - p : linear_depth;
      simd::multiply(m, n, depth, simd::Rows<T>{x.pointer(0, p), x.stride(0), 1}, panels_at(p, depth),
                     out.pointer(0, first), out.stride(0), simd::Start::resume);
    }
  } else {
    constexpr Index columns = simd::panel_vectors * simd::width<A>;  // n is at most one panel here
    A block[linear_rows * columns];
    A wide[linear_rows * linear_depth];
    for (Index i = 0; i < m; i += linear_rows) {
      const Index rows = m - i < linear_rows ? m - i : linear_rows;
      begin_with_bias<T>(bias, first, rows, n, block, columns);
      for (Index p = 0; p < k; p += linear_depth) {
        const Index depth = k - p < linear_depth ? k - p : linear_depth;
        for (Index row = 0; row < rows; ++row) {
          for (Index q = 0; q < depth; ++q) wide[row * linear_depth + q] = widen(x(i + row, p + q));
        }
        simd::multiply(rows, n, depth, simd::Rows<A>{wide, linear_depth, 1}, panels_at(p, depth), block, columns,
                       simd::Start::resume);
      }
      for (Index row = 0; row < rows; ++row) {
        for (Index j = 0; j < n; ++j) out(i + row, first + j) = narrow<T>(block[row * columns + j]);
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
  constexpr bool direct = std::is_same_v<T, accumulator_t<T>>;
  // Four panels at a time: what multiply() takes together for one or two rows, and x's block stays in the cache for
  // them.
  const Index step = direct ? 4 * weight.panel : weight.panel;
  for (Index first = 0; first < n; first += step) {
    const T* panels = weight.slice(first, 0).data;
    impl::linear_columns<T>(x, bias, first, n - first < step ? n - first : step, out, [&](Index p, Index /*depth*/) {
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
    impl::linear_columns<T>(x, bias, first, columns, out, [&](Index p, Index depth) {
      simd::pack_panel(weight.pointer(first, p), 1, weight.stride(0), depth, columns, panel, packed);
      return simd::Panels<A>{packed, 0, panel};
    });
  }
}

}  // namespace heed::inline HEED_ABI
