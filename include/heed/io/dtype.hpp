// The element types that files hold: their names in safetensors, their sizes, and conversion to heed's scalars.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed {

// Element types by their safetensors names: F64 is f64, BOOL is boolean. All are known by size; those that read() and
// view() take are F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL.
enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e4m3, f8_e5m2 };

namespace detail {
struct DTypeEntry {
  const char* name;
  Index size;
};
inline constexpr DTypeEntry dtype_table[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
                                             {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
                                             {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
}  // namespace detail

// The name in a file's header, such as "BF16".
HEED_INLINE constexpr const char* dtype_name(DType type) noexcept {
  return detail::dtype_table[static_cast<int>(type)].name;
}

// Bytes an element takes.
HEED_INLINE constexpr Index dtype_size(DType type) noexcept {
  return detail::dtype_table[static_cast<int>(type)].size;
}

// Finds a type by its name; false if there is none such.
HEED_INLINE constexpr bool find_dtype(std::string_view name, DType& type) noexcept {
  int index = 0;
  for (const detail::DTypeEntry& entry : detail::dtype_table) {
    if (name == entry.name) {
      type = static_cast<DType>(index);
      return true;
    }
    ++index;
  }
  return false;
}

// What a tensor in a file can be read as: heed's scalars, and the integers that ids, lengths and masks are made of.
template <class T>
concept FileScalar = Scalar<T> || std::same_as<T, std::int64_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::uint8_t> || std::same_as<T, bool>;

// The type in a file that has T's bytes.
template <FileScalar T>
HEED_INLINE constexpr DType dtype_of() noexcept {
  if constexpr (std::same_as<T, double>) return DType::f64;
  if constexpr (std::same_as<T, float>) return DType::f32;
  if constexpr (std::same_as<T, float16>) return DType::f16;
  if constexpr (std::same_as<T, bfloat16>) return DType::bf16;
  if constexpr (std::same_as<T, std::int64_t>) return DType::i64;
  if constexpr (std::same_as<T, std::int32_t>) return DType::i32;
  if constexpr (std::same_as<T, std::uint8_t>) return DType::u8;
  if constexpr (std::same_as<T, bool>) return DType::boolean;
}

// True if elements of this type convert to T: any float type of 16 bits or more to any Scalar, any integer up to I64
// and BOOL to any integer. Floats never become integers or the reverse: that is a mistake in the file or the program.
template <FileScalar T>
HEED_INLINE constexpr bool converts_to(DType type) noexcept {
  if constexpr (Scalar<T>) {
    return type == DType::f64 || type == DType::f32 || type == DType::f16 || type == DType::bf16;
  } else {
    return type == DType::i64 || type == DType::i32 || type == DType::i16 || type == DType::i8 || type == DType::u8 ||
           type == DType::boolean;
  }
}

namespace detail {

// To the nearest float, but with the last bit set if anything was lost ("round to odd"): rounding that once more to 16
// bits then gives what rounding the double once would have given.
HEED_INLINE float round_to_odd(double value) noexcept {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool too_large = back < 0 ? back < value : back > value;  // in magnitude
  if (too_large) --bits;
  return std::bit_cast<float>(bits | 1U);
}

template <class Stored>
HEED_INLINE Stored load_bytes(const std::byte* bytes) noexcept {
  Stored value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <Scalar T>
HEED_INLINE T convert_float(DType type, const std::byte* bytes) noexcept {
  if (type == DType::f64) {
    const auto value = load_bytes<double>(bytes);
    if constexpr (std::same_as<T, double> || std::same_as<T, float>) {
      return static_cast<T>(value);
    } else {
      return T(round_to_odd(value));
    }
  }
  float value = 0;
  if (type == DType::f32) value = load_bytes<float>(bytes);
  if (type == DType::f16) value = static_cast<float>(load_bytes<float16>(bytes));
  if (type == DType::bf16) value = static_cast<float>(load_bytes<bfloat16>(bytes));
  return static_cast<T>(value);
}

HEED_INLINE std::int64_t load_integer(DType type, const std::byte* bytes) noexcept {
  if (type == DType::i64) return load_bytes<std::int64_t>(bytes);
  if (type == DType::i32) return load_bytes<std::int32_t>(bytes);
  if (type == DType::i16) return load_bytes<std::int16_t>(bytes);
  if (type == DType::i8) return load_bytes<std::int8_t>(bytes);
  return load_bytes<std::uint8_t>(bytes);
}

// True if T holds the value.
template <class T>
HEED_INLINE constexpr bool integer_fits(std::int64_t value) noexcept {
  return value >= static_cast<std::int64_t>((std::numeric_limits<T>::min)()) &&
         value <= static_cast<std::int64_t>((std::numeric_limits<T>::max)());
}

}  // namespace detail
}  // namespace heed
