// The projections that attention layers share: what a head is, how packed weights are cut, which shapes are refused.
#include "heed/layers/projections.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"
#include "support/tensor_map.hpp"

namespace {

using heed::HeadLayout;
using heed::Index;
using heed::LinearWeights;
using heed::PackedOrder;
using heed::Projections;
using heed::ProjectionWeights;
using heed::Tensor;
using heed::View;
using heed::Workspace;
using test::error_text;
using test::random_tensor;

template <class T>
LinearWeights<T> random_linear(Index out_features, Index in_features, std::uint64_t seed, bool bias) {
  LinearWeights<T> weights{random_tensor<T>({out_features, in_features}, seed), {}};
  if (bias) weights.bias = random_tensor<T>({out_features}, seed + 1);
  return weights;
}

template <class T>
ProjectionWeights<T> random_weights(const HeadLayout& layout, Index hidden_size, bool bias = true) {
  return {random_linear<T>(layout.num_heads * layout.head_dim, hidden_size, 11, bias),
          random_linear<T>(layout.num_kv_heads * layout.head_dim, hidden_size, 13, bias),
          random_linear<T>(layout.num_kv_heads * layout.value_head_dim, hidden_size, 15, bias),
          random_linear<T>(hidden_size, layout.num_heads * layout.value_head_dim, 17, bias)};
}

// Element (b, t, head, d) of a projection, from its definition.
template <class T>
double projected(const LinearWeights<T>& weights, View<const T, 3> x, Index b, Index t, Index head, Index d,
                 Index head_dim) {
  const Index row = head * head_dim + d;
  double sum = weights.bias.empty() ? 0 : test::to_double(weights.bias(row));
  for (Index e = 0; e < x.extent(2); ++e) sum += test::to_double(x(b, t, e)) * test::to_double(weights.weight(row, e));
  return sum;
}

template <class T>
double head_error(const LinearWeights<T>& weights, View<const T, 3> x, View<const T, 4> heads) {
  double largest = 0;
  for (Index b = 0; b < heads.extent(0); ++b) {
    for (Index t = 0; t < heads.extent(1); ++t) {
      for (Index h = 0; h < heads.extent(2); ++h) {
        for (Index d = 0; d < heads.extent(3); ++d) {
          const double want = projected(weights, x, b, t, h, d, heads.extent(3));
          largest = std::fmax(largest, test::difference(test::to_double(heads(b, t, h, d)), want) / (1 + want * want));
        }
      }
    }
  }
  return largest;
}

template <class T>
constexpr double tolerance = 50 * test::unit_roundoff<T>;

}  // namespace

TEST_CASE_TEMPLATE("Projections: each head of query, key and value, and the output", T, float, double) {
  test::for_each_backend([](const auto& backend) {
    for (const HeadLayout& layout :
         {HeadLayout{.num_heads = 6, .num_kv_heads = 2, .head_dim = 5, .value_head_dim = 3},
          HeadLayout{.num_heads = 1, .head_dim = 1}, HeadLayout{.num_heads = 4, .num_kv_heads = 1, .head_dim = 16}}) {
      for (const bool bias : {true, false}) {
        const Index hidden_size = 13;
        const auto weights = random_weights<T>(layout, hidden_size, bias);
        const auto x = random_tensor<T>({2, 3, hidden_size}, 5);
        const Projections<T, std::remove_cvref_t<decltype(backend)>> projections("Layer", weights, layout, backend);
        CHECK(projections.hidden_size() == hidden_size);
        CHECK(projections.layout() == layout);
        CHECK(projections.has_input_bias() == bias);
        CHECK(projections.has_output_bias() == bias);

        Workspace workspace(1 << 16);
        const View<T, 3> buffer = projections.take(workspace, 2, 3);
        projections.project(backend, x, buffer);
        const auto [query, key, value] = projections.split(buffer);
        REQUIRE(query.extent(2) == layout.num_heads);
        REQUIRE(key.extent(2) == layout.num_kv_heads);
        REQUIRE(value.extent(2) == layout.num_kv_heads);
        REQUIRE(query.extent(3) == layout.head_dim);
        REQUIRE(key.extent(3) == layout.head_dim);
        REQUIRE(value.extent(3) == layout.value_head_dim);
        CHECK(head_error<T>(weights.query, x, query) < tolerance<T>);
        CHECK(head_error<T>(weights.key, x, key) < tolerance<T>);
        CHECK(head_error<T>(weights.value, x, value) < tolerance<T>);

        const auto context = random_tensor<T>({2, 3, layout.num_heads, layout.value_head_dim}, 6);
        Tensor<T, 3> out({2, 3, hidden_size});
        projections.output(backend, context, out);
        CHECK(head_error<T>(weights.output, context.view().merge_last(), out.view().split_last(1, hidden_size)) <
              tolerance<T>);
      }
    }
  });
}

