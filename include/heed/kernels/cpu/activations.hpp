// Cpu kernels of ops::silu and ops::gelu: rows in parts, or columns where there are few rows.
#pragma once

#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/simd/activations.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Calls part(x, out) on parts of both; every element stands alone, so any cut will do.
template <class T, class F>
void for_element_parts(const Cpu& cpu, View<const T, 2> x, View<T, 2> out, F&& part) {
  const int axis = out.extent(0) >= cpu.concurrency() ? 0 : 1;
  for_rows(cpu, out.extent(axis), out.extent(1 - axis),
           [&](Index begin, Index count) { part(x.slice(axis, begin, count), out.slice(axis, begin, count)); });
}

}  // namespace impl

template <class T>
void silu_kernel(const Cpu& cpu, View<const T, 2> x, View<T, 2> out) noexcept {
  impl::for_element_parts(
      cpu, x, out, [&](View<const T, 2> from, View<T, 2> to) { silu_kernel(static_cast<const Simd&>(cpu), from, to); });
}

template <class T>
void gelu_kernel(const Cpu& cpu, View<const T, 2> x, GeluForm form, View<T, 2> out) noexcept {
  impl::for_element_parts(cpu, x, out, [&](View<const T, 2> from, View<T, 2> to) {
    gelu_kernel(static_cast<const Simd&>(cpu), from, form, to);
  });
}

}  // namespace heed::inline HEED_ABI
