// ops::gated_mix: the gate between what the memory answers and what the segment itself says.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/shape.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/gated_mix.hpp"
#include "heed/ops/compressive_memory_options.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/gated_mix.hpp"
#include "heed/kernels/simd/gated_mix.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of gated_mix().
template <class T>
[[nodiscard]] Problem check_gated_mix(View<const T, 4> memory, View<const T, 4> local,
                                      View<const accumulator_t<T>, 1> beta, View<T, 4> out,
                                      const GatedMixOptions<T>& options = {}) noexcept {
  const char* door = "gated_mix";
  const Axis batch{"batch", local.extent(0)};
  const Axis seq{"seq", local.extent(1)};
  const Axis heads{"heads", local.extent(2)};
  const Axis value_head_dim{"value head dim", local.extent(3)};
  Problem problem = first_problem(
      check_input(door, "local", local, {{"batch", any}, {"seq", any}, {"heads", any}, {"value head dim", any}}),
      check_input(door, "memory", memory, {batch, seq, heads, value_head_dim}),
      check_input(door, "beta", beta, {heads}), check_output(door, "out", out, {batch, seq, heads, value_head_dim}),
      check_in_place(door, out, local, "local"), check_in_place(door, out, memory, "memory"));
  if (!problem && options.denominator.present()) {
    problem = first_problem(check_input(door, "denominator", options.denominator, {batch, seq, heads}),
                            check_disjoint(door, out, options.denominator, "denominator"));
  }
  return problem;
}

// out = g · memory + (1 − g) · local with g = sigmoid(beta), one gate a query head.
//
//   memory  [batch, seq, heads, value dim]   what memory_retrieve() answered
//   local   [batch, seq, heads, value dim]   attention inside the segment
//   beta    [heads]                          in accumulator_t<T>; −∞: local alone, +∞: memory alone
//   out     [batch, seq, heads, value dim]   may be memory or local itself
//   options.denominator  [batch, seq, heads] φ(q)·z; where it is 0 the memory is empty and options.empty_memory says
//                                            what becomes of the gate. Absent: no memory is empty
//
// A part whose factor is 0 is not read, so what it holds (NaN, or nothing yet) does not matter, and with g = 0 out is
// local, bit for bit. Allocates nothing. Numerics: in accumulator_t<T>; rounded once. Errors: ShapeError. Source:
// arXiv 2404.07143 v2, equation 6.
template <Backend B, class Out>
void gated_mix(const B& backend, ViewOn<B, const scalar_t<Out>, 4> memory, ViewOn<B, const scalar_t<Out>, 4> local,
               ViewOn<B, const accumulator_t<scalar_t<Out>>, 1> beta, Out&& out,
               const GatedMixOptions<scalar_t<Out>, space_of<B>>& options = {}) {
  const auto mixed = output_on(backend, out);
  raise_if(check_gated_mix(for_check(memory), for_check(local), for_check(beta), for_check(mixed), for_check(options)));
  if (mixed.empty()) return;
  gated_mix_kernel(backend, memory, local, beta, mixed, options.empty_memory, options.denominator);
}

}  // namespace heed::inline HEED_ABI::ops
