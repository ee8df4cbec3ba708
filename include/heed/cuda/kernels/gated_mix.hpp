// Device kernel of ops::gated_mix.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/ops/compressive_memory_options.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class T>
struct GatedMixKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "gated_mix";

  View<const T, 4> memory;
  View<const T, 4> local;
  View<const A, 1> beta;
  View<T, 4> out;
  EmptyMemory empty_memory;
  View<const A, 3> denominator;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index j = i % out.extent(3);
    const Index h = i / out.extent(3) % out.extent(2);
    const Index token = i / out.extent(3) / out.extent(2);
    const Index t = token % out.extent(1);
    const Index b = token / out.extent(1);
    // g = sigmoid(β) and sigmoid(−β), each with its own rounding.
    const A small = Context::exp(beta(h) < 0 ? beta(h) : -beta(h));
    const A low = small / (1 + small);
    const A high = 1 / (1 + small);
    A of_memory = beta(h) < 0 ? low : high;
    A of_local = beta(h) < 0 ? high : low;
    if (denominator.present() && denominator(b, t, h) == 0) {
      of_memory = 0;
      if (empty_memory == EmptyMemory::bypass_gate) of_local = 1;
    }
    // A part whose factor is 0 is not read; and nothing is added to 0, for −0 must stay −0.
    const A from_local = of_local != 0 ? of_local * Context::widen(local(b, t, h, j)) : A(0);
    A value = from_local;
    if (of_memory != 0) {
      const A from_memory = of_memory * Context::widen(memory(b, t, h, j));
      value = of_local != 0 ? from_memory + from_local : from_memory;
    }
    out(b, t, h, j) = Context::template narrow<T>(value);
  }
};

}  // namespace impl

template <class Runtime, class T>
void gated_mix_kernel(const Device<Runtime>& device, View<const T, 4, DeviceMemory<Runtime>> memory,
                      View<const T, 4, DeviceMemory<Runtime>> local,
                      View<const accumulator_t<T>, 1, DeviceMemory<Runtime>> beta,
                      View<T, 4, DeviceMemory<Runtime>> out, EmptyMemory empty_memory,
                      View<const accumulator_t<T>, 3, DeviceMemory<Runtime>> denominator) {
  impl::launch_elements(device,
                        impl::GatedMixKernel<T>{in_kernel(memory), in_kernel(local), in_kernel(beta), in_kernel(out),
                                                empty_memory, in_kernel(denominator)},
                        out.size());
}

}  // namespace heed::inline HEED_ABI
