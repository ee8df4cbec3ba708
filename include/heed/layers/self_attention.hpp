// Small parts that the self-attention layers share: the scale, and padding taken out of the way and put back.
#pragma once

#include <cstdint>
#include <cstring>

#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"
#include "heed/ops/attention_options.hpp"

namespace heed::inline HEED_ABI::impl {

// A layer's scale in the type that the operation takes.
template <class A>
ScoreScale<A> score_scale(const ScoreScale<double>& scale, Index head_dim) noexcept {
  return scale.given() ? ScoreScale<A>(static_cast<A>(scale.value(head_dim))) : ScoreScale<A>();
}

template <class T>
void move_row(View<const T, 1> from, View<T, 1> to) noexcept {
  if (from.data_handle() == to.data_handle() || to.empty()) return;
  std::memcpy(static_cast<void*>(to.data_handle()), static_cast<const void*>(from.data_handle()),
              static_cast<std::size_t>(to.extent(0)) * sizeof(T));
}

// The position of each token if padding is not counted; a padded token has that of the token before it, at least 0.
inline void count_positions(View<const bool, 2> valid, View<std::int64_t, 2> positions) noexcept {
  for (Index b = 0; b < valid.extent(0); ++b) {
    std::int64_t next = 0;
    for (Index t = 0; t < valid.extent(1); ++t) {
      if (valid(b, t)) ++next;
      positions(b, t) = next > 0 ? next - 1 : 0;
    }
  }
}

// Moves each batch row's valid tokens [B, T, width] to its beginning, in order; counts [B] says how many there are.
// What lies after them is left over.
template <class T>
void gather_tokens(View<T, 3> tokens, View<const bool, 2> valid, View<std::int64_t, 1> counts) noexcept {
  for (Index b = 0; b < valid.extent(0); ++b) {
    Index next = 0;
    for (Index t = 0; t < valid.extent(1); ++t) {
      if (valid(b, t)) move_row<T>(tokens[b][t], tokens[b][next++]);
    }
    counts(b) = next;
  }
}

// The reverse: each batch row's first tokens go where it is valid; what lies between is left over.
template <class T>
void scatter_tokens(View<T, 3> tokens, View<const bool, 2> valid, View<const std::int64_t, 1> counts) noexcept {
  for (Index b = 0; b < valid.extent(0); ++b) {
    auto next = static_cast<Index>(counts(b));
    for (Index t = valid.extent(1) - 1; t >= 0; --t) {
      if (valid(b, t)) move_row<T>(tokens[b][--next], tokens[b][t]);
    }
  }
}

template <class T>
void fill_row(View<T, 1> row, T value) noexcept {
  for (Index i = 0; i < row.extent(0); ++i) row(i) = value;
}

}  // namespace heed::inline HEED_ABI::impl
