// Reference kernel of ops::rms_norm, and its options.
#pragma once

#include <cmath>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"

namespace heed {

struct RmsNormOptions {
  double eps = 1e-6;         // added to the mean of squares
  double weight_offset = 0;  // added to the weight; 1 for Gemma, whose weights are stored as w − 1
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Rows of x [rows, n] -> out [rows, n]; weight [n] or absent.
template <class T>
void rms_norm_kernel(const Reference&, View<const T, 2> x, View<const T, 1> weight, RmsNormOptions options,
                     View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  const Index n = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    A squares = 0;
    for (Index j = 0; j < n; ++j) squares += widen(x(i, j)) * widen(x(i, j));
    const A scale = 1 / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(options.eps));
    for (Index j = 0; j < n; ++j) {
      const A factor = weight.present() ? static_cast<A>(options.weight_offset) + widen(weight(j)) : A(1);
      out(i, j) = narrow<T>(widen(x(i, j)) * scale * factor);
    }
  }
}

}  // namespace heed::inline HEED_ABI
