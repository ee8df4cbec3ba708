// ops::rms_norm: rows divided by their root mean square.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/rms_norm.hpp"
#include "heed/ops/norm_check.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/rms_norm.hpp"
#include "heed/kernels/simd/rms_norm.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of rms_norm().
template <class T, int Rank>
[[nodiscard]] Problem check_rms_norm(View<const T, Rank> x, View<const T, 1> weight, View<T, Rank> out,
                                     const RmsNormOptions& options = {}) noexcept {
  Problem problem = impl::check_norm("rms_norm", x, out, options.eps);
  if (!problem && weight.present()) {
    problem = check_input("rms_norm", "weight", weight, {{"features", x.extent(Rank - 1)}});
  }
  if (!problem && !std::isfinite(options.weight_offset)) {
    problem = problem_at(ErrorKind::option, "rms_norm", "weight_offset")
                  .append("must be finite, got ")
                  .append_number(options.weight_offset);
  }
  return problem;
}

// out = x / √(mean(x²) + eps) · (weight_offset + weight), the mean over the last axis.
//
//   x       [..., features]   0 to 4 axes before it, any strides there
//   weight  [features]        or absent: then neither it nor weight_offset is applied
//   out     x's shape; may be x itself, no other overlap
//
// Allocates nothing. Numerics: in accumulator_t<T> throughout, rounded once (Hugging Face's models round 16-bit types
// once more, before the weight); a row of zeros gives zeros if eps > 0; squares overflow where |x| passes 1e19 in
// float, and the row becomes 0. Errors: ShapeError; OptionError for eps and weight_offset. Source: Zhang and Sennrich
// 2019, equation 4.
template <Backend B, class Out>
void rms_norm(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
              ViewOn<B, const scalar_t<Out>, 1> weight, Out&& out, const RmsNormOptions& options = {}) {
  const auto y = output_on(backend, out);
  raise_if(check_rms_norm(for_check(x), for_check(weight), for_check(y), options));
  if (y.empty()) return;
  for_each_matrix([&](const auto& to, const auto& from) { rms_norm_kernel(backend, from, weight, options, to); }, y, x);
}

}  // namespace heed::inline HEED_ABI::ops
