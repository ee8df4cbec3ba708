// Reference kernels of ops::linear.
#pragma once

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"
#include "heed/kernels/packed_weight.hpp"

namespace heed::inline HEED_ABI {

// out [m, n] = x [m, k] · weightᵀ + bias; weight [n, k], bias [n] or absent.
template <class T>
void linear_kernel(const Reference&, View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index j = 0; j < out.extent(1); ++j) {
      accumulator_t<T> sum = bias.present() ? widen(bias(j)) : 0;
      for (Index p = 0; p < x.extent(1); ++p) sum += widen(x(i, p)) * widen(weight(j, p));
      out(i, j) = narrow<T>(sum);
    }
  }
}

// How many output features a panel holds on this backend.
template <class T>
Index weight_panel_kernel(const Reference&, Index /*out_features*/) noexcept {
  return 1;
}

// The same product from a packed weight.
template <class T>
void linear_kernel(const Reference& backend, View<const T, 2> x, const WeightPanels<T>& weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  HEED_ASSERT(weight.panel == 1);
  const View<const T, 2> plain(weight.data, {weight.out_features, weight.in_features});
  linear_kernel(backend, x, plain, bias, out);
}

}  // namespace heed::inline HEED_ABI
