// The InfiniAttention layer around its core: projections, weights, arguments, errors.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "layers/infini_streams.hpp"
#include "support/allocation_counter.hpp"
#include "support/error_text.hpp"
#include "support/errors.hpp"
#include "support/tensor_map.hpp"

using heed::HeadLayout;
using heed::Index;
using heed::InfiniAttention;
using heed::InfiniAttentionCore;
using heed::InfiniAttentionOptions;
using heed::InfiniAttentionWeights;
using heed::Tensor;
using heed::TokenPositions;
using heed::View;

namespace {

constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5};
constexpr Index hidden_size = 14;  // not num_heads · head_dim

// x [B, T, in] · weightᵀ + bias in double, as [B, T, heads, dim].
template <class T>
Tensor<double, 4> projected(const Tensor<double, 3>& x, const heed::LinearWeights<T>& weights, Index num_heads) {
  const Index out_features = weights.weight.extent(0);
  Tensor<double, 4> out({x.extent(0), x.extent(1), num_heads, out_features / num_heads});
  for (Index row = 0; row < x.extent(0) * x.extent(1); ++row) {
    for (Index j = 0; j < out_features; ++j) {
      double sum = weights.bias.empty() ? 0 : test::to_double(weights.bias(j));
      for (Index i = 0; i < x.extent(2); ++i) {
        sum += x.data()[row * x.extent(2) + i] * test::to_double(weights.weight(j, i));
      }
      out.data()[row * out_features + j] = sum;
    }
  }
  return out;
}

template <class T>
InfiniAttentionWeights<T> random_weights(bool bias) {
  auto weights = InfiniAttentionWeights<T>::random(3, hidden_size, heads, bias);
  weights.beta = test::random_tensor<heed::accumulator_t<T>>({4}, 4, -1, 1);
  return weights;
}

template <class T>
const double tolerance = std::is_same_v<T, double>  ? 1e-12
                         : std::is_same_v<T, float> ? 2e-5
                                                    : 0.05;

}  // namespace

TEST_CASE_TEMPLATE("InfiniAttention: projections around the formula, with and without biases, padding rows 0", T, float,
                   double, heed::bfloat16) {
  test::ReversePool pool;
  for (const heed::Cpu& cpu : {heed::Cpu(), heed::Cpu(pool)}) {
    for (const bool bias : {false, true}) {
      const auto weights = random_weights<T>(bias);
      const test::InfiniSettings settings{.segment_length = 6, .rule = test::Rule::delta};
      const InfiniAttention<T, heads> attention(weights, test::options_of(settings));
      CHECK(attention.hidden_size() == hidden_size);
      const auto x = test::random_tensor<T>({2, 20, hidden_size}, 1, -2, 2);
      test::Streams<T> flags(heads, 2, 20);
      flags.add_padding();
      flags.add_documents();
      auto state = attention.make_state(2);
      const auto got = attention.forward(cpu, x, state, flags.call(0, 20));

      const auto wide = test::as_double(x);
      test::InfiniFormula formula(settings, 2, 2, 6, 5, test::row_of(weights.beta.data(), 4));
      const auto context = formula.read(projected(wide, weights.query, 4), projected(wide, weights.key, 2),
                                        projected(wide, weights.value, 2), flags.valid, flags.reset);
      auto want = projected(Tensor<double, 3>(context.view().merge_last()), weights.output, 1);
      for (Index b = 0; b < 2; ++b) {
        for (Index t = 0; t < 20; ++t) {
          if (flags.valid(b, t)) continue;
          for (double& element : want.view()[b][t].span()) element = 0;
          for (const T& element : got.view()[b][t].span()) CHECK(test::to_double(element) == 0);
        }
      }
      CHECK(test::max_scaled_error(got, want.view().merge_last()) <= tolerance<T>);
    }
  }
}

TEST_CASE("InfiniAttention: on Reference and Simd, in the type") {
  const auto weights = random_weights<float>(true);
  const auto x = test::random_tensor<float>({2, 13, hidden_size}, 1);
  const InfiniAttention<float, heads> on_cpu(weights, {.segment_length = 5});
  auto state = on_cpu.make_state(2);
  const auto want = on_cpu.forward(heed::Cpu(), x, state);
  const InfiniAttention<float, heads, heed::Simd> on_simd(weights, {.segment_length = 5});
  state.reset();
  CHECK(test::same_bits(on_simd.forward(heed::Simd(), x, state), want));
  const InfiniAttention<float, heads, heed::Reference> on_reference(weights, {.segment_length = 5});
  state.reset();
  CHECK(test::max_error(on_reference.forward(heed::Reference(), x, state), want) <= 1e-5);
}

