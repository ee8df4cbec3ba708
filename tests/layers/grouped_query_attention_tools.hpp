// A small GroupedQueryAttention and its weights, for its tests.
#pragma once

#include "heed/layers/grouped_query_attention.hpp"
#include "support/random.hpp"

namespace test::gqa {

using heed::GroupedQueryAttention;
using heed::GroupedQueryAttentionWeights;
using heed::HeadLayout;

constexpr HeadLayout dynamic_heads{};
constexpr HeadLayout small{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5};
constexpr Index hidden = 10;

template <class T, class B>
using Layer = GroupedQueryAttention<T, dynamic_heads, B>;

template <class T>
GroupedQueryAttentionWeights<T> random_weights(const HeadLayout& heads = small, Index hidden_size = hidden,
                                               bool bias = true) {
  const auto linear = [&](Index out, Index in, std::uint64_t seed) {
    heed::LinearWeights<T> weights{random_tensor<T>({out, in}, seed), {}};
    if (bias) weights.bias = random_tensor<T>({out}, seed + 1);
    return weights;
  };
  GroupedQueryAttentionWeights<T> weights;
  weights.query = linear(heads.num_heads * heads.head_dim, hidden_size, 31);
  weights.key = linear(heads.num_kv_heads * heads.head_dim, hidden_size, 33);
  weights.value = linear(heads.num_kv_heads * heads.value_head_dim, hidden_size, 35);
  weights.output = linear(hidden_size, heads.num_heads * heads.value_head_dim, 37);
  return weights;
}

}  // namespace test::gqa
