// The kernel of ops::repeat_kv.
#pragma once

#include "heed/backend/reference.hpp"

namespace heed::inline HEED_ABI {

// x [batch, seq, kv heads, head dim] -> out [batch, seq, heads, head dim]; heads is a multiple of kv heads.
template <class T>
void repeat_kv_kernel(const Reference&, View<const T, 4> x, View<T, 4> out) noexcept {
  const Index group = out.extent(2) / x.extent(2);
  for (Index b = 0; b < out.extent(0); ++b) {
    for (Index s = 0; s < out.extent(1); ++s) {
      for (Index h = 0; h < out.extent(2); ++h) {
        for (Index d = 0; d < out.extent(3); ++d) out(b, s, h, d) = x(b, s, h / group, d);
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
