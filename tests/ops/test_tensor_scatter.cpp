// ops::tensor_scatter against the index arithmetic of its definition.
#include <doctest/doctest.h>

#include <string>

#include "heed/ops/tensor_scatter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::Index;
using heed::ScatterMode;
using heed::Tensor;
using heed::TensorScatterOptions;
using heed::View;
namespace ops = heed::ops;

namespace {

Tensor<std::int64_t, 1> list(std::initializer_list<std::int64_t> values) {
  Tensor<std::int64_t, 1> result({static_cast<Index>(values.size())});
  Index i = 0;
  for (const std::int64_t value : values) result(i++) = value;
  return result;
}

}  // namespace

TEST_CASE("tensor_scatter: rows go where each batch row says, the others stay") {
  test::for_each_backend([](const auto& backend) {
    Tensor<float, 4> cache({2, 1, 4, 2});
    cache.fill(-1);
    Tensor<float, 4> update({2, 1, 2, 2});
    for (Index i = 0; i < update.size(); ++i) update.data()[i] = static_cast<float>(i);
    const auto indices = list({1, 2});
    ops::tensor_scatter(backend, update, cache, {.write_indices = indices});
    const float want[] = {-1, -1, 0, 1, 2, 3, -1, -1, -1, -1, -1, -1, 4, 5, 6, 7};
    for (Index i = 0; i < cache.size(); ++i) CHECK(cache.data()[i] == want[i]);
  });
}

TEST_CASE("tensor_scatter: circular goes on at the beginning; any integer is an index") {
  for (const std::int64_t index : {3, 7, -1, -5}) {
    CAPTURE(index);
    Tensor<double, 3> cache({1, 4, 1});
    Tensor<double, 3> update({1, 3, 1});
    for (Index i = 0; i < 3; ++i) update(0, i, 0) = static_cast<double>(i + 1);
    const auto indices = list({index});
    ops::tensor_scatter(heed::Cpu(), update, cache, {.mode = ScatterMode::circular, .write_indices = indices});
    CHECK(cache(0, 3, 0) == 1);
    CHECK(cache(0, 0, 0) == 2);
    CHECK(cache(0, 1, 0) == 3);
    CHECK(cache(0, 2, 0) == 0);
  }
}

TEST_CASE_TEMPLATE("tensor_scatter: any axis, strided, every element type", T, float, double, heed::bfloat16,
                   heed::float16) {
  const Index capacity = 5;
  const Index rows = 3;
  for (const int axis : {1, 2, 3, -1, -2, -3}) {
    const int front = axis < 0 ? axis + 4 : axis;
    for (const auto mode : {ScatterMode::linear, ScatterMode::circular}) {
      CAPTURE(axis);
      Index from_extents[] = {2, 3, 2, 4};
      Index to_extents[] = {2, 3, 2, 4};
      from_extents[front] = rows;
      to_extents[front] = capacity;
      const auto update = test::random_tensor<T>(from_extents, 1);
      const auto before = test::random_tensor<T>(to_extents, 2);
      const auto indices = mode == ScatterMode::linear ? list({2, 0}) : list({4, 1});
      test::Strided<T, 4> cache(before);
      const test::Strided<T, 4> strided(update);
      ops::tensor_scatter(heed::Simd(), strided.view(), cache.view(),
                          {.mode = mode, .axis = axis, .write_indices = indices});
      CHECK(cache.intact());

      Tensor<T, 4> want = before;
      for (Index a = 0; a < from_extents[0]; ++a) {
        for (Index b = 0; b < from_extents[1]; ++b) {
          for (Index c = 0; c < from_extents[2]; ++c) {
            for (Index d = 0; d < from_extents[3]; ++d) {
              Index at[] = {a, b, c, d};
              at[front] = (at[front] + static_cast<Index>(indices(a))) % capacity;
              want(at[0], at[1], at[2], at[3]) = update(a, b, c, d);
            }
          }
        }
      }
      CHECK(test::same_bits(cache.view(), want));
    }
  }
}

