// tanh on vectors, from exp_nonpositive: for softcap and GELU.
#pragma once

#include "heed/core/simd.hpp"

namespace heed::inline HEED_ABI::simd {

namespace detail {

// e^y − 1 for −ln 2 / 2 ≤ y ≤ 0 without the cancellation: y + y²/2! + …, as many terms as exp_nonpositive has.
template <class A>
HEED_INLINE Vec<A> expm1_near_zero(Vec<A> y) noexcept {
  constexpr int degree = ExpConstants<A>::degree;
  A reciprocal_factorial[degree + 1] = {1};
  for (int i = 1; i <= degree; ++i) reciprocal_factorial[i] = reciprocal_factorial[i - 1] / static_cast<A>(i);
  Vec<A> power = simd::broadcast<A>(reciprocal_factorial[degree]);
  HEED_UNROLL
  for (int i = degree - 1; i >= 1; --i) power = simd::fma(power, y, simd::broadcast<A>(reciprocal_factorial[i]));
  return power * y;
}

}  // namespace detail

// Within 4 units in the last place, tiny arguments included; ±1 at ±infinity, NaN stays NaN.
//
// With y = −2|x| and m = 1 − e^y: tanh |x| = m / (2 − m).
template <class A>
HEED_INLINE Vec<A> tanh(Vec<A> x) noexcept {
  const Vec<A> zero = simd::broadcast<A>(0);
  const Vec<A> two = simd::broadcast<A>(2);
  const Vec<A> y = simd::abs(x) * simd::broadcast<A>(-2);
  const Vec<A> near_zero = simd::max(y, simd::broadcast<A>(A(-0.34657359027997265L)));
  const Vec<A> m = simd::select<A>(y < near_zero, simd::broadcast<A>(1) - simd::exp_nonpositive(y),
                                   zero - detail::expm1_near_zero(near_zero));
  const Vec<A> magnitude = simd::divide<A>(m, two - m);
  return simd::select<A>(simd::is_nan<A>(x), x, simd::select<A>(x < zero, zero - magnitude, magnitude));
}

}  // namespace heed::inline HEED_ABI::simd
