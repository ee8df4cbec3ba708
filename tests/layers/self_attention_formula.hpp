// Self-attention layers written out in double, one loop per symbol: what the layers' tests compare with. Shares no code
// with the library but its plain data types.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "heed/layers/projections.hpp"
#include "support/compare.hpp"

namespace test {

// Everything that can happen to a layer's scores.
struct SelfAttentionFormula {
  heed::HeadLayout heads;
  double scale = 0;  // 0: 1/√head_dim
  double softcap = 0;
  bool causal = false;
  Index left = -1;
  Index right = -1;
  std::vector<double> slopes = {};
  std::vector<double> sinks = {};
  // Added to a score; −∞ is "do not attend".
  std::function<double(Index b, Index h, Index i, Index j)> bias = {};
  // What happens to a projected query (or key) head before the scores.
  std::function<void(Index b, Index t, Index head, bool is_query, std::vector<double>& values)> turn = {};
};

struct SelfAttentionResult {
  heed::Tensor<double, 3> out;          // [B, T, E]
  heed::Tensor<double, 4> weights;      // [B, H, T, T]
  heed::Tensor<double, 3> log_sum_exp;  // [B, H, T]
};

// One head of a projection of one token.
template <class T>
std::vector<double> head_of(const heed::LinearWeights<T>& weights, heed::View<const T, 1> token, Index head,
                            Index dim) {
  std::vector<double> values;
  for (Index row = head * dim; row < (head + 1) * dim; ++row) {
    double sum = weights.bias.empty() ? 0 : to_double(weights.bias(row));
    for (Index e = 0; e < token.extent(0); ++e) sum += to_double(weights.weight(row, e)) * to_double(token(e));
    values.push_back(sum);
  }
  return values;
}

template <class T>
SelfAttentionResult self_attention(const heed::ProjectionWeights<T>& weights, heed::View<const T, 3> x,
                                   const SelfAttentionFormula& formula) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const heed::HeadLayout& heads = formula.heads;
  const Index batch = x.extent(0);
  const Index tokens = x.extent(1);
  SelfAttentionResult result{heed::Tensor<double, 3>({batch, tokens, x.extent(2)}),
                             heed::Tensor<double, 4>({batch, heads.num_heads, tokens, tokens}),
                             heed::Tensor<double, 3>({batch, heads.num_heads, tokens})};
  for (Index b = 0; b < batch; ++b) {
    for (Index i = 0; i < tokens; ++i) {
      std::vector<double> context;
      for (Index h = 0; h < heads.num_heads; ++h) {
        const Index kv_head = h / (heads.num_heads / heads.num_kv_heads);
        std::vector<double> query = head_of(weights.query, x[b][i], h, heads.head_dim);
        if (formula.turn) formula.turn(b, i, h, true, query);
        std::vector<double> scores;
        double maximum = formula.sinks.empty() ? -infinity : formula.sinks[static_cast<std::size_t>(h)];
        for (Index j = 0; j < tokens; ++j) {
          std::vector<double> key = head_of(weights.key, x[b][j], kv_head, heads.head_dim);
          if (formula.turn) formula.turn(b, j, kv_head, false, key);
          double score = 0;
          for (std::size_t d = 0; d < key.size(); ++d) score += query[d] * key[d];
          score *= formula.scale != 0 ? formula.scale : 1 / std::sqrt(static_cast<double>(heads.head_dim));
          if (formula.softcap > 0) score = formula.softcap * std::tanh(score / formula.softcap);
          if (!formula.slopes.empty()) {
            score -= formula.slopes[static_cast<std::size_t>(h)] * std::fabs(static_cast<double>(i - j));
          }
          if (formula.bias) score += formula.bias(b, h, i, j);
          const bool too_late = (formula.causal && j > i) || (formula.right >= 0 && j > i + formula.right);
          const bool too_early = formula.left >= 0 && j < i - formula.left;
          if (too_late || too_early) score = -infinity;
          scores.push_back(score);
          maximum = std::fmax(maximum, score);
        }
        double sum = formula.sinks.empty() ? 0 : std::exp(formula.sinks[static_cast<std::size_t>(h)] - maximum);
        for (const double score : scores) sum += score == -infinity ? 0 : std::exp(score - maximum);
        result.log_sum_exp(b, h, i) = maximum == -infinity ? -infinity : maximum + std::log(sum);
        std::vector<double> mixed(static_cast<std::size_t>(heads.value_head_dim), 0);
        for (Index j = 0; j < tokens; ++j) {
          const double score = scores[static_cast<std::size_t>(j)];
          if (score == -infinity) continue;
          const double weight = std::exp(score - maximum) / sum;
          result.weights(b, h, i, j) = weight;
          const std::vector<double> value = head_of(weights.value, x[b][j], kv_head, heads.value_head_dim);
          for (std::size_t d = 0; d < value.size(); ++d) mixed[d] += weight * value[d];
        }
        context.insert(context.end(), mixed.begin(), mixed.end());
      }
      for (Index e = 0; e < x.extent(2); ++e) {
        double sum = weights.output.bias.empty() ? 0 : to_double(weights.output.bias(e));
        for (std::size_t d = 0; d < context.size(); ++d) {
          sum += to_double(weights.output.weight(e, static_cast<Index>(d))) * context[d];
        }
        result.out(b, i, e) = sum;
      }
    }
  }
  return result;
}

}  // namespace test
