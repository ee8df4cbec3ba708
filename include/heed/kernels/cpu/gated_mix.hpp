// Cpu kernel of ops::gated_mix: tokens in parts.
#pragma once

#include "heed/kernels/cpu/token_ranges.hpp"
#include "heed/kernels/simd/gated_mix.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void gated_mix_kernel(const Cpu& cpu, View<const T, 4> memory, View<const T, 4> local,
                      View<const accumulator_t<T>, 1> beta, View<T, 4> out, EmptyMemory empty_memory,
                      View<const accumulator_t<T>, 3> denominator) noexcept {
  const Index work = 4 * out.extent(2) * out.extent(3);
  impl::for_token_ranges(cpu, out.extent(0), out.extent(1), work, [&](Index row, Index first, Index n, int) {
    gated_mix_kernel(static_cast<const Simd&>(cpu), impl::token_range(memory, row, first, n),
                     impl::token_range(local, row, first, n), beta, impl::token_range(out, row, first, n), empty_memory,
                     impl::token_range(denominator, row, first, n));
  });
}

}  // namespace heed::inline HEED_ABI
