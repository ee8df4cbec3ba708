// Simd kernel of ops::gated_mix.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/core/simd.hpp"
#include "heed/kernels/reference/gated_mix.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// out [n] = gate.memory · memory + gate.local · local, without reading what has factor 0. The factors 1 and 0 copy.
template <class T>
HEED_INLINE void mix_row(const T* memory, const T* local, Gate<accumulator_t<T>> gate, T* out, Index n) noexcept {
  using A = accumulator_t<T>;
  const simd::Vec<A> g = simd::broadcast(gate.memory);
  const simd::Vec<A> rest = simd::broadcast(gate.local);
  for (Index j = 0; j < n; j += simd::width<A>) {
    simd::Vec<A> value = simd::broadcast<A>(0);
    if (gate.local != 0) value = rest * simd::load_partial(local + j, n - j);
    if (gate.memory != 0) {
      const simd::Vec<A> answer = simd::load_partial(memory + j, n - j);
      value = gate.local != 0 ? simd::fma(g, answer, value) : g * answer;
    }
    simd::store_partial(out + j, n - j, value);
  }
}

}  // namespace impl

template <class T>
void gated_mix_kernel(const Simd&, View<const T, 4> memory, View<const T, 4> local,
                      View<const accumulator_t<T>, 1> beta, View<T, 4> out, EmptyMemory empty_memory,
                      View<const accumulator_t<T>, 3> denominator) noexcept {
  using A = accumulator_t<T>;
  constexpr Index block = 64;  // heads whose gates are held at a time
  impl::Gate<A> gates[block];
  for (Index first = 0; first < out.extent(2); first += block) {
    const Index heads = out.extent(2) - first < block ? out.extent(2) - first : block;
    for (Index h = 0; h < heads; ++h) gates[h] = impl::gate_of(beta(first + h));
    for (Index b = 0; b < out.extent(0); ++b) {
      for (Index t = 0; t < out.extent(1); ++t) {
        for (Index h = 0; h < heads; ++h) {
          const auto gate =
              denominator.present() ? impl::gate_for(gates[h], empty_memory, denominator(b, t, first + h)) : gates[h];
          impl::mix_row(memory.pointer(b, t, first + h), local.pointer(b, t, first + h), gate,
                        out.pointer(b, t, first + h), out.extent(3));
        }
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