TEST_CASE("InfiniAttention: out may be x; a layer outlives its weights, and copies share them") {
  const heed::Cpu cpu;
  auto weights = random_weights<float>(true);
  const InfiniAttention<float, heads> attention(weights, {.segment_length = 5});
  const auto copy = attention;
  const auto x = test::random_tensor<float>({2, 13, hidden_size}, 1);
  auto state = attention.make_state(2);
  const auto want = attention.forward(cpu, x, state);
  weights = {};
  auto other = copy.make_state(2);
  Tensor<float, 3> in_place = x;
  heed::Workspace workspace(copy.workspace_size(cpu, 2, 13));
  CHECK(copy.forward(cpu, in_place, other, in_place, workspace) == 13);
  CHECK(test::same_bits(in_place, want));
  CHECK(test::same_state(state, other));
}

TEST_CASE("InfiniAttention: sizes in the type and sizes given at construction are one arithmetic") {
  const heed::Cpu cpu;
  const auto weights = random_weights<float>(false);
  const InfiniAttention<float, heads> fixed(weights, {.segment_length = 5});
  const InfiniAttention<float> given(weights, {.segment_length = 5}, heads);
  constexpr HeadLayout some{
      .num_heads = 4, .num_kv_heads = heed::dynamic, .head_dim = 6, .value_head_dim = heed::dynamic};
  const InfiniAttention<float, some> mixed(weights, {.segment_length = 5}, heads);
  CHECK(given.heads() == heads);
  CHECK(mixed.heads() == heads);
  const auto x = test::random_tensor<float>({1, 13, hidden_size}, 1);
  auto a = fixed.make_state(1);
  auto b = given.make_state(1);
  auto c = mixed.make_state(1);
  const auto want = fixed.forward(cpu, x, a);
  CHECK(test::same_bits(given.forward(cpu, x, b), want));
  CHECK(test::same_bits(mixed.forward(cpu, x, c), want));
}

TEST_CASE("InfiniAttentionWeights: from a source, under heed's names or Hugging Face's; views of one's own; random") {
  const auto weights = random_weights<double>(true);
  struct Names {
    const char* query;
    const char* key;
    const char* value;
    const char* output;
  };
  for (const Names& names : {Names{"query", "key", "value", "output"}, Names{"q_proj", "k_proj", "v_proj", "o_proj"}}) {
    test::TensorMap file;
    const std::string prefix = "layers.0.attention.";
    file.add(prefix + names.query + ".weight", weights.query.weight);
    file.add(prefix + names.query + ".bias", weights.query.bias);
    file.add(prefix + names.key + ".weight", weights.key.weight);
    file.add(prefix + names.value + ".weight", weights.value.weight);
    file.add(prefix + names.output + ".weight", weights.output.weight);
    file.add(prefix + names.output + ".bias", weights.output.bias);
    file.add(prefix + "beta", weights.beta);
    const auto read = InfiniAttentionWeights<double>::from_file(file, "layers.0.attention");
    CHECK(test::same_bits(read.query.weight, weights.query.weight));
    CHECK(test::same_bits(read.query.bias, weights.query.bias));
    CHECK(test::same_bits(read.key.weight, weights.key.weight));
    CHECK(read.key.bias.empty());
    CHECK(test::same_bits(read.value.weight, weights.value.weight));
    CHECK(test::same_bits(read.output.weight, weights.output.weight));
    CHECK(test::same_bits(read.output.bias, weights.output.bias));
    CHECK(test::same_bits(read.beta, weights.beta));
    const auto narrow = InfiniAttentionWeights<heed::bfloat16>::from_file(file, "layers.0.attention");
    CHECK(test::max_error(narrow.beta, weights.beta) <= 1e-6);  // β is float, not bfloat16
    file.remove(prefix + "beta");
    CHECK(test::error_text<heed::FormatError>([&] {
            InfiniAttentionWeights<double>::from_file(file, "layers.0.attention");
          }) == "heed: TensorMap: no such tensor: layers.0.attention.beta");
  }

  // A single buffer of the user's.
  const heed::Cpu cpu;
  const InfiniAttention<double, heads> from_views(
      {.query = {.weight = weights.query.weight, .bias = weights.query.bias},
       .key = {.weight = weights.key.weight, .bias = weights.key.bias},
       .value = {.weight = weights.value.weight, .bias = weights.value.bias},
       .output = {.weight = weights.output.weight, .bias = weights.output.bias},
       .beta = weights.beta},
      {.segment_length = 5});
  const InfiniAttention<double, heads> owned(weights, {.segment_length = 5});
  const auto x = test::random_tensor<double>({1, 13, hidden_size}, 1);
  auto a = from_views.make_state(1);
  auto b = owned.make_state(1);
  CHECK(test::same_bits(from_views.forward(cpu, x, a), owned.forward(cpu, x, b)));

  const auto random = InfiniAttentionWeights<float>::random(7, hidden_size, heads);
  const auto same = InfiniAttentionWeights<float>::random(7, hidden_size, heads);
  CHECK(test::same_bits(random.key.weight, same.key.weight));
  CHECK(random.query.bias.empty());
  CHECK(random.output.weight.extent(0) == hidden_size);
  CHECK(random.output.weight.extent(1) == 20);
  CHECK(random.beta.extent(0) == 4);
  CHECK(random.beta(3) == 0);
}

