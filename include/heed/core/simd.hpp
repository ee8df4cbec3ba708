// The one header that sees xsimd: a vector type of the widest instruction set the flags allow, and what kernels do with
// it.
//
// xsimd 8.1 to 14 differ in names, on AVX-512 in whether fma is fused, and all approximate float division and square root
// on ARM; that is settled here. Kernels never name xsimd, call these functions with `simd::` in front (else
// argument-dependent lookup finds xsimd's too), write simd::fma for a·b + c (the compiler might or might not fuse it) and
// simd::divide for a / b, and treat tails by padded loads through the same formula, so that a value's bits do not depend
// on the lane it was computed in.
#pragma once

#include <cmath>
#include <cstdint>

#include "heed/core/intrinsics.hpp"  // first

#include <xsimd/xsimd.hpp>

#include "heed/core/scalar.hpp"
#include "heed/core/simd_half.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI::simd {

// A vector of float or double.
template <class A>
using Vec = xsimd::batch<A>;

// Its number of lanes.
template <class A>
inline constexpr Index width = static_cast<Index>(Vec<A>::size);

template <class A>
using Mask = typename Vec<A>::batch_bool_type;

template <class A>
HEED_INLINE Vec<A> broadcast(A value) noexcept {
  return Vec<A>(value);
}

// Loading and storing is unaligned always: heed promises nothing about the user's pointers. 16-bit types are widened to
// float, exactly, and rounded once when stored; core/scalar.hpp gives the same bits.
HEED_INLINE Vec<float> load(const float* from) noexcept {
  return Vec<float>::load_unaligned(from);
}
HEED_INLINE Vec<double> load(const double* from) noexcept {
  return Vec<double>::load_unaligned(from);
}

template <class T>
requires(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) HEED_INLINE Vec<float> load(const T* from)
noexcept {
  constexpr int lanes = width<float>;
  return detail::cast_bits<Vec<float>::register_type>(detail::widen_vector<lanes>(from));
}

HEED_INLINE void store(float* to, Vec<float> value) noexcept {
  value.store_unaligned(to);
}
HEED_INLINE void store(double* to, Vec<double> value) noexcept {
  value.store_unaligned(to);
}

template <class T>
requires(std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) HEED_INLINE
    void store(T* to, Vec<float> value) noexcept {
  constexpr int lanes = width<float>;
  const auto bits = static_cast<Vec<float>::register_type>(value);
  detail::narrow_vector<lanes>(to, detail::cast_bits<detail::Floats<lanes>>(bits));
}

namespace detail {
template <class A>
struct LaneNumbers {
  A lane[width<A>] = {};
  constexpr LaneNumbers() {
    for (Index i = 0; i < width<A>; ++i) lane[i] = static_cast<A>(i);
  }
};
template <class A>
inline constexpr LaneNumbers<A> lane_numbers;

// The mask of the first `count` lanes, of none if count is negative. A shift by a negative number would be any mask.
HEED_INLINE constexpr unsigned first_bits(Index count) noexcept {
  return count > 0 ? (1U << static_cast<unsigned>(count)) - 1 : 0;
}
}  // namespace detail

// Asks for the cache line that holds *from, into the level-2 cache.
template <class T>
HEED_INLINE void prefetch(const T* from) noexcept {
#if defined(__GNUC__)
  __builtin_prefetch(static_cast<const void*>(from), 0, 2);
#else
  static_cast<void>(from);
#endif
}

