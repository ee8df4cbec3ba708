// Kernel of ops::tensor_scatter, for all backends: it copies.
#pragma once

#include <cstdint>

#include "heed/backend/reference.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// to[…, (first + i) mod capacity, …] = from[…, i, …], `axis` counted from the axes here; first is in 0 … capacity − 1.
template <class T, int Rank>
void scatter(const View<const T, Rank>& from, const View<T, Rank>& to, int axis, Index first) noexcept {
  for (Index i = 0; i < from.extent(0); ++i) {
    const Index at = axis != 0 ? i : first + i < to.extent(0) ? first + i : first + i - to.extent(0);
    if constexpr (Rank == 1) {
      to(at) = from(i);
    } else {
      scatter(from[i], to[at], axis - 1, first);
    }
  }
}

}  // namespace impl

// update [B, …], cache [B, …], alike but for `axis`, which is 1 … Rank − 1; write_indices [B] or absent.
template <class T, int Rank>
void tensor_scatter_kernel(const Reference&, View<const T, Rank> update, View<T, Rank> cache,
                           View<const std::int64_t, 1> write_indices, int axis) noexcept {
  const Index capacity = cache.extent(axis);
  for (Index b = 0; b < cache.extent(0); ++b) {
    const Index index = write_indices.present() ? static_cast<Index>(write_indices(b)) % capacity : 0;
    impl::scatter(update[b], cache[b], axis - 1, index < 0 ? index + capacity : index);
  }
}

}  // namespace heed::inline HEED_ABI
