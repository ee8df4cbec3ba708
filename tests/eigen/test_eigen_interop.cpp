// heed::as_view of Eigen's matrices, and heed::as_eigen of heed's views.
#include "eigen/checked_eigen.hpp"

#include <doctest/doctest.h>

#include "heed/interop/eigen.hpp"
#include "heed/ops/linear.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"

using heed::as_eigen;
using heed::as_view;
using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ColumnMajor = Eigen::MatrixXf;

// 10 · row + column.
template <class M>
M numbered(Index rows, Index columns) {
  M matrix(rows, columns);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) matrix(i, j) = static_cast<typename M::Scalar>(10 * i + j);
  }
  return matrix;
}

template <class Is, class Got>
void check_type(const Got&) {
  static_assert(std::is_same_v<Is, Got>);
}

}  // namespace

TEST_CASE("as_view: a row-major matrix or array, of all scalars, const and not") {
  auto matrix = numbered<Matrix<float>>(3, 4);
  const View<float, 2> view = as_view(matrix);
  CHECK(view.data_handle() == matrix.data());
  CHECK(view.extent(0) == 3);
  CHECK(view.extent(1) == 4);
  CHECK(view.is_contiguous());
  view(2, 1) = 7;
  CHECK(matrix(2, 1) == 7);

  const auto& constant = matrix;
  check_type<View<const float, 2>>(as_view(constant));
  const Eigen::Array<double, 2, 3, Eigen::RowMajor> fixed = numbered<Eigen::Array<double, 2, 3, Eigen::RowMajor>>(2, 3);
  CHECK(as_view(fixed)(1, 2) == 12);
  check_type<View<const double, 2>>(as_view(fixed));
  Matrix<bool> mask(2, 2);
  check_type<View<bool, 2>>(as_view(mask));
  Matrix<std::int64_t> positions(2, 2);
  check_type<View<std::int64_t, 2>>(as_view(positions));
  Matrix<float> none(0, 4);
  CHECK(as_view(none).extent(1) == 4);
  CHECK(as_view(none).empty());
}

TEST_CASE("as_view: blocks, maps and refs keep the distance between rows") {
  auto matrix = numbered<Matrix<float>>(5, 6);
  const View<float, 2> block = as_view(matrix.block(1, 2, 3, 2));  // an expression of memory may be a temporary
  CHECK(block.stride(0) == 6);
  CHECK(block(2, 1) == 33);
  CHECK(as_view(matrix.topRows(2)).extent(0) == 2);

  using Strided = Eigen::Map<Matrix<float>, Eigen::Unaligned, Eigen::OuterStride<>>;
  const View<float, 2> odd = as_view(Strided(matrix.data() + 1, 2, 3, Eigen::OuterStride<>(7)));
  CHECK(odd.data_handle() == matrix.data() + 1);
  CHECK(odd.stride(0) == 7);
  const Strided map(matrix.data(), 2, 3, Eigen::OuterStride<>(7));
  check_type<View<const float, 2>>(as_view(map));  // to Eigen a const Map is a map of const elements
  check_type<View<const float, 2>>(as_view(Eigen::Map<const Matrix<float>>(matrix.data(), 2, 3)));

  const auto by_ref = [&](const Eigen::Ref<const Matrix<float>>& ref) {
    check_type<View<const float, 2>>(as_view(ref));
    CHECK(as_view(ref).data_handle() == matrix.data() + 8);
    CHECK(as_view(ref).stride(0) == 6);
  };
  by_ref(matrix.block(1, 2, 3, 2));
  const auto by_mutable_ref = [](Eigen::Ref<Matrix<float>> ref) { as_view(ref)(0, 0) = -1; };
  by_mutable_ref(matrix);
  CHECK(matrix(0, 0) == -1);
}

TEST_CASE("as_view: the transpose of a column-major matrix, where it lies") {
  auto matrix = numbered<ColumnMajor>(3, 4);
  const View<float, 2> view = as_view(matrix.transpose());
  CHECK(view.data_handle() == matrix.data());
  CHECK(view.extent(0) == 4);
  CHECK(view.extent(1) == 3);
  CHECK(view(3, 1) == 13);
  const auto& constant = matrix;
  check_type<View<const float, 2>>(as_view(constant.transpose()));
  CHECK(as_view(matrix.middleCols(1, 2).transpose())(1, 2) == 22);
}

TEST_CASE("as_view: vectors have one axis, whichever way they lie") {
  Eigen::VectorXf column(4);
  Eigen::RowVectorXd row(5);
  const Eigen::Vector3f fixed(1, 2, 3);
  check_type<View<float, 1>>(as_view(column));
  check_type<View<double, 1>>(as_view(row));
  check_type<View<const float, 1>>(as_view(fixed));
  CHECK(as_view(column).extent(0) == 4);
  CHECK(as_view(fixed)(2) == 3);

  auto matrix = numbered<Matrix<float>>(5, 6);
  CHECK(as_view(matrix.row(2))(3) == 23);
  CHECK(as_view(matrix.row(2)).stride(0) == 1);
  CHECK(as_view(matrix.row(2).segment(1, 3)).data_handle() == matrix.data() + 13);
  auto columns = numbered<ColumnMajor>(5, 6);
  CHECK(as_view(columns.col(3))(2) == 23);
}

