// Simd kernel of ops::rms_norm.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/reference/rms_norm.hpp"
#include "heed/kernels/simd/rows.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void rms_norm_kernel(const Simd&, View<const T, 2> x, View<const T, 1> weight, RmsNormOptions options,
                     View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  const Index n = out.extent(1);
  const V offset = simd::broadcast<A>(static_cast<A>(options.weight_offset));
  for (Index i = 0; i < out.extent(0); ++i) {
    const T* from = x.pointer(i);
    T* to = out.pointer(i);
    const A squares = simd::sum_row(from, n, A(0), [](V total, V row, Index) { return simd::fma<A>(row, row, total); });
    const V scale = simd::broadcast<A>(1 / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(options.eps)));
    if (weight.present()) {
      simd::map_row(from, to, n, [&](V row, Index j) {
        return row * scale * (offset + simd::load_partial(weight.pointer(j), n - j));
      });
    } else {
      simd::map_row(from, to, n, [&](V row, Index) { return row * scale; });
    }
  }
}

}  // namespace heed::inline HEED_ABI
