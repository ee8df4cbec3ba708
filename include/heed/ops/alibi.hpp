// ops::alibi_slopes: the slopes of attention with linear biases, one for each head.
#pragma once

#include <cmath>

#include "heed/core/shape.hpp"
#include "heed/core/tensor.hpp"

namespace heed::inline HEED_ABI::ops {

// Slopes for AttentionOptions::alibi_slopes.
//
//   out  [heads]
//
// For a power of two n: 2^(−8 (h + 1) / n). Otherwise the slopes of the next lower power of two, then every other slope
// of the next higher one. Allocates nothing. Errors: ShapeError. Source: Press, Smith, Lewis 2022, "Train short, test
// long", and the authors' code for other head counts.
template <class Out>
void alibi_slopes(Out&& out) {
  const auto slopes = output_view(out);
  using A = scalar_t<Out>;
  raise_if(check_output("alibi_slopes", "out", slopes, {{"heads", any}}));
  const Index heads = slopes.extent(0);
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto slope = [](Index i, Index count) {
    return static_cast<A>(std::exp2(-8.0 * static_cast<double>(i + 1) / static_cast<double>(count)));
  };
  for (Index h = 0; h < heads; ++h) slopes(h) = h < power ? slope(h, power) : slope(2 * (h - power), 2 * power);
}

}  // namespace heed::inline HEED_ABI::ops
