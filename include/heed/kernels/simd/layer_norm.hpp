// Simd kernel of ops::layer_norm.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/reference/layer_norm.hpp"
#include "heed/kernels/simd/rows.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void layer_norm_kernel(const Simd&, View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias,
                       LayerNormOptions options, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  const Index n = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    const T* from = x.pointer(i);
    T* to = out.pointer(i);
    const A sum = simd::sum_row(from, n, A(0), [](V total, V row, Index) { return total + row; });
    const A mean_of_row = sum / static_cast<A>(n);
    const V mean = simd::broadcast<A>(mean_of_row);
    const A squares = simd::sum_row(from, n, mean_of_row, [&](V total, V row, Index) {
      const V difference = row - mean;
      return simd::fma<A>(difference, difference, total);
    });
    const V scale = simd::broadcast<A>(1 / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(options.eps)));
    // An absent weight or bias is 1 or 0; the fma is the only product that a sum follows, and it is explicit.
    simd::map_row(from, to, n, [&](V row, Index j) {
      const V one = simd::broadcast<A>(1);
      const V factor = weight.present() ? simd::load_partial(weight.pointer(j), n - j) : one;
      const V addend = bias.present() ? simd::load_partial(bias.pointer(j), n - j) : simd::broadcast<A>(0);
      return simd::fma<A>((row - mean) * scale, factor, addend);
    });
  }
}

}  // namespace heed::inline HEED_ABI
