// Rows of tensors as Eigen's arrays, for the row-wise kernels of EigenMap.
#pragma once

#include "heed/core/intrinsics.hpp"  // first

#include <Eigen/Core>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI::impl {

// n elements as an array of accumulator_t<T>: where they lie, or, of a 16-bit type, an expression that widens them.
template <class T>
auto eigen_row(const T* from, Index n) noexcept {
  const Eigen::Map<const Eigen::Array<T, 1, Eigen::Dynamic>> row(from, n);
  if constexpr (std::is_same_v<T, accumulator_t<T>>) {
    return row;
  } else {
    return row.unaryExpr([](T value) { return widen(value); });
  }
}

// to [n] = row, each element rounded once; `row` may be an expression of `to`.
template <class T, class Row>
void store_row(const Row& row, T* to) noexcept {
  Eigen::Map<Eigen::Array<T, 1, Eigen::Dynamic>> out(to, row.size());
  if constexpr (std::is_same_v<T, accumulator_t<T>>) {
    out = row;
  } else {
    out = row.unaryExpr([](accumulator_t<T> value) { return narrow<T>(value); });
  }
}

}  // namespace heed::inline HEED_ABI::impl
