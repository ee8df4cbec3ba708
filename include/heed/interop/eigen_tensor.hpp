// Eigen's tensors as heed's views, and heed's views as Eigen's tensor maps: the same memory, nothing is copied. A header
// of its own because it includes Eigen's unsupported Tensor module; for matrices see interop/eigen.hpp.
#pragma once

#include "heed/core/intrinsics.hpp"  // first

#include <unsupported/Eigen/CXX11/Tensor>

#include <utility>

#include "heed/core/tensor.hpp"
#include "heed/interop/elements.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

template <class Derived>
void takes_eigen_tensor(const Eigen::TensorBase<Derived, Eigen::ReadOnlyAccessors>&);
template <class E>
concept EigenTensor = requires(const E& tensor) {
  takes_eigen_tensor(tensor);
};

template <class E>
concept HasTensorData = requires(E& tensor) {
  tensor.data();
  tensor.dimension(0);
};

template <class E>
inline constexpr bool owns_tensor_data = false;
template <class T, int Rank, int Options, class I>
inline constexpr bool owns_tensor_data<Eigen::Tensor<T, Rank, Options, I>> = true;
template <class T, class Dimensions, int Options, class I>
inline constexpr bool owns_tensor_data<Eigen::TensorFixedSize<T, Dimensions, Options, I>> = true;

}  // namespace impl

// A view of an Eigen::Tensor, TensorFixedSize or TensorMap of 1 to 6 axes in the layout Eigen::RowMajor (which is not
// Eigen's default), with its axes in the same order; contiguous. Element types and compile-time checks are those of
// as_view() in interop/eigen.hpp. Allocates nothing.
template <class E>
requires impl::EigenTensor<E>
auto as_view(E&& tensor) noexcept {
  using Tensorlike = std::remove_cvref_t<E>;
  constexpr bool in_memory = impl::HasTensorData<std::remove_reference_t<E>>;
  constexpr bool dies = !std::is_lvalue_reference_v<E> && impl::owns_tensor_data<Tensorlike>;
  constexpr int rank = static_cast<int>(Tensorlike::NumDimensions);
  if constexpr (!in_memory) {
    static_assert(in_memory, "an Eigen expression has no memory to view: assign it to a tensor first, and view that");
  } else if constexpr (dies) {
    static_assert(!dies, "the Eigen tensor is a temporary: it would be gone before the view is used");
  } else {
    using T = std::remove_pointer_t<decltype(tensor.data())>;
    constexpr bool is_known = impl::is_tensor_element<std::remove_const_t<T>>;
    constexpr bool is_row_major =
        rank == 1 || static_cast<int>(Tensorlike::Layout) == static_cast<int>(Eigen::RowMajor);
    if constexpr (!is_known) {
      static_assert(is_known, "heed has views of float, double, bfloat16, float16, bool, std::int64_t and std::int8_t");
    } else if constexpr (!is_row_major) {
      static_assert(is_row_major,
                    "heed's views are row-major: make the tensor Eigen::RowMajor, which is not Eigen's default");
    } else {
      static_assert(rank >= 1, "a view has at least one axis");
      Index extents[rank];
      // As constants: what type an axis has differs from tensor to map.
      [&]<std::size_t... axis>(std::index_sequence<axis...>) {
        ((extents[axis] = static_cast<Index>(tensor.dimension(axis))), ...);
      }
      (std::make_index_sequence<static_cast<std::size_t>(rank)>());
      return View<T, rank>(tensor.data(), extents);
    }
  }
}

// A contiguous view as a row-major Eigen::TensorMap; of const elements, one of a const tensor. Allocates nothing.
// Errors: ShapeError for a view with gaps or repeated elements.
template <class T, int Rank>
auto as_eigen_tensor(View<T, Rank> view) {
  using RowMajor = Eigen::Tensor<std::remove_const_t<T>, Rank, Eigen::RowMajor, Index>;
  using Map = Eigen::TensorMap<std::conditional_t<std::is_const_v<T>, const RowMajor, RowMajor>>;
  if (!view.is_contiguous()) {
    raise_if(problem_at(ErrorKind::shape, "as_eigen_tensor", "view")
                 .append("must be contiguous: a TensorMap has no strides"));
  }
  Eigen::array<Index, Rank> extents;
  for (int axis = 0; axis < Rank; ++axis) extents[static_cast<std::size_t>(axis)] = view.extent(axis);
  return Map(view.data_handle(), extents);
}

// The same of a tensor of heed's, which must outlive the map.
template <class T, int Rank>
auto as_eigen_tensor(Tensor<T, Rank>& tensor) noexcept {
  return as_eigen_tensor(tensor.view());
}
template <class T, int Rank>
auto as_eigen_tensor(const Tensor<T, Rank>& tensor) noexcept {
  return as_eigen_tensor(tensor.view());
}
template <class T, int Rank>
void as_eigen_tensor(const Tensor<T, Rank>&& temporary) = delete;

}  // namespace heed::inline HEED_ABI
