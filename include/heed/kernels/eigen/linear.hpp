// EigenMap kernels of ops::linear.
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/eigen/product.hpp"
#include "heed/kernels/packed_weight.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// to [rows, columns] = the elements of `from` from (row, column) on, widened.
template <class T>
void widen_block(const View<const T, 2>& from, Index row, Index column, Index rows, Index columns, accumulator_t<T>* to,
                 Index stride) noexcept {
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) to[i * stride + j] = widen(from(row + i, column + j));
  }
}

// The product for 16-bit types: blocks are widened first.
template <class T>
void linear_by_blocks(const View<const T, 2>& x, const View<const T, 2>& weight, const View<const T, 1>& bias,
                      const View<T, 2>& out) noexcept {
  float left[eigen_rows * eigen_depth];
  float right[eigen_columns * eigen_depth];
  float sum[eigen_rows * eigen_columns];
  const auto at_most = [](Index value, Index limit) { return value < limit ? value : limit; };
  for (Index j = 0; j < out.extent(1); j += eigen_columns) {
    const Index columns = at_most(out.extent(1) - j, eigen_columns);
    for (Index i = 0; i < out.extent(0); i += eigen_rows) {
      const Index rows = at_most(out.extent(0) - i, eigen_rows);
      for (Index r = 0; r < rows; ++r) {
        for (Index c = 0; c < columns; ++c) sum[r * columns + c] = bias.present() ? widen(bias(j + c)) : 0;
      }
      for (Index p = 0; p < x.extent(1); p += eigen_depth) {
        const Index depth = at_most(x.extent(1) - p, eigen_depth);
        widen_block(x, i, p, rows, depth, left, depth);
        widen_block(weight, j, p, columns, depth, right, depth);
        add_product(rows, columns, depth, RowMajorMatrix<const float>{left, depth},
                    ColumnMajorMatrix<const float>{right, depth}, RowMajorMatrix<float>{sum, columns});
      }
      for (Index r = 0; r < rows; ++r) {
        for (Index c = 0; c < columns; ++c) out(i + r, j + c) = narrow<T>(sum[r * columns + c]);
      }
    }
  }
}

}  // namespace impl

template <class T>
void linear_kernel(const EigenMap&, View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  if constexpr (std::is_same_v<T, accumulator_t<T>>) {
    for (Index i = 0; i < out.extent(0); ++i) {
      for (Index j = 0; j < out.extent(1); ++j) out(i, j) = bias.present() ? bias(j) : 0;
    }
    const auto [rows, stride] = impl::eigen_matrix(weight);
    impl::add_product(out.extent(0), out.extent(1), x.extent(1), impl::eigen_matrix(x),
                      impl::ColumnMajorMatrix<const T>{rows, stride}, impl::eigen_matrix(out));
  } else {
    impl::linear_by_blocks(x, weight, bias, out);
  }
}

// A packed weight is a copy of the matrix itself, as on Reference: Eigen packs blocks of it anew anyway.
template <class T>
void linear_kernel(const EigenMap& backend, View<const T, 2> x, const WeightPanels<T>& weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  HEED_ASSERT(weight.panel == 1);
  const View<const T, 2> plain(weight.data, {weight.out_features, weight.in_features});
  linear_kernel(backend, x, plain, bias, out);
}

}  // namespace heed::inline HEED_ABI
