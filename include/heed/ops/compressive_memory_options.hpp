// What ops::memory_retrieve, ops::memory_update and ops::gated_mix can be asked for, as plain data.
#pragma once

#include <cstdint>

#include "heed/backend/backend.hpp"
#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed {

// How a segment's keys and values enter the memory. φ(x) = x + 1 for x > 0, eˣ otherwise; all L tokens read the same
// old M and z.
//
//   linear      M += φ(K)ᵀ V
//   delta       M += φ(K)ᵀ (V − R)     with R = φ(K) M / (φ(K) z): what the memory already answers for these keys
//   safe_delta  M += φ(K)ᵀ (V − η R)   with η = min(1, min_d z_d / Δz_d), Δz = Σ φ(K), for each row and kv head
//
// and z += Σ φ(K) in all three. delta overshoots where a segment is much longer than what is stored; safe_delta takes
// away only what is stable: φ(K)ᵀ diag(1 / φ(K)z) φ(K) is symmetric, not negative, and maps z to Δz, so its largest
// eigenvalue is at most max_d Δz_d / z_d, and I − η times it has all eigenvalues in [0, 1].
enum class MemoryUpdate { linear, delta, safe_delta };

// What a query gets whose memory is empty (z = 0, or φ(q)·z underflows to 0): there is nothing to divide by.
enum class EmptyMemory {
  bypass_gate,  // A = A_local
  apply_gate,   // A = (1 − g) A_local, as if the memory had answered 0
};

// Everything optional about memory_retrieve() over scalars T, its tensors in a backend's memory.
template <class T, class Space = Host>
struct MemoryRetrieveOptions {
  using A = accumulator_t<T>;

  A denominator_epsilon = 0;           // added to φ(q)·z before the division; 0 is right, others port from other code
  View<A, 3, Space> denominator = {};  // out [batch, queries, heads]: φ(q)·z, 0 where the memory counts as empty
};

// Everything optional about memory_update().
template <class Space>
struct BasicMemoryUpdateOptions {
  MemoryUpdate rule = MemoryUpdate::linear;
  View<const std::int64_t, 1, Space> key_lengths = {};  // [batch]: tokens of each row that enter, 0 … S; absent: all
};

using MemoryUpdateOptions = BasicMemoryUpdateOptions<Host>;

// Everything optional about gated_mix() over scalars T.
template <class T, class Space = Host>
struct GatedMixOptions {
  using A = accumulator_t<T>;

  EmptyMemory empty_memory = EmptyMemory::bypass_gate;
  View<const A, 3, Space> denominator =
      {};  // [batch, queries, heads], from memory_retrieve(); absent: no memory is empty
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Options for the checks of shapes (backend.hpp). Lengths in a device's memory are not looked at: its kernels cut them off
// at what there is.
template <class T, class Space>
MemoryRetrieveOptions<T> for_check(const MemoryRetrieveOptions<T, Space>& options) noexcept {
  return {options.denominator_epsilon, for_check(options.denominator)};
}
template <class T, class Space>
GatedMixOptions<T> for_check(const GatedMixOptions<T, Space>& options) noexcept {
  return {options.empty_memory, for_check(options.denominator)};
}
template <class Space>
MemoryUpdateOptions for_check(const BasicMemoryUpdateOptions<Space>& options) noexcept {
  if constexpr (std::is_same_v<Space, Host>) {
    return options;
  } else {
    return {options.rule, {}};
  }
}

}  // namespace heed::inline HEED_ABI
