// Scalars: float, double, and the 16-bit storage types; what an operation computes in, and the conversions.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "heed/config.hpp"

namespace heed {

// The upper half of a float: 8 exponent bits, 7 fraction bits. Storage only: operations compute in float.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  // Rounds to nearest, ties to even; NaN stays a (quiet) NaN of the same sign.
  HEED_INLINE explicit constexpr bfloat16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = word + 0x7fffU + ((word >> 16) & 1U);
    bits = static_cast<std::uint16_t>((is_nan ? (word | 0x00400000U) : rounded) >> 16);
  }
  HEED_INLINE explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// IEEE 754 binary16: 5 exponent bits, 10 fraction bits, largest value 65504. Storage only.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  // Rounds to nearest, ties to even; too large becomes infinity, too small a subnormal or zero; NaN stays NaN.
  HEED_INLINE explicit constexpr float16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000U;
    const std::uint32_t magnitude = word & 0x7fffffffU;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000U) {
      half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    } else if (magnitude >= 0x477ff000U) {  // 65520 and more round to infinity
      half = 0x7c00U;
    } else if (magnitude >= 0x38800000U) {  // normal: rebias the exponent from 127 to 15, round at bit 13
      half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    } else {  // subnormal: adding 0.5 lets the float unit round at the right bit
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  HEED_INLINE explicit constexpr operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t rest = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
    std::uint32_t word = 0;
    if (rest >= 0x0f800000U) {  // infinity and NaN, which becomes a quiet one as the processors' instructions have it
      word = (rest + 0x70000000U) | (rest > 0x0f800000U ? 0x00400000U : 0U);
    } else if (rest >= 0x00800000U) {
      word = rest + 0x38000000U;
    } else {  // zero and subnormal: exact by float arithmetic
      word = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest + 0x38800000U) - std::bit_cast<float>(0x38800000U));
    }
    return std::bit_cast<float>(word | sign);
  }
};

namespace detail {
template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
}  // namespace detail

// What an operation on T computes in: double for double, float for all others. Also the type of memory states, additive
// masks, ALiBi slopes, sinks and gates.
template <class T>
using accumulator_t = typename detail::AccumulatorOf<std::remove_cv_t<T>>::type;

// The element types of tensors.
template <class T>
concept Scalar =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

// T -> accumulator_t<T>; exact.
template <Scalar T>
HEED_INLINE constexpr accumulator_t<T> widen(T value) noexcept {
  return static_cast<accumulator_t<T>>(value);
}

// accumulator_t<T> -> T: the one rounding at an operation's output.
template <Scalar T>
HEED_INLINE constexpr T narrow(accumulator_t<T> value) noexcept {
  return static_cast<T>(value);
}

// Names for error texts and describe().
template <Scalar T>
constexpr const char* scalar_name() noexcept {
  if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return "bfloat16";
  } else {
    return "float16";
  }
}

}  // namespace heed
