// ops::linear: y = x · Wᵀ + b.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/linear.hpp"
#include "heed/ops/rows.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/linear.hpp"
#include "heed/kernels/simd/linear.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of linear().
template <class T, int Rank>
[[nodiscard]] Problem check_linear(View<const T, Rank> x, Index out_features, Index in_features, View<const T, 1> bias,
                                   View<T, Rank> out) noexcept {
  const char* door = "linear";
  Problem problem = check_rows(door, "x", x, "in features", in_features);
  if (!problem) problem = check_rows_like(door, "out", out, x, "out features", out_features);
  if (!problem && bias.present()) problem = check_input(door, "bias", bias, {{"out features", out_features}});
  if (!problem) problem = check_disjoint(door, out, x, "x");
  return problem;
}

// A weight packed for another backend, or for another instruction set, would be read wrongly.
template <class T, Backend B>
[[nodiscard]] Problem check_packed_weight(const B& backend, const WeightPanels<T>& weight) noexcept {
  const Index panel = weight_panel_kernel<T>(backend, weight.out_features);
  if (weight.panel == panel) return {};
  return problem_at(ErrorKind::option, "linear", "weight")
      .append("packed in panels of ")
      .append(weight.panel)
      .append(" output features, but this backend reads panels of ")
      .append(panel);
}

// out = x · weightᵀ + bias over the last axis.
//
//   x       [..., in features]    0 to 4 axes before it, any strides there
//   weight  [out features, in features]
//   bias    [out features]        or absent
//   out     [..., out features]   must not overlap x
//
// Allocates nothing. Numerics: one chain per output in ascending input feature, beginning with the bias, in
// accumulator_t<T>; rounded once. Errors: ShapeError. Source: torch.nn.functional.linear.
template <Backend B, class Out>
void linear(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
            ViewOn<B, const scalar_t<Out>, 2> weight, ViewOn<B, const scalar_t<Out>, 1> bias, Out&& out) {
  const auto y = output_on(backend, out);
  raise_if(check_input("linear", "weight", weight, {{"out features", any}, {"in features", any}}));
  raise_if(check_linear(for_check(x), weight.extent(0), weight.extent(1), for_check(bias), for_check(y)));
  for_each_matrix([&](const auto& to, const auto& from) { linear_kernel(backend, from, weight, bias, to); }, y, x);
}

// The same from a weight packed by pack_weight() for this backend; equal bits. Errors: also OptionError, if for another.
template <Backend B, class Out>
void linear(const B& backend, ViewOn<B, const scalar_t<Out>, std::remove_cvref_t<Out>::rank()> x,
            const PackedWeight<scalar_t<Out>, space_of<B>>& weight, ViewOn<B, const scalar_t<Out>, 1> bias, Out&& out) {
  const auto y = output_on(backend, out);
  raise_if(check_packed_weight(backend, weight.panels));
  raise_if(
      check_linear(for_check(x), weight.panels.out_features, weight.panels.in_features, for_check(bias), for_check(y)));
  for_each_matrix([&](const auto& to, const auto& from) { linear_kernel(backend, from, weight.panels, bias, to); }, y,
                  x);
}

// A weight in the order this backend reads it; the source may die afterwards.
//
//   weight  [out features, in features], in the host's memory
//
// Allocates the copy; a device's is waited for. Errors: ShapeError.
template <Scalar T, Backend B>
PackedWeight<T, space_of<B>> pack_weight(const B& backend, View<const T, 2> weight) {
  raise_if(check_input("pack_weight", "weight", weight, {{"out features", any}, {"in features", any}}));
  const Index panel = weight_panel_kernel<T>(backend, weight.extent(0));
  const Index panels = (weight.extent(0) + panel - 1) / panel;
  Tensor<T, 1> elements({panels * panel * weight.extent(1)});
  T* to = elements.data();
  for (Index first = 0; first < weight.extent(0); first += panel) {
    for (Index p = 0; p < weight.extent(1); ++p) {
      for (Index j = first; j < first + panel; ++j) *to++ = j < weight.extent(0) ? weight(j, p) : T{};
    }
  }
  using Packed = PackedWeight<T, space_of<B>>;
  const auto storage =
      std::make_shared<const typename Packed::Storage>(typename Packed::Storage{move_to(backend, std::move(elements))});
  return {storage, {storage->elements.data(), weight.extent(0), weight.extent(1), panel}};
}

}  // namespace heed::inline HEED_ABI::ops
