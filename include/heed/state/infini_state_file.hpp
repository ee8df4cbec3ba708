// Saving and restoring an InfiniState through a TensorSink and a TextSource.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "heed/core/tensor.hpp"
#include "heed/io/tensor_sink.hpp"
#include "heed/state/infini_state_layout.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// "prefix.name" in a fixed buffer.
struct StateName {
  char text[512] = {};

  StateName(std::string_view prefix, const char* name) {
    const std::size_t rest = std::strlen(name) + 2;
    if (prefix.size() + rest > sizeof text) {
      raise(problem_at(ErrorKind::format, "InfiniState", name).append("the prefix is too long"));
    }
    if (!prefix.empty()) std::memcpy(text, prefix.data(), prefix.size());  // an empty view may hold a null pointer
    std::size_t length = prefix.size();
    if (length > 0 && text[length - 1] != '.') text[length++] = '.';
    std::memcpy(text + length, name, rest - 1);
  }
};

}  // namespace impl

// See InfiniState::save().
template <class Parts, TensorSink Sink>
void save_infini_state(const Parts& parts, const InfiniStateLayout& layout, Sink& sink, std::string_view prefix) {
  const auto add = [&](const char* name, const auto& view) { sink.add(impl::StateName(prefix, name).text, view); };
  const auto note = [&](const char* name, const char* text) {
    sink.metadata(impl::StateName(prefix, name).text, text);
  };
  Index tokens = 0;
  for (Index b = 0; b < parts.pending.extent(0); ++b) {
    if (parts.pending(b) > tokens) tokens = static_cast<Index>(parts.pending(b));
  }
  note("heed.state", "1");
  impl::for_each_field(layout, [&](const char* name, const impl::StateText& text) { note(name, text.text); });
  add("memory", parts.memory);
  add("normalizer", parts.normalizer);
  add("segment_keys", parts.segment_keys.slice(1, 0, tokens));
  add("segment_values", parts.segment_values.slice(1, 0, tokens));
  add("pending", parts.pending);
  add("position", parts.position);
}

namespace impl {

// What a file holds of a state.
template <class T>
struct SavedState {
  Tensor<accumulator_t<T>, 4> memory;      // [B, K, D, Dv]
  Tensor<accumulator_t<T>, 3> normalizer;  // [B, K, D]
  Tensor<T, 4> segment_keys;               // [B, tokens of the fullest row, K, D]
  Tensor<T, 4> segment_values;             // [B, the same, K, Dv]
  Tensor<std::int64_t, 1> pending;         // [B]
  Tensor<std::int64_t, 1> position;        // [B]
};

// Raises unless the texts under the prefix say that a state of this layout is there.
template <TextSource Source>
void check_saved_layout(const Source& source, const InfiniStateLayout& layout, std::string_view prefix) {
  const auto expect = [&](const char* name, const char* wanted) {
    const std::string_view found = source.metadata(StateName(prefix, name).text);
    if (found == wanted) return;
    char copy[480] = "nothing";
    const std::size_t length = found.size() < sizeof copy ? found.size() : sizeof copy - 1;
    if (length > 0) {
      std::memcpy(copy, found.data(), length);
      copy[length] = '\0';
    }
    raise(problem_at(ErrorKind::format, "InfiniState", name)
              .append("expected ")
              .append(wanted)
              .append(", got ")
              .append(copy));
  };
  expect("heed.state", "1");
  for_each_field(layout, [&](const char* name, const StateText& text) { expect(name, text.text); });
}

// Raises unless the tensors fit each other and the layout.
template <class T>
void check_saved_tensors(const SavedState<T>& saved, const InfiniStateLayout& layout) {
  const char* door = "InfiniState";
  const Axis batch{"batch", saved.memory.extent(0)};
  const Axis tokens{"pending", saved.segment_keys.extent(1)};
  const Axis heads{"kv heads", layout.num_kv_heads};
  const Axis head_dim{"head dim", layout.head_dim};
  const Axis value_head_dim{"value head dim", layout.value_head_dim};
  const Problem problem = first_problem(
      check_input(door, "memory", saved.memory.view(), {batch, heads, head_dim, value_head_dim}),
      check_input(door, "normalizer", saved.normalizer.view(), {batch, heads, head_dim}),
      check_input(door, "segment_keys", saved.segment_keys.view(), {batch, tokens, heads, head_dim}),
      check_input(door, "segment_values", saved.segment_values.view(), {batch, tokens, heads, value_head_dim}),
      check_input(door, "pending", saved.pending.view(), {batch}),
      check_input(door, "position", saved.position.view(), {batch}));
  if (problem) raise(Problem(ErrorKind::format, problem.text()));
  for (Index b = 0; b < batch.extent; ++b) {
    const auto pending = static_cast<Index>(saved.pending(b));
    if (pending < 0 || pending > tokens.extent || pending >= layout.segment_length) {
      raise(problem_at(ErrorKind::format, door, "pending")
                .append("row ")
                .append(b)
                .append(" has ")
                .append(pending)
                .append(" tokens, the file holds ")
                .append(tokens.extent)
                .append(" of a segment of ")
                .append(layout.segment_length));
    }
    if (saved.position(b) < pending) {
      raise(problem_at(ErrorKind::format, door, "position")
                .append("row ")
                .append(b)
                .append(" is at ")
                .append(static_cast<Index>(saved.position(b)))
                .append(", before its open segment's ")
                .append(pending)
                .append(" tokens"));
    }
  }
}

}  // namespace impl

// Reads and checks what InfiniState::save() wrote. Errors: FormatError, naming the field.
template <Scalar T, TextSource Source>
impl::SavedState<T> read_infini_state(const Source& source, const InfiniStateLayout& layout, std::string_view prefix) {
  impl::check_saved_layout(source, layout, prefix);
  const auto name = [&](const char* text) { return impl::StateName(prefix, text); };
  impl::SavedState<T> saved;
  saved.memory = source.template read<accumulator_t<T>, 4>(name("memory").text);
  saved.normalizer = source.template read<accumulator_t<T>, 3>(name("normalizer").text);
  saved.segment_keys = source.template read<T, 4>(name("segment_keys").text);
  saved.segment_values = source.template read<T, 4>(name("segment_values").text);
  saved.pending = source.template read<std::int64_t, 1>(name("pending").text);
  saved.position = source.template read<std::int64_t, 1>(name("position").text);
  impl::check_saved_tensors(saved, layout);
  return saved;
}

}  // namespace heed::inline HEED_ABI
