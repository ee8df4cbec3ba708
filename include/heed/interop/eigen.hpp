// Eigen's matrices as heed's views, and heed's views as Eigen's maps: the same memory, nothing is copied. Needs Eigen 3.4
// (the CMake target heed::eigen); for Eigen::Tensor see interop/eigen_tensor.hpp.
//
//   Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> x(5, 512);
//   const auto y = linear.forward(cpu, heed::as_view(x));   // Tensor<float, 2>
//   x = heed::as_eigen(y).leftCols(512);
#pragma once

#include "heed/core/intrinsics.hpp"  // first

#include <Eigen/Core>

#include "heed/core/shape.hpp"
#include "heed/core/tensor.hpp"
#include "heed/interop/elements.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class Derived>
void takes_eigen_dense(const Eigen::DenseBase<Derived>&);
template <class M>
concept EigenDense = requires(const M& matrix) {
  takes_eigen_dense(matrix);
};

}  // namespace impl

// A view of an Eigen matrix, array, Map, Ref or Block: [rows, columns], or [elements] of what is a vector in its type.
//
// The elements are float, double, heed::bfloat16, heed::float16, bool, std::int64_t or std::int8_t, and const where
// Eigen's are. Refused at compile time: column-major matrices (view their transpose: as_view(m.transpose()) is
// [columns, rows]), expressions that have no memory of their own, matrices that are temporaries. An inner stride that is
// known at run time only (a column of a row-major matrix) is kept, and refused by the operation that is handed it, unless
// there is but one element. Allocates nothing.
template <class M>
requires impl::EigenDense<M>
auto as_view(M&& matrix) noexcept {
  using Matrix = std::remove_cvref_t<M>;
  constexpr bool is_vector = Matrix::IsVectorAtCompileTime;
  constexpr bool in_memory = (Matrix::Flags & Eigen::DirectAccessBit) != 0;
  constexpr bool dies = !std::is_lvalue_reference_v<M> && std::is_base_of_v<Eigen::PlainObjectBase<Matrix>, Matrix>;
  constexpr bool is_known = impl::is_tensor_element<typename Matrix::Scalar>;
  constexpr bool is_row_major = is_vector || Matrix::IsRowMajor;
  constexpr int inner_stride = Matrix::InnerStrideAtCompileTime;
  // One message at a time, and the one that says most.
  if constexpr (!in_memory) {
    static_assert(in_memory, "an Eigen expression has no memory to view: assign it to a matrix first, and view that");
  } else if constexpr (dies) {
    static_assert(!dies, "the Eigen matrix is a temporary: it would be gone before the view is used");
  } else if constexpr (!is_known) {
    static_assert(is_known, "heed has views of float, double, bfloat16, float16, bool, std::int64_t and std::int8_t");
  } else if constexpr (!is_row_major) {
    static_assert(is_row_major,
                  "heed's views are row-major: make the matrix Eigen::RowMajor, or view its transpose, m.transpose()");
  } else if constexpr (inner_stride != 1 && inner_stride != Eigen::Dynamic) {
    static_assert(inner_stride == 1, "a view's last axis is contiguous: the elements of an Eigen row must be, too");
  } else {
    using T = std::remove_pointer_t<decltype(matrix.data())>;
    if constexpr (is_vector) {
      return View<T, 1>(matrix.data(), {Index{matrix.size()}}, {Index{matrix.innerStride()}});
    } else {
      return View<T, 2>(matrix.data(), {Index{matrix.rows()}, Index{matrix.cols()}},
                        {Index{matrix.outerStride()}, Index{matrix.innerStride()}});
    }
  }
}

// A view of two axes as an Eigen::Map of a row-major matrix; of const elements, one of a const matrix. The distance
// between rows is kept; rows may repeat (stride 0) if the elements are const. Allocates nothing. Errors: ShapeError.
template <class T>
auto as_eigen(View<T, 2> view) {
  using Matrix = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Map =
      Eigen::Map<std::conditional_t<std::is_const_v<T>, const Matrix, Matrix>, Eigen::Unaligned, Eigen::OuterStride<>>;
  raise_if(impl::check_lent("as_eigen", view, {{"rows", any}, {"columns", any}}));
  const Index stride = view.extent(0) > 1 ? view.stride(0) : view.extent(1);  // a single row's may be anything
  return Map(view.data_handle(), view.extent(0), view.extent(1), Eigen::OuterStride<>(stride));
}

// A view of one axis as an Eigen::Map of a column vector. Errors: ShapeError.
template <class T>
auto as_eigen(View<T, 1> view) {
  using Vector = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, 1>;
  raise_if(impl::check_lent("as_eigen", view, {{"elements", any}}));
  return Eigen::Map<std::conditional_t<std::is_const_v<T>, const Vector, Vector>>(view.data_handle(), view.extent(0));
}

// The same of a tensor, which must outlive the map.
template <class T, int Rank>
auto as_eigen(Tensor<T, Rank>& tensor) noexcept {
  return as_eigen(tensor.view());
}
template <class T, int Rank>
auto as_eigen(const Tensor<T, Rank>& tensor) noexcept {
  return as_eigen(tensor.view());
}
template <class T, int Rank>
void as_eigen(const Tensor<T, Rank>&& temporary) = delete;

}  // namespace heed::inline HEED_ABI
