// bfloat16 and float16 against their definition: all 65,536 patterns, and every rounding border between them.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "heed/core/scalar.hpp"

namespace {

using heed::bfloat16;
using heed::float16;

// Fraction bits, exponent bits and bias of a 16-bit format.
template <class T>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int fraction = 7;
  static constexpr int exponent = 8;
  static constexpr int bias = 127;
};
template <>
struct Format<float16> {
  static constexpr int fraction = 10;
  static constexpr int exponent = 5;
  static constexpr int bias = 15;
};

// The value of a pattern, in integers and powers of two. Beyond the largest number: what would come next if the
// exponent went on, which is where rounding to infinity is decided.
template <class T>
double value_of(unsigned magnitude) {
  using F = Format<T>;
  const int exponent = static_cast<int>(magnitude >> F::fraction);
  const int fraction = static_cast<int>(magnitude & ((1U << F::fraction) - 1));
  if (exponent == 0) return std::ldexp(fraction, 1 - F::bias - F::fraction);
  return std::ldexp(fraction + (1 << F::fraction), exponent - F::bias - F::fraction);
}

template <class T>
constexpr unsigned infinity_bits = ((1U << Format<T>::exponent) - 1) << Format<T>::fraction;

template <class T>
T from_bits(unsigned bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

template <class T>
void check_widening() {
  int wrong = 0;
  int nans = 0;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const unsigned magnitude = bits & 0x7fffU;
    const bool negative = bits >= 0x8000U;
    const float wide = static_cast<float>(from_bits<T>(bits));
    bool right = std::signbit(wide) == negative;
    if (magnitude > infinity_bits<T>) {
      ++nans;
      right = right && std::isnan(wide);
    } else if (magnitude == infinity_bits<T>) {
      right = right && std::isinf(wide);
    } else {
      right = right && std::fabs(static_cast<double>(wide)) == value_of<T>(magnitude);
    }
    // And back: every pattern but a NaN's is kept, a NaN stays one of the same sign.
    const T back(wide);
    if (magnitude > infinity_bits<T>) {
      right = right && (back.bits & 0x7fffU) > infinity_bits<T> && (back.bits & 0x8000U) == (bits & 0x8000U);
    } else {
      right = right && back.bits == bits;
    }
    if (!right && wrong++ < 5) MESSAGE("pattern " << bits << " is " << wide);
  }
  CHECK(wrong == 0);
  CHECK(nans == 2 * ((1 << Format<T>::fraction) - 1));
}