TEST_CASE("as_view: an inner stride known at run time is the operation's to refuse") {
  auto matrix = numbered<Matrix<float>>(5, 6);
  const View<float, 1> column = as_view(matrix.col(3));
  CHECK(column.stride(0) == 6);
  CHECK(column(2) == 23);
  const auto weight = test::random_tensor<float>({2, 5}, 1);
  Tensor<float, 1> out({2});
  CHECK(test::error_text([&] { heed::ops::linear(heed::Reference(), column, weight.view(), {}, out); }) ==
        "heed: linear: x: the last axis must be contiguous (stride 1), got stride 6 on in features");
  using Any = Eigen::Map<Matrix<float>, Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
  CHECK(as_view(Any(matrix.data(), 2, 3, {12, 2})).stride(1) == 2);
}

TEST_CASE("as_eigen: a view of two axes, its rows where they are") {
  auto tensor = test::random_tensor<float>({3, 4, 5}, 1);
  const View<float, 2> view = tensor.view().permute({1, 0, 2})[2];  // [3, 5], rows 20 apart
  auto map = as_eigen(view);
  CHECK(map.rows() == 3);
  CHECK(map.cols() == 5);
  CHECK(map.outerStride() == 20);
  CHECK(map.data() == view.data_handle());
  CHECK(map(2, 4) == tensor(2, 2, 4));
  map.row(1).setConstant(8);
  CHECK(tensor(1, 2, 3) == 8);

  const View<const float, 2> constant = view;
  static_assert(!(decltype(as_eigen(constant))::Flags & Eigen::LvalueBit));
  CHECK(as_eigen(constant).sum() == doctest::Approx(map.sum()));
  const View<const float, 2> repeated(tensor.data(), {4, 5}, {0, 1});
  CHECK(as_eigen(repeated).row(3) == as_eigen(repeated).row(0));
  const View<float, 2> single(tensor.data(), {1, 5}, {-2, 1});
  CHECK(as_eigen(single).outerStride() == 5);
  CHECK(as_eigen(View<float, 2>(nullptr, {0, 5})).rows() == 0);
}

TEST_CASE("as_eigen: vectors and tensors, and back") {
  Tensor<double, 1> vector({4});
  as_eigen(vector) << 1, 2, 3, 4;
  CHECK(vector(3) == 4);
  CHECK(as_eigen(vector).cols() == 1);
  Tensor<double, 2> tensor({2, 3});
  as_eigen(tensor).setIdentity();
  CHECK(tensor(1, 1) == 1);
  const Tensor<double, 2>& constant = tensor;
  static_assert(!(decltype(as_eigen(constant))::Flags & Eigen::LvalueBit));
  CHECK(as_eigen(constant)(0, 0) == 1);
  CHECK(as_eigen(constant)(0, 1) == 0);
  CHECK(as_view(as_eigen(tensor)).data_handle() == tensor.data());
  CHECK(as_view(as_eigen(vector)).data_handle() == vector.data());

  Matrix<float> x = Matrix<float>::Random(3, 5), weight = Matrix<float>::Random(2, 5), out(3, 2);
  heed::ops::linear(heed::Reference(), as_view(x), as_view(weight), {}, as_view(out));
  CHECK((out - x * weight.transpose()).norm() < 1e-6F);
}

TEST_CASE("as_eigen: what it refuses") {
  Tensor<float, 2> tensor({4, 6});
  const View<float, 2> inner(tensor.data(), {4, 3}, {6, 2});
  CHECK(test::error_text([&] { as_eigen(inner); }) ==
        "heed: as_eigen: view: the last axis must be contiguous (stride 1), got stride 2 on columns");
  const View<float, 2> repeated(tensor.data(), {4, 6}, {0, 1});
  CHECK(test::error_text([&] { as_eigen(repeated); }) ==
        "heed: as_eigen: view: an output must not repeat elements (stride 0), got stride 0 on rows");
  const View<const float, 2> backwards(tensor.data() + 18, {4, 6}, {-6, 1});
  CHECK(test::error_text([&] { as_eigen(backwards); }) ==
        "heed: as_eigen: view: a stride must not be negative, got stride -6 on rows");
  const View<float, 1> column(tensor.data(), {4}, {6});
  CHECK(test::error_text([&] { as_eigen(column); }) ==
        "heed: as_eigen: view: the last axis must be contiguous (stride 1), got stride 6 on elements");
}
