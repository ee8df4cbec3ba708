// ops::layer_norm: rows brought to mean 0 and variance 1.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/layer_norm.hpp"
#include "heed/ops/norm_check.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/layer_norm.hpp"
#include "heed/kernels/simd/layer_norm.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of layer_norm().
template <class T, int Rank>
[[nodiscard]] Problem check_layer_norm(View<const T, Rank> x, View<const T, 1> weight, View<const T, 1> bias,
                                       View<T, Rank> out, const LayerNormOptions& options = {}) noexcept {
  const char* door = "layer_norm";
  const Index features = x.extent(Rank - 1);
  Problem problem = impl::check_norm(door, x, out, options.eps);
  if (!problem && weight.present()) problem = check_input(door, "weight", weight, {{"features", features}});
  if (!problem && bias.present()) problem = check_input(door, "bias", bias, {{"features", features}});
  return problem;
}

// out = (x − mean(x)) / √(variance(x) + eps) · weight + bias, mean and variance (over n, not n − 1) of the last axis.
//
//   x       [..., features]   0 to 4 axes before it, any strides there
//   weight  [features]        or absent: 1
//   bias    [features]        or absent: 0
//   out     x's shape; may be x itself, no other overlap
//
// Allocates nothing. Numerics: the variance from differences to the mean (two passes, no cancellation of large means);
// in accumulator_t<T>, rounded once. A constant row gives the bias, up to the rounding of its mean, if eps > 0. Errors:
// ShapeError; OptionError for eps. Source: Ba, Kiros and Hinton 2016, equation 4; torch.nn.functional.layer_norm.
template <Backend B, class Out>
void layer_norm(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
                ViewOn<B, const scalar_t<Out>, 1> weight, ViewOn<B, const scalar_t<Out>, 1> bias, Out&& out,
                const LayerNormOptions& options = {}) {
  const auto y = output_on(backend, out);
  raise_if(check_layer_norm(for_check(x), for_check(weight), for_check(bias), for_check(y), options));
  if (y.empty()) return;
  for_each_matrix(
      [&](const auto& to, const auto& from) { layer_norm_kernel(backend, from, weight, bias, options, to); }, y, x);
}

}  // namespace heed::inline HEED_ABI::ops