TEST_CASE("Projections: heads are views of the one buffer, and measuring takes what running takes") {
  const HeadLayout layout{.num_heads = 4, .num_kv_heads = 2, .head_dim = 3, .value_head_dim = 5};
  const Projections<float> projections("Layer", random_weights<float>(layout, 7), layout);
  Workspace measured = Workspace::measuring();
  projections.take(measured, 2, 9);
  Workspace workspace(measured.size_needed());
  const View<float, 3> buffer = projections.take(workspace, 2, 9);
  CHECK(workspace.size_needed() == measured.size_needed());
  CHECK(buffer.extent(2) == 4 * 3 + 2 * 3 + 2 * 5);
  const auto heads = projections.split(buffer);
  CHECK(heads.query.data_handle() == buffer.data_handle());
  CHECK(&heads.query(1, 2, 3, 2) == &buffer(1, 2, 11));
  CHECK(&heads.key(1, 2, 0, 0) == &buffer(1, 2, 12));
  CHECK(&heads.key(0, 8, 1, 2) == &buffer(0, 8, 17));
  CHECK(&heads.value(1, 8, 1, 4) == &buffer(1, 8, 27));

  const auto x = random_tensor<float>({2, 9, 7}, 5);
  CHECK(test::allocations_in([&] { projections.project(heed::Cpu(), x, buffer); }) == 0);
}

TEST_CASE("Projections: joined, the three products have the bits they have alone") {
  const HeadLayout layout{.num_heads = 5, .num_kv_heads = 5, .head_dim = 7};
  const auto weights = random_weights<float>(layout, 19);
  const auto x = random_tensor<float>({2, 3, 19}, 5);
  test::for_each_backend([&](const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const Projections<float, B> projections("Layer", weights, layout, backend);
    Workspace workspace(1 << 16);
    const View<float, 3> buffer = projections.take(workspace, 2, 3);
    projections.project(backend, x, buffer);
    const auto heads = projections.split(buffer);
    const auto alone = [&](const LinearWeights<float>& part) {
      return heed::Linear<float, B>(part, backend).forward(backend, x);
    };
    CHECK(test::same_bits(heads.query.merge_last(), alone(weights.query)));
    CHECK(test::same_bits(heads.key.merge_last(), alone(weights.key)));
    CHECK(test::same_bits(heads.value.merge_last(), alone(weights.value)));
  });
}

TEST_CASE("Projections: a bias on some projections only") {
  const HeadLayout layout{.num_heads = 2, .head_dim = 3};
  auto weights = random_weights<double>(layout, 4);
  weights.key.bias = {};
  weights.output.bias = {};
  const Projections<double> projections("Layer", weights, layout);
  CHECK(projections.has_input_bias());
  CHECK_FALSE(projections.has_output_bias());
  const auto x = random_tensor<double>({1, 2, 4}, 5);
  Workspace workspace(1 << 12);
  const View<double, 3> buffer = projections.take(workspace, 1, 2);
  projections.project(heed::Cpu(), x, buffer);
  const auto heads = projections.split(buffer);
  CHECK(head_error<double>(weights.query, x, heads.query) < tolerance<double>);
  CHECK(head_error<double>(weights.key, x, heads.key) < tolerance<double>);
  CHECK(head_error<double>(weights.value, x, heads.value) < tolerance<double>);
}