// Between each two neighbours: just below the middle goes down, the middle to the even one, just above it up.
template <class T>
void check_rounding() {
  int wrong = 0;
  const auto expect = [&](float value, unsigned magnitude) {
    if (T(value).bits != magnitude || T(-value).bits != (magnitude | 0x8000U)) {
      if (wrong++ < 5) MESSAGE("rounding " << value << " gives " << T(value).bits << ", not " << magnitude);
    }
  };
  for (unsigned low = 0; low < infinity_bits<T>; ++low) {
    const double low_value = value_of<T>(low);
    const double middle = (low_value + value_of<T>(low + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    REQUIRE(static_cast<double>(tie) == middle);
    expect(static_cast<float>(low_value), low);
    expect(std::nextafter(tie, 0.0F), low);
    expect(tie, low % 2 == 0 ? low : low + 1);
    expect(std::nextafter(tie, std::numeric_limits<float>::infinity()), low + 1);
  }
  CHECK(wrong == 0);
}

template <class T>
void check_specials() {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(T(infinity).bits == infinity_bits<T>);
  CHECK(T(-infinity).bits == (infinity_bits<T> | 0x8000U));
  CHECK(T(0.0F).bits == 0);
  CHECK(T(-0.0F).bits == 0x8000U);
  CHECK(T(std::numeric_limits<float>::max()).bits == infinity_bits<T>);
  CHECK(T(std::numeric_limits<float>::denorm_min()).bits == 0);
  // NaNs whose set bits are only those that narrowing drops must not become infinities.
  for (const std::uint32_t word : {0x7f800001U, 0x7fffffffU, 0x7fc00000U, 0xff800001U, 0xffffffffU}) {
    float nan = 0;
    std::memcpy(&nan, &word, sizeof nan);
    CHECK(std::isnan(static_cast<float>(T(nan))));
    CHECK((T(nan).bits >> 15) == (word >> 31));
  }
  // What fits of a NaN's fraction is kept; the first fraction bit makes it quiet.
  for (unsigned fraction = 1; fraction < (1U << Format<T>::fraction); ++fraction) {
    const unsigned quiet = fraction | (1U << (Format<T>::fraction - 1));
    for (const unsigned sign : {0U, 0x8000U}) {
      const std::uint32_t word = (sign << 16) | 0x7f800000U | (fraction << (23 - Format<T>::fraction)) | 1U;
      CHECK(T(std::bit_cast<float>(word)).bits == (sign | infinity_bits<T> | quiet));
      const auto wide =
          std::bit_cast<std::uint32_t>(static_cast<float>(from_bits<T>(sign | infinity_bits<T> | fraction)));
      // float16's is made quiet on the way, as by the processors' instructions; bfloat16's is the upper half as it was.
      const unsigned kept = std::is_same_v<T, float16> ? quiet : fraction;
      CHECK(wide == ((sign << 16) | 0x7f800000U | (kept << (23 - Format<T>::fraction))));
    }
  }
  CHECK(T().bits == 0);
  static_assert(sizeof(T) == 2 && std::is_trivially_copyable_v<T>);
  static_assert(static_cast<float>(T(1.5F)) == 1.5F, "usable at compile time");
  static_assert(!std::is_convertible_v<T, float> && !std::is_convertible_v<float, T>, "never silently");
}

template <class T>
constexpr bool computes_in(const auto& type) {
  return std::is_same_v<heed::accumulator_t<T>, std::remove_cvref_t<decltype(type)>>;
}

}  // namespace

TEST_CASE("bfloat16: all patterns widen to their value and back") {
  check_widening<bfloat16>();
}

TEST_CASE("float16: all patterns widen to their value and back") {
  check_widening<float16>();
}

TEST_CASE("bfloat16: rounds to nearest, ties to even, at every border") {
  check_rounding<bfloat16>();
}

TEST_CASE("float16: rounds to nearest, ties to even, at every border") {
  check_rounding<float16>();
}

TEST_CASE("bfloat16 and float16: infinities, zeros, NaN") {
  check_specials<bfloat16>();
  check_specials<float16>();
  CHECK(static_cast<float>(float16(65504.0F)) == 65504.0F);
  CHECK(static_cast<float>(float16(65519.0F)) == 65504.0F);
  CHECK(std::isinf(static_cast<float>(float16(65520.0F))));
  CHECK(float16(0x1p-24F).bits == 1);
  CHECK(float16(0x1p-25F).bits == 0);  // a tie
  CHECK(float16(0x1.000002p-25F).bits == 1);
  CHECK(static_cast<float>(bfloat16(3.14159274F)) == 3.140625F);
}

TEST_CASE("accumulator_t, widen, narrow, scalar_name") {
  CHECK(computes_in<double>(double()));
  CHECK(computes_in<const double>(double()));
  CHECK(computes_in<float>(float()));
  CHECK(computes_in<bfloat16>(float()));
  CHECK(computes_in<float16>(float()));
  static_assert(std::is_same_v<decltype(heed::widen(float16())), float>);
  static_assert(std::is_same_v<decltype(heed::widen(double())), double>);
  CHECK(heed::widen(0.1) == 0.1);
  CHECK(heed::widen(0.1F) == 0.1F);
  CHECK(heed::narrow<double>(0.1) == 0.1);
  CHECK(heed::narrow<bfloat16>(1.00390625F).bits == 0x3f80U);  // 1 + 2^-8: a tie, to even
  CHECK(heed::narrow<float16>(1.5F).bits == 0x3e00U);
  static_assert(heed::Scalar<float> && heed::Scalar<double> && heed::Scalar<bfloat16> && heed::Scalar<float16>);
  static_assert(!heed::Scalar<int> && !heed::Scalar<const float> && !heed::Scalar<long double>);
  CHECK(heed::scalar_name<float>() == std::string("float"));
  CHECK(heed::scalar_name<double>() == std::string("double"));
  CHECK(heed::scalar_name<bfloat16>() == std::string("bfloat16"));
  CHECK(heed::scalar_name<float16>() == std::string("float16"));
}
