// Calls of ops::attention with random sizes and options.
#pragma once

#include "ops/attention_formula.hpp"
#include "support/random.hpp"

namespace test {

// One call: random sizes around those of vectors, register tiles and key tiles, and random options.
template <class T>
struct RandomAttention {
  using A = heed::accumulator_t<T>;

  heed::Tensor<T, 4> query, key, value;
  heed::Tensor<bool, 4> mask;
  heed::Tensor<A, 4> bias;
  heed::Tensor<A, 1> slopes, sinks;
  heed::Tensor<std::int64_t, 1> lengths, offsets;
  heed::AttentionOptions<T> options;

  explicit RandomAttention(std::uint64_t seed) {
    Random random(seed);
    const auto pick = [&](auto... choices) {
      const Index list[] = {choices...};
      return list[random.below(static_cast<Index>(sizeof...(choices)))];
    };
    const auto sometimes = [&](Index one_in) { return random.below(one_in) == 0; };
    Index batch, kv_heads, group, queries, keys, depth, width;
    do {
      batch = pick(1, 1, 2, 3);
      kv_heads = pick(1, 1, 2, 3);
      group = pick(1, 1, 2, 3, 4, 7);
      depth = pick(1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 64, 80, 100, 128, 256);
      width = sometimes(2) ? depth : pick(1, 2, 5, 8, 15, 16, 17, 32, 33, 64, 65, 192);
      queries = pick(0, 1, 1, 2, 3, 5, 7, 16, 29, 55, 56, 57, 64, 113, 230);
      keys = pick(0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 65, 100, 255, 256, 257, 300, 511, 512, 513, 700);
    } while (batch * kv_heads * group * queries * keys * (depth + width) > 1500000);
    const Index heads = kv_heads * group;

    query = random_tensor<T>({batch, queries, heads, depth}, seed + 1, -2, 2);
    key = random_tensor<T>({batch, keys, kv_heads, depth}, seed + 2, -2, 2);
    value = random_tensor<T>({batch, keys, kv_heads, width}, seed + 3);

    if (sometimes(3)) options.scale = static_cast<A>(pick(-1, 0, 1, 2)) / 4;
    if (sometimes(4)) options.softcap = static_cast<A>(pick(1, 5, 50));
    options.causal = static_cast<heed::Causal>(random.below(3));
    if (sometimes(3)) options.window = {pick(-1, 0, 1, 5, 100, 300), pick(-1, 0, 1, 5, 300)};
    if (sometimes(3)) {
      mask = heed::Tensor<bool, 4>({pick(1, batch), pick(1, heads), pick(1, queries), pick(1, keys, keys, keys)});
      for (bool& attend : mask.span()) attend = !sometimes(3);
      options.mask = mask;
    }
    if (sometimes(3)) {
      bias = heed::Tensor<A, 4>({pick(1, batch), pick(1, heads), pick(1, queries), pick(1, keys, keys, keys)});
      for (A& element : bias.span()) element = static_cast<A>(sometimes(5) ? -infinity : random.uniform(-3, 3));
      options.bias = bias;
    }
    if (sometimes(4)) {
      slopes = random_tensor<A>({heads}, seed + 4, 0, 0.05);  // no weight underflows: 0 · inf is NaN
      options.alibi_slopes = slopes;
    }
    if (sometimes(4)) {
      sinks = random_tensor<A>({heads}, seed + 5, -3, 3);
      if (sometimes(3)) sinks(0) = static_cast<A>(-infinity);
      options.sinks = sinks;
    }
    if (sometimes(3)) {
      lengths = random_ids({batch}, seed + 6, keys + 1);
      options.key_lengths = lengths;
    }
    if (sometimes(4)) {
      offsets = random_ids({batch}, seed + 7, keys + 20);
      for (std::int64_t& offset : offsets.span()) offset -= 10;
      options.query_offsets = offsets;
    }
    if (sometimes(4)) {
      options.dropout = A(0.25);
      options.dropout_seed = random.bits();
    }
    // Keys that nobody attends are NaN, and now and then a value is not finite that somebody may attend.
    poison_unattended();
    if (sometimes(3) && !value.empty()) {
      for (int i = 0; i < 3; ++i) {
        const double poison = sometimes(2) ? nan_value : sometimes(2) ? infinity : -infinity;
        value.data()[random.below(value.size())] = from_double<T>(poison);
      }
    }
    if (sometimes(8) && !key.empty()) key.data()[random.below(key.size())] = from_double<T>(nan_value);
  }

  void poison_unattended() {
    const Index queries = query.extent(1), heads = query.extent(2), keys = key.extent(1), kv_heads = key.extent(2);
    for (Index b = 0; b < query.extent(0); ++b) {
      for (Index s = 0; s < keys; ++s) {
        for (Index k = 0; k < kv_heads; ++k) {
          bool attended = false;
          for (Index h = k * (heads / kv_heads); h < (k + 1) * (heads / kv_heads); ++h) {
            for (Index t = 0; t < queries; ++t) attended = attended || may_attend(options, b, h, t, s, queries, keys);
          }
          if (attended) continue;
          for (Index d = 0; d < key.extent(3); ++d) key(b, s, k, d) = from_double<T>(nan_value);
          for (Index d = 0; d < value.extent(3); ++d) value(b, s, k, d) = from_double<T>(nan_value);
        }
      }
    }
  }
};

}  // namespace test