TEST_CASE("InfiniAttention: no tokens, no rows") {
  const heed::Cpu cpu;
  const InfiniAttention<float, heads> attention(random_weights<float>(true), {.segment_length = 5});
  auto state = attention.make_state(2);
  CHECK(attention.forward(cpu, Tensor<float, 3>({2, 0, hidden_size}), state).empty());
  auto nobody = attention.make_state(0);
  CHECK(attention.forward(cpu, Tensor<float, 3>({0, 4, hidden_size}), nobody).empty());
  heed::Workspace workspace(attention.workspace_size(cpu, 2, 4));
  CHECK(attention.read(cpu, Tensor<float, 3>({0, 4, hidden_size}), nobody, workspace) == 4);
  CHECK(state.position()(1) == 0);
}

TEST_CASE("InfiniAttention: describe") {
  const InfiniAttention<float, heads> attention(random_weights<float>(false),
                                                {.segment_length = 5, .update = heed::MemoryUpdate::safe_delta});
  const std::string text = attention.describe();
  CHECK(text.find("InfiniAttention<float>: hidden_size 14, num_heads 4, num_kv_heads 2, head_dim 6, value_head_dim 5, "
                  "segment_length 5, safe_delta; ") == 0);
  CHECK(text.find(std::to_string(attention.weight_bytes()) + " bytes of weights; backend cpu, ") != std::string::npos);
  // β, and a cosine and a sine for each pair of a segment's five tokens.
  CHECK(attention.core().weight_bytes() == 4 * 4 + 2 * 5 * 3 * 4 + 3 * 8);
}

TEST_CASE_TEMPLATE("InfiniAttention: read() leaves the state of forward(), whatever mix of both", T, float,
                   heed::bfloat16) {
  test::ReversePool pool;
  for (const heed::Cpu& cpu : {heed::Cpu(), heed::Cpu(pool)}) {
    for (const test::InfiniSettings& settings : test::all_settings) {
      for (const bool flags : {false, true}) {
        const auto weights = InfiniAttentionWeights<T>::random(1, 12, heads);
        const InfiniAttention<T, heads> attention(weights, test::options_of(settings));
        const auto x = test::random_tensor<T>({2, 60, 12}, 2, -2, 2);
        test::Streams<T> streams(heads, 2, 60);
        if (flags) {
          streams.add_padding();
          streams.add_documents();
        }
        auto state = attention.make_state(2);
        auto other = attention.make_state(2);
        const auto want = attention.forward(cpu, x, state, streams.call(0, 60));
        heed::Workspace workspace(attention.workspace_size(cpu, 2, 60));
        Index first = 0;
        bool answers = false;
        for (const Index n : {3, 2, 8, 1, 1, 20, 9, 16}) {
          const auto part = View<const T, 3>(x).slice(1, first, n);
          if (answers) {
            const auto got = attention.forward(cpu, part, other, streams.call(first, n));
            CHECK(test::same_bits(got, want.view().slice(1, first, n)));
          } else {
            CHECK(attention.read(cpu, part, other, workspace, streams.call(first, n)) == n);
          }
          first += n;
          answers = !answers;
        }
        CHECK(first == 60);
        CHECK(test::same_state(state, other));
      }
    }
  }
}

