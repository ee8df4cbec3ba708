// seed::InfiniAttention against the seed's arithmetic, in double.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "heed/layers/seed_infini_attention.hpp"
#include "layers/infini_streams.hpp"
#include "support/allocation_counter.hpp"
#include "support/errors.hpp"

using heed::HeadLayout;
using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
constexpr Index hidden_size = 14;

// The seed's forward of one call for one row, head by head: everything turned by RoPE, softmax over the whole call, the
// read with its epsilon, one gate, then the linear update. `allowed(t, s)`: may query t see key s.
struct SeedFormula {
  std::vector<test::MemoryFormula> memory;  // one a kv head

  SeedFormula() : memory(2, test::MemoryFormula(6, 6)) {}

  static std::vector<double> turned(std::vector<double> x, double position) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle = position * std::pow(10000.0, -2 * static_cast<double>(i) / 6);
      const double first = x[i];
      const double second = x[i + 3];
      x[i] = first * std::cos(angle) - second * std::sin(angle);
      x[i + 3] = second * std::cos(angle) + first * std::sin(angle);
    }
    return x;
  }

  template <class Allowed>
  Tensor<double, 3> call(const Tensor<double, 3>& q, const Tensor<double, 3>& k, const Tensor<double, 3>& v,
                         double beta, const std::vector<double>& positions, const Allowed& allowed) {
    const Index n = q.extent(0);
    Tensor<double, 3> out({n, Index{4}, Index{6}});
    const double gate = 1 / (1 + std::exp(-beta));
    std::vector<std::vector<std::vector<double>>> keys(2), values(2);
    for (Index h = 0; h < 2; ++h) {
      for (Index t = 0; t < n; ++t) {
        keys[static_cast<std::size_t>(h)].push_back(
            turned(test::row_of(k.view().pointer(t, h), 6), positions[static_cast<std::size_t>(t)]));
        values[static_cast<std::size_t>(h)].push_back(test::row_of(v.view().pointer(t, h), 6));
      }
    }
    for (Index h = 0; h < 4; ++h) {
      const auto kv = static_cast<std::size_t>(h / 2);
      for (Index t = 0; t < n; ++t) {
        const auto query = turned(test::row_of(q.view().pointer(t, h), 6), positions[static_cast<std::size_t>(t)]);
        double sum = 0;
        double local[6] = {};
        for (Index s = 0; s < n; ++s) {
          if (!allowed(t, s)) continue;
          double score = 0;
          for (std::size_t d = 0; d < 6; ++d) score += query[d] * keys[kv][static_cast<std::size_t>(s)][d];
          const double weight = std::exp(score / std::sqrt(6.0));
          sum += weight;
          for (std::size_t j = 0; j < 6; ++j) local[j] += weight * values[kv][static_cast<std::size_t>(s)][j];
        }
        for (Index j = 0; j < 6; ++j) {
          double recalled = 0;
          for (Index d = 0; d < 6; ++d) recalled += test::phi(query[static_cast<std::size_t>(d)]) * memory[kv].m(d, j);
          recalled /= memory[kv].denominator(query) + 1e-8;
          out(t, h, j) = gate * recalled + (1 - gate) * local[j] / sum;
        }
      }
    }
    for (std::size_t h = 0; h < 2; ++h) memory[h].update(keys[h], values[h], test::Rule::linear);
    return out;
  }
};

template <class T>
Tensor<double, 3> projected(const Tensor<double, 2>& x, const heed::LinearWeights<T>& weights, Index num_heads) {
  const Index out_features = weights.weight.extent(0);
  Tensor<double, 3> out({x.extent(0), num_heads, out_features / num_heads});
  for (Index t = 0; t < x.extent(0); ++t) {
    for (Index j = 0; j < out_features; ++j) {
      double sum = weights.bias.empty() ? 0 : test::to_double(weights.bias(j));
      for (Index i = 0; i < x.extent(1); ++i) sum += x(t, i) * test::to_double(weights.weight(j, i));
      out.data()[t * out_features + j] = sum;
    }
  }
  return out;
}

