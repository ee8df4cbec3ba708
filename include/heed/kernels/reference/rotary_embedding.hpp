// Reference kernels of ops::rotary_tables, ops::rotary_embedding and ops::rotate_half.
#pragma once

#include <cmath>
#include <cstdint>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"
#include "heed/ops/rope_options.hpp"

namespace heed::inline HEED_ABI {

// cos, sin [B, T, pairs] of positions [B, T] · inv_freq [pairs], times factor. The angle is formed in double: a float
// product is off by 2e-3 at position 131071.
template <class A>
void rotary_tables_kernel(const Reference&, View<const std::int64_t, 2> positions, View<const double, 1> inv_freq,
                          double factor, View<A, 3> cos, View<A, 3> sin) noexcept {
  for (Index b = 0; b < cos.extent(0); ++b) {
    for (Index t = 0; t < cos.extent(1); ++t) {
      const auto position = static_cast<double>(positions(b, t));
      for (Index i = 0; i < cos.extent(2); ++i) {
        const double angle = position * inv_freq(i);
        cos(b, t, i) = static_cast<A>(factor * std::cos(angle));
        sin(b, t, i) = static_cast<A>(factor * std::sin(angle));
      }
    }
  }
}

// x, out [B, T, H, D]; cos, sin [B, T, pairs]. out may be x.
template <class T>
void rotary_embedding_kernel(const Reference&, View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                             View<const accumulator_t<T>, 3> sin, RopeLayout layout, View<T, 4> out) noexcept {
  const Index pairs = cos.extent(2);
  for (Index b = 0; b < out.extent(0); ++b) {
    for (Index t = 0; t < out.extent(1); ++t) {
      for (Index h = 0; h < out.extent(2); ++h) {
        for (Index i = 0; i < pairs; ++i) {
          const Index first = layout == RopeLayout::half ? i : 2 * i;
          const Index second = layout == RopeLayout::half ? i + pairs : 2 * i + 1;
          const auto x1 = widen(x(b, t, h, first));
          const auto x2 = widen(x(b, t, h, second));
          out(b, t, h, first) = narrow<T>(x1 * cos(b, t, i) - x2 * sin(b, t, i));
          out(b, t, h, second) = narrow<T>(x2 * cos(b, t, i) + x1 * sin(b, t, i));
        }
        for (Index d = 2 * pairs; d < out.extent(3); ++d) out(b, t, h, d) = x(b, t, h, d);
      }
    }
  }
}

// out [rows, D] = [−second half of x, first half].
template <class T>
void rotate_half_kernel(const Reference&, View<const T, 2> x, View<T, 2> out) noexcept {
  const Index half = x.extent(1) / 2;
  for (Index row = 0; row < x.extent(0); ++row) {
    for (Index d = 0; d < half; ++d) {
      out(row, d) = narrow<T>(-widen(x(row, half + d)));
      out(row, half + d) = x(row, d);
    }
  }
}

}  // namespace heed::inline HEED_ABI
