// heed::as_view of std::mdspan and heed::as_mdspan of views, in a program of its own: it needs C++23, and whoever compiles
// it may have another standard library than the other tests.
#include <heed/heed.hpp>
#include <heed/interop/mdspan.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using heed::as_mdspan;
using heed::as_view;
using heed::Index;
using heed::Tensor;
using heed::View;

int failed = 0;

void check(bool condition, int line) {
  if (condition) return;
  std::printf("%s:%d: failed\n", __FILE__, line);
  ++failed;
}
#define CHECK(...) check((__VA_ARGS__), __LINE__)

template <class Is, class Got>
void check_type(const Got&) {
  static_assert(std::is_same_v<Is, Got>);
}

template <class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const heed::ShapeError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<float> numbers(int count) {
  std::vector<float> list;
  for (int i = 0; i < count; ++i) list.push_back(static_cast<float>(i));
  return list;
}

void views_of_mdspans() {
  auto list = numbers(60);
  const std::mdspan right(list.data(), 3, 4, 5);
  check_type<View<float, 3>>(as_view(right));
  CHECK(as_view(right).is_contiguous());
  CHECK(as_view(right)(2, 1, 3) == 48);
  as_view(right)(2, 1, 3) = -1;
  CHECK(list[48] == -1);

  const std::mdspan<const float, std::extents<int, 2, std::dynamic_extent>> constant(list.data(), 6);
  check_type<View<const float, 2>>(as_view(constant));
  CHECK(as_view(constant).extent(0) == 2);
  CHECK(as_view(constant).extent(1) == 6);

  using Matrix = std::dextents<int, 2>;
  const std::mdspan strided(list.data() + 1, std::layout_stride::mapping(Matrix(3, 4), std::array{20, 1}));
  CHECK(as_view(strided).stride(0) == 20);
  CHECK(as_view(strided)(2, 3) == 44);
  const std::mdspan spread(list.data(), std::layout_stride::mapping(Matrix(3, 4), std::array{20, 2}));
  CHECK(as_view(spread).stride(1) == 2);
  Tensor<float, 2> out({3, 4});
  CHECK(error_text([&] { heed::ops::softmax(heed::Cpu(), View<const float, 2>(as_view(spread)), out); }) ==
        "heed: softmax: x: the last axis must be contiguous (stride 1), got stride 2 on last axis");

  const std::mdspan<float, std::dextents<int, 1>, std::layout_left> vector(list.data(), 7);  // one axis has no order
  CHECK(as_view(vector).extent(0) == 7);
}

void mdspans_of_views() {
  Tensor<float, 3> tensor({2, 3, 4});
  check_type<std::mdspan<float, std::dextents<Index, 3>>>(as_mdspan(tensor));
  const auto span = as_mdspan(tensor);
  span[std::array{1, 2, 3}] = 5;
  CHECK(tensor(1, 2, 3) == 5);
  const Tensor<float, 3>& constant = tensor;
  check_type<std::mdspan<const float, std::dextents<Index, 3>>>(as_mdspan(constant));

  const auto swapped = as_mdspan(tensor.view().permute({1, 0, 2}));
  check_type<std::mdspan<float, std::dextents<Index, 3>, std::layout_stride>>(swapped);
  CHECK(swapped.extent(0) == 3);
  CHECK(swapped.stride(0) == 4);
  CHECK(swapped[std::array{2, 1, 3}] == 5);
  const View<float, 3> back = as_view(swapped);
  CHECK(back.data_handle() == tensor.data());
  CHECK(back.stride(1) == 12);

  const View<const float, 2> single(tensor.data(), {1, 4}, {-3, 1});
  CHECK(as_mdspan(single).stride(0) == 1);
  const View<float, 3> none(tensor.data(), {2, 0, 4});
  CHECK(as_mdspan(none).empty());
  CHECK(as_mdspan(none).stride(0) == 4);

  const View<const float, 2> repeated(tensor.data(), {3, 4}, {0, 1});
  CHECK(error_text([&] { as_mdspan(repeated); }) ==
        "heed: as_mdspan: view: every stride must be 1 or more, got 0 on axis 0");
}

}  // namespace

int main() {
  views_of_mdspans();
  mdspans_of_views();
  return failed == 0 ? 0 : 1;
}
