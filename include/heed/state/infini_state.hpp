// InfiniState: what an Infini-attention layer remembers of each row: the compressive memory and the open segment.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "heed/core/tensor.hpp"
#include "heed/ops/compressive_memory_options.hpp"
#include "heed/ops/rope_options.hpp"
#include "heed/state/infini_state_file.hpp"
#include "heed/state/infini_state_layout.hpp"

namespace heed {

// The parts of a state, for what reads and writes it; a user needs them to hand a memory in or out.
template <Scalar T>
struct InfiniStateParts {
  using A = accumulator_t<T>;

  View<A, 4> memory = {};                // M [B, K, D, Dv]
  View<A, 3> normalizer = {};            // z [B, K, D]
  View<T, 4> segment_keys = {};          // [B, L, K, D]: the open segment's, without position
  View<T, 4> rotated_keys = {};          // [B, L, K, D]: a cache: the same, turned; absent without rotary positions
  View<T, 4> segment_values = {};        // [B, L, K, Dv]
  View<std::int64_t, 1> pending = {};    // [B]: tokens in the open segment, 0 … L − 1
  View<std::int64_t, 1> position = {};   // [B]: tokens since the document's start
  bool* rotated_keys_current = nullptr;  // false: rotated_keys must be made again before they are read

  // A row as if nothing had been read.
  HEED_INLINE void reset(Index row) const noexcept {
    const View<A, 3> m = memory[row];
    const View<A, 2> z = normalizer[row];
    for (Index i = 0; i < m.size(); ++i) m.data_handle()[i] = 0;
    for (Index i = 0; i < z.size(); ++i) z.data_handle()[i] = 0;
    pending(row) = 0;
    position(row) = 0;
  }
};

// The state of one layer for a batch of rows (streams), in memory that does not grow with what was read.
//
//   auto state = attention.make_state(batch);
//   attention.forward(cpu, x, state, out, workspace);   // reads and writes it
//   auto before = state.clone();                        // copies are explicit: a state may be large
//   state.rollback(2);                                  // the last two tokens of every row were never read
//   state.save(writer);                                 // to a SafetensorsWriter or any other TensorSink
//
// M and z are float or wider, always. A segment enters M once, when it is full; until then its keys and values are kept
// as they are. Rows are independent: each has its own pending tokens and position. Movable, not copyable. Used by one
// call at a time.
template <Scalar T>
class InfiniState {
 public:
  using A = accumulator_t<T>;

  HEED_INLINE InfiniState() noexcept {}

  // Empty memories for `batch` rows; layers' make_state() says the layout. Allocates all it will ever need.
  HEED_INLINE InfiniState(Index batch, const InfiniStateLayout& layout)
      : layout_(layout),
        memory_({batch, layout.num_kv_heads, layout.head_dim, layout.value_head_dim}),
        normalizer_({batch, layout.num_kv_heads, layout.head_dim}),
        keys_({batch, layout.segment_length, layout.num_kv_heads, layout.head_dim}),
        values_({batch, layout.segment_length, layout.num_kv_heads, layout.value_head_dim}),
        pending_({batch}),
        position_({batch}) {
    if (layout.local_positions == TokenPositions::rotary) {
      rotated_ = Tensor<T, 4>({batch, layout.segment_length, layout.num_kv_heads, layout.head_dim});
    }
  }

  HEED_INLINE InfiniState(InfiniState&& other) noexcept { swap(other); }
  HEED_INLINE InfiniState& operator=(InfiniState&& other) noexcept {
    InfiniState moved(std::move(other));
    swap(moved);
    return *this;
  }
  HEED_INLINE ~InfiniState() {}

  // A copy. Allocates.
  [[nodiscard]] HEED_INLINE InfiniState clone() const {
    InfiniState copy;
    copy.layout_ = layout_;
    copy.memory_ = memory_;
    copy.normalizer_ = normalizer_;
    copy.keys_ = keys_;
    copy.rotated_ = rotated_;
    copy.values_ = values_;
    copy.pending_ = pending_;
    copy.position_ = position_;
    copy.rotated_current_ = rotated_current_;
    return copy;
  }

  HEED_INLINE Index batch() const noexcept { return pending_.extent(0); }
  HEED_INLINE const InfiniStateLayout& layout() const noexcept { return layout_; }

  // M [B, K, D, Dv] and z [B, K, D]: full segments only. Writable, to restore a memory that was kept elsewhere.
  HEED_INLINE View<A, 4> memory() noexcept { return memory_; }
  HEED_INLINE View<const A, 4> memory() const noexcept { return memory_; }
  HEED_INLINE View<A, 3> normalizer() noexcept { return normalizer_; }
  HEED_INLINE View<const A, 3> normalizer() const noexcept { return normalizer_; }

  // [B]: tokens in each row's open segment, 0 … L − 1.
  HEED_INLINE View<const std::int64_t, 1> pending() const noexcept { return pending_; }
  // [B]: tokens of each row since its document's start, padding not counted.
  HEED_INLINE View<const std::int64_t, 1> position() const noexcept { return position_; }

