// Cpu kernel of ops::repeat_kv: batch and sequence in parts.
#pragma once

#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/reference/repeat_kv.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void repeat_kv_kernel(const Cpu& cpu, View<const T, 4> x, View<T, 4> out) noexcept {
  const Index seq = out.extent(1);
  impl::for_rows(cpu, out.extent(0) * seq, out.extent(2) * out.extent(3), [&](Index begin, Index count) {
    while (count > 0) {  // the part of a range that lies in one batch row
      const Index b = begin / seq;
      const Index s = begin % seq;
      const Index steps = count < seq - s ? count : seq - s;
      repeat_kv_kernel(static_cast<const Simd&>(cpu), x.slice(0, b, 1).slice(1, s, steps),
                       out.slice(0, b, 1).slice(1, s, steps));
      begin += steps;
      count -= steps;
    }
  });
}

}  // namespace heed::inline HEED_ABI
