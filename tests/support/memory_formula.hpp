// The compressive memory in double, as the paper writes it: independent of heed's kernels.
#pragma once

#include <cmath>
#include <vector>

#include "support/compare.hpp"

namespace test {

enum class Rule { linear, delta, safe_delta };

inline double phi(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

// One row and kv head.
class MemoryFormula {
 public:
  MemoryFormula(Index head_dim, Index value_head_dim)
      : d_(head_dim),
        dv_(value_head_dim),
        m_(static_cast<std::size_t>(head_dim * value_head_dim)),
        z_(static_cast<std::size_t>(head_dim)) {}

  double& m(Index d, Index j) { return m_[static_cast<std::size_t>(d * dv_ + j)]; }
  double& z(Index d) { return z_[static_cast<std::size_t>(d)]; }

  bool empty() const {
    for (const double z : z_) {
      if (z != 0) return false;
    }
    return true;
  }

  // φ(q)·z.
  double denominator(const std::vector<double>& q) {
    double sum = 0;
    for (Index d = 0; d < d_; ++d) sum += phi(q[static_cast<std::size_t>(d)]) * z(d);
    return sum;
  }

  // φ(q) M / (φ(q)·z), or 0.
  std::vector<double> retrieve(const std::vector<double>& q) {
    std::vector<double> answer(static_cast<std::size_t>(dv_), 0.0);
    const double divisor = denominator(q);
    for (Index j = 0; j < dv_ && divisor != 0; ++j) {
      double sum = 0;
      for (Index d = 0; d < d_; ++d) sum += phi(q[static_cast<std::size_t>(d)]) * m(d, j);
      answer[static_cast<std::size_t>(j)] = sum / divisor;
    }
    return answer;
  }

  // η of the safe delta rule for these keys.
  double safe_share(const std::vector<std::vector<double>>& keys) {
    double share = 1;
    for (Index d = 0; d < d_; ++d) {
      double mass = 0;
      for (const auto& key : keys) mass += phi(key[static_cast<std::size_t>(d)]);
      if (mass > 0) share = std::fmin(share, z(d) / mass);
    }
    return share;
  }

  // One segment.
  void update(const std::vector<std::vector<double>>& keys, const std::vector<std::vector<double>>& values, Rule rule) {
    const double share = rule == Rule::linear || empty() ? 0 : rule == Rule::delta ? 1 : safe_share(keys);
    std::vector<std::vector<double>> written = values;
    for (std::size_t t = 0; t < keys.size(); ++t) {
      const auto known = retrieve(keys[t]);
      for (std::size_t j = 0; j < written[t].size(); ++j) written[t][j] -= share * known[j];
    }
    for (std::size_t t = 0; t < keys.size(); ++t) {
      for (Index d = 0; d < d_; ++d) {
        const double feature = phi(keys[t][static_cast<std::size_t>(d)]);
        for (Index j = 0; j < dv_; ++j) m(d, j) += feature * written[t][static_cast<std::size_t>(j)];
        z(d) += feature;
      }
    }
  }

 private:
  Index d_;
  Index dv_;
  std::vector<double> m_;  // [D, Dv]
  std::vector<double> z_;  // [D]
};

// A contiguous last axis as doubles.
template <class T>
std::vector<double> row_of(const T* data, Index n) {
  std::vector<double> row;
  for (Index i = 0; i < n; ++i) row.push_back(to_double(data[i]));
  return row;
}

// Tokens `first` … first + count − 1 of head h of row b of a [B, S, heads, dim] tensor.
template <class T>
std::vector<std::vector<double>> tokens_of(const heed::View<const T, 4>& tensor, Index b, Index h, Index first,
                                           Index count) {
  std::vector<std::vector<double>> rows;
  for (Index t = first; t < first + count; ++t) rows.push_back(row_of(tensor.pointer(b, t, h), tensor.extent(3)));
  return rows;
}

}  // namespace test
