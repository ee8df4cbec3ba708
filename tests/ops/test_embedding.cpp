// ops::embedding.
#include <doctest/doctest.h>

#include <string>

#include "heed/ops/embedding.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;
namespace ops = heed::ops;

namespace {

// The door on a backend of any type, compiled once a scalar and rank.
template <class T, int Rank>
HEED_NOINLINE void embedding_on(AnyBackend backend, View<const std::int64_t, Rank - 1> ids, View<const T, 2> table,
                                View<T, Rank> out) {
  backend.visit([&](const auto& b) { ops::embedding(b, ids, table, out); });
}
template <class Out>
void embedding(AnyBackend backend, View<const std::int64_t, std::remove_cvref_t<Out>::rank() - 1> ids,
               View<const heed::scalar_t<Out>, 2> table, Out&& out) {
  embedding_on(backend, ids, table, heed::output_view(out));
}

}  // namespace

TEST_CASE_TEMPLATE("embedding: each id replaced by its row", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto table = test::random_tensor<T>({5, 3}, 1);
    const std::int64_t ids[] = {4, 0, 0, 3, 1, 4};
    Tensor<T, 3> out({2, 3, 3});
    embedding(backend, View<const std::int64_t, 2>(ids, {2, 3}), table, out);
    for (Index i = 0; i < 6; ++i) {
      CAPTURE(i);
      CHECK(test::same_bits(out.view()[i / 3][i % 3], table.view()[static_cast<Index>(ids[i])]));
    }
    Tensor<T, 2> row({6, 3});
    embedding(backend, View<const std::int64_t, 1>(ids, {6}), table, row);
    CHECK(test::same_bits(row, View<const T, 2>(out.data(), {6, 3})));
  });
}

TEST_CASE_TEMPLATE("embedding: ragged sizes, strided and repeated views", T, float, heed::bfloat16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index features : {1, 7, 33}) {
      CAPTURE(features);
      const auto table = test::random_tensor<T>({11, features}, 1);
      const auto ids = test::random_ids({2, 3, 4}, 2, 11);
      const test::Strided strided_table(table);
      const test::Strided strided_ids(ids);
      test::Strided out(Tensor<T, 4>({Index{2}, Index{3}, Index{4}, features}));
      embedding(backend, strided_ids.view(), strided_table.view(), out.view());
      bool same = true;
      for (Index i = 0; i < 24; ++i) {
        same = same && test::same_bits(out.view()[i / 12][i / 4 % 3][i % 4], table.view()[ids.data()[i]]);
      }
      CHECK(same);
      CHECK(out.intact());

      // The ids of one row for every row of the batch, and another order of the axes.
      Tensor<T, 4> repeated({Index{5}, Index{3}, Index{4}, features});
      embedding(backend, test::repeated(5, ids.view()[1]), table, repeated);
      for (Index i = 0; i < 5; ++i) CHECK(test::same_bits(repeated.view()[i], out.view()[1]));
      Tensor<T, 4> permuted({Index{3}, Index{2}, Index{4}, features});
      embedding(backend, ids.view().permute({1, 0, 2}), table, permuted);
      CHECK(test::same_bits(permuted.view().permute({1, 0, 2, 3}), out.view()));
    }
  });
}

TEST_CASE("embedding: three workers give what one gives") {
  const auto table = test::random_tensor<float>({50, 130}, 1);
  const auto ids = test::random_ids({4, 171}, 2, 50);
  Tensor<float, 3> one({4, 171, 130});
  Tensor<float, 3> three({4, 171, 130});
  embedding(heed::Simd(), ids, table, one);
  test::ReversePool pool;
  embedding(heed::Cpu(pool), ids, table, three);
  CHECK(pool.parts_elsewhere() > 0);
  CHECK(test::same_bits(one, three));
  CHECK(test::same_bits(one.view()[3][170], table.view()[ids(3, 170)]));
}

TEST_CASE("embedding: empty axes") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<float, 3> out({2, 0, 3});
    embedding(backend, Tensor<std::int64_t, 2>({2, 0}), Tensor<float, 2>({5, 3}), out);
    // Without ids even an empty table will do.
    embedding(backend, Tensor<std::int64_t, 2>({2, 0}), Tensor<float, 2>({0, 3}), out);
    Tensor<float, 2> no_features({4, 0});
    embedding(backend, Tensor<std::int64_t, 1>({4}), Tensor<float, 2>({5, 0}), no_features);
    CHECK(no_features.empty());
  });
}

TEST_CASE("embedding: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  Tensor<float, 2> table({5, 3});
  Tensor<std::int64_t, 2> ids({2, 3});
  Tensor<float, 3> out({2, 3, 3});
  out.fill(7);

  const auto with_id = [&](std::int64_t id) {
    ids(1, 2) = id;
    ops::embedding(backend, ids, table, out);
  };
  CHECK_THROWS_WITH_AS(with_id(5), "heed: embedding: ids: expected 0 <= id < 5, got 5 at position [1, 2]",
                       heed::OptionError);
  CHECK_THROWS_WITH_AS(with_id(-1), "heed: embedding: ids: expected 0 <= id < 5, got -1 at position [1, 2]",
                       heed::OptionError);
  CHECK_THROWS_WITH_AS(with_id(std::int64_t{1} << 40),
                       "heed: embedding: ids: expected 0 <= id < 5, got 1099511627776 at position [1, 2]",
                       heed::OptionError);
  ids(0, 1) = 9;  // the first one is named
  CHECK_THROWS_WITH_AS(with_id(5), "heed: embedding: ids: expected 0 <= id < 5, got 9 at position [0, 1]",
                       heed::OptionError);
  ids(0, 1) = 0;
  ids(1, 2) = 0;
  const std::int64_t vector[] = {0, 1, -7};
  Tensor<float, 2> rows({3, 3});
  CHECK_THROWS_WITH_AS(ops::embedding(backend, View<const std::int64_t, 1>(vector, {3}), table, rows),
                       "heed: embedding: ids: expected 0 <= id < 5, got -7 at position [2]", heed::OptionError);

  Tensor<float, 3> wide({2, 3, 4});
  CHECK_THROWS_WITH_AS(ops::embedding(backend, ids, table, wide),
                       "heed: embedding: out: expected [2, 3, 3] (axis 0, axis 1, features), got [2, 3, 4]",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::embedding(backend, Tensor<std::int64_t, 2>({2, 4}), table, out),
                       "heed: embedding: out: expected [2, 4, 3] (axis 0, axis 1, features), got [2, 3, 3]",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::embedding(backend, ids.view().permute({1, 0}), table, out),
                       "heed: embedding: ids: the last axis must be contiguous (stride 1), got stride 3 on last axis",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::embedding(backend, ids, View<const float, 2>(table.data(), {3, 5}, {1, 3}), out),
                       "heed: embedding: table: the last axis must be contiguous (stride 1), got stride 3 on "
                       "features",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::embedding(backend, View<const std::int64_t, 1>(vector, {2}), table,
                                      View<float, 2>(table.data() + 6, {2, 3})),
                       "heed: embedding: out: must not overlap table", heed::ShapeError);
  for (const float value : out.span()) CHECK(value == 7);

  const heed::Problem problem = ops::check_embedding<float, 1>(View<const std::int64_t, 1>(vector, {3}), table, rows);
  CHECK(problem.kind() == heed::ErrorKind::option);
  CHECK(std::string(problem.text()) == "heed: embedding: ids: expected 0 <= id < 5, got -7 at position [2]");
  CHECK_FALSE(ops::check_embedding<float, 2>(ids, table, out));
}
