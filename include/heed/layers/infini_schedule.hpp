// How a call's tokens come to the open segments: which of which row go together, where segments end, what is padding.
#pragma once

#include "heed/layers/infini_segment.hpp"

namespace heed::inline HEED_ABI::impl {

// A piece of a call. Without query and out the tokens are read and nothing is answered.
template <class T>
struct InfiniInput {
  View<const T, 4> query = {};     // [B, n, H, D]
  View<const T, 4> key = {};       // [B, n, K, D]
  View<const T, 4> value = {};     // [B, n, K, Dv]
  View<T, 4> out = {};             // [B, n, H, Dv]
  View<const bool, 2> valid = {};  // [B, n] or absent
  View<const bool, 2> reset = {};  // [B, n] or absent

  bool is_valid(Index b, Index t) const noexcept { return !valid.present() || valid(b, t); }
  bool begins_document(Index b, Index t) const noexcept { return reset.present() && reset(b, t); }
  bool wants_answers() const noexcept { return query.present(); }
};

// True if all rows stand at the same token of their segments and every token counts.
template <class T>
bool rows_are_aligned(const InfiniInput<T>& input, const InfiniStateParts<T>& state) noexcept {
  for (Index b = 1; b < state.pending.extent(0); ++b) {
    if (state.pending(b) != state.pending(0)) return false;
  }
  if (!input.valid.present() && !input.reset.present()) return true;
  for (Index b = 0; b < input.key.extent(0); ++b) {
    for (Index t = 0; t < input.key.extent(1); ++t) {
      if (!input.is_valid(b, t) || input.begins_document(b, t)) return false;
    }
  }
  return true;
}

// Aligned rows: runs are slices of the input.
template <class T, class B>
void read_aligned(const InfiniSegment<T, B>& segment, const B& backend, const InfiniInput<T>& input,
                  const InfiniStateParts<T>& state, Workspace& workspace) noexcept {
  const Index batch = input.key.extent(0);
  const Index seq = input.key.extent(1);
  const Index length = segment.layout().segment_length;
  const bool answers = input.wants_answers();
  for (Index first = 0; first < seq;) {
    const Workspace::Frame frame(workspace);
    const auto slot = static_cast<Index>(state.pending(0));
    const Index n = seq - first < length - slot ? seq - first : length - slot;
    for (Index b = 0; b < batch; ++b) {
      segment.append(state, b, slot, input.key[b].slice(0, first, n), input.value[b].slice(0, first, n));
    }
    const auto angles = segment.turn_keys(backend, state, 0, batch, slot, n, answers, workspace);
    if (answers) {
      const InfiniRun<T> run{
          .query = input.query.slice(1, first, n), .out = input.out.slice(1, first, n), .keys = slot + n};
      const auto scratch = segment.take_scratch(workspace, batch, n);
      segment.turn(backend, run.query, angles, scratch.query);
      segment.answer(backend, run, scratch, state, workspace);
    }
    const bool full = slot + n == length;
    if (full) segment.compress(backend, state, {}, workspace);
    for (Index b = 0; b < batch; ++b) {
      state.pending(b) = full ? 0 : slot + n;
      state.position(b) += n;
    }
    first += n;
  }
}

// A round of rows that are not aligned: each row's next tokens up to the end of its segment, its document or the input,
// gathered from the left.
template <class T>
struct InfiniRound {
  View<std::int64_t, 1> begin, end;  // [B]: tokens of the input, padding among them
  View<std::int64_t, 1> count;       // [B]: how many count
  View<std::int64_t, 1> offset;      // [B]: pending before the round
  View<std::int64_t, 1> length;      // [B]: pending with it
  View<T, 4> query, out;             // [B, R, H, D], [B, R, H, Dv]

  static InfiniRound take(Workspace& workspace, const HeadLayout& heads, Index batch, Index tokens) noexcept {
    InfiniRound round;
    View<std::int64_t, 1>* const lists[] = {&round.begin, &round.end, &round.count, &round.offset, &round.length};
    for (View<std::int64_t, 1>* list : lists) *list = workspace.take<std::int64_t, 1>({batch});
    round.query = workspace.take<T>({batch, tokens, heads.num_heads, heads.head_dim});
    round.out = workspace.take<T>({batch, tokens, heads.num_heads, heads.value_head_dim});
    return round;
  }

