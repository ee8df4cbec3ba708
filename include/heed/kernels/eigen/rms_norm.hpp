// EigenMap kernel of ops::rms_norm.
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/eigen/rows.hpp"
#include "heed/kernels/reference/rms_norm.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void rms_norm_kernel(const EigenMap&, View<const T, 2> x, View<const T, 1> weight, RmsNormOptions options,
                     View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  const Index n = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    const auto row = impl::eigen_row(x.pointer(i), n);
    const A scale = 1 / std::sqrt(row.square().mean() + static_cast<A>(options.eps));
    if (weight.present()) {
      const auto factor = impl::eigen_row(weight.data_handle(), n) + static_cast<A>(options.weight_offset);
      impl::store_row(row * scale * factor, out.pointer(i));
    } else {
      impl::store_row(row * scale, out.pointer(i));
    }
  }
}

}  // namespace heed::inline HEED_ABI
