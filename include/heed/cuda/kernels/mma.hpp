// What kernels for tensor cores have in common: fetching and storing 16-bit elements several at a time.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"

namespace heed::inline HEED_ABI::impl {

// 16 bytes of 16-bit elements.
inline constexpr int mma_chunk = 8;

// True if every row of `view` begins at a multiple of `bytes`.
template <class T, int Rank>
HEED_ANYWHERE bool has_aligned_rows(const View<T, Rank>& view, int bytes) noexcept {
  bool aligned = reinterpret_cast<std::uintptr_t>(view.data_handle()) % static_cast<unsigned>(bytes) == 0;
  for (int axis = 0; axis + 1 < Rank; ++axis) {
    const bool one = view.extent(axis) <= 1;
    aligned = aligned && (one || view.stride(axis) * static_cast<Index>(sizeof(T)) % bytes == 0);
  }
  return aligned;
}

// Two neighbours of a row, of which `left` elements are still to come; in one word if its rows are aligned to 4 bytes.
template <class Context, class T>
HEED_DEVICE void store_pair(T* to, Index left, bool aligned, float first, float second) {
  if (aligned && left >= 2) {
    *reinterpret_cast<std::uint32_t*>(to) = Context::template pack<T>(first, second);
  } else {
    if (left >= 1) to[0] = Context::template narrow<T>(first);
    if (left >= 2) to[1] = Context::template narrow<T>(second);
  }
}

}  // namespace heed::inline HEED_ABI::impl
