// ops::silu and ops::gelu.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/activations.hpp"
#include "heed/ops/rows.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/activations.hpp"
#include "heed/kernels/simd/activations.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of silu() or gelu(), `door` being the name of either.
template <class T, int Rank>
[[nodiscard]] Problem check_activation(const char* door, View<const T, Rank> x, View<T, Rank> out) noexcept {
  Problem problem = check_rows(door, "x", x, "features", any);
  if (!problem) problem = check_rows_like(door, "out", out, x, "features", x.extent(Rank - 1));
  if (!problem) problem = check_in_place(door, out, x, "x");
  return problem;
}

// out = x · sigmoid(x) = x / (1 + exp(−x)), also called swish.
//
//   x    [..., features]   0 to 4 axes before it, any strides there
//   out  x's shape; may be x itself, no other overlap
//
// Allocates nothing. Numerics: in accumulator_t<T>, rounded once; no overflow for any finite x, 0 far below 0. +inf
// gives +inf, −inf and NaN give NaN (as in PyTorch). Errors: ShapeError. Source: torch.nn.functional.silu.
template <Backend B, class Out>
void silu(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x, Out&& out) {
  const auto y = output_on(backend, out);
  raise_if(check_activation("silu", for_check(x), for_check(y)));
  if (y.empty()) return;
  for_each_matrix([&](const auto& to, const auto& from) { silu_kernel(backend, from, to); }, y, x);
}

// out = x · Φ(x) = x / 2 · (1 + erf(x / √2)), or its approximation x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
//
//   x    [..., features]   0 to 4 axes before it, any strides there
//   out  x's shape; may be x itself, no other overlap
//
// Allocates nothing. Numerics: in accumulator_t<T>, rounded once; no overflow for any finite x. Far below 0 the erf
// form loses relative, not absolute accuracy (1 + erf cancels, as in PyTorch). +inf gives +inf, −inf and NaN give NaN.
// Errors: ShapeError. Source: Hendrycks and Gimpel 2016; torch.nn.functional.gelu.
template <Backend B, class Out>
void gelu(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x, Out&& out,
          GeluForm form = GeluForm::erf) {
  const auto y = output_on(backend, out);
  raise_if(check_activation("gelu", for_check(x), for_check(y)));
  if (y.empty()) return;
  for_each_matrix([&](const auto& to, const auto& from) { gelu_kernel(backend, from, form, to); }, y, x);
}

}  // namespace heed::inline HEED_ABI::ops