// The first `count` lanes from memory (none if count ≤ 0, all from width on), the others `fill`; never reads past the
// end.
template <class T>
HEED_INLINE Vec<accumulator_t<T>> load_partial(const T* from, Index count, accumulator_t<T> fill = 0) noexcept {
  using A = accumulator_t<T>;
  if (count >= width<A>) return load(from);
  if constexpr (sizeof(T) == 2) {
    T lanes[width<A>] = {};
    for (Index i = 0; i < count; ++i) lanes[i] = from[i];
    const Vec<A> numbers = load(detail::lane_numbers<A>.lane);
    return xsimd::select(numbers < broadcast(static_cast<A>(count)), load(lanes), broadcast(fill));
  } else {
#if defined(__AVX512F__)
    const unsigned first = detail::first_bits(count);
    if constexpr (sizeof(T) == 4) {
      return Vec<A>(_mm512_mask_loadu_ps(broadcast(fill), static_cast<__mmask16>(first), from));
    } else {
      return Vec<A>(_mm512_mask_loadu_pd(broadcast(fill), static_cast<__mmask8>(first), from));
    }
#else
    alignas(64) A lanes[width<A>];
    for (Index i = 0; i < width<A>; ++i) lanes[i] = i < count ? from[i] : fill;
    return Vec<A>::load_aligned(lanes);
#endif
  }
}

template <class T>
HEED_INLINE void store_partial(T* to, Index count, Vec<accumulator_t<T>> value) noexcept {
  using A = accumulator_t<T>;
  if (count >= width<A>) return store(to, value);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) > 2) {
    const unsigned first = detail::first_bits(count);
    if constexpr (sizeof(T) == 4) {
      _mm512_mask_storeu_ps(to, static_cast<__mmask16>(first), value);
    } else {
      _mm512_mask_storeu_pd(to, static_cast<__mmask8>(first), value);
    }
    return;
  }
#endif
  alignas(64) T lanes[width<A>];
  store(lanes, value);
  for (Index i = 0; i < count; ++i) to[i] = lanes[i];
}