template <class T>
heed::InfiniAttentionWeights<T> random_weights() {
  auto weights = heed::InfiniAttentionWeights<T>::random(3, hidden_size, heads, true);
  weights.beta = Tensor<heed::accumulator_t<T>, 1>({1});
  weights.beta(0) = static_cast<heed::accumulator_t<T>>(0.7);
  return weights;
}

}  // namespace

namespace {

template <class T, class B>
void check_calls(const B& backend) {
  using A = heed::accumulator_t<T>;
  const double tolerance = std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 2e-5 : 0.05;
  const auto weights = random_weights<T>();
  const heed::seed::InfiniAttention<T, heads, B> attention(weights, 10000, heads, backend);
  const auto x = test::random_tensor<T>({2, 19, hidden_size}, 1, -2, 2);
  auto state = attention.make_state(2);
  SeedFormula formulae[2];
  Index first = 0;
  int number = 0;
  for (const Index n : {6, 1, 4, 5, 3}) {
    CAPTURE(number);
    typename heed::seed::InfiniAttention<T, heads, B>::Call call;
    Tensor<bool, 4> mask({Index{2}, Index{1}, n, n});
    Tensor<A, 4> bias({Index{2}, Index{1}, n, n});
    Tensor<std::int64_t, 2> positions({Index{2}, n});
    for (Index t = 0; t < n; ++t) {
      for (Index s = 0; s < n; ++s) {
        for (Index b = 0; b < 2; ++b) {
          mask(b, 0, t, s) = s <= t;
          bias(b, 0, t, s) = s <= t ? 0 : -std::numeric_limits<A>::infinity();
        }
      }
      positions(0, t) = 3 * t + 2;
      positions(1, t) = 40 - t;
    }
    if (number == 2) call.mask = mask;
    if (number == 3) call.bias = bias;
    if (number == 4) call.positions = positions;
    const auto part = x.view().slice(1, first, n);
    const auto got = attention.forward(backend, part, state, call);
    for (Index b = 0; b < 2; ++b) {
      std::vector<double> where;
      for (Index t = 0; t < n; ++t) {
        where.push_back(number == 4 ? static_cast<double>(positions(b, t)) : static_cast<double>(t));
      }
      const auto row = test::as_double(part[b]);
      const bool causal = number == 2 || number == 3;
      const auto context = formulae[b].call(projected(row, weights.query, 4), projected(row, weights.key, 2),
                                            projected(row, weights.value, 2), 0.7, where,
                                            [&](Index t, Index s) { return !causal || s <= t; });
      const auto want = projected(Tensor<double, 2>(context.view().merge_last()), weights.output, 1);
      CHECK(test::max_scaled_error(got.view()[b], want.view().merge_last()) <= tolerance);
      double worst = 0;
      for (Index k = 0; k < 2; ++k) {
        for (Index d = 0; d < 6; ++d) {
          auto& memory = formulae[b].memory[static_cast<std::size_t>(k)];
          const auto error = [](double a, double w) { return test::difference(a, w) / (1 + std::fabs(w)); };
          worst = std::fmax(worst, error(test::to_double(state.normalizer()(b, k, d)), memory.z(d)));
          for (Index j = 0; j < 6; ++j) {
            worst = std::fmax(worst, error(test::to_double(state.memory()(b, k, d, j)), memory.m(d, j)));
          }
        }
      }
      CHECK(worst <= tolerance);
      CHECK(state.pending()(b) == 0);
    }
    first += n;
    ++number;
  }
  CHECK(state.position()(1) == 19);
}

}  // namespace

TEST_CASE("seed::InfiniAttention: calls are segments: both ways without a mask, positions from 0, rotary memory") {
  check_calls<float>(heed::Reference());
  check_calls<float>(heed::Cpu());
  check_calls<double>(heed::Cpu());
  check_calls<heed::bfloat16>(heed::Cpu());
  test::ReversePool pool;
  check_calls<float>(heed::Cpu(pool));
}

