// Cpu kernel of ops::embedding: rows in parts.
#pragma once

#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/reference/embedding.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void embedding_kernel(const Cpu& cpu, View<const std::int64_t, 1> ids, View<const T, 2> table,
                      View<T, 2> out) noexcept {
  impl::for_rows(cpu, out.extent(0), out.extent(1), [&](Index begin, Index count) {
    embedding_kernel(static_cast<const Simd&>(cpu), ids.slice(0, begin, count), table, out.slice(0, begin, count));
  });
}

}  // namespace heed::inline HEED_ABI