// a · b + c with one rounding where the machine has it (HEED_FMA), the same in vectors and scalars.
template <class A>
HEED_INLINE Vec<A> fma(Vec<A> a, Vec<A> b, Vec<A> c) noexcept {
#if defined(__AVX512F__)  // xsimd 8.1 multiplies, then adds, on AVX-512
  if constexpr (std::is_same_v<A, float>) {
    return Vec<A>(_mm512_fmadd_ps(a, b, c));
  } else {
    return Vec<A>(_mm512_fmadd_pd(a, b, c));
  }
#else
  return xsimd::fma(a, b, c);
#endif
}
HEED_INLINE float fma(float a, float b, float c) noexcept {
#if HEED_FMA
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}
HEED_INLINE double fma(double a, double b, double c) noexcept {
#if HEED_FMA
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

// a / b, rounded correctly.
template <class A>
HEED_INLINE Vec<A> divide(Vec<A> a, Vec<A> b) noexcept {
#if defined(__aarch64__)  // xsimd multiplies a float by an approximate reciprocal
  if constexpr (std::is_same_v<A, float>) return Vec<A>(vdivq_f32(a, b));
#endif
  return a / b;
}
template <class A>
HEED_INLINE Vec<A> sqrt(Vec<A> a) noexcept {
#if defined(__aarch64__)
  if constexpr (std::is_same_v<A, float>) return Vec<A>(vsqrtq_f32(a));
#endif
  return xsimd::sqrt(a);
}

template <class A>
HEED_INLINE Vec<A> max(Vec<A> a, Vec<A> b) noexcept {
  return xsimd::max(a, b);
}
template <class A>
HEED_INLINE Vec<A> min(Vec<A> a, Vec<A> b) noexcept {
  return xsimd::min(a, b);
}
template <class A>
HEED_INLINE Vec<A> abs(Vec<A> a) noexcept {
  return xsimd::abs(a);
}
template <class A>
HEED_INLINE Vec<A> select(Mask<A> condition, Vec<A> yes, Vec<A> no) noexcept {
  return xsimd::select(condition, yes, no);
}
template <class A>
HEED_INLINE Mask<A> is_nan(Vec<A> a) noexcept {
  return !(a == a);  // xsimd 8.1 compares != "ordered" on AVX: false for NaN
}

// Lanes combined as a balanced tree: lane i with lane i + width / 2, and so on. The order is part of a result's bits.
template <class A, class Combine>
HEED_INLINE A reduce(Vec<A> value, Combine combine) noexcept {
  alignas(64) A lanes[width<A>];
  value.store_aligned(lanes);
  HEED_UNROLL
  for (Index half = width<A> / 2; half > 0; half /= 2) {
    HEED_UNROLL
    for (Index i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}
template <class A>
HEED_INLINE A reduce_add(Vec<A> value) noexcept {
  return reduce<A>(value, [](A a, A b) { return a + b; });
}
// The largest lane; NaN in any lane gives NaN or the largest of the others.
template <class A>
HEED_INLINE A reduce_max(Vec<A> value) noexcept {
  return reduce<A>(value, [](A a, A b) { return a < b ? b : a; });
}

namespace detail {

// The same bits as a vector of another type. (xsimd's own changed its template argument, and on ARM is a call.)
template <class To, class From>
HEED_INLINE To reinterpret(From from) noexcept {
  return cast_bits<typename To::register_type>(static_cast<typename From::register_type>(from));
}

template <class A>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  using Integer = std::int32_t;
  static constexpr float shift = 12582912.0F;  // 1.5 · 2^23: adding it leaves the integer in the low bits
  static constexpr float ln2_high = 0.693359375F;
  static constexpr float ln2_low = -2.12194440e-4F;
  static constexpr float lowest = -87.33654F;  // ln of the least normal number
  static constexpr int mantissa_bits = 23;
  static constexpr Integer bias = 127;
  static constexpr int degree = 7;
  static constexpr int exp2_degree = 6;
  static constexpr float exp2_minus[] = {1.0F,  // of 2^−r
                                         -0.693147188026F,
                                         0.240226507606F,
                                         -0.0555035711422F,
                                         0.00961808255728F,
                                         -0.00133908633647F,
                                         0.000154531629451F};
};
template <>
struct ExpConstants<double> {
  using Integer = std::int64_t;
  static constexpr double shift = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr double ln2_high = 6.93145751953125e-1;
  static constexpr double ln2_low = 1.42860682030941723212e-6;
  static constexpr double lowest = -708.3964185322641;
  static constexpr int mantissa_bits = 52;
  static constexpr Integer bias = 1023;
  static constexpr int degree = 13;
  static constexpr int exp2_degree = 11;
  static constexpr double exp2_minus[] = {1.0,  // of 2^−r
                                          -0.69314718055994530942,
                                          0.2402265069591009822,
                                          -0.055504108664821594339,
                                          0.0096181291076068885273,
                                          -0.001333355814641693531,
                                          0.00015403530441736050155,
                                          -0.000015252733829836118394,
                                          1.3215442587921689653e-6,
                                          -1.0178062445845773521e-7,
                                          7.0725859492692236999e-9,
                                          -4.4549605981865183938e-10};
};

}  // namespace detail

// e^x for x ≤ 0, within 2 units in the last place: what softmax, φ and the sigmoid need. exp(−inf) is exactly 0, so is
// everything whose result would be subnormal; NaN stays NaN. (For x > 0 the result is wrong.)
//
// x = n ln 2 + r with |r| ≤ ln 2 / 2 (Cody and Waite's two-part ln 2); e^r by its Taylor polynomial, whose next term is
// below a quarter of an ulp; 2^n by shifting n into the exponent.
template <class A>
HEED_INLINE Vec<A> exp_nonpositive(Vec<A> x) noexcept {
  using C = detail::ExpConstants<A>;
  using Integers = xsimd::batch<typename C::Integer>;
  const Vec<A> bounded = simd::max(x, simd::broadcast<A>(C::lowest));
  const Vec<A> shifted =
      simd::fma(bounded, simd::broadcast<A>(A(1.44269504088896340736L)), simd::broadcast<A>(C::shift));
  const Vec<A> n = shifted - simd::broadcast<A>(C::shift);
  Vec<A> r = simd::fma(n, simd::broadcast<A>(-C::ln2_high), bounded);
  r = simd::fma(n, simd::broadcast<A>(-C::ln2_low), r);

  constexpr A reciprocal_factorial[] = {A(1),
                                        A(1),
                                        A(1.0L / 2),
                                        A(1.0L / 6),
                                        A(1.0L / 24),
                                        A(1.0L / 120),
                                        A(1.0L / 720),
                                        A(1.0L / 5040),
                                        A(1.0L / 40320),
                                        A(1.0L / 362880),
                                        A(1.0L / 3628800),
                                        A(1.0L / 39916800),
                                        A(1.0L / 479001600),
                                        A(1.0L / 6227020800.0L)};
  Vec<A> power = simd::broadcast<A>(reciprocal_factorial[C::degree]);
  HEED_UNROLL
  for (int i = C::degree - 1; i >= 0; --i) power = simd::fma(power, r, simd::broadcast<A>(reciprocal_factorial[i]));

  const Integers bits = (detail::reinterpret<Integers>(shifted) + Integers(C::bias)) << C::mantissa_bits;
  const Vec<A> result = power * detail::reinterpret<Vec<A>>(bits);
  return simd::select<A>(x < simd::broadcast<A>(C::lowest), simd::broadcast<A>(0),
                         simd::select<A>(simd::is_nan<A>(x), x, result));
}

// e^x for x = score − maximum ≤ 0, in fewer steps: within 1 + |x| / 2 units in the last place (1 + 1.5 |x| without fma),
// no more than the rounding of the score itself makes of it. exp(−inf) is exactly 0, so is everything whose result would
// be subnormal; NaN stays NaN. (For x > 0 the result is right up to where it overflows.)
//
// x log2 e = n + r with |r| ≤ 1/2; 2^r by a polynomial of least relative error (Chebyshev's interpolation), below a
// tenth of an ulp; 2^n by shifting n into the exponent.
template <class A>
HEED_INLINE Vec<A> exp_difference(Vec<A> x) noexcept {
  using C = detail::ExpConstants<A>;
  using Integers = xsimd::batch<typename C::Integer>;
  const Vec<A> log2_e = simd::broadcast<A>(A(1.44269504088896340736L));
  const Vec<A> shifted = simd::fma(x, log2_e, simd::broadcast<A>(C::shift));
  const Vec<A> n = shifted - simd::broadcast<A>(C::shift);
  const Vec<A> minus_r = simd::fma(x, simd::broadcast<A>(A(-1.44269504088896340736L)), n);
  Vec<A> power = simd::broadcast<A>(C::exp2_minus[C::exp2_degree]);
  HEED_UNROLL
  for (int i = C::exp2_degree - 1; i >= 0; --i) power = simd::fma(power, minus_r, simd::broadcast<A>(C::exp2_minus[i]));
  const Integers bits = (detail::reinterpret<Integers>(shifted) + Integers(C::bias)) << C::mantissa_bits;
  return simd::select<A>(x < simd::broadcast<A>(C::lowest), simd::broadcast<A>(0),
                         power * detail::reinterpret<Vec<A>>(bits));
}

// 1 / (1 + e^−x) for any x: through e^−|x|, which cannot overflow. 0 and 1 where e^−|x| is below the normal numbers.
template <class A>
HEED_INLINE Vec<A> sigmoid(Vec<A> x) noexcept {
  const Vec<A> exponential = simd::exp_nonpositive<A>(simd::broadcast<A>(0) - simd::abs<A>(x));
  const Vec<A> one = simd::broadcast<A>(1);
  return simd::divide<A>(simd::select<A>(x < simd::broadcast<A>(0), exponential, one), one + exponential);
}

// The error function, within 3 units in the last place. In double the C library's, lane by lane: xsimd's errs by 68
// there.
template <class A>
HEED_INLINE Vec<A> erf(Vec<A> x) noexcept {
  if constexpr (std::is_same_v<A, float>) {
    return xsimd::erf(x);
  } else {
    alignas(64) A lanes[width<A>];
    x.store_aligned(lanes);
    for (A& lane : lanes) lane = std::erf(lane);
    return Vec<A>::load_aligned(lanes);
  }
}

}  // namespace heed::inline HEED_ABI::simd
