// Simd kernels of ops::silu and ops::gelu.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/reference/activations.hpp"
#include "heed/kernels/simd/rows.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void silu_kernel(const Simd&, View<const T, 2> x, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  for (Index i = 0; i < out.extent(0); ++i) {
    simd::map_row(x.pointer(i), out.pointer(i), out.extent(1),
                  [](V value, Index) { return value * simd::sigmoid<A>(value); });
  }
}

template <class T>
void gelu_kernel(const Simd&, View<const T, 2> x, GeluForm form, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  using V = simd::Vec<A>;
  for (Index i = 0; i < out.extent(0); ++i) {
    if (form == GeluForm::erf) {
      simd::map_row(x.pointer(i), out.pointer(i), out.extent(1), [](V value, Index) {
        const V half = value * simd::broadcast<A>(A(0.5));
        return simd::fma<A>(half, simd::erf<A>(value * simd::broadcast<A>(A(detail::sqrt_half))), half);
      });
    } else {
      // (1 + tanh u) / 2 = sigmoid(2u), and 2u = x · (a + b x²).
      simd::map_row(x.pointer(i), out.pointer(i), out.extent(1), [](V value, Index) {
        const V a = simd::broadcast<A>(A(2 * detail::sqrt_2_over_pi));
        const V b = simd::broadcast<A>(A(2 * detail::sqrt_2_over_pi * detail::gelu_cubic));
        return value * simd::sigmoid<A>(value * simd::fma<A>(b, value * value, a));
      });
    }
  }
}

}  // namespace heed::inline HEED_ABI