TEST_CASE("tensor_scatter: integers, 2 axes, no indices, nothing to write, one row for all") {
  Tensor<std::int64_t, 2> cache({2, 3});
  Tensor<std::int64_t, 2> update({2, 2});
  update.fill(7);
  ops::tensor_scatter(heed::Reference(), update, cache, {.axis = 1});
  for (Index b = 0; b < 2; ++b) {
    CHECK(cache(b, 0) == 7);
    CHECK(cache(b, 1) == 7);
    CHECK(cache(b, 2) == 0);
  }
  const Tensor<std::int64_t, 2> nothing({2, 0});
  ops::tensor_scatter(heed::Reference(), nothing, cache, {.axis = 1});
  CHECK(cache(0, 0) == 7);
  Tensor<float, 3> none({0, 4, 2});
  ops::tensor_scatter(heed::Reference(), Tensor<float, 3>({0, 1, 2}), none);

  Tensor<float, 3> shared({2, 2, 1});
  Tensor<float, 2> row({1, 1});
  row(0, 0) = 3;
  ops::tensor_scatter(heed::Reference(), test::repeated(2, View<const float, 2>(row)), shared);
  CHECK(shared(0, 0, 0) == 3);
  CHECK(shared(1, 0, 0) == 3);
  CHECK(shared(1, 1, 0) == 0);
}

TEST_CASE("tensor_scatter: errors say what is wrong, and nothing is written") {
  Tensor<float, 3> cache({2, 4, 3});
  Tensor<float, 3> update({2, 2, 3});
  update.fill(1);
  const auto shape_error = [&](const auto& from, const TensorScatterOptions& options = {}) {
    return test::error_text<heed::ShapeError>([&] { ops::tensor_scatter(heed::Cpu(), from, cache, options); });
  };
  const auto option_error = [&](const TensorScatterOptions& options) {
    return test::error_text<heed::OptionError>([&] { ops::tensor_scatter(heed::Cpu(), update, cache, options); });
  };
  CHECK(option_error({.axis = 3}) == "heed: tensor_scatter: axis: expected -3 <= axis < 3, got 3");
  CHECK(option_error({.axis = 0}) == "heed: tensor_scatter: axis: axis 0 is the batch; nothing is written along it");
  CHECK(option_error({.axis = -3}) == "heed: tensor_scatter: axis: axis 0 is the batch; nothing is written along it");
  CHECK(shape_error(Tensor<float, 3>({2, 5, 3})) ==
        "heed: tensor_scatter: update: 5 rows do not fit into the cache's 4");
  CHECK(shape_error(Tensor<float, 3>({1, 2, 3})) ==
        "heed: tensor_scatter: update: expected [2, 2, 3] (axis 0, axis 1, last axis), got [1, 2, 3]");
  CHECK(shape_error(Tensor<float, 3>({2, 2, 2})) ==
        "heed: tensor_scatter: update: expected [2, 2, 3] (axis 0, axis 1, last axis), got [2, 2, 2]");
  const auto beyond = list({0, 3});
  CHECK(option_error({.write_indices = beyond}) ==
        "heed: tensor_scatter: write_indices: must be from 0 to 2, got 3 for batch row 1");
  const auto negative = list({-1, 0});
  CHECK(option_error({.write_indices = negative}) ==
        "heed: tensor_scatter: write_indices: must be from 0 to 2, got -1 for batch row 0");
  const auto three = list({0, 0, 0});
  CHECK(shape_error(update, {.write_indices = three}) ==
        "heed: tensor_scatter: write_indices: expected [2] (batch), got [3]");
  CHECK(shape_error(cache.view().slice(1, 1, 2)) == "heed: tensor_scatter: cache: must not overlap update");
  for (const float element : cache.span()) CHECK(element == 0);
}