TEST_CASE("seed::InfiniAttention: one beta is the same one for every head; in place; no allocation in a second call") {
  const heed::Cpu cpu;
  auto weights = random_weights<float>();
  const heed::seed::InfiniAttention<float, heads> one(weights);
  weights.beta = Tensor<float, 1>({4});
  weights.beta.fill(0.7F);
  const heed::seed::InfiniAttention<float> four(weights, 10000, heads);
  const auto x = test::random_tensor<float>({2, 5, hidden_size}, 1);
  auto a = one.make_state(2);
  auto b = four.make_state(2);
  heed::Workspace workspace(four.workspace_size(cpu, 2, 5));
  for (int call = 0; call < 2; ++call) {
    const auto want = one.forward(cpu, x, a);
    Tensor<float, 3> out = x;
    CHECK(test::allocations_in([&] { four.forward(cpu, out, b, out, workspace); }) == 0);
    CHECK(test::same_bits(out, want));
  }
  CHECK(test::same_bits(a.memory(), b.memory()));
  auto nobody = one.make_state(0);
  CHECK(one.forward(cpu, Tensor<float, 3>({0, 5, hidden_size}), nobody).empty());
  CHECK(one.forward(cpu, Tensor<float, 3>({2, 0, hidden_size}), a).empty());
  CHECK(one.describe().find(
            "seed::InfiniAttention<float>: hidden_size 14, num_heads 4, num_kv_heads 2, head_dim 6; ") == 0);
}

TEST_CASE("seed::InfiniAttention: error texts") {
  const heed::Cpu cpu;
  const auto weights = random_weights<float>();
  const heed::seed::InfiniAttention<float, heads> attention(weights);
  const auto x = test::random_tensor<float>({2, 5, hidden_size}, 1);
  Tensor<float, 3> out({2, 5, hidden_size});
  auto state = attention.make_state(2);
  heed::Workspace workspace(attention.workspace_size(cpu, 2, 5));
  using Call = heed::seed::InfiniAttention<float, heads>::Call;
  const auto text = [&](View<const float, 3> input, View<float, 3> to, const Call& call = {}) {
    return test::error_text<heed::ShapeError>([&] { attention.forward(cpu, input, state, to, workspace, call); });
  };
  const std::string door = "heed: seed::InfiniAttention::forward: ";
  CHECK(text(x, Tensor<float, 3>({2, 5, 13})) ==
        door + "out: expected [2, 5, 14] (batch, seq, hidden size), got [2, 5, 13]");
  CHECK(text(Tensor<float, 3>({2, 5, 13}), out) ==
        door + "x: expected [*, *, 14] (batch, seq, hidden size), got [2, 5, 13]");
  CHECK(text(x, out, {.mask = Tensor<bool, 2>({5, 4})}) ==
        door + "mask: expected a shape that broadcasts to [2, 4, 5, 5] (batch, heads, queries, keys), got [5, 4]");
  CHECK(text(x, out, {.positions = Tensor<std::int64_t, 2>({1, 5})}) ==
        door + "positions: expected [2, 5] (batch, seq), got [1, 5]");
  CHECK(text(Tensor<float, 3>({1, 5, hidden_size}), Tensor<float, 3>({1, 5, hidden_size})) ==
        door + "state: is for a batch of 2, the call's is 1");
  auto streaming =
      heed::InfiniAttention<float, heads>(heed::InfiniAttentionWeights<float>::random(1, hidden_size, heads),
                                          {.segment_length = 5, .memory_positions = heed::TokenPositions::rotary})
          .make_state(2);
  CHECK(test::error_text<heed::ShapeError>([&] { attention.forward(cpu, x, streaming, out, workspace); }) ==
        door + "state: segment_length is 5, the layer's is 0; use the layer's make_state()");
  heed::Workspace small(64);
  CHECK(test::error_text<heed::WorkspaceError>([&] { attention.forward(cpu, x, state, out, small); }) ==
        door + "workspace: needs " + std::to_string(attention.workspace_size(cpu, 2, 5)) + " bytes, has 64");
  auto odd = random_weights<float>();
  odd.beta = Tensor<float, 1>({3});
  CHECK(test::error_text<heed::ShapeError>([&] { heed::seed::InfiniAttention<float, heads>{odd}; }) ==
        "heed: seed::InfiniAttention: beta: expected [4] (heads), got [3]");
  CHECK(test::same_bits(state.memory(), attention.make_state(2).memory()));
}
