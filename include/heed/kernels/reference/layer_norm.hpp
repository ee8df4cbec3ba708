// Reference kernel of ops::layer_norm, and its options.
#pragma once

#include <cmath>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"

namespace heed {

struct LayerNormOptions {
  double eps = 1e-5;  // added to the variance
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Rows of x [rows, n] -> out [rows, n]; weight [n] and bias [n], each or both absent.
template <class T>
void layer_norm_kernel(const Reference&, View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias,
                       LayerNormOptions options, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  const Index n = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    A sum = 0;
    for (Index j = 0; j < n; ++j) sum += widen(x(i, j));
    const A mean = sum / static_cast<A>(n);
    A squares = 0;
    for (Index j = 0; j < n; ++j) squares += (widen(x(i, j)) - mean) * (widen(x(i, j)) - mean);
    const A scale = 1 / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(options.eps));
    for (Index j = 0; j < n; ++j) {
      A y = (widen(x(i, j)) - mean) * scale;
      if (weight.present()) y *= widen(weight(j));
      if (bias.present()) y += widen(bias(j));
      out(i, j) = narrow<T>(y);
    }
  }
}

}  // namespace heed::inline HEED_ABI
