// Infini-attention in double, token by token, as the paper writes it: independent of heed's code.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "support/memory_formula.hpp"

namespace test {

struct InfiniSettings {
  Index segment_length = 4;
  Rule rule = Rule::linear;
  bool apply_gate = false;     // to an empty memory
  bool rotary = true;          // inside the segment
  bool rotary_memory = false;  // for the memory, too
  bool interleaved = false;    // pairs 2i, 2i + 1 instead of i, i + rotary_dim / 2
  Index rotary_dim = 0;        // 0: head_dim
  double theta = 10000;
  double stretch = 1;  // positions are divided by it
  double scale = 0;    // 0: 1/√head_dim
  double softcap = 0;
  Index window = 0;  // tokens a query sees, its own included; 0: all
};

// Streams of a batch; rows and kv heads have nothing to do with each other.
class InfiniFormula {
 public:
  InfiniFormula(const InfiniSettings& settings, Index batch, Index kv_heads, Index head_dim, Index value_head_dim,
                std::vector<double> beta)
      : s_(settings), kv_heads_(kv_heads), beta_(std::move(beta)) {
    if (s_.rotary_dim == 0) s_.rotary_dim = head_dim;
    if (s_.scale == 0) s_.scale = 1 / std::sqrt(static_cast<double>(head_dim));
    const Row row{std::vector<Head>(static_cast<std::size_t>(kv_heads),
                                    Head{MemoryFormula(head_dim, value_head_dim), {}, {}, {}}),
                  0};
    rows_.assign(static_cast<std::size_t>(batch), row);
    empty_ = row;
  }

  // The next tokens: [B, T, H, D], [B, T, K, D], [B, T, K, Dv] -> [B, T, H, Dv].
  heed::Tensor<double, 4> read(heed::View<const double, 4> q, heed::View<const double, 4> k,
                               heed::View<const double, 4> v, heed::View<const bool, 2> valid = {},
                               heed::View<const bool, 2> reset = {}) {
    heed::Tensor<double, 4> out({q.extent(0), q.extent(1), q.extent(2), v.extent(3)});
    for (Index b = 0; b < q.extent(0); ++b) {
      Row& row = rows_[static_cast<std::size_t>(b)];
      for (Index t = 0; t < q.extent(1); ++t) {
        if (reset.present() && reset(b, t)) row = empty_;
        if (valid.present() && !valid(b, t)) continue;
        const auto position = static_cast<double>(row.position++);
        for (Index h = 0; h < kv_heads_; ++h) {
          Head& head = row.heads[static_cast<std::size_t>(h)];
          const auto key = row_of(k.pointer(b, t, h), k.extent(3));
          head.turned.push_back(s_.rotary ? turned(key, position) : key);
          head.keys.push_back(s_.rotary_memory ? head.turned.back() : key);
          head.values.push_back(row_of(v.pointer(b, t, h), v.extent(3)));
        }
        for (Index h = 0; h < q.extent(2); ++h) {
          Head& head = row.heads[static_cast<std::size_t>(h / (q.extent(2) / kv_heads_))];
          const auto answer =
              answered(row_of(q.pointer(b, t, h), q.extent(3)), position, head, beta_[static_cast<std::size_t>(h)]);
          for (Index j = 0; j < v.extent(3); ++j) out(b, t, h, j) = answer[static_cast<std::size_t>(j)];
        }
        if (pending(b) == s_.segment_length) flush(b);
      }
    }
    return out;
  }

  // The open segment of a row enters its memory.
  void flush(Index b) {
    for (Head& head : rows_[static_cast<std::size_t>(b)].heads) {
      head.memory.update(head.keys, head.values, s_.rule);
      head.keys.clear();
      head.turned.clear();
      head.values.clear();
    }
  }

  Index pending(Index b) const { return static_cast<Index>(rows_[static_cast<std::size_t>(b)].heads[0].keys.size()); }
  Index position(Index b) const { return rows_[static_cast<std::size_t>(b)].position; }
  MemoryFormula& memory(Index b, Index h) {
    return rows_[static_cast<std::size_t>(b)].heads[static_cast<std::size_t>(h)].memory;
  }

 private:
  struct Head {
    MemoryFormula memory;
    std::vector<std::vector<double>> keys, turned, values;  // the open segment's
  };
  struct Row {
    std::vector<Head> heads;
    Index position = 0;
  };

  std::vector<double> turned(std::vector<double> x, double position) const {
    const auto pairs = static_cast<std::size_t>(s_.rotary_dim / 2);
    for (std::size_t i = 0; i < pairs; ++i) {
      const double frequency = std::pow(s_.theta, -2 * static_cast<double>(i) / static_cast<double>(s_.rotary_dim));
      const std::size_t one = s_.interleaved ? 2 * i : i;
      const std::size_t other = s_.interleaved ? 2 * i + 1 : i + pairs;
      const auto product = std::complex<double>(x[one], x[other]) * std::polar(1.0, position / s_.stretch * frequency);
      x[one] = product.real();
      x[other] = product.imag();
    }
    return x;
  }

  std::vector<double> answered(const std::vector<double>& q, double position, Head& head, double beta) const {
    const auto query = s_.rotary ? turned(q, position) : q;
    std::vector<double> scores;
    for (std::size_t i = 0; i < head.turned.size(); ++i) {
      double score = 0;
      for (std::size_t d = 0; d < query.size(); ++d) score += query[d] * head.turned[i][d];
      score *= s_.scale;
      if (s_.softcap > 0) score = s_.softcap * std::tanh(score / s_.softcap);
      const bool seen = s_.window == 0 || head.turned.size() - i <= static_cast<std::size_t>(s_.window);
      scores.push_back(seen ? score : -HUGE_VAL);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    std::vector<double> local(head.values[0].size(), 0.0);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      for (std::size_t j = 0; j < local.size(); ++j) local[j] += scores[i] / sum * head.values[i][j];
    }
    const double gate = 1 / (1 + std::exp(-beta));
    const double rest = 1 / (1 + std::exp(beta));
    const auto& memory_query = s_.rotary_memory ? query : q;
    const bool empty = head.memory.empty() || head.memory.denominator(memory_query) == 0;
    if (empty && !s_.apply_gate) return local;
    const auto recalled = head.memory.retrieve(memory_query);
    for (std::size_t j = 0; j < local.size(); ++j) local[j] = gate * recalled[j] + rest * local[j];
    return local;
  }

  InfiniSettings s_;
  Index kv_heads_;
  std::vector<double> beta_;
  std::vector<Row> rows_;
  Row empty_;
};

}  // namespace test
