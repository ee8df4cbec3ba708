// Cpu kernel of ops::rms_norm: rows in parts.
#pragma once

#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/simd/rms_norm.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void rms_norm_kernel(const Cpu& cpu, View<const T, 2> x, View<const T, 1> weight, RmsNormOptions options,
                     View<T, 2> out) noexcept {
  impl::for_rows(cpu, out.extent(0), out.extent(1), [&](Index begin, Index count) {
    rms_norm_kernel(static_cast<const Simd&>(cpu), x.slice(0, begin, count), weight, options,
                    out.slice(0, begin, count));
  });
}

}  // namespace heed::inline HEED_ABI
