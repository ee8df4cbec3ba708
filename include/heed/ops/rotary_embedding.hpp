// ops::rotary_tables, ops::rotary_embedding: rotary position embedding (RoPE). ops::rotate_half: its older building
// block.
#pragma once

#include <cstdint>

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/rotary_embedding.hpp"
#include "heed/ops/rope_frequencies.hpp"
#include "heed/ops/rows.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/rotary_embedding.hpp"
#include "heed/kernels/simd/rotary_embedding.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of rotary_tables().
template <class A>
[[nodiscard]] Problem check_rotary_tables(View<const std::int64_t, 2> positions, View<const double, 1> inv_freq,
                                          View<A, 3> cos, View<A, 3> sin, const char* door = "rotary_tables") noexcept {
  const Axis batch{"batch", positions.extent(0)};
  const Axis tokens{"seq", positions.extent(1)};
  const Axis pairs{"pairs", inv_freq.extent(0)};
  Problem problem = first_problem(check_input(door, "positions", positions, {{"batch", any}, {"seq", any}}),
                                  check_input(door, "inv_freq", inv_freq, {{"pairs", any}}),
                                  check_output(door, "cos", cos, {batch, tokens, pairs}),
                                  check_output(door, "sin", sin, {batch, tokens, pairs}));
  if (!problem && overlap(cos, sin)) problem = problem_at(ErrorKind::shape, door, "sin").append("must not overlap cos");
  return problem;
}

// The cosines and sines that rotary_embedding() turns by: angle = position · inv_freq, factor · cos and factor · sin.
//
//   positions  [B, T]         any integer: a negative position turns the other way; exact up to 2^53
//   inv_freq   [pairs]        radians a position, from inverse_frequencies()
//   factor                    from attention_factor(); 1 for plain rotations
//   cos, sin   [B, T, pairs]  float or double; any strides before the last axis; not overlapping
//
// Allocates nothing. Numerics: angle, cosine and sine in double (the angle is off by at most 2^-53 of itself: 1.2e-7 at
// 2^30), the product rounded once to the table's type. Errors: ShapeError. Source: arXiv 2104.09864.
template <Backend B, class Cos, class Sin>
void rotary_tables(const B& backend, ViewOn<B, const std::int64_t, 2> positions, ViewOn<B, const double, 1> inv_freq,
                   double factor, Cos&& cos, Sin&& sin) {
  const auto c = output_on(backend, cos);
  const auto s = output_on(backend, sin);
  raise_if(check_rotary_tables(for_check(positions), for_check(inv_freq), for_check(c), for_check(s)));
  if (!c.empty()) rotary_tables_kernel(backend, positions, inv_freq, factor, c, s);
}

// What is wrong with the arguments of rotary_embedding().
template <class T>
[[nodiscard]] Problem check_rotary_embedding(View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                                             View<const accumulator_t<T>, 3> sin, View<T, 4> out,
                                             const char* door = "rotary_embedding") noexcept {
  const Axis batch{"batch", x.extent(0)};
  const Axis tokens{"seq", x.extent(1)};
  Problem problem =
      first_problem(check_input(door, "x", x, {{"batch", any}, {"seq", any}, {"heads", any}, {"head dim", any}}),
                    check_input(door, "cos", cos, {batch, tokens, {"pairs", any}}),
                    check_input(door, "sin", sin, {batch, tokens, {"pairs", cos.extent(2)}}),
                    check_output(door, "out", out, {batch, tokens, {"heads", x.extent(2)}, {"head dim", x.extent(3)}}));
  if (!problem && cos.extent(2) > x.extent(3) / 2) {
    problem = problem_at(ErrorKind::shape, door, "cos");
    problem.append(cos.extent(2)).append(" pairs do not fit into head dim ").append(x.extent(3));
  }
  return first_problem(problem, check_in_place(door, out, x, "x"), check_disjoint(door, out, cos, "cos"),
                       check_disjoint(door, out, sin, "sin"));
}

// Turns the first 2 · pairs dims of each head by its token's angles, pair by pair:
// (x1, x2) -> (x1 · cos − x2 · sin, x2 · cos + x1 · sin). The other dims are copied.
//
//   x         [B, T, heads, head dim]   any strides before the last axis
//   cos, sin  [B, T, pairs]             from rotary_tables(), in accumulator_t<T>; shared by all heads; stride 0 on the
//                                       batch axis if all rows have the same positions
//   layout                              which two dims make a pair
//   out       [B, T, heads, head dim]   may be x itself (in place), must not overlap it otherwise
//
// Allocates nothing. Numerics: in accumulator_t<T>, rounded once; both layouts and both neighbours in a batch get the
// same bits. Errors: ShapeError. Source: arXiv 2104.09864, section 3.4.2; transformers' apply_rotary_pos_emb.
template <Backend B, class Out>
void rotary_embedding(const B& backend, ViewOn<B, const scalar_t<Out>, 4> x,
                      ViewOn<B, const accumulator_t<scalar_t<Out>>, 3> cos,
                      ViewOn<B, const accumulator_t<scalar_t<Out>>, 3> sin, RopeLayout layout, Out&& out) {
  const auto y = output_on(backend, out);
  raise_if(check_rotary_embedding(for_check(x), for_check(cos), for_check(sin), for_check(y)));
  if (!y.empty()) rotary_embedding_kernel(backend, x, cos, sin, layout, y);
}

// What is wrong with the arguments of rotate_half().
template <class T, int Rank>
[[nodiscard]] Problem check_rotate_half(View<const T, Rank> x, View<T, Rank> out) noexcept {
  const char* door = "rotate_half";
  const Index dim = x.extent(Rank - 1);
  Problem problem = check_rows(door, "x", x, "head dim", any);
  if (!problem && dim % 2 != 0) {
    problem = problem_at(ErrorKind::shape, door, "x").append("head dim must be even, got ").append(dim);
  }
  if (!problem) problem = check_rows_like(door, "out", out, x, "head dim", dim);
  if (!problem) problem = check_disjoint(door, out, x, "x");
  return problem;
}

// [x1, x2] -> [−x2, x1], the halves of the last axis: x · cos + rotate_half(x) · sin is the `half` layout's rotation.
//
//   x    [..., head dim]   head dim even; up to 4 axes before it, any strides there
//   out  [..., head dim]   must not overlap x
//
// Allocates nothing. Numerics: exact. Errors: ShapeError. Source: transformers' rotate_half.
template <Backend B, class Out>
void rotate_half(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x, Out&& out) {
  const auto y = output_on(backend, out);
  raise_if(check_rotate_half(for_check(x), for_check(y)));
  for_each_matrix([&](const auto& to, const auto& from) { rotate_half_kernel(backend, from, to); }, y, x);
}

}  // namespace heed::inline HEED_ABI::ops
