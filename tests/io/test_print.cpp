// Printed views: every text is written out here.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "heed/io/print.hpp"
#include "support/compare.hpp"

namespace {

using heed::Index;

template <class Tensorlike>
std::string printed(const Tensorlike& tensor, const heed::PrintOptions& options = {}) {
  std::ostringstream stream;
  heed::print(stream, tensor, options);
  return stream.str();
}

// 0, 1, 2, …
template <class T, int Rank>
heed::Tensor<T, Rank> counted(const Index (&extents)[Rank]) {
  heed::Tensor<T, Rank> tensor(extents);
  Index next = 0;
  for (T& element : tensor.span()) element = static_cast<T>(static_cast<float>(next++));
  return tensor;
}

}  // namespace

TEST_CASE("print: type, shape and elements of each rank") {
  CHECK(printed(counted<float, 1>({3})) == "float [3]\n[0, 1, 2]");
  CHECK(printed(counted<double, 2>({2, 3})) == "double [2, 3]\n[[0, 1, 2],\n [3, 4, 5]]");
  CHECK(printed(counted<float, 3>({2, 2, 2})) == "float [2, 2, 2]\n[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
  CHECK(printed(counted<float, 4>({1, 1, 1, 1})) == "float [1, 1, 1, 1]\n[[[[0]]]]");
}

TEST_CASE("print: an ellipsis in the middle of axes longer than both edges and one more") {
  CHECK(printed(counted<float, 1>({7})) == "float [7]\n[0, 1, 2, 3, 4, 5, 6]");
  CHECK(printed(counted<float, 1>({8})) == "float [8]\n[0, 1, 2, ..., 5, 6, 7]");
  CHECK(printed(counted<float, 2>({100, 9})) ==
        "float [100, 9]\n"
        "[[0, 1, 2, ..., 6, 7, 8],\n"
        " [9, 10, 11, ..., 15, 16, 17],\n"
        " [18, 19, 20, ..., 24, 25, 26],\n"
        " ...,\n"
        " [873, 874, 875, ..., 879, 880, 881],\n"
        " [882, 883, 884, ..., 888, 889, 890],\n"
        " [891, 892, 893, ..., 897, 898, 899]]");
  CHECK(printed(counted<float, 1>({8}), {.edge = 1}) == "float [8]\n[0, ..., 7]");
  CHECK(printed(counted<float, 1>({8}), {.edge = 0}) == "float [8]\n[0, ..., 7]");
  CHECK(printed(counted<float, 1>({8}), {.edge = 4}) == "float [8]\n[0, 1, 2, 3, 4, 5, 6, 7]");
}

TEST_CASE("print: size 0") {
  CHECK(printed(heed::Tensor<float, 1>({0})) == "float [0]\n[]");
  CHECK(printed(heed::Tensor<float, 2>({0, 3})) == "float [0, 3]\n[]");
  CHECK(printed(heed::Tensor<float, 2>({2, 0})) == "float [2, 0]\n[[],\n []]");
  CHECK(printed(heed::View<const float, 2>()) == "float [0, 0]\n[]");
}

TEST_CASE("print: strided and repeated views") {
  const auto tensor = counted<float, 2>({3, 4});
  CHECK(printed(tensor.view().slice(1, 1, 2)) == "float [3, 2]\n[[1, 2],\n [5, 6],\n [9, 10]]");
  CHECK(printed(heed::View<const float, 2>(tensor.data(), {2, 2}, {0, 1})) == "float [2, 2]\n[[0, 1],\n [0, 1]]");
}

TEST_CASE("print: element types") {
  CHECK(printed(counted<heed::bfloat16, 1>({2})) == "bfloat16 [2]\n[0, 1]");
  CHECK(printed(counted<heed::float16, 1>({2})) == "float16 [2]\n[0, 1]");
  CHECK(printed(counted<std::int64_t, 1>({2})) == "int64 [2]\n[0, 1]");
  CHECK(printed(counted<std::int32_t, 1>({2})) == "int32 [2]\n[0, 1]");
  CHECK(printed(counted<std::int16_t, 1>({2})) == "int16 [2]\n[0, 1]");
  CHECK(printed(counted<std::int8_t, 1>({2})) == "int8 [2]\n[0, 1]");
  CHECK(printed(counted<std::uint8_t, 1>({2})) == "uint8 [2]\n[0, 1]");
  CHECK(printed(counted<std::uint64_t, 1>({2})) == "uint64 [2]\n[0, 1]");
  heed::Tensor<bool, 1> flags({2});
  flags(1) = true;
  CHECK(printed(flags) == "bool [2]\n[false, true]");
}

TEST_CASE("print: precision, and a stream that is left as it was") {
  heed::Tensor<double, 1> third({3});
  third(0) = 1.0 / 3;
  third(1) = -std::numeric_limits<double>::infinity();
  third(2) = std::numeric_limits<double>::quiet_NaN();
  CHECK(printed(third) == "double [3]\n[0.333333, -inf, nan]");
  CHECK(printed(third, {.precision = 3}) == "double [3]\n[0.333, -inf, nan]");

  std::ostringstream stream;
  stream << std::hex << std::fixed;
  stream.precision(1);
  stream << third.view().slice(0, 0, 1) << " " << third << " " << 255 << " " << 0.5;
  CHECK(stream.str() == "double [1]\n[0.333333] double [3]\n[0.333333, -inf, nan] ff 0.5");
}
