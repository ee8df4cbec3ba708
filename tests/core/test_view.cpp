// View: addresses, strides and reshaping, by counting elements in a buffer of 0, 1, 2, …
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>

#include "heed/core/view.hpp"

namespace {

using heed::Index;
using heed::View;

struct OtherSpace {};

template <Index Count>
struct Counting {
  int data[Count];
  Counting() {
    for (Index i = 0; i < Count; ++i) data[i] = static_cast<int>(i);
  }
};

template <class T, int Rank, class Space>
void check_layout(const View<T, Rank, Space>& view, std::array<Index, Rank> extents, std::array<Index, Rank> strides) {
  for (int axis = 0; axis < Rank; ++axis) {
    CAPTURE(axis);
    CHECK(view.extent(axis) == extents[static_cast<std::size_t>(axis)]);
    CHECK(view.stride(axis) == strides[static_cast<std::size_t>(axis)]);
  }
}

}  // namespace

TEST_CASE("View: types") {
  using V = View<float, 3>;
  static_assert(std::is_trivially_copyable_v<V>);
  static_assert(V::rank() == 3);
  static_assert(std::is_same_v<V::element_type, float> && std::is_same_v<V::value_type, float>);
  static_assert(std::is_same_v<View<const float, 3>::element_type, const float>);
  static_assert(std::is_same_v<View<const float, 3>::value_type, float>);
  static_assert(std::is_same_v<V::index_type, Index> && sizeof(Index) == 8 && std::is_signed_v<Index>);
  static_assert(std::is_same_v<V::space_type, heed::Host>);

  // const may be added, never dropped; other spaces, ranks and types do not convert.
  static_assert(std::is_convertible_v<View<float, 2>, View<const float, 2>>);
  static_assert(!std::is_constructible_v<View<float, 2>, View<const float, 2>>);
  static_assert(!std::is_constructible_v<View<const float, 2>, View<double, 2>>);
  static_assert(!std::is_constructible_v<View<const float, 2>, View<float, 3>>);
  static_assert(!std::is_constructible_v<View<float, 2>, View<float, 2, OtherSpace>>);
  static_assert(!std::is_constructible_v<View<const float, 2>, View<float, 2, OtherSpace>>);
  static_assert(std::is_convertible_v<View<float, 2, OtherSpace>, View<const float, 2, OtherSpace>>);
}

TEST_CASE("View: default-made it is absent and empty") {
  constexpr View<float, 2> absent;
  static_assert(!absent.present() && absent.empty() && absent.size() == 0);
  CHECK(absent.is_contiguous());
  CHECK(absent.data_handle() == nullptr);
  CHECK(absent.span().empty());
  float x = 0;
  CHECK(View<float, 2>(&x, {0, 3}).present());  // no elements, but there
  CHECK(View<float, 2>(&x, {0, 3}).empty());
}

TEST_CASE("View: row-major extents of any integer type") {
  Counting<24> memory;
  const View<int, 3> view(memory.data, {2, 3, 4});
  check_layout<int, 3>(view, {2, 3, 4}, {12, 4, 1});
  CHECK(view.size() == 24);
  CHECK(view.is_contiguous());
  CHECK(view(1, 2, 3) == 23);
  CHECK(view(1, 0, 2) == 14);
  CHECK(view.pointer(1, 2) == memory.data + 20);
  CHECK(view.pointer(1) == memory.data + 12);
  CHECK(view.pointer() == memory.data);

  const std::size_t three = 3;
  const Index two = 2;
  const std::int32_t sizes[] = {2, 3, 4};
  check_layout<int, 3>(View<int, 3>(memory.data, sizes), {2, 3, 4}, {12, 4, 1});
  check_layout<int, 2>(View<int, 2>(memory.data, {two, 12}), {2, 12}, {12, 1});
  check_layout<int, 2>(View<int, 2>(memory.data, {three, three}), {3, 3}, {3, 1});
  check_layout<int, 2>(View<int, 2>(memory.data, {two, two}, {8, 1}), {2, 2}, {8, 1});

  view(0, 1, 1) = -5;  // a const View of mutable elements
  CHECK(memory.data[5] == -5);
}

TEST_CASE("View: usable at compile time") {
  constexpr auto sum = [] {
    int memory[6] = {1, 2, 3, 4, 5, 6};
    const View<int, 2> view(memory, {2, 3});
    const View<const int, 2> turned = view.permute({1, 0});
    return 100 * turned(2, 1) + 10 * view[1](0) + turned.slice(0, 1, 1)(0, 0);
  }();
  static_assert(sum == 642);
}

TEST_CASE("View: strides: gaps, permuted axes, stride 0") {
  Counting<40> memory;
  const View<int, 2> gaps(memory.data, {3, 4}, {10, 1});
  CHECK(gaps(2, 3) == 23);
  CHECK(!gaps.is_contiguous());
  CHECK(gaps.slice(0, 0, 1).is_contiguous());  // one row has no gap

  const View<int, 3> repeated(memory.data, {5, 2, 4}, {0, 4, 1});
  for (Index i = 0; i < 5; ++i) CHECK(repeated(i, 1, 2) == 6);
  CHECK(!repeated.is_contiguous());
  CHECK(repeated.size() == 40);

  // An axis of one element may have any stride.
  CHECK(View<int, 3>(memory.data, {2, 1, 4}, {4, 777, 1}).is_contiguous());
  CHECK(View<int, 2>(memory.data, {1, 4}, {-3, 1}).is_contiguous());
  CHECK(!View<int, 2>(memory.data, {4, 2}, {2, 2}).is_contiguous());
  CHECK(View<int, 2>(memory.data, {4, 0}, {7, 7}).is_contiguous());
}

