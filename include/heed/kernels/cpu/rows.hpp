// How the Cpu kernels of row-wise operations cut their work.
#pragma once

#include "heed/backend/cpu.hpp"

namespace heed::inline HEED_ABI::impl {

// Elements below which a part is not worth waking a thread for (some 10 µs on one core).
inline constexpr Index elements_part = 1 << 14;

// Items of `size` elements that make a part.
inline Index grain_of(Index size) noexcept {
  return size < 1 ? elements_part : (elements_part + size - 1) / size;
}

// Calls part(begin, count) on ranges of rows of `row_size` elements.
template <class F>
void for_rows(const Cpu& cpu, Index rows, Index row_size, F&& part) {
  cpu.for_ranges(rows, grain_of(row_size), [&](Index begin, Index count, int) { part(begin, count); });
}

}  // namespace heed::inline HEED_ABI::impl
