// Mlp, the norms around a block's parts, and blocks that are put together by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "heed/models/decoder_block.hpp"
#include "heed/models/encoder_block.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"

namespace {

using heed::Activation;
using heed::Index;
using heed::LinearWeights;
using heed::MlpWeights;
using heed::NormKind;
using heed::NormWeights;
using heed::Tensor;
using heed::View;
using test::error_text;
using test::random_tensor;

constexpr Index hidden = 6;
constexpr Index intermediate = 9;

template <class T>
LinearWeights<T> linear(Index out, Index in, std::uint64_t seed, bool bias) {
  LinearWeights<T> weights{random_tensor<T>({out, in}, seed), {}};
  if (bias) weights.bias = random_tensor<T>({out}, seed + 1);
  return weights;
}
template <class T>
MlpWeights<T> mlp_weights(bool gated, bool bias) {
  MlpWeights<T> weights;
  if (gated) weights.gate = linear<T>(intermediate, hidden, 1, bias);
  weights.up = linear<T>(intermediate, hidden, 3, bias);
  weights.down = linear<T>(hidden, intermediate, 5, bias);
  return weights;
}
template <class T>
NormWeights<T> norm_weights(std::uint64_t seed, bool bias) {
  NormWeights<T> weights{random_tensor<T>({hidden}, seed, 0.5, 1.5), {}};
  if (bias) weights.bias = random_tensor<T>({hidden}, seed + 1);
  return weights;
}

double activate(Activation activation, double x) {
  if (activation == Activation::silu) return x / (1 + std::exp(-x));
  if (activation == Activation::gelu) return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

template <class T>
double product(const LinearWeights<T>& weights, Index row, const double* x) {
  double sum = weights.bias.empty() ? 0 : test::to_double(weights.bias(row));
  for (Index i = 0; i < weights.weight.extent(1); ++i) sum += test::to_double(weights.weight(row, i)) * x[i];
  return sum;
}

// One row through an MLP, in double.
template <class T>
void mlp_formula(const MlpWeights<T>& weights, Activation activation, const double* x, double* out) {
  double inner[intermediate];
  for (Index i = 0; i < intermediate; ++i) {
    const double up = product(weights.up, i, x);
    inner[i] =
        weights.gate.weight.empty() ? activate(activation, up) : activate(activation, product(weights.gate, i, x)) * up;
  }
  for (Index i = 0; i < hidden; ++i) out[i] = product(weights.down, i, inner);
}

// One row normed, in double; no weights: left as it is.
template <class T>
void norm_formula(const NormWeights<T>& weights, const heed::NormOptions& options, double* x) {
  if (weights.weight.empty()) return;
  double mean = 0;
  for (Index i = 0; i < hidden; ++i) mean += options.kind == NormKind::layer ? x[i] / hidden : 0;
  double squares = 0;
  for (Index i = 0; i < hidden; ++i) squares += (x[i] - mean) * (x[i] - mean) / hidden;
  for (Index i = 0; i < hidden; ++i) {
    x[i] =
        (x[i] - mean) / std::sqrt(squares + options.eps) * (options.weight_offset + test::to_double(weights.weight(i)));
    if (!weights.bias.empty()) x[i] += test::to_double(weights.bias(i));
  }
}

template <class T>
void row_as_double(View<const T, 1> row, double* out) {
  for (Index i = 0; i < row.extent(0); ++i) out[i] = test::to_double(row(i));
}

template <class T>
constexpr double tolerance = 200 * test::unit_roundoff<T>;

}  // namespace

TEST_CASE_TEMPLATE("Mlp: values of every activation, gated and not, with and without biases", T, float, double) {
  const auto x = random_tensor<T>({7, hidden}, 9);
  for (const bool gated : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
        const MlpWeights<T> weights = mlp_weights<T>(gated, bias);
        const heed::Mlp<T> mlp(weights, activation);
        CHECK(mlp.hidden_size() == hidden);
        CHECK(mlp.intermediate_size() == intermediate);
        Tensor<T, 2> out({Index{7}, hidden});
        heed::Workspace workspace(mlp.workspace_size(7));
        mlp.forward(heed::Cpu(), x, out, workspace);
        for (Index row = 0; row < 7; ++row) {
          double in[hidden];
          double expected[hidden];
          row_as_double<T>(x.view()[row], in);
          mlp_formula(weights, activation, in, expected);
          for (Index i = 0; i < hidden; ++i) {
            CHECK(std::fabs(test::to_double(out(row, i)) - expected[i]) <= tolerance<T> * (1 + std::fabs(expected[i])));
          }
        }
      }
    }
  }
}

