// Cpu kernel of ops::layer_norm: rows in parts.
#pragma once

#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/simd/layer_norm.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void layer_norm_kernel(const Cpu& cpu, View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias,
                       LayerNormOptions options, View<T, 2> out) noexcept {
  impl::for_rows(cpu, out.extent(0), out.extent(1), [&](Index begin, Index count) {
    layer_norm_kernel(static_cast<const Simd&>(cpu), x.slice(0, begin, count), weight, bias, options,
                      out.slice(0, begin, count));
  });
}

}  // namespace heed::inline HEED_ABI