TEST_CASE(
    "InfiniAttention: no allocation in a second call, whatever it comes with; the workspace does not grow with the "
    "call") {
  const auto weights = InfiniAttentionWeights<float>::random(1, 12, heads, true);
  const InfiniAttention<float, heads> attention(weights, test::options_of(test::all_settings[1]));
  test::ReversePool pool;
  const heed::Cpu cpu(pool);
  for (const Index batch : {1, 6}) {
    const auto x = test::random_tensor<float>({batch, 1200, 12}, 2);
    test::Streams<float> flags(heads, batch, 1200);
    flags.add_padding();
    flags.add_documents();
    auto state = attention.make_state(batch);
    heed::Workspace workspace(attention.workspace_size(cpu, batch, 1200));
    Tensor<float, 3> out({batch, Index{1200}, Index{12}});
    attention.forward(cpu, x, state, out, workspace);
    CHECK(test::allocations_in([&] {
            attention.forward(cpu, x, state, out, workspace);
            attention.forward(cpu, x, state, out, workspace, flags.call(0, 1200));
            for (Index t = 0; t < 20; ++t) {
              const auto token = x.view().slice(1, t, 1);
              attention.forward(cpu, token, state, out.view().slice(1, t, 1), workspace);
              attention.read(cpu, token, state, workspace, {.progress = [](Index, Index) { return true; }});
            }
            attention.flush(cpu, state, workspace);
            state.rollback(0);
            state.reset();
          }) == 0);
    CHECK(attention.workspace_size(cpu, batch, 1 << 20) == attention.workspace_size(cpu, batch, 1200));
  }
  // Monotone in both.
  std::size_t before = 0;
  for (Index tokens = 0; tokens < 700; tokens += 13) {
    for (Index batch = 0; batch < 8; ++batch) {
      const std::size_t size = attention.workspace_size(cpu, batch, tokens);
      CHECK(attention.workspace_size(cpu, batch + 1, tokens) >= size);
      CHECK(attention.workspace_size(cpu, batch, tokens + 13) >= size);
      before = size > before ? size : before;
    }
  }
  CHECK(before > 0);
}

// ---- errors

TEST_CASE("InfiniAttention: error texts of the constructor") {
  const auto weights = random_weights<float>(true);
  const auto text = [&](const InfiniAttentionOptions& options, const HeadLayout& given = heads) {
    return test::error_text([&] { InfiniAttention<float>(weights, options, given); });
  };
  CHECK(text({}) == "no error");
  CHECK(text({.segment_length = 0}) == "heed: InfiniAttention: segment_length: must be at least 1, got 0");
  CHECK(text({.scale = std::nan("")}) == "heed: InfiniAttention: scale: must be finite, got nan");
  CHECK(text({.softcap = -1}) == "heed: InfiniAttention: softcap: must be positive and finite, or 0 for none, got -1");
  CHECK(text({.window = {-2, 0}}) ==
        "heed: InfiniAttention: window: left and right must be at least 0, or -1 for no limit, got -2 and 0");
  CHECK(text({.local_positions = TokenPositions::none, .memory_positions = TokenPositions::rotary}) ==
        "heed: InfiniAttention: memory_positions: is rotary, but local_positions is none: keys are turned for both or "
        "for the segment alone");
  CHECK(text({.rope = {.scaling = {.type = heed::RopeType::dynamic, .factor = 2, .max_position_embeddings = 64}}}) ==
        "heed: InfiniAttention: rope.scaling.type: dynamic goes by the length of the sequence, which a stream does not "
        "have; use another scaling");
  CHECK(text({.rope = {.scaling = {.type = heed::RopeType::longrope, .factor = 2}}}) ==
        "heed: InfiniAttention: rope_length: longrope goes by the length of the sequence, which must be fixed for a "
        "stream, got 0");
  CHECK(text({.rope = {.rotary_dim = 8}}) ==
        "heed: InfiniAttention: rotary_dim: must be at most head_dim 6 (and not negative), got 8");
  CHECK(text({}, {}) ==
        "heed: InfiniAttention: num_heads: is dynamic in the layer's type and must be given at construction");
  CHECK(text({}, {.num_heads = 4, .num_kv_heads = 3, .head_dim = 6}) ==
        "heed: InfiniAttention: num_heads: 4 is not a multiple of num_kv_heads 3");
  CHECK(text({}, {.num_heads = 2, .num_kv_heads = 2, .head_dim = 6}) ==
        "heed: InfiniAttention: beta: expected [2] (heads), got [4]");
  CHECK(text({}, {.num_heads = 4, .num_kv_heads = 2, .head_dim = 8}) ==
        "heed: InfiniAttention: query.weight: expected [32, 14] (num_heads * head_dim, hidden size), got [24, 14]");
  CHECK(test::error_text<heed::ShapeError>([&] {
          InfiniAttention<float, heads>(weights, {}, {.num_heads = 4, .num_kv_heads = 4, .head_dim = 6});
        }) == "heed: InfiniAttention: num_kv_heads: the layer's type says 2, the constructor was given 4");
  CHECK(test::error_text<heed::OptionError>([&] {
          InfiniAttentionCore<float>(heads, weights.beta, {.segment_length = -1});
        }) == "heed: InfiniAttentionCore: segment_length: must be at least 1, got -1");
}