TEST_CASE("View: 64-bit indices") {
  static char byte;
  const View<char, 4> scores(&byte, {32, 20, 2000, 2000});  // case 30: more than 2^31 elements
  CHECK(scores.size() == Index{2560000000});
  CHECK(scores.stride(0) == Index{80000000});
  const View<char, 2> far(&byte, {3, 1}, {Index{1} << 40, Index{1}});
  CHECK(reinterpret_cast<std::uintptr_t>(far.pointer(2)) - reinterpret_cast<std::uintptr_t>(&byte) == std::uintptr_t{1}
                                                                                                          << 41);
}

TEST_CASE("View: operator[] and slice") {
  Counting<24> memory;
  const View<int, 3> view(memory.data, {2, 3, 4});
  check_layout<int, 2>(view[1], {3, 4}, {4, 1});
  CHECK(view[1](2, 3) == 23);
  CHECK(view[1][2](3) == 23);

  const View<int, 3> part = view.slice(1, 1, 2);
  check_layout<int, 3>(part, {2, 2, 4}, {12, 4, 1});
  CHECK(part(0, 0, 0) == 4);
  CHECK(part(1, 1, 3) == 23);
  CHECK(view.slice(2, 3, 1)(1, 2, 0) == 23);
  CHECK(view.slice(0, 2, 0).empty());
  CHECK(view.slice(0, 1, 1).slice(1, 2, 1).slice(2, 1, 2)(0, 0, 1) == 22);

  const View<int, 3> turned = view.permute({2, 0, 1});
  CHECK(turned.slice(0, 1, 2)(1, 1, 2) == view(1, 2, 2));
  CHECK(turned[3](1, 2) == 23);
}

TEST_CASE("case 18: split_last splits heads, it does not reinterpret: [T, H · D] -> [T, H, D]") {
  // T 2, H 2, D 1: x [[a, b], [c, d]] has head 0 = [a, c].
  char x[] = {'a', 'b', 'c', 'd'};
  const View<char, 3> heads = View<char, 2>(x, {2, 2}).split_last(2, 1);
  CHECK(heads(0, 0, 0) == 'a');
  CHECK(heads(1, 0, 0) == 'c');
  CHECK(heads(0, 1, 0) == 'b');
  CHECK(heads(1, 1, 0) == 'd');

  Counting<60> memory;
  const View<int, 2> rows(memory.data, {3, 12}, {20, 1});
  const View<int, 3> split = rows.split_last(3, 4);
  check_layout<int, 3>(split, {3, 3, 4}, {20, 4, 1});
  CHECK(split(2, 1, 3) == 47);
  check_layout<int, 2>(split.merge_last(), {3, 12}, {20, 1});
  CHECK(split.merge_last()(2, 11) == 51);

  // Heads of a stride of their own merge only where one head is, or none.
  const View<int, 3> cut = split.slice(2, 0, 2);
  check_layout<int, 2>(cut.slice(1, 1, 1).merge_last(), {3, 2}, {20, 1});
  check_layout<int, 3>(View<int, 2>(memory.data, {2, 0}).split_last(4, 0), {2, 4, 0}, {0, 0, 1});
  check_layout<int, 1>(View<int, 2>(memory.data, {5, 4}).merge_last(), {20}, {1});
}

TEST_CASE("View: permute") {
  Counting<24> memory;
  const View<int, 4> heads_first(memory.data, {1, 2, 3, 4});
  const View<int, 4> tokens_first = heads_first.permute({0, 2, 1, 3});
  check_layout<int, 4>(tokens_first, {1, 3, 2, 4}, {24, 4, 12, 1});
  for (Index h = 0; h < 2; ++h) {
    for (Index t = 0; t < 3; ++t) CHECK(tokens_first(0, t, h, 2) == heads_first(0, h, t, 2));
  }
  check_layout<int, 4>(tokens_first.permute({0, 2, 1, 3}), {1, 2, 3, 4}, {24, 12, 4, 1});
  CHECK(!tokens_first.is_contiguous());
}

TEST_CASE("View: from and to spans") {
  std::array<float, 6> memory = {0, 1, 2, 3, 4, 5};
  const std::span<float> all(memory);
  const View<float, 1> view = all;
  CHECK(view.extent(0) == 6);
  CHECK(view(5) == 5);
  const View<const float, 1> read_only = all;
  CHECK(read_only(4) == 4);
  const View<const float, 1> from_const = std::span<const float>(memory);
  CHECK(from_const.data_handle() == memory.data());
  const View<float, 1> fixed = std::span<float, 6>(memory);
  CHECK(fixed.extent(0) == 6);
  static_assert(!std::is_constructible_v<View<float, 1>, std::span<const float>>);
  static_assert(!std::is_constructible_v<View<float, 1>, std::span<double>>);
  static_assert(!std::is_constructible_v<View<float, 2>, std::span<float>>);
  static_assert(!std::is_constructible_v<View<float, 1, OtherSpace>, std::span<float>>);

  const std::span<float> back = View<float, 2>(memory.data(), {2, 3}).span();
  CHECK(back.data() == memory.data());
  CHECK(back.size() == 6);
  back[3] = 33;
  CHECK(memory[3] == 33);
  const std::span<const float> row = View<const float, 2>(memory.data(), {2, 3})[1].span();
  CHECK(row.size() == 3);
  CHECK(row[0] == 33);
}
