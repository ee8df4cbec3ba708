// Cpu kernels of ops::softmax and ops::log_sum_exp: rows in parts; along another axis outer blocks in parts, or columns
// where there are few blocks.
#pragma once

#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/simd/softmax.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Calls part(outer begin, outer count, inner begin, inner count) on parts of [outer, n, inner].
template <class F>
void for_block_parts(const Cpu& cpu, Index outer, Index n, Index inner, F&& part) {
  constexpr Index columns = 16;  // a cache line of floats
  if (outer >= cpu.concurrency()) {
    for_rows(cpu, outer, n * inner, [&](Index begin, Index count) { part(begin, count, Index{0}, inner); });
  } else {
    for_rows(cpu, (inner + columns - 1) / columns, outer * n * columns, [&](Index begin, Index count) {
      const Index first = begin * columns;
      const Index end = (begin + count) * columns;
      part(Index{0}, outer, first, (end < inner ? end : inner) - first);
    });
  }
}

}  // namespace impl

template <class T>
void softmax_kernel(const Cpu& cpu, View<const T, 2> x, View<T, 2> out) noexcept {
  impl::for_rows(cpu, out.extent(0), out.extent(1), [&](Index begin, Index count) {
    softmax_kernel(static_cast<const Simd&>(cpu), x.slice(0, begin, count), out.slice(0, begin, count));
  });
}

template <class T>
void softmax_columns_kernel(const Cpu& cpu, View<const T, 3> x, View<T, 3> out) noexcept {
  impl::for_block_parts(
      cpu, out.extent(0), out.extent(1), out.extent(2), [&](Index outer, Index outers, Index inner, Index inners) {
        softmax_columns_kernel(static_cast<const Simd&>(cpu), x.slice(0, outer, outers).slice(2, inner, inners),
                               out.slice(0, outer, outers).slice(2, inner, inners));
      });
}

template <class T>
void log_sum_exp_kernel(const Cpu& cpu, View<const T, 2> x, View<T, 1> out) noexcept {
  impl::for_rows(cpu, out.extent(0), x.extent(1), [&](Index begin, Index count) {
    log_sum_exp_kernel(static_cast<const Simd&>(cpu), x.slice(0, begin, count), out.slice(0, begin, count));
  });
}

template <class T>
void log_sum_exp_columns_kernel(const Cpu& cpu, View<const T, 3> x, View<T, 2> out) noexcept {
  impl::for_block_parts(
      cpu, out.extent(0), x.extent(1), out.extent(1), [&](Index outer, Index outers, Index inner, Index inners) {
        log_sum_exp_columns_kernel(static_cast<const Simd&>(cpu), x.slice(0, outer, outers).slice(2, inner, inners),
                                   out.slice(0, outer, outers).slice(1, inner, inners));
      });
}

}  // namespace heed::inline HEED_ABI
