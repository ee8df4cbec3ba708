// What ops::linear_attention can be asked for, as plain data.
#pragma once

#include <cstdint>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"
#include "heed/ops/attention_options.hpp"

namespace heed {

// Everything optional about linear_attention() over scalars T; A = accumulator_t<T>. Which rule it is follows from what
// is given: neither decay nor beta is "linear", decay alone "gated", beta alone "delta", both "gated delta". Members
// are views: what they show must live until the call returns.
template <class T>
struct LinearAttentionOptions {
  using A = accumulator_t<T>;

  ScoreScale<A> scale = {};     // of q·S; left out: 1/√D
  View<const A, 4> decay = {};  // [batch, seq, kv heads, D]: log of what is kept of each key dim's row;
                                // or [batch, seq, kv heads, 1]: of the whole state
  View<const A, 3> beta = {};   // [batch, seq, kv heads], or [batch, seq, 1]: how far a key's value is
                                // moved to the new one, 0 … 1
  View<const std::int64_t, 1> key_lengths = {};  // [batch]: tokens of each row that exist, from the first; absent: all
  Index chunk_size = 32;                         // 1 … 4096: tokens that are worked on together
};

// The sizes of a call, or of the call that needs most, for linear_attention_workspace_size().
struct LinearAttentionExtents {
  Index num_heads = 1;
  Index num_kv_heads = num_heads;
  Index head_dim = 0;
  Index value_head_dim = head_dim;
  Index chunk_size = 32;
};

}  // namespace heed
