// What happens to attention scores, one at a time: the same for all attention kernels of devices.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/kernels/attention_arguments.hpp"

namespace heed::inline HEED_ABI::impl {

// A sequence of a call. Lengths that only the device knows cannot be checked before: no key is beyond what is kept.
template <class T>
HEED_DEVICE AttentionSequence<T> sequence_in_kernel(const AttentionArguments<T>& call, Index batch) {
  AttentionSequence<T> sequence = call.sequence(batch);
  const Index kept = sequence.key.heads.extent(1);
  const bool limited = !sequence.key.pages.present() && !call.cu_seqlens_q.present();
  if (limited && sequence.end_key - sequence.first_key > kept) sequence.end_key = sequence.first_key + kept;
  return sequence;
}

// What the scores of one query of one head are changed by.
template <class A>
struct ScoreRow {
  Index batch = 0;
  Index head = 0;
  Index position = 0;
  A slope = 0;
  const A* bias = nullptr;
  const bool* mask = nullptr;
};
template <class T>
HEED_DEVICE ScoreRow<accumulator_t<T>> score_row(const AttentionOptions<T>& options,
                                                 const AttentionSequence<T>& sequence, Index head, Index t) {
  ScoreRow<accumulator_t<T>> row;
  row.batch = sequence.batch;
  row.head = head;
  row.position = sequence.offset + t;
  if (options.alibi_slopes.present()) row.slope = options.alibi_slopes(head);
  if (options.bias.present()) row.bias = options.bias.row(row.batch, head, t);
  if (options.mask.present()) row.mask = options.mask.row(row.batch, head, t);
  return row;
}

// Everything between scale · q·k and the softmax; −∞ if masked. Of a key that is in reach.
template <class Context, class T, class Modifier, class A>
HEED_DEVICE A changed_score(const AttentionOptions<T>& options, const Modifier& modifier, const ScoreRow<A>& row,
                            Index s, A score) {
  if (options.softcap > 0) score = options.softcap * Context::tanh(score / options.softcap);
  if constexpr (!std::is_same_v<Modifier, NoModifier>) {
    ScoreTile<A> one{&score, 1, 1, 1, row.batch, row.head, row.position, s};
    modifier(one);
  }
  if (options.alibi_slopes.present()) {
    score -= row.slope * static_cast<A>(row.position > s ? row.position - s : s - row.position);
  }
  if (row.bias != nullptr) {
    const A bias = row.bias[s * options.bias.key_stride()];
    score = bias == minus_infinity<A>() ? bias : score + bias;
  }
  if (row.mask != nullptr && !row.mask[s * options.mask.key_stride()]) score = minus_infinity<A>();
  return score;
}

}  // namespace heed::inline HEED_ABI::impl
