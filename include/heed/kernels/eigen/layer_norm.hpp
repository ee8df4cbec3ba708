// EigenMap kernel of ops::layer_norm.
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/eigen/rows.hpp"
#include "heed/kernels/reference/layer_norm.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void layer_norm_kernel(const EigenMap&, View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias,
                       LayerNormOptions options, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  const Index n = out.extent(1);
  const auto factor = impl::eigen_row(weight.data_handle(), weight.extent(0));
  const auto addend = impl::eigen_row(bias.data_handle(), bias.extent(0));
  for (Index i = 0; i < out.extent(0); ++i) {
    const auto row = impl::eigen_row(x.pointer(i), n);
    const A mean = row.mean();
    const A scale = 1 / std::sqrt((row - mean).square().mean() + static_cast<A>(options.eps));
    const auto normal = (row - mean) * scale;
    T* to = out.pointer(i);
    if (weight.present() && bias.present()) {
      impl::store_row(normal * factor + addend, to);
    } else if (weight.present()) {
      impl::store_row(normal * factor, to);
    } else if (bias.present()) {
      impl::store_row(normal + addend, to);
    } else {
      impl::store_row(normal, to);
    }
  }
}

}  // namespace heed::inline HEED_ABI
