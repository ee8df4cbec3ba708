// Every layer on EigenMap against the same layer on Reference; and a second forward allocates nothing.
#include "eigen/checked_eigen.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "heed/backend/eigen_map.hpp"
#include "heed/layers/grouped_query_attention.hpp"
#include "heed/layers/infini_attention.hpp"
#include "heed/layers/linear.hpp"
#include "heed/layers/multi_head_self_attention.hpp"
#include "heed/layers/rotary_embedding.hpp"
#include "heed/layers/seed_infini_attention.hpp"
#include "state/kv_cache_support.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::EigenMap;
using heed::HeadLayout;
using heed::Index;
using heed::Reference;
using heed::Tensor;
using heed::View;
using test::AnyCache;
using test::max_scaled_error;
using test::random_tensor;

namespace {

const EigenMap eigen;
const Reference reference;

// A layer is a few operations in a row, on numbers around 1.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, double> ? 1e-13 : 2e-5;

constexpr HeadLayout heads{.num_heads = 6, .num_kv_heads = 2, .head_dim = 18, .value_head_dim = 10};
constexpr Index hidden = 50;
// Batch and tokens of the calls: no token, one, and more than a block of products and a tile of keys have.
constexpr Index calls[][2] = {{2, 0}, {0, 3}, {1, 1}, {2, 37}, {1, 300}};

// One call of forward() on strided tensors, in a workspace of just the size it asks for; the second one, which must
// come out the same, allocates nothing.
template <class T, class F>
test::Strided<T, 3> run_twice(const Index (&extents)[3], std::size_t workspace_size, F&& forward) {
  test::Strided<T, 3> out{Tensor<T, 3>(extents)};
  heed::Workspace workspace(workspace_size);
  forward(out.view(), workspace);
  const Tensor<T, 3> first(View<const T, 3>(out.view()));
  CHECK(test::eigen_allocations_in([&] { forward(out.view(), workspace); }) == 0);
  CHECK(test::same_bits(out.view(), first));
  CHECK(out.intact());
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("EigenMap: Linear", T, float, double) {
  const auto weights = heed::LinearWeights<T>::random(1, 130, hidden);
  const heed::Linear<T, EigenMap> layer(weights);
  const heed::Linear<T, Reference> plain(weights);
  for (const auto& sizes : calls) {
    const Index batch = sizes[0], tokens = sizes[1];
    const test::Strided<T, 3> x(random_tensor<T>({batch, tokens, hidden}, 2));
    const auto out =
        run_twice<T>({batch, tokens, 130}, 0, [&](auto to, heed::Workspace&) { layer.forward(eigen, x.view(), to); });
    CHECK(max_scaled_error(out.view(), plain.forward(reference, x.view())) <= tolerance<T>);
  }
  CHECK(layer.describe().find("backend eigen, ") != std::string::npos);
}

TEST_CASE_TEMPLATE("EigenMap: RotaryEmbedding", T, float, double) {
  const heed::RopeOptions options{.layout = heed::RopeLayout::interleaved, .rotary_dim = 12};
  const heed::RotaryEmbedding<T, EigenMap> layer(18, options);
  const heed::RotaryEmbedding<T, Reference> plain(18, options);
  auto x = random_tensor<T>({2, 30, 3, 18}, 1);
  const auto want = plain.forward(reference, x, 1000);
  heed::Workspace workspace(layer.workspace_size(2, 30));
  CHECK(test::eigen_allocations_in([&] { layer.forward(eigen, x, 1000, x, workspace); }) == 0);
  CHECK(max_scaled_error(x, want) <= tolerance<T>);
}

TEST_CASE_TEMPLATE("EigenMap: MultiHeadSelfAttention", T, float, double) {
  const auto weights = heed::ProjectionWeights<T>::random(
      1, hidden, {.num_heads = 5, .num_kv_heads = 5, .head_dim = 10, .value_head_dim = 10}, true);
  const heed::MultiHeadSelfAttention<T, HeadLayout{}, EigenMap> layer(weights, {.dropout = 0.1}, {.num_heads = 5});
  const heed::MultiHeadSelfAttention<T, HeadLayout{}, Reference> plain(weights, {.dropout = 0.1}, {.num_heads = 5});
  for (const auto& sizes : calls) {
    const Index batch = sizes[0], tokens = sizes[1];
    CAPTURE(tokens);
    const test::Strided<T, 3> x(random_tensor<T>({batch, tokens, hidden}, 2));
    Tensor<bool, 4> mask({batch, 1, 1, tokens});
    for (Index i = 0; i < mask.size(); ++i) mask.data()[i] = i % 5 != 0;
    Tensor<T, 4> probabilities({batch, 5, tokens, tokens}), want(probabilities);
    heed::MultiHeadSelfAttentionCall<T> call{.mask = mask, .training = true, .weights = probabilities};
    const auto out =
        run_twice<T>({batch, tokens, hidden}, layer.workspace_size(eigen, batch, tokens),
                     [&](auto to, auto& workspace) { layer.forward(eigen, x.view(), to, workspace, call); });
    call.weights = want;
    CHECK(max_scaled_error(out.view(), plain.forward(reference, x.view(), call)) <= tolerance<T>);
    CHECK(max_scaled_error(probabilities, want) <= tolerance<T>);
  }
}

namespace {

// A layer that uses about everything there is.
template <class T, class B>
heed::GroupedQueryAttention<T, heads, B> grouped_query_attention(heed::QueryKeyNorm kind) {
  using A = heed::accumulator_t<T>;
  auto weights = heed::GroupedQueryAttentionWeights<T>::random(1, hidden, heads, true);
  heed::GroupedQueryAttentionOptions options{.window = {200, -1}, .softcap = 20};
  options.norm = {.kind = kind, .over = heed::NormOver::head, .eps = 1e-5, .weight_offset = 0};
  if (kind != heed::QueryKeyNorm::none) {
    weights.query_norm.weight = random_tensor<T>({heads.head_dim}, 2, 0.5, 1.5);
    weights.key_norm.weight = random_tensor<T>({heads.head_dim}, 3, 0.5, 1.5);
  }
  weights.sinks = random_tensor<A>({heads.num_heads}, 4);
  weights.alibi_slopes = random_tensor<A>({heads.num_heads}, 5, 0, 0.1);
  return heed::GroupedQueryAttention<T, heads, B>(weights, options);
}

}  // namespace

TEST_CASE_TEMPLATE("EigenMap: GroupedQueryAttention", T, float, double) {
  for (const auto kind : {heed::QueryKeyNorm::none, heed::QueryKeyNorm::rms, heed::QueryKeyNorm::layer}) {
    const auto layer = grouped_query_attention<T, EigenMap>(kind);
    const auto plain = grouped_query_attention<T, Reference>(kind);
    for (const auto& sizes : calls) {
      const Index batch = sizes[0], tokens = sizes[1];
      CAPTURE(tokens);
      const test::Strided<T, 3> x(random_tensor<T>({batch, tokens, hidden}, 6));
      Tensor<bool, 2> valid({batch, tokens});
      for (Index i = 0; i < valid.size(); ++i) valid.data()[i] = i % 7 != 0;
      const heed::GroupedQueryAttentionCall<T> call{.valid = valid};
      const auto out =
          run_twice<T>({batch, tokens, hidden}, layer.workspace_size(eigen, batch, tokens),
                       [&](auto to, auto& workspace) { layer.forward(eigen, x.view(), to, workspace, call); });
      CHECK(max_scaled_error(out.view(), plain.forward(reference, x.view(), call)) <= tolerance<T>);
    }
  }
}

TEST_CASE_TEMPLATE("EigenMap: a prefill and then token by token through every cache equals one call", T, float,
                   double) {
  const auto layer = grouped_query_attention<T, EigenMap>(heed::QueryKeyNorm::rms);
  const auto x = random_tensor<T>({2, 290, hidden}, 6);
  const auto want = grouped_query_attention<T, Reference>(heed::QueryKeyNorm::rms).forward(reference, x);
  test::for_each_cache<T>(layer.cache_layout(), 2, 290, [&](AnyCache<T> cache, const char* name) {
    INFO(name);
    Tensor<T, 3> out({2, 290, hidden});
    heed::Workspace workspace(layer.workspace_size(eigen, 2, 250, 290));
    layer.forward(eigen, x.view().slice(1, 0, 250), cache, out.view().slice(1, 0, 250), workspace);
    cache.reserve(40);
    CHECK(test::eigen_allocations_in([&] {
            for (Index t = 250; t < 290; ++t)
              layer.forward(eigen, x.view().slice(1, t, 1), cache, out.view().slice(1, t, 1), workspace);
          }) == 0);
    CHECK(max_scaled_error(out, want) <= tolerance<T>);
  });
}

TEST_CASE("EigenMap: keys and values kept in 8-bit codes are Reference's") {
  const auto layer = grouped_query_attention<float, EigenMap>(heed::QueryKeyNorm::none);
  const auto plain = grouped_query_attention<float, Reference>(heed::QueryKeyNorm::none);
  const auto x = random_tensor<float>({2, 40, hidden}, 6);
  test::for_each_cache<float, std::int8_t>(layer.cache_layout(), 2, 40, [&](AnyCache<float> cache, const char* name) {
    INFO(name);
    AnyCache<float> other = cache.clone();
    // A key that lies between two codes may be rounded to either.
    CHECK(max_scaled_error(layer.forward(eigen, x, cache), plain.forward(reference, x, other)) < 1e-2);
  });
}

TEST_CASE_TEMPLATE("EigenMap: InfiniAttention", T, float, double) {
  auto projections = heed::ProjectionWeights<T>::random(1, hidden, heads, true);
  heed::InfiniAttentionWeights<T> weights{std::move(projections.query), std::move(projections.key),
                                          std::move(projections.value), std::move(projections.output),
                                          random_tensor<heed::accumulator_t<T>>({heads.num_heads}, 2)};
  for (const auto rule : {heed::MemoryUpdate::linear, heed::MemoryUpdate::delta, heed::MemoryUpdate::safe_delta}) {
    const heed::InfiniAttentionOptions options{.segment_length = 40, .update = rule};
    const heed::InfiniAttention<T, heads, EigenMap> layer(weights, options);
    const heed::InfiniAttention<T, heads, Reference> plain(weights, options);
    const auto x = random_tensor<T>({2, 130, hidden}, 3);
    auto state = layer.make_state(2);
    auto want_state = plain.make_state(2);
    const auto want = plain.forward(reference, x, want_state);

    Tensor<T, 3> out({2, 130, hidden});
    heed::Workspace workspace(layer.workspace_size(eigen, 2, 100));
    layer.forward(eigen, x.view().slice(1, 0, 0), state, out.view().slice(1, 0, 0), workspace);
    layer.forward(eigen, x.view().slice(1, 0, 1), state, out.view().slice(1, 0, 1), workspace);
    CHECK(test::eigen_allocations_in([&] {
            layer.forward(eigen, x.view().slice(1, 1, 29), state, out.view().slice(1, 1, 29), workspace);
            layer.forward(eigen, x.view().slice(1, 30, 100), state, out.view().slice(1, 30, 100), workspace);
          }) == 0);
    CHECK(max_scaled_error(out, want) <= tolerance<T>);
    CHECK(max_scaled_error(std::as_const(state).memory(), std::as_const(want_state).memory()) <= 5 * tolerance<T>);
    CHECK(max_scaled_error(std::as_const(state).normalizer(), std::as_const(want_state).normalizer()) <= tolerance<T>);
    layer.flush(eigen, state, workspace);
    CHECK(state.pending()(0) == 0);
  }
}

TEST_CASE_TEMPLATE("EigenMap: the seed's InfiniAttention", T, float, double) {
  auto projections = heed::ProjectionWeights<T>::random(1, hidden, heads, true);
  heed::InfiniAttentionWeights<T> weights{std::move(projections.query), std::move(projections.key),
                                          std::move(projections.value), std::move(projections.output),
                                          random_tensor<heed::accumulator_t<T>>({1}, 2)};
  const heed::seed::InfiniAttention<T, heads, EigenMap> layer(weights, 10000);
  const heed::seed::InfiniAttention<T, heads, Reference> plain(weights, 10000);
  const auto x = random_tensor<T>({2, 35, hidden}, 3);
  auto state = layer.make_state(2);
  auto want_state = plain.make_state(2);
  Tensor<T, 3> out({2, 35, hidden});
  heed::Workspace workspace(layer.workspace_size(eigen, 2, 35));
  for (int call = 0; call < 2; ++call) {
    CHECK(test::eigen_allocations_in([&] { layer.forward(eigen, x, state, out, workspace); }) == 0);
    CHECK(max_scaled_error(out, plain.forward(reference, x, want_state)) <= tolerance<T>);
  }
}
