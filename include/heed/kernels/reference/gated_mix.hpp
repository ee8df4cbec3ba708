// Reference kernel of ops::gated_mix.
#pragma once

#include <cmath>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"
#include "heed/ops/compressive_memory_options.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// g = sigmoid(β) and 1 − g = sigmoid(−β), each with its own rounding: 1 − g would lose the small side.
template <class A>
struct Gate {
  A memory;
  A local;
};

template <class A>
HEED_INLINE Gate<A> gate_of(A beta) noexcept {
  const A small = std::exp(-std::abs(beta));
  const A low = small / (1 + small);
  const A high = 1 / (1 + small);
  return beta < 0 ? Gate<A>{low, high} : Gate<A>{high, low};
}

// What a query's two parts are mixed with, given φ(q)·z (0: the memory is empty).
template <class A>
HEED_INLINE Gate<A> gate_for(const Gate<A>& gate, EmptyMemory empty_memory, A denominator) noexcept {
  if (denominator != 0) return gate;
  return {0, empty_memory == EmptyMemory::bypass_gate ? A(1) : gate.local};
}

}  // namespace impl

// out [B, T, H, Dv] = g · memory + (1 − g) · local; beta [H], denominator [B, T, H] or absent. A part whose factor is 0
// is not read: 0 · NaN must not appear.
template <class T>
void gated_mix_kernel(const Reference&, View<const T, 4> memory, View<const T, 4> local,
                      View<const accumulator_t<T>, 1> beta, View<T, 4> out, EmptyMemory empty_memory,
                      View<const accumulator_t<T>, 3> denominator) noexcept {
  using A = accumulator_t<T>;
  for (Index h = 0; h < out.extent(2); ++h) {
    const impl::Gate<A> gate = impl::gate_of(beta(h));
    for (Index b = 0; b < out.extent(0); ++b) {
      for (Index t = 0; t < out.extent(1); ++t) {
        const auto own = denominator.present() ? impl::gate_for(gate, empty_memory, denominator(b, t, h)) : gate;
        for (Index j = 0; j < out.extent(3); ++j) {
          const A from_local = own.local != 0 ? own.local * widen(local(b, t, h, j)) : 0;
          A value = from_local;  // not 0 + it: −0 must stay −0
          if (own.memory != 0) {
            const A from_memory = own.memory * widen(memory(b, t, h, j));
            value = own.local != 0 ? from_memory + from_local : from_memory;
          }
          out(b, t, h, j) = narrow<T>(value);
        }
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