TEST_CASE("case 18: [B, T, H * D] is split into heads, not reinterpreted") {
  // T 2, H 2, D 1, x [[a, b], [c, d]] -> head 0 is [a, c], head 1 is [b, d].
  Tensor<float, 2> identity({2, 2});
  identity(0, 0) = identity(1, 1) = 1;
  const HeadLayout layout{.num_heads = 2, .head_dim = 1};
  const heed::LinearWeightsView<float> one{.weight = identity};
  const Projections<float> projections("Layer", {one, one, one, one}, layout);
  Tensor<float, 3> x({1, 2, 2});
  for (Index i = 0; i < 4; ++i) x.data()[i] = static_cast<float>(i + 1);
  Workspace workspace(1024);
  const View<float, 3> buffer = projections.take(workspace, 1, 2);
  projections.project(heed::Cpu(), x, buffer);
  const View<float, 4> query = projections.split(buffer).query;
  CHECK(query(0, 0, 0, 0) == 1);
  CHECK(query(0, 1, 0, 0) == 3);
  CHECK(query(0, 0, 1, 0) == 2);
  CHECK(query(0, 1, 1, 0) == 4);
}

TEST_CASE("case 19: packed QKV under GQA has widths 64, 16, 16; a three-way equal split is an error") {
  const HeadLayout layout{.num_heads = 8, .num_kv_heads = 2, .head_dim = 8};
  const auto packed = random_linear<float>(96, 24, 1, true);
  const auto output = random_linear<float>(24, 64, 3, false);
  const auto weights = ProjectionWeights<float>::from_packed(packed, output, layout);
  CHECK(test::same_bits(weights.query.weight, packed.weight.view().slice(0, 0, 64)));
  CHECK(test::same_bits(weights.key.weight, packed.weight.view().slice(0, 64, 16)));
  CHECK(test::same_bits(weights.value.weight, packed.weight.view().slice(0, 80, 16)));
  CHECK(test::same_bits(weights.query.bias, packed.bias.view().slice(0, 0, 64)));
  CHECK(test::same_bits(weights.key.bias, packed.bias.view().slice(0, 64, 16)));
  CHECK(test::same_bits(weights.value.bias, packed.bias.view().slice(0, 80, 16)));
  CHECK(test::same_bits(weights.output.weight, output.weight));
  CHECK(weights.output.bias.empty());

  // A weight made for three equal parts, and a weight cut into three equal parts.
  CHECK(error_text(
            [&] { ProjectionWeights<float>::from_packed(random_linear<float>(192, 24, 1, false), output, layout); }) ==
        "heed: ProjectionWeights::from_packed: packed.weight: expected [96, *] (num_heads * head_dim + num_kv_heads * "
        "(head_dim + value_head_dim), hidden size), got [192, 24]");
  const auto third = [&](Index i) {
    return heed::LinearWeightsView<float>{.weight = packed.weight.view().slice(0, i * 32, 32)};
  };
  CHECK(error_text([&] {
          Projections<float>("Layer", {third(0), third(1), third(2), output}, layout);
        }) == "heed: Layer: query.weight: expected [64, 24] (num_heads * head_dim, hidden size), got [32, 24]");
}

