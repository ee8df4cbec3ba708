// The products of EigenMap: matrices where they lie, handed to Eigen in blocks.
#pragma once

#include "heed/core/intrinsics.hpp"  // first

#include <Eigen/Core>

#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI::impl {

// A block of a product is at most [eigen_rows, eigen_depth] · [eigen_depth, eigen_columns]. The limits are in the types:
// Eigen then keeps its packed copies on the stack, whatever EIGEN_STACK_ALLOCATION_LIMIT is, and at 32 rows or fewer it
// starts no threads of its own, even with OpenMP.
inline constexpr int eigen_rows = 32;
inline constexpr int eigen_columns = 96;
inline constexpr int eigen_depth = 96;

// A matrix of A or const A where it lies. Its rows (Order Eigen::RowMajor) or columns (Eigen::ColMajor) are contiguous
// and `stride` apart.
template <class A, int Order>
struct EigenMatrix {
  using Element = std::remove_const_t<A>;

  A* data;
  Index stride;

  template <int MaxRows, int MaxColumns>
  auto block(Index row, Index column, Index rows, Index columns) const noexcept {
    using Matrix = Eigen::Matrix<Element, Eigen::Dynamic, Eigen::Dynamic, Order, MaxRows, MaxColumns>;
    using Map = Eigen::Map<std::conditional_t<std::is_const_v<A>, const Matrix, Matrix>, Eigen::Unaligned,
                           Eigen::OuterStride<>>;
    const Index offset = Order == Eigen::RowMajor ? row * stride + column : row + column * stride;
    return Map(data + offset, rows, columns, Eigen::OuterStride<>(stride));
  }
};

template <class A>
using RowMajorMatrix = EigenMatrix<A, Eigen::RowMajor>;
template <class A>
using ColumnMajorMatrix = EigenMatrix<A, Eigen::ColMajor>;

// A row-major view as such a matrix. (The stride of a single row may be anything; Eigen wants a sensible one.)
template <class T>
RowMajorMatrix<T> eigen_matrix(const View<T, 2>& view) noexcept {
  return {view.data_handle(), view.extent(0) > 1 ? view.stride(0) : view.extent(1)};
}

// C [m, n] += A [m, k] · B [k, n].
template <class A, int LeftOrder, int RightOrder>
void add_product(Index m, Index n, Index k, EigenMatrix<const A, LeftOrder> a, EigenMatrix<const A, RightOrder> b,
                 RowMajorMatrix<A> c) noexcept {
  const auto at_most = [](Index value, Index limit) { return value < limit ? value : limit; };
  for (Index i = 0; i < m; i += eigen_rows) {
    const Index rows = at_most(m - i, eigen_rows);
    for (Index j = 0; j < n; j += eigen_columns) {
      const Index columns = at_most(n - j, eigen_columns);
      auto sum = c.template block<eigen_rows, eigen_columns>(i, j, rows, columns);
      for (Index p = 0; p < k; p += eigen_depth) {
        const Index depth = at_most(k - p, eigen_depth);
        sum.noalias() += a.template block<eigen_rows, eigen_depth>(i, p, rows, depth) *
                         b.template block<eigen_depth, eigen_columns>(p, j, depth, columns);
      }
    }
  }
}

// What stands for simd::PanelProduct in the kernels that EigenMap shares with Simd: every right operand is one panel,
// that is, a row-major matrix.
struct EigenProduct {
  static constexpr bool is_packed = false;

  template <class A>
  static constexpr Index panel_width(Index n) noexcept {
    return n > 0 ? n : 1;
  }

  template <class A>
  static void multiply(Index m, Index n, Index k, const simd::Rows<A>& a, const simd::Panels<A>& b, A* c,
                       Index c_stride, simd::Start start) noexcept {
    HEED_ASSERT(n <= b.panel && (a.k_stride == 1 || a.row_stride == 1));
    for (Index i = 0; i < m && start == simd::Start::zero; ++i) {
      for (Index j = 0; j < n; ++j) c[i * c_stride + j] = 0;
    }
    const RowMajorMatrix<const A> right{b.data, b.row_stride};
    const RowMajorMatrix<A> sum{c, c_stride};
    if (a.k_stride == 1) {
      add_product(m, n, k, RowMajorMatrix<const A>{a.data, a.row_stride}, right, sum);
    } else {
      add_product(m, n, k, ColumnMajorMatrix<const A>{a.data, a.k_stride}, right, sum);
    }
  }
};

}  // namespace heed::inline HEED_ABI::impl