TEST_CASE("Mlp: more rows than it takes at once, in place, on every backend") {
  const MlpWeights<float> weights = mlp_weights<float>(true, true);
  const Index rows = 1100;
  const auto x = random_tensor<float>({rows, hidden}, 10);
  test::for_each_backend([&](const auto& backend) {
    const heed::Mlp<float, std::remove_cvref_t<decltype(backend)>> mlp(weights, Activation::silu, backend);
    heed::Workspace workspace(mlp.workspace_size(rows));
    CHECK(mlp.workspace_size(rows) == mlp.workspace_size(2 * rows));
    Tensor<float, 2> all = x;
    mlp.forward(backend, all, all, workspace);
    for (const Index row : {Index{0}, Index{511}, Index{512}, Index{1099}}) {
      Tensor<float, 2> alone({Index{1}, hidden});
      mlp.forward(backend, x.view().slice(0, row, 1), alone, workspace);
      CHECK(test::same_bits(all.view()[row], alone.view()[0]));
    }
  });
}

TEST_CASE_TEMPLATE("BlockNorms: every set of places, of both kinds", T, float, double) {
  const auto x = random_tensor<T>({5, hidden}, 11);
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (int places = 0; places < 8; ++places) {
      INFO("kind ", static_cast<int>(kind), ", places ", places);
      const bool bias = kind == NormKind::layer;
      const heed::NormOptions options{.kind = kind, .eps = 1e-3, .weight_offset = bias ? 0.0 : 1.0};
      heed::BlockNormWeights<T> weights;
      if ((places & 1) != 0) weights.before = norm_weights<T>(1, bias);
      if ((places & 2) != 0) weights.after = norm_weights<T>(3, bias);
      if ((places & 4) != 0) weights.sum = norm_weights<T>(5, bias);
      const heed::BlockNorms<T> norms("Block", weights, options, hidden);
      Tensor<T, 2> out = x;
      Tensor<T, 2> scratch({Index{5}, hidden});
      norms.apply(heed::Cpu(), out, scratch, [](View<const T, 2> in, View<T, 2> y) {  // f(x) = 2 x + 1
        for (Index row = 0; row < 5; ++row) {
          for (Index i = 0; i < hidden; ++i) y(row, i) = 2 * in(row, i) + 1;
        }
      });
      for (Index row = 0; row < 5; ++row) {
        double expected[hidden];
        double y[hidden];
        row_as_double<T>(x.view()[row], expected);
        row_as_double<T>(x.view()[row], y);
        norm_formula(weights.before, options, y);
        for (double& value : y) value = 2 * value + 1;
        norm_formula(weights.after, options, y);
        for (Index i = 0; i < hidden; ++i) expected[i] += y[i];
        norm_formula(weights.sum, options, expected);
        for (Index i = 0; i < hidden; ++i) {
          CHECK(std::fabs(test::to_double(out(row, i)) - expected[i]) <= tolerance<T> * (1 + std::fabs(expected[i])));
        }
      }
    }
  }
}

