// What the attention kernels of every backend are handed, and the questions about positions that they all ask.
#pragma once

#include "heed/core/random.hpp"
#include "heed/ops/attention_options.hpp"
#include "heed/ops/key_values.hpp"
#include "heed/ops/score_modifier.hpp"

namespace heed {

// One sequence of a call: T queries over the keys that exist for it, first_key … keys() − 1.
template <class T>
struct AttentionSequence {
  View<const T, 3> query;  // [T, H, D]
  RowHeads<T> key;         // by number of the key
  RowHeads<T> value;
  View<T, 3> out;                         // [T, H, Dv]
  View<accumulator_t<T>, 2> log_sum_exp;  // [H, T], or absent
  View<T, 3> weights;                     // [H, T, S and the keys that do not exist], or absent
  Index batch;                            // which sequence this is
  Index offset;                           // position of query 0
  Index first_key;                        // the oldest one that a cache keeps, else 0
  Index end_key;

  HEED_ANYWHERE Index queries() const noexcept { return query.extent(0); }
  HEED_ANYWHERE Index keys() const noexcept { return end_key; }
};

// A checked call of ops::attention, or of ops::attention_varlen: then the batch axis is 1, the second axis holds all
// sequences one after the other, and cu_seqlens say where each begins.
template <class T, class Space = Host>
struct AttentionArguments {
  View<const T, 4, Space> query;  // [B, T, H, D]
  KeyValues<T, Space> keys;       // of the batch; without lengths each row has all slots
  View<T, 4, Space> out;          // [B, T, H, Dv]
  AttentionOptions<T, Space> options;
  View<const std::int64_t, 1, Space> cu_seqlens_q;  // [sequences + 1], or absent
  View<const std::int64_t, 1, Space> cu_seqlens_k;
  AttentionExtents extents;  // batch is the number of sequences; queries and keys are those of the longest one

  HEED_ANYWHERE Index group_size() const noexcept { return extents.num_heads / extents.num_kv_heads; }
  HEED_ANYWHERE accumulator_t<T> scale() const noexcept { return options.scale.value(extents.head_dim); }

  HEED_ANYWHERE AttentionSequence<T> sequence(Index batch) const noexcept {
    const bool packed = cu_seqlens_q.present();
    const Index row = packed ? 0 : batch;
    const Index first_query = packed ? static_cast<Index>(cu_seqlens_q(batch)) : 0;
    const Index queries = packed ? static_cast<Index>(cu_seqlens_q(batch + 1)) - first_query : query.extent(1);
    RowHeads<T> key = keys.key_row(row);
    RowHeads<T> value = keys.value_row(row);
    Index end = keys.lengths.present() ? keys.length(row) : key.heads.extent(1);
    if (packed) {  // key 0 lies behind all those of the sequences before
      key.first = value.first = -static_cast<Index>(cu_seqlens_k(batch));
      end = static_cast<Index>(cu_seqlens_k(batch + 1) - cu_seqlens_k(batch));
    }
    Index offset = options.causal == Causal::bottom_right ? end - queries : 0;
    if (options.query_offsets.present()) offset = static_cast<Index>(options.query_offsets(batch));

    const auto& lse = options.log_sum_exp;
    return {query[row].slice(0, first_query, queries),
            key,
            value,
            out[row].slice(0, first_query, queries),
            lse.present() ? lse[row].slice(1, first_query, queries) : View<accumulator_t<T>, 2>(),
            options.weights.present() ? options.weights[batch] : View<T, 3>(),
            batch,
            offset,
            packed ? 0 : keys.first_token(row),
            end};
  }
};

}  // namespace heed

namespace heed::inline HEED_ABI::impl {

// The keys that query t of a sequence may attend as far as order decides: those that exist, Causal, Window and the
// modifier's keys(). A mask or bias may take more away.
template <class T, class Modifier>
HEED_ANYWHERE KeyRange attended_keys(const AttentionSequence<T>& sequence, const AttentionOptions<T>& options,
                                     const Modifier& modifier, Index head, Index t) noexcept {
  const Index position = sequence.offset + t;
  const Window window = options.window;
  Index begin = sequence.first_key;
  Index end = sequence.keys();
  // Written so that no sum can overflow, however wide the window.
  if (options.causal != Causal::none && position < end - 1) end = position + 1;
  if (window.right >= 0 && window.right < end - 1 - position) end = position + window.right + 1;
  if (window.left >= 0 && window.left < position - begin) begin = position - window.left;
  if constexpr (SelectsKeys<Modifier>) {
    const KeyRange keys = modifier.keys(sequence.batch, head, position);
    if (keys.begin > begin) begin = keys.begin;
    if (keys.end < end) end = keys.end;
  }
  return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
}

// Which attention weights dropout drops: a pure function of seed, batch, head and the positions of query and key.
class Dropout {
 public:
  HEED_ANYWHERE Dropout(double probability, std::uint64_t seed, Index batch, Index head, Index query) noexcept
      : seed_(seed),
        threshold_(static_cast<std::uint64_t>(std::ceil(probability * 0x1p32))),
        counter_{{0, static_cast<std::uint32_t>(query), static_cast<std::uint32_t>(head),
                  static_cast<std::uint32_t>(batch)}} {}

  // Multiplies the weights of keys first … first + count − 1, which lie `stride` apart, by 0 or by scale = 1 / (1 −
  // probability); NaN stays NaN.
  template <class A>
  HEED_ANYWHERE void apply(A* weights, Index stride, Index first, Index count, A scale) noexcept {
    RandomWords words;
    for (Index i = 0; i < count; ++i) {
      const Index key = first + i;
      if (i == 0 || key % 4 == 0) {  // one block of random words serves four keys
        counter_.words[0] = static_cast<std::uint32_t>(key / 4);
        words = philox(seed_, counter_);
      }
      weights[i * stride] *= words[key % 4] < threshold_ ? A(0) : scale;
    }
  }

 private:
  std::uint64_t seed_;
  std::uint64_t threshold_;  // word < probability · 2^32 exactly if word < this integer
  RandomWords counter_;
};

}  // namespace heed::inline HEED_ABI::impl
