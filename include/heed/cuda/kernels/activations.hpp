// Device kernels of ops::silu and ops::gelu.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/kernels/reference/activations.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

enum class Activation { silu, gelu_erf, gelu_tanh };

template <class T>
struct ActivationKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "activation";

  View<const T, 2> x;
  View<T, 2> out;
  Activation activation;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index row = i / out.extent(1);
    const Index column = i % out.extent(1);
    out(row, column) = Context::template narrow<T>(apply<Context>(Context::widen(x(row, column))));
  }

 private:
  template <class Context>
  HEED_DEVICE A apply(A value) const {
    if (activation == Activation::silu) return value / (1 + Context::exp(-value));
    if (activation == Activation::gelu_erf) return value / 2 * (1 + Context::erf(value * A(detail::sqrt_half)));
    const A u = A(detail::sqrt_2_over_pi) * (value + A(detail::gelu_cubic) * value * value * value);
    return value / 2 * (1 + Context::tanh(u));
  }
};

}  // namespace impl

template <class Runtime, class T>
void silu_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                 View<T, 2, DeviceMemory<Runtime>> out) {
  impl::launch_elements(device, impl::ActivationKernel<T>{in_kernel(x), in_kernel(out), impl::Activation::silu},
                        out.size());
}

template <class Runtime, class T>
void gelu_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x, GeluForm form,
                 View<T, 2, DeviceMemory<Runtime>> out) {
  const auto activation = form == GeluForm::erf ? impl::Activation::gelu_erf : impl::Activation::gelu_tanh;
  impl::launch_elements(device, impl::ActivationKernel<T>{in_kernel(x), in_kernel(out), activation}, out.size());
}

}  // namespace heed::inline HEED_ABI
