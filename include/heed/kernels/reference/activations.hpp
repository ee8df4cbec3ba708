// Reference kernels of ops::silu and ops::gelu, and gelu's forms.
#pragma once

#include <cmath>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"

namespace heed {

enum class GeluForm {
  erf,   // x · Φ(x), Φ the normal distribution function: torch's default, BERT
  tanh,  // its approximation by tanh: GPT-2, Gemma
};

namespace detail {
inline constexpr double sqrt_half = 0.70710678118654752440;       // 1 / √2
inline constexpr double sqrt_2_over_pi = 0.79788456080286535588;  // √(2 / π)
inline constexpr double gelu_cubic = 0.044715;
}  // namespace detail

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

// out = f(x) for every element, computed in accumulator_t<T>.
template <class T, class F>
void map_elements(View<const T, 2> x, View<T, 2> out, F&& f) noexcept {
  for (Index i = 0; i < out.extent(0); ++i) {
    for (Index j = 0; j < out.extent(1); ++j) out(i, j) = narrow<T>(f(widen(x(i, j))));
  }
}

}  // namespace impl

template <class T>
void silu_kernel(const Reference&, View<const T, 2> x, View<T, 2> out) noexcept {
  impl::map_elements(x, out, [](auto value) { return value / (1 + std::exp(-value)); });
}

template <class T>
void gelu_kernel(const Reference&, View<const T, 2> x, GeluForm form, View<T, 2> out) noexcept {
  using A = accumulator_t<T>;
  if (form == GeluForm::erf) {
    impl::map_elements(x, out, [](A value) { return value / 2 * (1 + std::erf(value * A(detail::sqrt_half))); });
  } else {
    impl::map_elements(x, out, [](A value) {
      const A u = A(detail::sqrt_2_over_pi) * (value + A(detail::gelu_cubic) * value * value * value);
      return value / 2 * (1 + std::tanh(u));
    });
  }
}

}  // namespace heed::inline HEED_ABI
