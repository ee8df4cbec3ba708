// Device kernels of ops::rms_norm and ops::layer_norm: a warp a row.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/kernels/reference/layer_norm.hpp"
#include "heed/kernels/reference/rms_norm.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Σ f(x(row, j)) over the row, in all lanes.
template <class T, class Context, class F>
HEED_DEVICE accumulator_t<T> row_sum(Context& context, const View<const T, 2>& x, Index row, F f) {
  accumulator_t<T> sum = 0;
  for (Index j = context.lane(); j < x.extent(1); j += 32) sum += f(Context::widen(x(row, j)));
  return warp_sum(context, sum);
}

template <class T>
struct RmsNormKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "rms_norm";

  View<const T, 2> x;
  View<const T, 1> weight;
  A eps;
  A weight_offset;
  View<T, 2> out;

  template <class Context>
  HEED_DEVICE void row(Context& context, Index i) const {
    const A squares = row_sum<T>(context, x, i, [](A value) { return value * value; });
    const A scale = 1 / Context::sqrt(squares / static_cast<A>(x.extent(1)) + eps);
    for (Index j = context.lane(); j < x.extent(1); j += 32) {
      const A factor = weight.present() ? weight_offset + Context::widen(weight(j)) : A(1);
      out(i, j) = Context::template narrow<T>(Context::widen(x(i, j)) * scale * factor);
    }
  }
};

template <class T>
struct LayerNormKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "layer_norm";

  View<const T, 2> x;
  View<const T, 1> weight;
  View<const T, 1> bias;
  A eps;
  View<T, 2> out;

  template <class Context>
  HEED_DEVICE void row(Context& context, Index i) const {
    const auto count = static_cast<A>(x.extent(1));
    const A mean = row_sum<T>(context, x, i, [](A value) { return value; }) / count;
    const A squares = row_sum<T>(context, x, i, [mean](A value) { return (value - mean) * (value - mean); });
    const A scale = 1 / Context::sqrt(squares / count + eps);
    for (Index j = context.lane(); j < x.extent(1); j += 32) {
      A y = (Context::widen(x(i, j)) - mean) * scale;
      if (weight.present()) y *= Context::widen(weight(j));
      if (bias.present()) y += Context::widen(bias(j));
      out(i, j) = Context::template narrow<T>(y);
    }
  }
};

}  // namespace impl

template <class Runtime, class T>
void rms_norm_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                     View<const T, 1, DeviceMemory<Runtime>> weight, RmsNormOptions options,
                     View<T, 2, DeviceMemory<Runtime>> out) {
  using A = accumulator_t<T>;
  impl::launch_rows(device,
                    impl::RmsNormKernel<T>{in_kernel(x), in_kernel(weight), static_cast<A>(options.eps),
                                           static_cast<A>(options.weight_offset), in_kernel(out)},
                    out.extent(0));
}

template <class Runtime, class T>
void layer_norm_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                       View<const T, 1, DeviceMemory<Runtime>> weight, View<const T, 1, DeviceMemory<Runtime>> bias,
                       LayerNormOptions options, View<T, 2, DeviceMemory<Runtime>> out) {
  impl::launch_rows(device,
                    impl::LayerNormKernel<T>{in_kernel(x), in_kernel(weight), in_kernel(bias),
                                             static_cast<accumulator_t<T>>(options.eps), in_kernel(out)},
                    out.extent(0));
}

}  // namespace heed::inline HEED_ABI
