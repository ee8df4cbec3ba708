// What the headers of this folder share: which elements views have, and the check of a view before another library gets
// it.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "heed/core/scalar.hpp"
#include "heed/core/shape.hpp"

namespace heed::inline HEED_ABI::impl {

// Numbers, masks, positions and codes.
template <class T>
inline constexpr bool is_tensor_element =
    Scalar<T> || std::is_same_v<T, bool> || std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::int8_t>;

// Elements that are not const may be written, so then none may repeat.
template <class T, int Rank>
Problem check_lent(const char* door, const View<T, Rank>& view, std::initializer_list<Axis> axes) noexcept {
  return std::is_const_v<T> ? check_input(door, "view", view, axes) : check_output(door, "view", view, axes);
}

}  // namespace heed::inline HEED_ABI::impl
