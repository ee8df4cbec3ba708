// Reference kernel of ops::attention: one query after the other, its scores in a row of the workspace.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "heed/backend/reference.hpp"
#include "heed/core/workspace.hpp"
#include "heed/kernels/attention_arguments.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// scores[s − keys.begin] for one query and the keys it may attend; −inf where it does not attend.
template <class T, class Modifier>
void reference_scores(const AttentionArguments<T>& arguments, const AttentionSequence<T>& sequence,
                      const Modifier& modifier, Index head, Index t, KeyRange keys, accumulator_t<T>* scores) noexcept {
  using A = accumulator_t<T>;
  constexpr A masked = -std::numeric_limits<A>::infinity();
  const AttentionOptions<T>& options = arguments.options;
  const Index kv_head = head / arguments.group_size();
  const Index position = sequence.offset + t;

  for (Index s = keys.begin; s < keys.end; ++s) {
    const TokenHead<T> key = sequence.key.token(s, kv_head);
    A product = 0;
    for (Index d = 0; d < sequence.query.extent(2); ++d) product += widen(sequence.query(t, head, d)) * key[d];
    A score = arguments.scale() * product;
    if (options.softcap > 0) score = options.softcap * std::tanh(score / options.softcap);
    scores[s - keys.begin] = score;
  }

  ScoreTile<A> tile{scores,    keys.end - keys.begin, 1, keys.end - keys.begin, sequence.batch, head, position,
                    keys.begin};
  modifier(tile);

  for (Index s = keys.begin; s < keys.end; ++s) {
    A& score = scores[s - keys.begin];
    if (options.alibi_slopes.present()) {
      const Index distance = position > s ? position - s : s - position;
      score -= options.alibi_slopes(head) * static_cast<A>(distance);
    }
    if (options.bias.present()) {
      const A bias = options.bias.row(sequence.batch, head, t)[s * options.bias.key_stride()];
      score = bias == masked ? masked : score + bias;
    }
    if (options.mask.present()) {
      if (!options.mask.row(sequence.batch, head, t)[s * options.mask.key_stride()]) score = masked;
    }
  }
}

// One query of one head: its scores, their softmax with the sink, the weighted sum of the values.
template <class T, class Modifier>
void reference_attention_row(const AttentionArguments<T>& arguments, const AttentionSequence<T>& sequence,
                             const Modifier& modifier, Index head, Index t, accumulator_t<T>* scores) noexcept {
  using A = accumulator_t<T>;
  constexpr A masked = -std::numeric_limits<A>::infinity();
  const AttentionOptions<T>& options = arguments.options;
  const Index kv_head = head / arguments.group_size();
  const KeyRange keys = attended_keys(sequence, options, modifier, head, t);
  const Index count = keys.end - keys.begin;
  if (count > 0) reference_scores(arguments, sequence, modifier, head, t, keys, scores);

  A maximum = options.sinks.present() ? options.sinks(head) : masked;
  for (Index i = 0; i < count; ++i) maximum = scores[i] > maximum || std::isnan(scores[i]) ? scores[i] : maximum;
  A sum = options.sinks.present() && maximum != masked ? std::exp(options.sinks(head) - maximum) : A(0);
  for (Index i = 0; i < count; ++i) sum += scores[i] == masked ? A(0) : std::exp(scores[i] - maximum);
  if (sequence.log_sum_exp.present()) sequence.log_sum_exp(head, t) = sum == 0 ? masked : maximum + std::log(sum);

  // Scores become weights; a weight is never negative, so −1 marks a key that is not attended.
  for (Index i = 0; i < count; ++i) {
    if (scores[i] == masked) {
      scores[i] = -1;
      continue;
    }
    scores[i] = std::exp(scores[i] - maximum) / sum;
    if (options.dropout > 0) {
      Dropout dropout(static_cast<double>(options.dropout), options.dropout_seed, sequence.batch, head,
                      sequence.offset + t);
      dropout.apply(scores + i, 1, keys.begin + i, 1, 1 / (1 - options.dropout));
    }
  }
  for (Index d = 0; d < sequence.out.extent(2); ++d) {
    A result = 0;
    for (Index i = 0; i < count; ++i) {
      if (scores[i] == -1) continue;  // its value may be NaN
      result += scores[i] * sequence.value.token(keys.begin + i, kv_head)[d];
    }
    sequence.out(t, head, d) = narrow<T>(result);
  }
  if (sequence.weights.present()) {
    for (Index s = 0; s < sequence.weights.extent(2); ++s) {
      const bool attended = s >= keys.begin && s < keys.end && scores[s - keys.begin] != -1;
      sequence.weights(head, t, s) = narrow<T>(attended ? scores[s - keys.begin] : A(0));
    }
  }
}

}  // namespace impl

template <class T>
std::size_t attention_workspace_kernel(const Reference&, const AttentionExtents& extents) noexcept {
  Workspace measure = Workspace::measuring();
  measure.take<accumulator_t<T>>(extents.keys);
  return measure.size_needed();
}

template <class T, class Modifier>
void attention_kernel(const Reference&, const AttentionArguments<T>& arguments, const Modifier& modifier,
                      Workspace& workspace) noexcept {
  const Workspace::Frame frame(workspace);
  auto* scores = workspace.take<accumulator_t<T>>(arguments.extents.keys);
  for (Index b = 0; b < arguments.extents.batch; ++b) {
    const AttentionSequence<T> sequence = arguments.sequence(b);
    for (Index h = 0; h < arguments.extents.num_heads; ++h) {
      for (Index t = 0; t < sequence.queries(); ++t)
        impl::reference_attention_row(arguments, sequence, modifier, h, t, scores);
    }
  }
}

}  // namespace heed::inline HEED_ABI
