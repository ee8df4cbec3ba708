// Tensor: memory, deep copies, moves, copies of strided views.
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"

namespace {

using heed::Index;
using heed::Tensor;
using heed::View;

Tensor<int, 2> counting(Index rows, Index columns) {
  Tensor<int, 2> tensor({rows, columns});
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<int>(i);
  return tensor;
}

// Through a reference, so that compilers do not warn of what is tested.
template <class T>
T& same(T& value) {
  return value;
}

}  // namespace

TEST_CASE("Tensor: begins at zero, 64-byte aligned, row-major") {
  for (const Index columns : {1, 3, 16, 1000}) {
    Tensor<float, 2> tensor({Index{3}, columns});
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64 == 0);
    CHECK(tensor.size() == 3 * columns);
    CHECK(tensor.extent(0) == 3);
    CHECK(tensor.extent(1) == columns);
    for (const float value : tensor.span()) CHECK(value == 0.0F);
    tensor(2, columns - 1) = 7;
    CHECK(tensor.data()[3 * columns - 1] == 7);
    CHECK(tensor.view().stride(0) == columns);
    CHECK(tensor.view().is_contiguous());
  }
  Tensor<double, 3> mixed({std::size_t{2}, 3, Index{4}});
  CHECK(mixed.size() == 24);
  Tensor<heed::float16, 1> half({5});
  CHECK(half(4).bits == 0);
}

TEST_CASE("Tensor: size 0 on any axis") {
  for (const auto& [rows, columns] : {std::pair<Index, Index>{0, 5}, {5, 0}, {0, 0}}) {
    Tensor<float, 2> tensor({rows, columns});
    CHECK(tensor.empty());
    CHECK(tensor.extent(0) == rows);
    CHECK(tensor.extent(1) == columns);
    CHECK(tensor.span().empty());
    tensor.fill(3);
    Tensor<float, 2> copy = tensor;
    CHECK(copy.extent(0) == rows);
    CHECK(copy.extent(1) == columns);
    const Tensor<float, 2> of_view(tensor.view());
    CHECK(of_view.extent(0) == rows);
    CHECK(of_view.extent(1) == columns);
    CHECK(of_view.empty());
  }
  const Tensor<float, 2> none;
  CHECK(none.empty());
  CHECK(!none.view().present());
}

TEST_CASE("Tensor: copies are deep") {
  Tensor<int, 2> original = counting(3, 4);
  Tensor<int, 2> copy = original;
  CHECK(copy.data() != original.data());
  original(1, 2) = -1;
  CHECK(copy(1, 2) == 6);

  Tensor<int, 2> assigned({7, 7});
  assigned = copy;
  CHECK(assigned.extent(0) == 3);
  CHECK(assigned.data() != copy.data());
  copy.fill(9);
  CHECK(assigned(2, 3) == 11);
  CHECK(copy(0, 0) == 9);

  const int* before = assigned.data();
  assigned = same(assigned);
  CHECK(assigned.data() == before);
  CHECK(assigned(2, 3) == 11);

  assigned = Tensor<int, 2>();
  CHECK(assigned.empty());
}

TEST_CASE("Tensor: moves take the memory") {
  Tensor<int, 2> original = counting(3, 4);
  const int* memory = original.data();
  Tensor<int, 2> moved = std::move(original);
  CHECK(moved.data() == memory);
  CHECK(moved(2, 3) == 11);
  CHECK(original.empty());  // NOLINT: what a moved-from tensor is, is promised
  CHECK(original.data() == nullptr);
  static_assert(std::is_nothrow_move_constructible_v<Tensor<int, 2>>);
  static_assert(std::is_nothrow_move_assignable_v<Tensor<int, 2>>);

  Tensor<int, 2> target = counting(2, 2);
  target = std::move(moved);
  CHECK(target.data() == memory);
  CHECK(moved.empty());  // NOLINT

  target = std::move(same(target));
  CHECK(target.data() == memory);
  CHECK(target(2, 3) == 11);

  Tensor<int, 2> other = counting(1, 1);
  other.swap(target);
  CHECK(other.data() == memory);
  CHECK(target.extent(0) == 1);

  original = counting(2, 3);  // a moved-from tensor can be used again
  CHECK(original(1, 2) == 5);
}

TEST_CASE("Tensor: a copy of any view is contiguous") {
  const Tensor<int, 2> source = counting(4, 6);
  const Tensor<int, 2> transposed(source.view().permute({1, 0}).slice(0, 1, 3));
  CHECK(transposed.extent(0) == 3);
  CHECK(transposed.extent(1) == 4);
  CHECK(transposed.view().is_contiguous());
  for (Index i = 0; i < 3; ++i) {
    for (Index j = 0; j < 4; ++j) CHECK(transposed(i, j) == source(j, i + 1));
  }
  const Tensor<int, 3> repeated(View<const int, 3>(source.data(), {2, 2, 3}, {0, 6, 1}));
  const int want[] = {0, 1, 2, 6, 7, 8, 0, 1, 2, 6, 7, 8};
  for (Index i = 0; i < 12; ++i) CHECK(repeated.data()[i] == want[i]);
}

TEST_CASE("Tensor: converts to views, const ones from a const tensor") {
  Tensor<int, 2> tensor = counting(2, 3);
  const Tensor<int, 2>& read_only = tensor;
  const View<int, 2> view = tensor;
  const View<const int, 2> const_view = read_only;
  const View<const int, 2> added = tensor;
  view(0, 1) = 42;
  CHECK(const_view(0, 1) == 42);
  CHECK(added(0, 1) == 42);
  CHECK(read_only.span()[1] == 42);
  CHECK(read_only(0, 1) == 42);
  CHECK(read_only.view().data_handle() == tensor.data());
  static_assert(!std::is_convertible_v<const Tensor<int, 2>&, View<int, 2>>);
  static_assert(std::is_same_v<heed::scalar_t<const Tensor<int, 2>&>, int>);
  static_assert(std::is_same_v<heed::scalar_t<View<const float, 3>>, float>);
  static_assert(std::is_same_v<decltype(heed::output_view(tensor)), View<int, 2>>);
  static_assert(std::is_same_v<decltype(heed::output_view(view)), View<int, 2>>);
  CHECK(heed::output_view(tensor).data_handle() == tensor.data());
}
