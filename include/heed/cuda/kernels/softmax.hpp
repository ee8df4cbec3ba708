// Device kernels of ops::softmax and ops::log_sum_exp: a warp a row, or a thread a column.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// What rows and columns have in common: `first`, first + step, … of n elements that lie `stride` apart.
template <class T>
struct SoftmaxElements {
  using A = accumulator_t<T>;

  const T* from;
  Index stride;
  Index n;

  template <class Context>
  HEED_DEVICE A largest(Index first, Index step) const {
    A most = minus_infinity<A>();
    for (Index j = first; j < n; j += step) {
      const A value = Context::widen(from[j * stride]);
      if (value > most) most = value;  // NaN is not counted
    }
    return most;
  }
  // Σ exp(x − largest), where ∞ − ∞ is meant as 0.
  template <class Context>
  HEED_DEVICE A sum(A largest, bool equals_count, Index first, Index step) const {
    A total = 0;
    for (Index j = first; j < n; j += step) {
      const A value = Context::widen(from[j * stride]);
      total += Context::exp(equals_count && value == largest ? A(0) : value - largest);
    }
    return total;
  }
  template <class Context>
  HEED_DEVICE void write(A shift, A sum, T* to, Index to_stride, Index first, Index step) const {
    for (Index j = first; j < n; j += step) {
      const A exponential = Context::exp(Context::widen(from[j * stride]) - shift);
      to[j * to_stride] = Context::template narrow<T>(sum == 0 ? A(0) : exponential / sum);
    }
  }
};

template <class T>
struct SoftmaxRowKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "softmax";

  View<const T, 2> x;
  View<T, 2> out;

  template <class Context>
  HEED_DEVICE void row(Context& context, Index i) const {
    const SoftmaxElements<T> elements{x.pointer(i), 1, x.extent(1)};
    const A largest = warp_max(context, elements.template largest<Context>(context.lane(), 32));
    const A shift = largest == minus_infinity<A>() ? A(0) : largest;  // nothing but −∞: every exp is 0, or NaN
    const A sum = warp_sum(context, elements.template sum<Context>(shift, false, context.lane(), 32));
    elements.template write<Context>(shift, sum, out.pointer(i), 1, context.lane(), 32);
  }
};

template <class T>
struct SoftmaxColumnKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "softmax_columns";

  View<const T, 3> x;
  View<T, 3> out;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index outer = i / out.extent(2);
    const Index inner = i % out.extent(2);
    const SoftmaxElements<T> elements{x.pointer(outer, 0, inner), x.stride(1), x.extent(1)};
    const A largest = elements.template largest<Context>(0, 1);
    const A shift = largest == minus_infinity<A>() ? A(0) : largest;
    const A sum = elements.template sum<Context>(shift, false, 0, 1);
    elements.template write<Context>(shift, sum, out.pointer(outer, 0, inner), out.stride(1), 0, 1);
  }
};

template <class T>
struct LogSumExpRowKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "log_sum_exp";

  View<const T, 2> x;
  View<T, 1> out;

  template <class Context>
  HEED_DEVICE void row(Context& context, Index i) const {
    const SoftmaxElements<T> elements{x.pointer(i), 1, x.extent(1)};
    const A largest = warp_max(context, elements.template largest<Context>(context.lane(), 32));
    const A sum = warp_sum(context, elements.template sum<Context>(largest, true, context.lane(), 32));
    if (context.lane() == 0)
      out.pointer()[i * out.stride(0)] = Context::template narrow<T>(largest + Context::log(sum));
  }
};

template <class T>
struct LogSumExpColumnKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "log_sum_exp_columns";

  View<const T, 3> x;
  View<T, 2> out;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index outer = i / out.extent(1);
    const Index inner = i % out.extent(1);
    const SoftmaxElements<T> elements{x.pointer(outer, 0, inner), x.stride(1), x.extent(1)};
    const A largest = elements.template largest<Context>(0, 1);
    const A sum = elements.template sum<Context>(largest, true, 0, 1);
    out(outer, inner) = Context::template narrow<T>(largest + Context::log(sum));
  }
};

}  // namespace impl

template <class Runtime, class T>
void softmax_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                    View<T, 2, DeviceMemory<Runtime>> out) {
  impl::launch_rows(device, impl::SoftmaxRowKernel<T>{in_kernel(x), in_kernel(out)}, out.extent(0));
}
template <class Runtime, class T>
void softmax_columns_kernel(const Device<Runtime>& device, View<const T, 3, DeviceMemory<Runtime>> x,
                            View<T, 3, DeviceMemory<Runtime>> out) {
  impl::launch_elements(device, impl::SoftmaxColumnKernel<T>{in_kernel(x), in_kernel(out)},
                        out.extent(0) * out.extent(2));
}
template <class Runtime, class T>
void log_sum_exp_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                        View<T, 1, DeviceMemory<Runtime>> out) {
  impl::launch_rows(device, impl::LogSumExpRowKernel<T>{in_kernel(x), in_kernel(out)}, out.extent(0));
}
template <class Runtime, class T>
void log_sum_exp_columns_kernel(const Device<Runtime>& device, View<const T, 3, DeviceMemory<Runtime>> x,
                                View<T, 2, DeviceMemory<Runtime>> out) {
  impl::launch_elements(device, impl::LogSumExpColumnKernel<T>{in_kernel(x), in_kernel(out)}, out.size());
}

}  // namespace heed::inline HEED_ABI