TEST_CASE("ProjectionWeights::from_packed: rows by kv head, value heads of another size") {
  const HeadLayout layout{.num_heads = 4, .num_kv_heads = 2, .head_dim = 3, .value_head_dim = 2};
  // Row r of the packed weight is filled with r: kv head 0 has its query heads in rows 0 to 5, its key head in 6 to 8,
  // its value head in 9 and 10; kv head 1 begins at row 11.
  LinearWeights<float> packed{Tensor<float, 2>({22, 2}), Tensor<float, 1>({22})};
  for (Index r = 0; r < 22; ++r) packed.weight(r, 0) = packed.weight(r, 1) = packed.bias(r) = static_cast<float>(r);
  const LinearWeights<float> output{Tensor<float, 2>({2, 8}), Tensor<float, 1>({2})};
  const auto weights = ProjectionWeights<float>::from_packed(packed, output, layout, PackedOrder::per_kv_head);
  const float query[] = {0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 16};
  const float key[] = {6, 7, 8, 17, 18, 19};
  const float value[] = {9, 10, 20, 21};
  const auto check = [](const LinearWeights<float>& part, const float* rows, Index count) {
    REQUIRE(part.weight.extent(0) == count);
    REQUIRE(part.weight.extent(1) == 2);
    REQUIRE(part.bias.extent(0) == count);
    for (Index r = 0; r < count; ++r) {
      CHECK(part.weight(r, 0) == rows[r]);
      CHECK(part.weight(r, 1) == rows[r]);
      CHECK(part.bias(r) == rows[r]);
    }
  };
  check(weights.query, query, 12);
  check(weights.key, key, 6);
  check(weights.value, value, 4);
  CHECK(weights.output.bias.extent(0) == 2);
}

TEST_CASE("ProjectionWeights::from_file: Llama's names, other names, biases where there are any") {
  const HeadLayout layout{.num_heads = 2, .num_kv_heads = 1, .head_dim = 3};
  const auto weights = random_weights<float>(layout, 5);
  test::TensorMap file;
  const struct {
    const char* llama;
    const char* bert;
    const LinearWeights<float>& part;
  } parts[] = {{"q_proj", "query", weights.query},
               {"k_proj", "key", weights.key},
               {"v_proj", "value", weights.value},
               {"o_proj", "dense", weights.output}};
  for (const auto& part : parts) {
    file.add("model." + std::string(part.llama) + ".weight", part.part.weight);
    file.add(std::string(part.bert) + ".weight", part.part.weight);
    file.add(std::string(part.bert) + ".bias", part.part.bias);
  }
  file.add("model.k_proj.bias", weights.key.bias);

  const auto llama = ProjectionWeights<float>::from_file(file, "model");
  CHECK(test::same_bits(llama.query.weight, weights.query.weight));
  CHECK(test::same_bits(llama.key.weight, weights.key.weight));
  CHECK(test::same_bits(llama.value.weight, weights.value.weight));
  CHECK(test::same_bits(llama.output.weight, weights.output.weight));
  CHECK(llama.query.bias.empty());
  CHECK(test::same_bits(llama.key.bias, weights.key.bias));
  const auto bert = ProjectionWeights<float>::from_file(
      file, "", {.query = "query", .key = "key", .value = "value", .output = "dense"});
  CHECK(test::same_bits(bert.output.weight, weights.output.weight));
  CHECK(test::same_bits(bert.output.bias, weights.output.bias));
  file.remove("model.o_proj.weight");
  CHECK(error_text([&] { ProjectionWeights<float>::from_file(file, "model"); }) ==
        "heed: TensorMap: no such tensor: model.o_proj.weight");
}

