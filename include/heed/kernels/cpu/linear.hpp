// Cpu kernels of ops::linear: rows in parts where there are many, output features where there are few.
#pragma once

#include "heed/backend/cpu.hpp"
#include "heed/kernels/simd/linear.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Multiply-adds below which a part is not worth waking a thread for (some 10 µs on one core).
inline constexpr Index linear_part = 1 << 18;

// Runs product(rows begin, rows count, features begin, features count) on parts; features come in whole panels.
template <class F>
void linear_parts(const Cpu& cpu, Index m, Index n, Index k, Index panel, F&& product) {
  const Index row_work = n * k < 1 ? 1 : n * k;
  if (m >= 16 * cpu.concurrency()) {
    const Index grain = (linear_part + row_work - 1) / row_work;
    cpu.for_ranges(m, grain < 16 ? 16 : grain, [&](Index begin, Index count, int) { product(begin, count, 0, n); });
  } else {
    const Index panel_work = m * k * panel < 1 ? 1 : m * k * panel;
    const Index panels = (n + panel - 1) / panel;
    cpu.for_ranges(panels, (linear_part + panel_work - 1) / panel_work, [&](Index begin, Index count, int) {
      const Index first = begin * panel;
      product(0, m, first, (begin + count) * panel < n ? count * panel : n - first);
    });
  }
}

}  // namespace impl

template <class T>
void linear_kernel(const Cpu& cpu, View<const T, 2> x, const WeightPanels<T>& weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  impl::linear_parts(cpu, out.extent(0), weight.out_features, weight.in_features, weight.panel,
                     [&](Index row, Index rows, Index first, Index features) {
                       linear_kernel(static_cast<const Simd&>(cpu), x.slice(0, row, rows),
                                     weight.slice(first, features),
                                     bias.present() ? bias.slice(0, first, features) : bias,
                                     out.slice(0, row, rows).slice(1, first, features));
                     });
}

template <class T>
void linear_kernel(const Cpu& cpu, View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  const Index n = weight.extent(0);
  impl::linear_parts(cpu, out.extent(0), n, weight.extent(1), simd::panel_width<accumulator_t<T>>(n),
                     [&](Index row, Index rows, Index first, Index features) {
                       linear_kernel(static_cast<const Simd&>(cpu), x.slice(0, row, rows),
                                     weight.slice(0, first, features),
                                     bias.present() ? bias.slice(0, first, features) : bias,
                                     out.slice(0, row, rows).slice(1, first, features));
                     });
}

}  // namespace heed::inline HEED_ABI