TEST_CASE("InfiniAttention: error texts of calls; nothing is written") {
  const heed::Cpu cpu;
  const InfiniAttention<float, heads> attention(random_weights<float>(true), {.segment_length = 5});
  const auto x = test::random_tensor<float>({2, 7, hidden_size}, 1);
  Tensor<float, 3> out({2, 7, hidden_size});
  auto state = attention.make_state(2);
  heed::Workspace workspace(attention.workspace_size(cpu, 2, 7));
  const auto text = [&](View<const float, 3> input, View<float, 3> to, const heed::InfiniAttentionCall& call = {}) {
    return test::error_text<heed::ShapeError>([&] { attention.forward(cpu, input, state, to, workspace, call); });
  };
  const std::string door = "heed: InfiniAttention::forward: ";
  CHECK(text(Tensor<float, 3>({2, 7, 12}), out) ==
        door + "x: expected [*, *, 14] (batch, seq, hidden size), got [2, 7, 12]");
  CHECK(text(x, Tensor<float, 3>({2, 6, hidden_size})) ==
        door + "out: expected [2, 7, 14] (batch, seq, hidden size), got [2, 6, 14]");
  CHECK(text(Tensor<float, 3>({3, 2, hidden_size}), Tensor<float, 3>({3, 2, hidden_size})) ==
        door + "state: is for a batch of 2, the call's is 3");
  const View<const float, 3> turned(out.data(), {2, 7, 14}, {14, 28, 1});
  CHECK(text(turned, out) == door + "out: must not overlap x");
  CHECK(text(x, out, {.valid = Tensor<bool, 2>({2, 6})}) == door + "valid: expected [2, 7] (batch, seq), got [2, 6]");
  CHECK(text(x, out, {.reset = Tensor<bool, 2>({1, 7})}) == door + "reset: expected [2, 7] (batch, seq), got [1, 7]");
  const std::string need = std::to_string(attention.workspace_size(cpu, 2, 7));
  heed::Workspace small(128);
  CHECK(test::error_text<heed::WorkspaceError>([&] { attention.forward(cpu, x, state, out, small); }) ==
        door + "workspace: needs " + need + " bytes, has 128");
  CHECK(test::error_text<heed::WorkspaceError>([&] { attention.read(cpu, x, state, small); }) ==
        "heed: InfiniAttention::read: workspace: needs " + need + " bytes, has 128");

  // States of other layers.
  const auto refused = [&](const InfiniAttentionOptions& options, const HeadLayout& other_heads = heads) {
    auto weights = InfiniAttentionWeights<float>::random(1, hidden_size, other_heads);
    auto other = InfiniAttention<float>(weights, options, other_heads).make_state(2);
    return test::error_text<heed::ShapeError>([&] { attention.forward(cpu, x, other, out, workspace); });
  };
  CHECK(refused({.segment_length = 5}) == "(no error)");
  CHECK(refused({.segment_length = 5, .scale = 2.0}) == "(no error)");  // says nothing about what is stored
  const std::string use = "; use the layer's make_state()";
  CHECK(refused({.segment_length = 6}) == door + "state: segment_length is 6, the layer's is 5" + use);
  CHECK(refused({.segment_length = 5, .update = heed::MemoryUpdate::delta}) ==
        door + "state: update is delta, the layer's is linear" + use);
  CHECK(refused({.segment_length = 5, .memory_positions = TokenPositions::rotary}) ==
        door + "state: memory_positions is rotary, the layer's is none" + use);
  CHECK(refused({.segment_length = 5, .rope = {.theta = 1000}}) ==
        door +
            "state: rope is theta 1000, half, rotary_dim 6, scaling none, the layer's is theta 10000, half, "
            "rotary_dim 6, scaling none" +
            use);
  CHECK(refused({.segment_length = 5, .rope = {.rotary_dim = 6}}) == "(no error)");  // what 0 stands for
  CHECK(refused({.segment_length = 5}, {.num_heads = 4, .num_kv_heads = 4, .head_dim = 6, .value_head_dim = 5}) ==
        door + "state: num_kv_heads is 4, the layer's is 2" + use);
  CHECK(refused({.segment_length = 5}, {.num_heads = 4, .num_kv_heads = 2, .head_dim = 6}) ==
        door + "state: value_head_dim is 6, the layer's is 5" + use);
  CHECK(refused({.segment_length = 9}, {.num_heads = 4, .num_kv_heads = 2, .head_dim = 4, .value_head_dim = 5})
            .find("state: head_dim is 4, the layer's is 6; segment_length is 9, the layer's is 5; rope is ") !=
        std::string::npos);
  CHECK(refused({.segment_length = 5, .local_positions = TokenPositions::none})
            .find("state: local_positions is none, the layer's is rotary; rope is none, the layer's is theta") !=
        std::string::npos);

  // Only the two calls that were not refused have written, each to a state of its own.
  const auto fresh = attention.make_state(2);
  CHECK(test::same_state(state, fresh));
}

