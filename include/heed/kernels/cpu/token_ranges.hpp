// Cutting [batch, tokens] into parts for Cpu kernels whose tokens do not depend on each other.
#pragma once

#include "heed/backend/cpu.hpp"

namespace heed::inline HEED_ABI::impl {

// Calls part(row, first token, tokens, worker) so that together the calls cover all of [batch, tokens]; row −1 stands
// for a part that is all of it. `token_work` is about the multiply-adds of a token.
template <class F>
void for_token_ranges(const Cpu& cpu, Index batch, Index tokens, Index token_work, F&& part) {
  constexpr Index part_work = 1 << 18;  // some 10 µs on one core: less is not worth waking a thread for
  const Index grain = (part_work + token_work) / (token_work + 1);
  cpu.for_ranges(batch * tokens, grain, [&](Index begin, Index count, int worker) {
    if (count == batch * tokens) return part(Index{-1}, Index{0}, tokens, worker);
    for (Index i = begin; i < begin + count;) {
      const Index first = i % tokens;
      const Index run = tokens - first < begin + count - i ? tokens - first : begin + count - i;
      part(i / tokens, first, run, worker);
      i += run;
    }
  });
}

// The part of a [batch, tokens, …] view, absent views stay absent.
template <class T, int Rank>
HEED_INLINE View<T, Rank> token_range(const View<T, Rank>& view, Index row, Index first, Index tokens) noexcept {
  if (row < 0 || !view.present()) return view;
  return view.slice(0, row, 1).slice(1, first, tokens);
}

}  // namespace heed::inline HEED_ABI::impl
