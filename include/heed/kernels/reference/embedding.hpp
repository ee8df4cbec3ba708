// The kernel of ops::embedding.
#pragma once

#include <cstdint>

#include "heed/backend/reference.hpp"

namespace heed::inline HEED_ABI {

// Row ids(i) of table [vocab, features] -> out [rows, features]; ids are in range. A copy of rows is as fast in plain
// loops as it gets, so Simd has no kernel of its own.
template <class T>
void embedding_kernel(const Reference&, View<const std::int64_t, 1> ids, View<const T, 2> table,
                      View<T, 2> out) noexcept {
  const Index features = out.extent(1);
  for (Index i = 0; i < out.extent(0); ++i) {
    const T* from = table.pointer(static_cast<Index>(ids(i)));
    T* to = out.pointer(i);
    for (Index j = 0; j < features; ++j) to[j] = from[j];
  }
}

}  // namespace heed::inline HEED_ABI