TEST_CASE("EncoderBlock: pre-norm, over packed sequences, as its parts one after the other") {
  heed::EncoderBlockWeights<double> weights;
  std::uint64_t seed = 20;
  for (auto* projection :
       {&weights.attention.query, &weights.attention.key, &weights.attention.value, &weights.attention.output}) {
    *projection = linear<double>(hidden, hidden, seed += 2, true);
  }
  weights.attention_norms.before = norm_weights<double>(31, true);
  weights.mlp = mlp_weights<double>(true, false);
  weights.mlp_norms.before = norm_weights<double>(33, true);
  const heed::EncoderBlockOptions options{.norm = {.kind = NormKind::layer, .eps = 1e-5},
                                          .activation = Activation::gelu_tanh};
  const heed::EncoderBlock<double> block(weights, options, {.num_heads = 2});
  const heed::Cpu cpu;
  const auto x = random_tensor<double>({8, hidden}, 12);
  const std::int64_t ends[] = {0, 3, 3, 8};  // the second sequence is empty
  const View<const std::int64_t, 1> cu_seqlens(ends, {4});
  Tensor<double, 2> out = x;
  heed::Workspace workspace(block.workspace_size(cpu, 3, 8));
  block.forward(cpu, out, cu_seqlens, workspace);

  // MultiHeadSelfAttention has tests of its own.
  const heed::MultiHeadSelfAttention<double> attention(weights.attention, {}, {.num_heads = 2});
  for (int sequence = 0; sequence < 3; ++sequence) {
    const Index first = ends[sequence];
    const Index count = ends[sequence + 1] - first;
    Tensor<double, 3> normed({Index{1}, count, hidden});
    for (Index t = 0; t < count; ++t) {
      row_as_double<double>(x.view()[first + t], normed.view().pointer(0, t));
      norm_formula(weights.attention_norms.before, options.norm, normed.view().pointer(0, t));
    }
    const auto attended = attention.forward(cpu, normed);
    for (Index t = 0; t < count; ++t) {
      double sum[hidden];
      double in[hidden];
      double added[hidden];
      for (Index i = 0; i < hidden; ++i) in[i] = sum[i] = x(first + t, i) + attended(0, t, i);
      norm_formula(weights.mlp_norms.before, options.norm, in);
      mlp_formula(weights.mlp, options.activation, in, added);
      for (Index i = 0; i < hidden; ++i) CHECK(std::fabs(out(first + t, i) - sum[i] - added[i]) < 1e-12);
    }
  }
}

TEST_CASE("blocks: weights and calls that do not fit") {
  MlpWeights<float> mlp = mlp_weights<float>(true, true);
  const auto mlp_text = [&] { return error_text([&] { heed::Mlp<float>(mlp, Activation::silu); }); };
  CHECK(mlp_text() == "no error");
  mlp.gate.bias = Tensor<float, 1>({2});
  CHECK(mlp_text() == "heed: Mlp: bias: expected [9] (out features), got [2]");
  mlp.gate = linear<float>(intermediate + 1, hidden, 1, false);
  CHECK(mlp_text() == "heed: Mlp: gate.weight: expected [9, 6] (intermediate size, hidden size), got [10, 6]");
  mlp.gate = {};
  mlp.down = linear<float>(hidden, intermediate - 1, 5, false);
  CHECK(mlp_text() == "heed: Mlp: down.weight: expected [6, 9] (hidden size, intermediate size), got [6, 8]");

  heed::DecoderBlockWeights<float> weights;
  const heed::HeadLayout heads{.num_heads = 3, .num_kv_heads = 1, .head_dim = 2};
  weights.attention = heed::GroupedQueryAttentionWeights<float>::random(1, hidden, heads);
  weights.mlp = mlp_weights<float>(true, false);
  const auto block_text = [&] {
    return error_text([&] { heed::DecoderBlock<float>(weights, heed::DecoderBlockOptions{}, heads); });
  };
  CHECK(block_text() == "no error");
  weights.mlp_norms.before.weight = Tensor<float, 1>({5});
  CHECK(block_text() == "heed: DecoderBlock: norm before: expected [6] (hidden size), got [5]");
  weights.mlp_norms.before = {};
  weights.mlp.up = linear<float>(intermediate, 5, 1, false);
  weights.mlp.gate = {};
  weights.mlp.down = linear<float>(5, intermediate, 1, false);
  CHECK(block_text() ==
        "heed: DecoderBlock: mlp.up.weight: expected [*, 6] (intermediate size, hidden size), got [9, 5]");
}