  // Calls f(number in the round, token of the input) for the tokens of row b that count.
  template <class F>
  void for_each_token(const InfiniInput<T>& input, Index b, F&& f) const noexcept {
    Index i = 0;
    for (Index t = static_cast<Index>(begin(b)); t < end(b); ++t) {
      if (input.is_valid(b, t)) f(i++, t);
    }
  }
};

// Finds each row's tokens for the next round, and begins the documents before them. Returns the most tokens of a row; 0
// at the end of the input.
template <class T>
Index next_round(const InfiniInput<T>& input, const InfiniStateParts<T>& state, Index segment_length,
                 const InfiniRound<T>& round) noexcept {
  const Index seq = input.key.extent(1);
  Index most = 0;
  for (Index b = 0; b < input.key.extent(0); ++b) {
    Index t = static_cast<Index>(round.end(b));
    for (; t < seq; ++t) {
      if (input.begins_document(b, t)) state.reset(b);
      if (input.is_valid(b, t)) break;
    }
    round.begin(b) = t;
    Index count = 0;
    for (; t < seq && state.pending(b) + count < segment_length; ++t) {
      if (count > 0 && input.begins_document(b, t)) break;
      if (input.is_valid(b, t)) ++count;
    }
    round.end(b) = t;
    round.count(b) = count;
    round.offset(b) = state.pending(b);
    round.length(b) = state.pending(b) + count;
    if (count > most) most = count;
  }
  return most;
}

// Rows in different places, with padding or new documents among their tokens.
template <class T, class B>
void read_ragged(const InfiniSegment<T, B>& segment, const B& backend, const InfiniInput<T>& input,
                 const InfiniStateParts<T>& state, Workspace& workspace) noexcept {
  const Index batch = input.key.extent(0);
  const Index seq = input.key.extent(1);
  const Index segment_length = segment.layout().segment_length;
  const bool answers = input.wants_answers();
  for (Index b = 0; answers && b < batch; ++b) {
    for (Index t = 0; t < seq; ++t) {
      if (!input.is_valid(b, t)) zero_tokens(input.out[b].slice(0, t, 1));
    }
  }
  const Workspace::Frame frame(workspace);
  const auto round =
      InfiniRound<T>::take(workspace, segment.heads(), batch, seq < segment_length ? seq : segment_length);
  for (Index b = 0; b < batch; ++b) round.end(b) = 0;
  while (const Index most = next_round(input, state, segment_length, round)) {
    const Workspace::Frame round_frame(workspace);
    InfiniRun<T> run{.query = round.query.slice(1, 0, most),
                     .out = round.out.slice(1, 0, most),
                     .keys = 0,
                     .key_lengths = round.length,
                     .query_offsets = round.offset};
    const auto scratch =
        answers ? segment.take_scratch(workspace, batch, most) : typename InfiniSegment<T, B>::Scratch{};
    for (Index b = 0; b < batch; ++b) {
      const auto slot = static_cast<Index>(round.offset(b));
      const auto count = static_cast<Index>(round.count(b));
      if (slot + count > run.keys) run.keys = slot + count;
      round.for_each_token(input, b, [&](Index i, Index t) noexcept {
        segment.append(state, b, slot + i, input.key[b].slice(0, t, 1), input.value[b].slice(0, t, 1));
        if (answers) copy_tokens(input.query[b].slice(0, t, 1), round.query[b].slice(0, i, 1));
      });
      const Workspace::Frame row_frame(workspace);
      const auto angles = segment.turn_keys(backend, state, b, 1, slot, count, answers, workspace);
      if (!answers) continue;
      // Rows with fewer tokens are filled up: what is answered there goes nowhere.
      const auto row = [&](const auto& view) noexcept { return view.slice(0, b, 1).slice(1, 0, count); };
      zero_tokens(round.query[b].slice(0, count, most - count));
      if (!segment.turns()) continue;
      zero_tokens(scratch.query[b].slice(0, count, most - count));
      if (count > 0) segment.turn(backend, row(run.query), angles, row(scratch.query));
    }
    if (answers) segment.answer(backend, run, scratch, state, workspace);

    bool any_full = false;
    for (Index b = 0; b < batch; ++b) {
      if (answers) {
        round.for_each_token(input, b, [&](Index i, Index t) noexcept {
          copy_tokens(View<const T, 4>(round.out)[b].slice(0, i, 1), input.out[b].slice(0, t, 1));
        });
      }
      const bool full = round.length(b) == segment_length;
      any_full = any_full || full;
      state.pending(b) = full ? 0 : round.length(b);
      state.position(b) += round.count(b);
      if (!full) round.length(b) = 0;  // from here on: tokens that enter the memory
    }
    if (any_full) segment.compress(backend, state, round.length, workspace);
  }
}

// Bytes that read_piece() takes for pieces of `batch` rows of `tokens` tokens.
template <class T, class B>
std::size_t read_piece_size(const InfiniSegment<T, B>& segment, const B& backend, Index batch, Index tokens) noexcept {
  if (tokens > segment.layout().segment_length) tokens = segment.layout().segment_length;
  Workspace measured = Workspace::measuring();
  InfiniRound<T>::take(measured, segment.heads(), batch, tokens);
  return measured.size_needed() + segment.run_size(backend, batch, tokens);
}

// The next tokens of every row enter the open segments, are answered, and full segments enter the memory.
template <class T, class B>
void read_piece(const InfiniSegment<T, B>& segment, const B& backend, const InfiniInput<T>& input,
                const InfiniStateParts<T>& state, Workspace& workspace) noexcept {
  if (input.wants_answers() || segment.memory_turns()) segment.turn_kept_keys(backend, state, workspace);
  if (rows_are_aligned(input, state)) {
    read_aligned(segment, backend, input, state, workspace);
  } else {
    read_ragged(segment, backend, input, state, workspace);
  }
}

}  // namespace heed::inline HEED_ABI::impl
