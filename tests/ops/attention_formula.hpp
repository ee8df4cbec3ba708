// Attention as the textbook has it, in double, one key at a time: what heed's attention is compared with.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "heed/core/random.hpp"
#include "heed/ops/attention_options.hpp"
#include "support/compare.hpp"

namespace test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

// Is key s one that query t of batch row b may attend by length, causal order and window?
template <class T>
bool in_order(const heed::AttentionOptions<T>& options, Index batch, Index t, Index s, Index queries, Index keys) {
  const Index length = options.key_lengths.present() ? static_cast<Index>(options.key_lengths(batch)) : keys;
  Index position = t;
  if (options.causal == heed::Causal::bottom_right) position = t + length - queries;
  if (options.query_offsets.present()) position = t + static_cast<Index>(options.query_offsets(batch));
  if (s >= length) return false;
  if (options.causal != heed::Causal::none && s > position) return false;
  if (options.window.left >= 0 && position - s > options.window.left) return false;
  if (options.window.right >= 0 && s - position > options.window.right) return false;
  return true;
}

template <class T>
Index query_position(const heed::AttentionOptions<T>& options, Index batch, Index t, Index queries, Index keys) {
  if (options.query_offsets.present()) return t + static_cast<Index>(options.query_offsets(batch));
  if (options.causal != heed::Causal::bottom_right) return t;
  return t - queries + (options.key_lengths.present() ? static_cast<Index>(options.key_lengths(batch)) : keys);
}

// The element of a mask or bias for one score, by broadcasting each axis of extent 1.
template <class M>
M broadcast_element(const heed::ScoreView<M>& view, Index b, Index h, Index t, Index s) {
  return *(view.row(view.extent(0) == 1 ? 0 : b, view.extent(1) == 1 ? 0 : h, view.extent(2) == 1 ? 0 : t) +
           (view.extent(3) == 1 ? 0 : s));
}

// Masked by order, boolean mask or additive −inf?
template <class T>
bool may_attend(const heed::AttentionOptions<T>& options, Index b, Index h, Index t, Index s, Index queries,
                Index keys) {
  if (!in_order(options, b, t, s, queries, keys)) return false;
  if (options.mask.present() && !broadcast_element(options.mask, b, h, t, s)) return false;
  return !(options.bias.present() && broadcast_element(options.bias, b, h, t, s) == -infinity);
}

struct NoChange {
  double operator()(double score, Index, Index, Index, Index) const { return score; }
};

struct FormulaResult {
  heed::Tensor<double, 4> out;
  heed::Tensor<double, 3> log_sum_exp;
  heed::Tensor<double, 4> weights;
};

// change(score, batch, head, query position, key) stands for a score modifier.
template <class T, class Change = NoChange>
FormulaResult attention_formula(heed::View<const T, 4> query, heed::View<const T, 4> key, heed::View<const T, 4> value,
                                const heed::AttentionOptions<T>& options, Change change = {}) {
  const Index batch = query.extent(0), queries = query.extent(1), heads = query.extent(2), depth = query.extent(3);
  const Index keys = key.extent(1), group = key.extent(2) > 0 ? heads / key.extent(2) : 1, width = value.extent(3);
  FormulaResult result{heed::Tensor<double, 4>({batch, queries, heads, width}),
                       heed::Tensor<double, 3>({batch, heads, queries}),
                       heed::Tensor<double, 4>({batch, heads, queries, keys})};
  const double scale = options.scale.given() ? static_cast<double>(options.scale.value(depth))
                                             : 1 / std::sqrt(static_cast<double>(depth));
  const auto softcap = static_cast<double>(options.softcap);
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        const Index position = query_position(options, b, t, queries, keys);
        std::vector<double> scores(static_cast<std::size_t>(keys), -infinity);
        const double sink = options.sinks.present() ? static_cast<double>(options.sinks(h)) : -infinity;
        double maximum = sink;
        for (Index s = 0; s < keys; ++s) {
          if (!may_attend(options, b, h, t, s, queries, keys)) continue;
          double score = 0;
          for (Index d = 0; d < depth; ++d) score += to_double(query(b, t, h, d)) * to_double(key(b, s, h / group, d));
          score *= scale;
          if (softcap > 0) score = softcap * std::tanh(score / softcap);
          score = change(score, b, h, position, s);
          if (options.alibi_slopes.present())
            score -= static_cast<double>(options.alibi_slopes(h)) * std::fabs(static_cast<double>(position - s));
          if (options.bias.present()) score += static_cast<double>(broadcast_element(options.bias, b, h, t, s));
          scores[static_cast<std::size_t>(s)] = score;
          if (std::isnan(score) || score > maximum) maximum = score;
        }
        double sum = maximum > -infinity || std::isnan(maximum) ? std::exp(sink - maximum) : 0;
        for (const double score : scores) sum += score == -infinity ? 0 : std::exp(score - maximum);
        result.log_sum_exp(b, h, t) = sum == 0 ? -infinity : maximum + std::log(sum);
        for (Index s = 0; s < keys; ++s) {
          const double score = scores[static_cast<std::size_t>(s)];
          if (score == -infinity) continue;
          double weight = std::exp(score - maximum) / sum;
          if (options.dropout > 0) {
            const heed::RandomWords words = heed::philox(
                options.dropout_seed, {{static_cast<std::uint32_t>(s / 4), static_cast<std::uint32_t>(position),
                                        static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)}});
            const double dropout = static_cast<double>(options.dropout);
            weight *= words[s % 4] < dropout * 4294967296.0 ? 0 : 1 / (1 - dropout);
          }
          result.weights(b, h, t, s) = weight;
          for (Index d = 0; d < width; ++d) result.out(b, t, h, d) += weight * to_double(value(b, s, h / group, d));
        }
      }
    }
  }
  return result;
}

}  // namespace test
