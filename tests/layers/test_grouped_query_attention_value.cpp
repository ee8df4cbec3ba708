// GroupedQueryAttention as a value: sizes, lifetimes, threads, memory, files, and the text of every error.
#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "heed/layers/grouped_query_attention.hpp"
#include "layers/grouped_query_attention_tools.hpp"
#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"
#include "support/tensor_map.hpp"

namespace {

using heed::GroupedQueryAttention;
using heed::GroupedQueryAttentionOptions;
using heed::GroupedQueryAttentionWeights;
using heed::HeadLayout;
using heed::Index;
using heed::NormOver;
using heed::QueryKeyNorm;
using heed::Tensor;
using heed::TokenPositions;
using heed::View;
using heed::Workspace;
using test::error_text;
using test::random_tensor;
using test::gqa::hidden;
using test::gqa::Layer;
using test::gqa::random_weights;
using test::gqa::small;

}  // namespace

TEST_CASE("GroupedQueryAttention: sizes given in the type, in the constructor, or both are one layer") {
  constexpr HeadLayout partly{.num_heads = 4, .num_kv_heads = 2};
  const auto weights = random_weights<float>();
  const auto x = random_tensor<float>({2, 5, hidden}, 5);
  const heed::Cpu cpu;
  const auto want = GroupedQueryAttention<float>(weights, {}, small).forward(cpu, x);
  const GroupedQueryAttention<float, small> fixed(weights);
  CHECK(fixed.heads() == small);
  CHECK(fixed.hidden_size() == hidden);
  CHECK(test::same_bits(fixed.forward(cpu, x), want));
  CHECK(test::same_bits(GroupedQueryAttention<float, partly>(weights, {}, small).forward(cpu, x), want));
}

TEST_CASE("GroupedQueryAttention: sizes of 0") {
  const Layer<float, heed::Cpu> layer(random_weights<float>(), {}, small);
  CHECK(layer.forward(heed::Cpu(), Tensor<float, 3>({0, 4, 10})).size() == 0);
  CHECK(layer.forward(heed::Cpu(), Tensor<float, 3>({2, 0, 10})).size() == 0);
}

TEST_CASE("GroupedQueryAttention: a second forward allocates nothing; the workspace's size is enough and monotone") {
  auto weights = random_weights<float>();
  weights.query_norm.weight = random_tensor<float>({24}, 1);
  weights.key_norm.weight = random_tensor<float>({12}, 2);
  const GroupedQueryAttentionOptions options{.norm = {.kind = QueryKeyNorm::rms, .over = NormOver::each_head},
                                             .dropout = 0.1};
  const auto x = random_tensor<float>({2, 40, hidden}, 5);
  Tensor<bool, 2> valid({2, 40});
  for (Index t = 0; t < 40; ++t) valid(0, t) = valid(1, t) = t % 3 != 0;
  const auto positions = test::random_ids({2, 40}, 6, 1000);
  Tensor<float, 3> out({2, 40, hidden});
  test::for_each_backend([&](const auto& backend) {
    const Layer<float, std::remove_cvref_t<decltype(backend)>> layer(weights, options, small, backend);
    Workspace workspace(layer.workspace_size(backend, 2, 40));
    for (const heed::GroupedQueryAttentionCall<float>& call :
         {heed::GroupedQueryAttentionCall<float>{},
          heed::GroupedQueryAttentionCall<float>{.valid = valid, .training = true},
          heed::GroupedQueryAttentionCall<float>{.positions = positions}}) {
      const auto forward = [&] { layer.forward(backend, x, out, workspace, call); };
      forward();
      CHECK(test::allocations_in(forward) == 0);
      CHECK(workspace.size_left() == workspace.size());
      CHECK(workspace.size_needed() <= layer.workspace_size(backend, 2, 40));
    }
    for (Index batch = 1; batch < 4; ++batch) {
      for (Index length = 1; length < 70; ++length) {
        CHECK(layer.workspace_size(backend, batch, length) <= layer.workspace_size(backend, batch + 1, length));
        CHECK(layer.workspace_size(backend, batch, length) <= layer.workspace_size(backend, batch, length + 1));
      }
    }
  });
}