TEST_CASE("InfiniAttentionCore: error texts of calls") {
  const heed::Cpu cpu;
  const Tensor<float, 1> beta({4});
  const InfiniAttentionCore<float> core(heads, beta, {.segment_length = 5});
  const Tensor<float, 4> query({2, 7, 4, 6});
  const Tensor<float, 4> key({2, 7, 2, 6});
  const Tensor<float, 4> value({2, 7, 2, 5});
  Tensor<float, 4> out({2, 7, 4, 5});
  auto state = core.make_state(2);
  heed::Workspace workspace(core.workspace_size(cpu, 2, 7));
  const auto text = [&](View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<float, 4> to) {
    return test::error_text<heed::ShapeError>([&] { core.forward(cpu, q, k, v, state, to, workspace); });
  };
  const std::string door = "heed: InfiniAttentionCore::forward: ";
  CHECK(text(query, key, value, out) == "(no error)");
  CHECK(text(Tensor<float, 4>({2, 7, 3, 6}), key, value, out) ==
        door + "query: expected [*, *, 4, 6] (batch, seq, heads, head dim), got [2, 7, 3, 6]");
  CHECK(text(query, Tensor<float, 4>({2, 6, 2, 6}), value, out) ==
        door + "key: expected [2, 7, 2, 6] (batch, seq, kv heads, head dim), got [2, 6, 2, 6]");
  CHECK(text(query, key, Tensor<float, 4>({2, 7, 2, 6}), out) ==
        door + "value: expected [2, 7, 2, 5] (batch, seq, kv heads, value head dim), got [2, 7, 2, 6]");
  CHECK(text(query, key, value, Tensor<float, 4>({2, 7, 4, 6})) ==
        door + "out: expected [2, 7, 4, 5] (batch, seq, heads, value head dim), got [2, 7, 4, 6]");
  const View<const float, 4> inside(out.data(), {2, 7, 2, 5});
  CHECK(text(query, key, inside, out) == door + "out: must not overlap value");
  heed::Workspace small(64);
  CHECK(test::error_text<heed::WorkspaceError>([&] { core.flush(cpu, state, small); }) ==
        "heed: InfiniAttentionCore::flush: workspace: needs " + std::to_string(core.workspace_size(cpu, 2, 1)) +
            " bytes, has 64");
  auto other = InfiniAttentionCore<float>(heads, beta, {.segment_length = 6}).make_state(2);
  CHECK(test::error_text<heed::ShapeError>([&] { core.flush(cpu, other, workspace); }) ==
        "heed: InfiniAttentionCore::flush: state: segment_length is 6, the layer's is 5; use the layer's make_state()");
}
