// Device kernels of ops::rotary_tables, ops::rotary_embedding and ops::rotate_half.
#pragma once

#include <cstdint>

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/ops/rope_options.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// The angle, its cosine and its sine in double, as on the CPU.
template <class A>
struct RotaryTablesKernel {
  static constexpr const char* name = "rotary_tables";

  View<const std::int64_t, 2> positions;
  View<const double, 1> inv_freq;
  double factor;
  View<A, 3> cos;
  View<A, 3> sin;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index pair = i % cos.extent(2);
    const Index t = i / cos.extent(2) % cos.extent(1);
    const Index b = i / cos.extent(2) / cos.extent(1);
    double sine = 0;
    double cosine = 0;
    Context::sin_cos(static_cast<double>(positions(b, t)) * inv_freq(pair), sine, cosine);
    cos(b, t, pair) = static_cast<A>(factor * cosine);
    sin(b, t, pair) = static_cast<A>(factor * sine);
  }
};

// A thread a pair; those behind the last pair copy the dims that do not turn.
template <class T>
struct RotaryEmbeddingKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "rotary_embedding";

  View<const T, 4> x;
  View<const A, 3> cos;
  View<const A, 3> sin;
  bool half;
  View<T, 4> out;

  HEED_ANYWHERE Index work_per_head() const { return x.extent(3) - cos.extent(2); }

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index pairs = cos.extent(2);
    const Index work = i % work_per_head();
    const Index h = i / work_per_head() % x.extent(2);
    const Index token = i / work_per_head() / x.extent(2);
    const Index t = token % x.extent(1);
    const Index b = token / x.extent(1);
    if (work >= pairs) {
      const Index d = pairs + work;
      out(b, t, h, d) = x(b, t, h, d);
      return;
    }
    const Index first = half ? work : 2 * work;
    const Index second = half ? work + pairs : 2 * work + 1;
    const A x1 = Context::widen(x(b, t, h, first));
    const A x2 = Context::widen(x(b, t, h, second));
    const A c = cos(b, t, work);
    const A s = sin(b, t, work);
    out(b, t, h, first) = Context::template narrow<T>(x1 * c - x2 * s);
    out(b, t, h, second) = Context::template narrow<T>(x2 * c + x1 * s);
  }
};

template <class T>
struct RotateHalfKernel {
  static constexpr const char* name = "rotate_half";

  View<const T, 2> x;
  View<T, 2> out;

  template <class Context>
  HEED_DEVICE void element(Context&, Index i) const {
    const Index half = x.extent(1) / 2;
    const Index row = i / half;
    const Index d = i % half;
    out(row, d) = Context::template narrow<T>(-Context::widen(x(row, half + d)));
    out(row, half + d) = x(row, d);
  }
};

}  // namespace impl

template <class Runtime, class A>
void rotary_tables_kernel(const Device<Runtime>& device, View<const std::int64_t, 2, DeviceMemory<Runtime>> positions,
                          View<const double, 1, DeviceMemory<Runtime>> inv_freq, double factor,
                          View<A, 3, DeviceMemory<Runtime>> cos, View<A, 3, DeviceMemory<Runtime>> sin) {
  impl::launch_elements(
      device,
      impl::RotaryTablesKernel<A>{in_kernel(positions), in_kernel(inv_freq), factor, in_kernel(cos), in_kernel(sin)},
      cos.size());
}

template <class Runtime, class T>
void rotary_embedding_kernel(const Device<Runtime>& device, View<const T, 4, DeviceMemory<Runtime>> x,
                             View<const accumulator_t<T>, 3, DeviceMemory<Runtime>> cos,
                             View<const accumulator_t<T>, 3, DeviceMemory<Runtime>> sin, RopeLayout layout,
                             View<T, 4, DeviceMemory<Runtime>> out) {
  const impl::RotaryEmbeddingKernel<T> kernel{in_kernel(x), in_kernel(cos), in_kernel(sin), layout == RopeLayout::half,
                                              in_kernel(out)};
  impl::launch_elements(device, kernel, x.extent(0) * x.extent(1) * x.extent(2) * kernel.work_per_head());
}

template <class Runtime, class T>
void rotate_half_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                        View<T, 2, DeviceMemory<Runtime>> out) {
  impl::launch_elements(device, impl::RotateHalfKernel<T>{in_kernel(x), in_kernel(out)},
                        x.extent(0) * (x.extent(1) / 2));
}

}  // namespace heed::inline HEED_ABI