TEST_CASE("GroupedQueryAttention: the weights may die, so may a copied layer; two threads share one") {
  const auto x = random_tensor<float>({2, 30, hidden}, 5);
  const heed::Cpu cpu;
  const GroupedQueryAttentionOptions options{.norm = {.kind = QueryKeyNorm::rms}};
  const auto make = [] {
    auto weights = random_weights<float>();
    weights.query_norm.weight = random_tensor<float>({6}, 1);
    weights.key_norm.weight = random_tensor<float>({6}, 2);
    weights.sinks = random_tensor<float>({4}, 3);
    return weights;
  };
  const auto want = GroupedQueryAttention<float, small>(make(), options).forward(cpu, x);
  std::optional<GroupedQueryAttentionWeights<float>> weights(make());
  std::optional<GroupedQueryAttention<float, small>> first;
  first.emplace(heed::GroupedQueryAttentionWeightsView<float>{.query = weights->query,
                                                              .key = weights->key,
                                                              .value = weights->value,
                                                              .output = weights->output,
                                                              .query_norm = {.weight = weights->query_norm.weight},
                                                              .key_norm = weights->key_norm,
                                                              .sinks = weights->sinks},
                options);
  weights->sinks.fill(1e30F);
  weights->key_norm.weight.fill(1e30F);
  weights.reset();
  const GroupedQueryAttention<float, small> layer = *first;
  CHECK(test::allocations_in([&] { const GroupedQueryAttention<float, small> copy = layer; }) == 0);
  first.reset();
  CHECK(test::same_bits(layer.forward(cpu, x), want));

  Tensor<float, 3> out({2, 30, hidden});
  std::thread threads[2];
  for (Index i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      Workspace workspace(layer.workspace_size(cpu, 1, 30));
      for (int round = 0; round < 20; ++round) {
        layer.forward(cpu, x.view().slice(0, i, 1), out.view().slice(0, i, 1), workspace);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(test::same_bits(out, want));
}

TEST_CASE(
    "GroupedQueryAttentionWeights::from_file: projections, norms of one or two axes, sinks; all but the first "
    "optional") {
  const auto weights = random_weights<float>();
  const auto query_norm = random_tensor<float>({4, 6}, 1);
  const auto key_norm = random_tensor<float>({2, 6}, 2);
  const auto sinks = random_tensor<double>({4}, 3);
  test::TensorMap file;
  const struct {
    const char* name;
    const heed::LinearWeights<float>& part;
  } parts[] = {
      {"q_proj", weights.query}, {"k_proj", weights.key}, {"v_proj", weights.value}, {"o_proj", weights.output}};
  for (const auto& part : parts) {
    file.add("attn." + std::string(part.name) + ".weight", part.part.weight);
    file.add("attn." + std::string(part.name) + ".bias", part.part.bias);
  }
  const auto bare = GroupedQueryAttentionWeights<float>::from_file(file, "attn");
  CHECK(test::same_bits(bare.query.weight, weights.query.weight));
  CHECK(test::same_bits(bare.output.bias, weights.output.bias));
  CHECK(bare.query_norm.weight.empty());
  CHECK(bare.key_norm.bias.empty());
  CHECK(bare.sinks.empty());

  file.add("attn.q_norm.weight", query_norm);
  file.add("attn.k_norm.weight", key_norm);
  file.add("attn.k_norm.bias", key_norm.view()[0]);
  file.add("attn.sinks", sinks);
  const auto full = GroupedQueryAttentionWeights<float>::from_file(file, "attn", {.norm_rank = 2});
  REQUIRE(full.query_norm.weight.extent(0) == 24);
  CHECK(full.query_norm.weight(23) == query_norm(3, 5));
  CHECK(full.key_norm.weight(6) == key_norm(1, 0));
  CHECK(full.query_norm.bias.empty());
  CHECK(test::same_bits(full.key_norm.bias, key_norm.view()[0]));
  CHECK(full.sinks(3) == static_cast<float>(sinks(3)));
  CHECK_THROWS_AS(GroupedQueryAttentionWeights<float>::from_file(file, "attn"), heed::FormatError);  // rank 1 wanted

  file.add("attn.ln_q.weight", query_norm.view()[0]);
  file.add("attn.ln_k.weight", key_norm.view()[0]);
  const auto other = GroupedQueryAttentionWeights<float>::from_file(
      file, "attn", {.projections = {.output = "v_proj"}, .query_norm = "ln_q", .key_norm = "ln_k", .sinks = "none"});
  CHECK(test::same_bits(other.query_norm.weight, query_norm.view()[0]));
  CHECK(test::same_bits(other.output.weight, weights.value.weight));
  CHECK(other.sinks.empty());
}

TEST_CASE("GroupedQueryAttentionWeights: random, and from a packed weight") {
  const auto weights = GroupedQueryAttentionWeights<double>::random(5, hidden, small, true);
  const auto projections = heed::ProjectionWeights<double>::random(5, hidden, small, true);
  CHECK(test::same_bits(weights.key.weight, projections.key.weight));
  CHECK(test::same_bits(weights.output.bias, projections.output.bias));
  CHECK(weights.sinks.empty());

  Tensor<double, 2> packed({24 + 12 + 10, 10});
  Tensor<double, 1> bias({24 + 12 + 10});
  Index row = 0;
  for (const auto* part : {&weights.query, &weights.key, &weights.value}) {
    for (Index r = 0; r < part->weight.extent(0); ++r, ++row) {
      for (Index e = 0; e < hidden; ++e) packed(row, e) = part->weight(r, e);
      bias(row) = part->bias(r);
    }
  }
  const auto unpacked = GroupedQueryAttentionWeights<double>::from_projections(
      heed::ProjectionWeights<double>::from_packed({.weight = packed, .bias = bias}, weights.output, small));
  const auto x = random_tensor<double>({1, 4, hidden}, 5);
  const heed::Cpu cpu;
  CHECK(test::same_bits(GroupedQueryAttention<double, small>(unpacked).forward(cpu, x),
                        GroupedQueryAttention<double, small>(weights).forward(cpu, x)));
}

TEST_CASE("GroupedQueryAttention: describe") {
  auto weights = random_weights<double>();
  const GroupedQueryAttention<double, small, heed::Reference> plain(weights);
  const Index projections = (24 + 12 + 10) * 11 + 10 * 21;
  CHECK(plain.weight_bytes() == projections * 8);
  CHECK(plain.describe() ==
        "GroupedQueryAttention<double>: hidden_size 10, num_heads 4, num_kv_heads 2, head_dim 6, value_head_dim 5, "
        "causal, rotary_dim 6; " +
            std::to_string(projections * 8) + " bytes of weights; backend reference, " + heed::instruction_set());
  weights.query_norm.weight = weights.key_norm.weight = Tensor<double, 1>({6});
  weights.sinks = weights.alibi_slopes = Tensor<double, 1>({4});
  const GroupedQueryAttention<double, small, heed::Reference> full(weights, {.causal = false,
                                                                             .window = {3, 1},
                                                                             .positions = TokenPositions::none,
                                                                             .norm = {.kind = QueryKeyNorm::layer},
                                                                             .softcap = 30});
  CHECK(full.weight_bytes() == (projections + 12 + 8) * 8);
  CHECK(full.describe().find("value_head_dim 5, bidirectional, window left 3, window right 1, layer norm, softcap, "
                             "sinks, alibi; ") != std::string::npos);
}

TEST_CASE("GroupedQueryAttention: errors of the constructor") {
  const auto weights = random_weights<float>();
  const std::string layer = "heed: GroupedQueryAttention: ";
  using Weights = GroupedQueryAttentionWeights<float>;
  const auto text = [&](
                        const GroupedQueryAttentionOptions& options, const HeadLayout& heads = small,
                        const std::function<void(Weights&)>& spoil = [](Weights&) {}) {
    Weights spoiled = weights;
    spoil(spoiled);
    return error_text([&] { GroupedQueryAttention<float>(spoiled, options, heads); });
  };
  CHECK(text({}, {}) == layer + "num_heads: is dynamic in the layer's type and must be given at construction");
  CHECK(text({}, {.num_heads = 4, .num_kv_heads = 3, .head_dim = 6}) ==
        layer + "num_heads: 4 is not a multiple of num_kv_heads 3");
  CHECK(text({}, {.num_heads = 4, .num_kv_heads = 2, .head_dim = 5}) ==
        layer + "query.weight: expected [20, 10] (num_heads * head_dim, hidden size), got [24, 10]");
  CHECK(text({.dropout = 1}) == layer + "dropout: must be at least 0 and below 1, got 1");
  CHECK(text({.softcap = -1}) == layer + "softcap: must be positive and finite, or 0 for none, got -1");
  CHECK(text({.scale = HUGE_VAL}) == layer + "scale: must be finite, got inf");
  CHECK(text({.window = {-2, 0}}) == layer + "window.left: must be at least 0, or -1 for no limit, got -2");
  CHECK(text({.rope = {.rotary_dim = 8}}) ==
        layer + "rotary_dim: must be at most head_dim 6 (and not negative), got 8");
  CHECK(text({}, small, [](auto& w) { w.sinks = Tensor<float, 1>({2}); }) ==
        layer + "sinks: expected [4] (heads), got [2]");
  CHECK(text({}, small, [](auto& w) { w.alibi_slopes = Tensor<float, 1>({2}); }) ==
        layer + "alibi_slopes: expected [4] (heads), got [2]");

  const GroupedQueryAttentionOptions rms{.norm = {.kind = QueryKeyNorm::rms}};
  const GroupedQueryAttentionOptions rms_all{.norm = {.kind = QueryKeyNorm::rms, .over = NormOver::all_heads}};
  const GroupedQueryAttentionOptions layer_norm{.norm = {.kind = QueryKeyNorm::layer}};
  const auto norms = [](Index query, Index key) {
    return [=](auto& w) {
      w.query_norm.weight = Tensor<float, 1>({query});
      w.key_norm.weight = Tensor<float, 1>({key});
    };
  };
  CHECK(text(rms) == layer + "query_norm.weight: expected [6] (head dim), got [0]");
  CHECK(text(rms, small, norms(6, 5)) == layer + "key_norm.weight: expected [6] (head dim), got [5]");
  CHECK(text(rms_all, small, norms(24, 24)) == layer + "key_norm.weight: expected [12] (heads * head dim), got [24]");
  CHECK(text({}, small, norms(6, 6)) == layer + "query_norm.weight: is given, but options.norm.kind is none");
  CHECK(text({}, small, [](auto& w) { w.key_norm.bias = Tensor<float, 1>({6}); }) ==
        layer + "key_norm.bias: is given, but options.norm.kind is none");
  const auto with_bias = [&](Index size) {
    return [=](auto& w) {
      norms(6, 6)(w);
      w.query_norm.bias = Tensor<float, 1>({size});
    };
  };
  CHECK(text(rms, small, with_bias(6)) == layer + "query_norm.bias: is given, but an rms norm has none");
  CHECK(text(layer_norm, small, with_bias(5)) == layer + "query_norm.bias: expected [6] (head dim), got [5]");
  const std::string eps = layer + "norm.eps: must be finite and not negative, and not vanish in float, got ";
  CHECK(text({.norm = {.kind = QueryKeyNorm::rms, .eps = -1}}, small, norms(6, 6)) == eps + "-1");
  CHECK(text({.norm = {.kind = QueryKeyNorm::rms, .eps = 1e-60}}, small, norms(6, 6)) == eps + "1e-60");
  CHECK(text({.norm = {.kind = QueryKeyNorm::rms, .weight_offset = HUGE_VAL}}, small, norms(6, 6)) ==
        layer + "norm.weight_offset: must be finite, got inf");

  constexpr HeadLayout fixed{.num_heads = 4};
  CHECK(error_text([&] { GroupedQueryAttention<float, fixed>(weights, {}, small); }) ==
        layer + "num_kv_heads: the layer's type says 4, the constructor was given 2");
}

TEST_CASE("GroupedQueryAttention: errors of forward, before anything is written") {
  const GroupedQueryAttention<float> layer(random_weights<float>(), {}, small);
  const heed::Cpu cpu;
  const auto x = random_tensor<float>({2, 5, hidden}, 5);
  Tensor<float, 3> out({2, 5, hidden});
  Workspace workspace(layer.workspace_size(cpu, 2, 5));
  const std::string door = "heed: GroupedQueryAttention::forward: ";
  const auto text = [&](const heed::GroupedQueryAttentionCall<float>& call) {
    return error_text([&] { layer.forward(cpu, x, out, workspace, call); });
  };
  CHECK(error_text([&] {
          static_cast<void>(layer.forward(cpu, Tensor<float, 3>({2, 5, 11})));
        }) == door + "x: expected [*, *, 10] (batch, seq, hidden size), got [2, 5, 11]");
  Tensor<float, 3> short_out({2, 4, 10});
  CHECK(error_text([&] { layer.forward(cpu, x, short_out, workspace); }) ==
        door + "out: expected [2, 5, 10] (batch, seq, hidden size), got [2, 4, 10]");
  const View<float, 3> shifted(out.data() + 10, {1, 5, 10});
  CHECK(error_text([&] { layer.forward(cpu, out.view().slice(0, 0, 1), shifted, workspace); }) ==
        door + "out: must not overlap x");

  Tensor<bool, 2> valid({2, 5});
  const Tensor<bool, 2> narrow({2, 4});
  CHECK(text({.valid = narrow}) == door + "valid: expected [2, 5] (batch, seq), got [2, 4]");
  Tensor<std::int64_t, 1> lengths({2});
  const Tensor<bool, 1> mask({5});
  const Tensor<float, 1> bias({5});
  Tensor<float, 3> log_sum_exp({2, 4, 5});
  Tensor<float, 4> weights({2, 4, 5, 5});
  CHECK(text({.valid = valid, .lengths = lengths}) == door + "valid: must not be combined with lengths");
  CHECK(text({.valid = valid, .mask = mask}) == door + "valid: must not be combined with mask");
  CHECK(text({.valid = valid, .bias = bias}) == door + "valid: must not be combined with bias");
  CHECK(text({.valid = valid, .log_sum_exp = log_sum_exp}) == door + "valid: must not be combined with log_sum_exp");
  CHECK(text({.valid = valid, .weights = weights}) == door + "valid: must not be combined with weights");
  lengths(1) = 6;
  CHECK(text({.lengths = lengths}) == door + "lengths: must be from 0 to 5, got 6 for batch row 1");
  lengths(1) = -1;
  CHECK(text({.lengths = lengths}) == door + "lengths: must be from 0 to 5, got -1 for batch row 1");
  const Tensor<std::int64_t, 1> too_few({1});
  CHECK(text({.lengths = too_few}) == door + "lengths: expected [2] (batch), got [1]");
  const Tensor<std::int64_t, 2> positions({1, 5});
  CHECK(text({.positions = positions}) == door + "positions: expected [2, 5] (batch, seq), got [1, 5]");
  CHECK(text({.rope_length = -3}) == door + "rope_length: must not be negative, got -3");
  const Tensor<bool, 1> short_mask({4});
  CHECK(text({.mask = short_mask}) ==
        door + "mask: expected a shape that broadcasts to [2, 4, 5, 5] (batch, heads, queries, keys), got [4]");
  const Tensor<float, 1> short_bias({4});
  CHECK(text({.bias = short_bias}) ==
        door + "bias: expected a shape that broadcasts to [2, 4, 5, 5] (batch, heads, queries, keys), got [4]");
  Tensor<float, 3> bad_sums({2, 5, 4});
  CHECK(text({.log_sum_exp = bad_sums}) == door + "log_sum_exp: expected [2, 4, 5] (batch, heads, seq), got [2, 5, 4]");
  Tensor<float, 4> bad_weights({2, 4, 5, 4});
  CHECK(text({.weights = bad_weights}) ==
        door + "weights: expected [2, 4, 5, 5] (batch, heads, seq, keys), got [2, 4, 5, 4]");
  CHECK(error_text([&] {
          layer.forward(cpu, x, View<float, 3>(weights.data(), {2, 5, 10}), workspace, {.weights = weights});
        }) == door + "out: must not overlap weights");
  Tensor<float, 1> shared({200});
  CHECK(error_text([&] {
          layer.forward(cpu, x, View<float, 3>(shared.data(), {2, 5, 10}), workspace,
                        {.log_sum_exp = View<float, 3>(shared.data() + 60, {2, 4, 5})});
        }) == door + "out: must not overlap log_sum_exp");
  Workspace small_workspace(64);
  CHECK(error_text([&] { layer.forward(cpu, x, out, small_workspace); }) ==
        door + "workspace: needs " + std::to_string(layer.workspace_size(cpu, 2, 5)) + " bytes, has 64");
  CHECK(test::same_bits(out, Tensor<float, 3>({2, 5, hidden})));
  CHECK_FALSE(layer.check_forward(cpu, x, out, workspace));
}