TEST_CASE("ProjectionWeights::random: shapes, and no two projections alike") {
  const HeadLayout layout{.num_heads = 4, .num_kv_heads = 2, .head_dim = 3, .value_head_dim = 6};
  const auto weights = ProjectionWeights<double>::random(5, 10, layout, true);
  Projections<double>("Layer", weights, layout);  // accepts them
  CHECK(weights.output.weight.extent(1) == 24);
  CHECK_FALSE(test::same_bits(weights.key.weight.view().slice(0, 0, 6), weights.value.weight.view().slice(0, 0, 6)));
  CHECK_FALSE(test::same_bits(weights.key.weight.view().slice(0, 0, 6), weights.query.weight.view().slice(0, 0, 6)));
  CHECK_FALSE(test::same_bits(weights.key.bias, weights.query.bias.view().slice(0, 0, 6)));
  CHECK(ProjectionWeights<double>::random(5, 10, layout).query.bias.empty());
  CHECK(test::same_bits(ProjectionWeights<double>::random(5, 10, layout).query.weight, weights.query.weight));
  CHECK(error_text([] {
          ProjectionWeights<double>::random(5, 4, {.num_heads = 3, .num_kv_heads = 2, .head_dim = 1});
        }) == "heed: ProjectionWeights::random: num_heads: 3 is not a multiple of num_kv_heads 2");
}

TEST_CASE("Projections: errors name the layer, the weight and its axes") {
  const HeadLayout layout{.num_heads = 4, .num_kv_heads = 2, .head_dim = 3, .value_head_dim = 5};
  const auto good = random_weights<float>(layout, 7);
  const auto text = [&](auto&& spoil) {
    ProjectionWeights<float> weights = good;
    spoil(weights);
    const heed::Problem problem = heed::check_projection_weights<float>("Layer", weights, layout);
    CHECK(problem.kind() == heed::ErrorKind::shape);
    const std::string thrown = error_text([&] { Projections<float>("Layer", weights, layout); });
    CHECK(thrown == problem.text());
    return thrown;
  };
  const Tensor<float, 2> matrix({9, 9});
  const Tensor<float, 1> list({9});
  CHECK(text([&](auto& w) { w.query.weight = matrix; }) ==
        "heed: Layer: query.weight: expected [12, 9] (num_heads * head_dim, hidden size), got [9, 9]");
  CHECK(text([&](auto& w) { w.query.bias = list; }) ==
        "heed: Layer: query.bias: expected [12] (num_heads * head_dim), got [9]");
  CHECK(text([&](auto& w) { w.key.weight = matrix; }) ==
        "heed: Layer: key.weight: expected [6, 7] (num_kv_heads * head_dim, hidden size), got [9, 9]");
  CHECK(text([&](auto& w) { w.key.bias = list; }) ==
        "heed: Layer: key.bias: expected [6] (num_kv_heads * head_dim), got [9]");
  CHECK(text([&](auto& w) { w.value.weight = matrix; }) ==
        "heed: Layer: value.weight: expected [10, 7] (num_kv_heads * value_head_dim, hidden size), got [9, 9]");
  CHECK(text([&](auto& w) { w.value.bias = list; }) ==
        "heed: Layer: value.bias: expected [10] (num_kv_heads * value_head_dim), got [9]");
  CHECK(text([&](auto& w) { w.output.weight = matrix; }) ==
        "heed: Layer: output.weight: expected [7, 20] (hidden size, num_heads * value_head_dim), got [9, 9]");
  CHECK(text([&](auto& w) { w.output.bias = list; }) ==
        "heed: Layer: output.bias: expected [7] (hidden size), got [9]");
  CHECK_FALSE(heed::check_projection_weights<float>("Layer", good, layout));

  const LinearWeights<float> packed{Tensor<float, 2>({28, 7}), list};
  CHECK(error_text([&] { ProjectionWeights<float>::from_packed(packed, good.output, layout); }) ==
        "heed: ProjectionWeights::from_packed: packed.bias: expected [28] (num_heads * head_dim + num_kv_heads * "
        "(head_dim + value_head_dim)), got [9]");
  CHECK(error_text([&] { ProjectionWeights<float>::from_packed(packed, good.output, {.num_heads = 4}); }) ==
        "heed: ProjectionWeights::from_packed: head_dim: is dynamic in the layer's type and must be given at "
        "construction");
}
