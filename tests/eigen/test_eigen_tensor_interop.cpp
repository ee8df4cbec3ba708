// heed::as_view of Eigen's tensors, and heed::as_eigen_tensor of heed's views.
#include "eigen/checked_eigen.hpp"

#include <doctest/doctest.h>

#include "heed/interop/eigen.hpp"  // both overload as_view
#include "heed/interop/eigen_tensor.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"

using heed::as_eigen_tensor;
using heed::as_view;
using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

template <class Is, class Got>
void check_type(const Got&) {
  static_assert(std::is_same_v<Is, Got>);
}

}  // namespace

TEST_CASE("as_view: a row-major tensor, of fixed and dynamic size, const and not") {
  Eigen::Tensor<float, 4, Eigen::RowMajor> tensor(2, 3, 4, 5);
  tensor.setZero();
  const View<float, 4> view = as_view(tensor);
  CHECK(view.data_handle() == tensor.data());
  CHECK(view.extent(1) == 3);
  CHECK(view.extent(3) == 5);
  view(1, 2, 3, 4) = 6;
  CHECK(tensor(1, 2, 3, 4) == 6);
  const auto& constant = tensor;
  check_type<View<const float, 4>>(as_view(constant));

  Eigen::TensorFixedSize<double, Eigen::Sizes<2, 3>, Eigen::RowMajor> fixed;
  fixed.setConstant(2);
  check_type<View<double, 2>>(as_view(fixed));
  CHECK(as_view(fixed)(1, 2) == 2);
  Eigen::Tensor<float, 1> vector(7);  // one axis has no order
  CHECK(as_view(vector).extent(0) == 7);
}

TEST_CASE("as_view: tensor maps") {
  auto tensor = test::random_tensor<float>({2, 3, 4}, 1);
  using Map = Eigen::TensorMap<Eigen::Tensor<float, 3, Eigen::RowMajor>>;
  check_type<View<float, 3>>(as_view(Map(tensor.data(), 2, 3, 4)));
  CHECK(as_view(Map(tensor.data(), 2, 3, 4))(1, 2, 3) == tensor(1, 2, 3));
  using ConstMap = Eigen::TensorMap<Eigen::Tensor<const float, 3, Eigen::RowMajor>>;
  check_type<View<const float, 3>>(as_view(ConstMap(tensor.data(), 2, 3, 4)));
  using MapOfConst = Eigen::TensorMap<const Eigen::Tensor<float, 3, Eigen::RowMajor>>;
  check_type<View<const float, 3>>(as_view(MapOfConst(tensor.data(), 2, 3, 4)));
}

TEST_CASE("as_eigen_tensor: views and tensors, and back") {
  auto tensor = test::random_tensor<float>({2, 3, 4}, 1);
  auto map = as_eigen_tensor(tensor);
  CHECK(map.data() == tensor.data());
  CHECK(map.dimension(2) == 4);
  CHECK(map(1, 2, 3) == tensor(1, 2, 3));
  map.setConstant(5);
  CHECK(tensor(0, 1, 2) == 5);
  check_type<View<float, 3>>(as_view(map));

  const Tensor<float, 3>& constant = tensor;
  check_type<View<const float, 3>>(as_view(as_eigen_tensor(constant)));
  const Eigen::Tensor<float, 0, Eigen::RowMajor> sum = as_eigen_tensor(constant.view()[1]).sum();
  CHECK(sum() == 60);
  CHECK(as_eigen_tensor(View<float, 2>(nullptr, {0, 3})).size() == 0);

  CHECK(test::error_text([&] { as_eigen_tensor(tensor.view().slice(2, 0, 3)); }) ==
        "heed: as_eigen_tensor: view: must be contiguous: a TensorMap has no strides");
}
