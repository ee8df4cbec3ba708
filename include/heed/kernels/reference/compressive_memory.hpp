// Reference kernels of ops::memory_retrieve and ops::memory_update.
#pragma once

#include <cmath>

#include "heed/backend/reference.hpp"
#include "heed/core/scalar.hpp"
#include "heed/ops/compressive_memory_options.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// φ = ELU + 1, never formed as (eˣ − 1) + 1: that is 0 at −18 in float.
template <class A>
HEED_INLINE A phi(A x) noexcept {
  return x > 0 ? x + 1 : std::exp(x);
}

// Nothing was ever stored: z = 0 everywhere.
template <class A>
bool is_empty_memory(View<const A, 1> normalizer) noexcept {
  for (Index d = 0; d < normalizer.extent(0); ++d) {
    if (normalizer(d) != 0) return false;
  }
  return true;
}

// How much of what the memory already answers an update takes away: the η of safe_delta, 1 for delta, 0 for linear and
// for an empty memory. mass [D] is Σ φ(K) over the segment.
template <class A>
A subtracted_share(MemoryUpdate rule, View<const A, 1> normalizer, const A* mass) noexcept {
  if (rule == MemoryUpdate::linear || is_empty_memory(normalizer)) return 0;
  A share = 1;
  for (Index d = 0; rule == MemoryUpdate::safe_delta && d < normalizer.extent(0); ++d) {
    if (mass[d] > 0 && normalizer(d) / mass[d] < share) share = normalizer(d) / mass[d];
  }
  return share;
}

// Tokens of a row that enter the memory.
HEED_INLINE Index tokens_of_row(const View<const std::int64_t, 1>& key_lengths, Index row, Index all) noexcept {
  return key_lengths.present() ? static_cast<Index>(key_lengths(row)) : all;
}

}  // namespace impl

// Scratch elements a worker needs.
template <class T>
Index memory_retrieve_scratch_kernel(const Reference&, Index /*head_dim*/, Index /*value_head_dim*/) noexcept {
  return 0;
}

// out [B, T, H, Dv] = φ(query) memory / (φ(query)·normalizer + epsilon); query [B, T, H, D], memory [B, K, D, Dv],
// normalizer [B, K, D], denominator [B, T, H] or absent, scratch [workers, elements].
template <class T>
void memory_retrieve_kernel(const Reference&, View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                            View<const accumulator_t<T>, 3> normalizer, View<T, 4> out,
                            View<accumulator_t<T>, 3> denominator, accumulator_t<T> epsilon,
                            View<accumulator_t<T>, 2> /*scratch*/) noexcept {
  using A = accumulator_t<T>;
  const Index group = query.extent(2) / memory.extent(1);
  for (Index b = 0; b < out.extent(0); ++b) {
    for (Index h = 0; h < out.extent(2); ++h) {
      const View<const A, 2> m = memory[b][h / group];
      const View<const A, 1> z = normalizer[b][h / group];
      const bool empty = impl::is_empty_memory(z);
      for (Index t = 0; t < out.extent(1); ++t) {
        A divisor = 0;
        for (Index d = 0; d < z.extent(0) && !empty; ++d) divisor += impl::phi(widen(query(b, t, h, d))) * z(d);
        if (!empty) divisor += epsilon;
        if (denominator.present()) denominator(b, t, h) = divisor;
        for (Index j = 0; j < out.extent(3); ++j) {
          A sum = 0;
          if (divisor != 0) {
            for (Index d = 0; d < z.extent(0); ++d) sum += impl::phi(widen(query(b, t, h, d))) * m(d, j);
            sum /= divisor;
          }
          out(b, t, h, j) = narrow<T>(sum);
        }
      }
    }
  }
}

template <class T>
Index memory_update_scratch_kernel(const Reference&, Index head_dim, Index value_head_dim) noexcept {
  return head_dim * value_head_dim + head_dim + value_head_dim;
}

// memory [B, K, D, Dv] and normalizer [B, K, D] take in key [B, S, K, D] and value [B, S, K, Dv].
template <class T>
void memory_update_kernel(const Reference&, View<const T, 4> key, View<const T, 4> value,
                          View<accumulator_t<T>, 4> memory, View<accumulator_t<T>, 3> normalizer,
                          const MemoryUpdateOptions& options, View<accumulator_t<T>, 2> scratch) noexcept {
  using A = accumulator_t<T>;
  const Index head_dim = memory.extent(2);
  const Index value_head_dim = memory.extent(3);
  const View<A, 2> change(scratch.data_handle(), {head_dim, value_head_dim});  // of M: the old one is read to the end
  A* const mass = change.data_handle() + change.size();
  A* const written = mass + head_dim;
  for (Index b = 0; b < memory.extent(0); ++b) {
    const Index tokens = impl::tokens_of_row(options.key_lengths, b, key.extent(1));
    for (Index k = 0; k < memory.extent(1) && tokens > 0; ++k) {
      const View<A, 2> m = memory[b][k];
      const View<A, 1> z = normalizer[b][k];
      for (Index i = 0; i < change.size() + head_dim; ++i) change.data_handle()[i] = 0;
      for (Index t = 0; t < tokens; ++t) {
        for (Index d = 0; d < head_dim; ++d) mass[d] += impl::phi(widen(key(b, t, k, d)));
      }
      const A share = impl::subtracted_share<A>(options.rule, z, mass);
      for (Index t = 0; t < tokens; ++t) {
        A divisor = 0;
        for (Index d = 0; d < head_dim; ++d) divisor += impl::phi(widen(key(b, t, k, d))) * z(d);
        for (Index j = 0; j < value_head_dim; ++j) {
          written[j] = widen(value(b, t, k, j));
          if (share == 0 || divisor == 0) continue;
          A known = 0;
          for (Index d = 0; d < head_dim; ++d) known += impl::phi(widen(key(b, t, k, d))) * m(d, j);
          written[j] -= share * (known / divisor);
        }
        for (Index d = 0; d < head_dim; ++d) {
          for (Index j = 0; j < value_head_dim; ++j) change(d, j) += impl::phi(widen(key(b, t, k, d))) * written[j];
        }
      }
      for (Index d = 0; d < head_dim; ++d) {
        for (Index j = 0; j < value_head_dim; ++j) m(d, j) += change(d, j);
        z(d) += mass[d];
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
