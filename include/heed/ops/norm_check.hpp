// What the doors of the norms check alike.
#pragma once

#include <cmath>

#include "heed/core/scalar.hpp"
#include "heed/ops/rows.hpp"

namespace heed::inline HEED_ABI::impl {

template <class T, int Rank>
Problem check_norm(const char* door, View<const T, Rank> x, View<T, Rank> out, double eps) noexcept {
  Problem problem = heed::check_rows(door, "x", x, "features", any);
  if (!problem) problem = check_rows_like(door, "out", out, x, "features", x.extent(Rank - 1));
  if (!problem) problem = check_in_place(door, out, x, "x");
  if (problem) return problem;
  if (!(eps >= 0) || !std::isfinite(eps)) {
    return problem_at(ErrorKind::option, door, "eps")
        .append("must be finite and not negative, got ")
        .append_number(eps);
  }
  if (eps > 0 && static_cast<accumulator_t<T>>(eps) == 0) {  // it would silently protect from nothing
    return problem_at(ErrorKind::option, door, "eps").append_number(eps).append(" is 0 in float");
  }
  return {};
}

}  // namespace heed::inline HEED_ABI::impl