  // All rows, or one, as if nothing had been read.
  HEED_INLINE void reset() noexcept {
    for (Index row = 0; row < batch(); ++row) reset(row);
  }
  HEED_INLINE void reset(Index row) noexcept {
    HEED_ASSERT(row >= 0 && row < batch());
    parts().reset(row);
  }

  // Takes back the last tokens of every row's, or of one row's, open segment, exactly. What has entered M cannot be
  // taken back: for that keep a clone(). Errors: OptionError if the open segment has fewer tokens (then nothing is
  // changed).
  HEED_INLINE void rollback(Index tokens) {
    for (Index row = 0; row < batch(); ++row) raise_if(check_rollback(row, tokens));
    for (Index row = 0; row < batch(); ++row) take_back(row, tokens);
  }
  HEED_INLINE void rollback(Index row, Index tokens) {
    raise_if(check_rollback(row, tokens));
    take_back(row, tokens);
  }
  // What is wrong with the arguments of rollback().
  [[nodiscard]] HEED_INLINE Problem check_rollback(Index row, Index tokens) const noexcept {
    return check_infini_rollback(row, batch(), tokens, row >= 0 && row < batch() ? pending_(row) : 0);
  }

  // Bytes of all that is kept; constant.
  HEED_INLINE Index size_bytes() const noexcept {
    return (memory_.size() + normalizer_.size()) * static_cast<Index>(sizeof(A)) +
           (keys_.size() + rotated_.size() + values_.size()) * static_cast<Index>(sizeof(T)) +
           (pending_.size() + position_.size()) * static_cast<Index>(sizeof(std::int64_t));
  }

  // Hands everything to a TensorSink such as SafetensorsWriter: tensors memory, normalizer, segment_keys,
  // segment_values (as many tokens as the fullest row has), pending, position; metadata heed.state = 1 and the layout.
  // With a prefix, so that one file holds the states of many layers, all of these begin with "prefix.". The state must
  // live, and not change, until the sink has written.
  template <class Sink>
  HEED_INLINE void save(Sink& sink, std::string_view prefix = {}) const {
    save_infini_state(const_cast<InfiniState&>(*this).parts(), layout_, sink, prefix);
  }

  // A state from a TextSource such as SafetensorsReader; further calls give the bits that the saved state would have
  // given. Layers' load_state() says the layout. Errors: FormatError, naming the field, if there is no state under that
  // prefix or it has another layout.
  template <class Source>
  [[nodiscard]] HEED_INLINE static InfiniState load(const Source& source, const InfiniStateLayout& layout,
                                                    std::string_view prefix = {}) {
    auto saved = read_infini_state<T>(source, layout, prefix);
    InfiniState state(saved.memory.extent(0), layout);
    state.memory_ = std::move(saved.memory);
    state.normalizer_ = std::move(saved.normalizer);
    state.pending_ = std::move(saved.pending);
    state.position_ = std::move(saved.position);
    copy_tokens(saved.segment_keys, state.keys_);
    copy_tokens(saved.segment_values, state.values_);
    state.rotated_current_ = false;
    return state;
  }

  // Views of everything, for layers.
  HEED_INLINE InfiniStateParts<T> parts() noexcept {
    return {memory_, normalizer_, keys_, rotated_, values_, pending_, position_, &rotated_current_};
  }

 private:
  // The first tokens of each row: [B, tokens, …] -> [B, L, …].
  HEED_INLINE static void copy_tokens(const Tensor<T, 4>& from, Tensor<T, 4>& to) noexcept {
    for (Index b = 0; b < from.extent(0); ++b) {
      const View<const T, 3> row = from.view()[b];
      T* const out = to.view()[b].data_handle();
      for (Index i = 0; i < row.size(); ++i) out[i] = row.data_handle()[i];
    }
  }
  HEED_INLINE void take_back(Index row, Index tokens) noexcept {
    pending_(row) -= tokens;
    position_(row) -= tokens;
  }
  HEED_INLINE void swap(InfiniState& other) noexcept {
    const InfiniStateLayout layout = layout_;  // std::swap of a type of ours would be code that units share
    layout_ = other.layout_;
    other.layout_ = layout;
    memory_.swap(other.memory_);
    normalizer_.swap(other.normalizer_);
    keys_.swap(other.keys_);
    rotated_.swap(other.rotated_);
    values_.swap(other.values_);
    pending_.swap(other.pending_);
    position_.swap(other.position_);
    std::swap(rotated_current_, other.rotated_current_);
  }

  InfiniStateLayout layout_;
  Tensor<A, 4> memory_;
  Tensor<A, 3> normalizer_;
  Tensor<T, 4> keys_;
  Tensor<T, 4> rotated_;
  Tensor<T, 4> values_;
  Tensor<std::int64_t, 1> pending_;
  Tensor<std::int64_t, 1> position_;
  bool rotated_current_ = true;
};

}  // namespace heed
