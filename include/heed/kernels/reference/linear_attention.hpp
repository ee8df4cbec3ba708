// Reference kernel of ops::linear_attention: token by token, as the formula says.
#pragma once

#include <cmath>

#include "heed/backend/reference.hpp"
#include "heed/kernels/reference/compressive_memory.hpp"
#include "heed/ops/linear_attention_options.hpp"

namespace heed::inline HEED_ABI {

// Scratch elements a worker needs.
template <class T>
Index linear_attention_scratch_kernel(const Reference&, const LinearAttentionExtents&) noexcept {
  return 0;
}

// query [B, T, H, D], key [B, T, K, D], value [B, T, K, Dv], state [B, K, D, Dv], out [B, T, H, Dv]; options with a
// scale, and a beta that has K heads or is absent; scratch [workers, elements].
template <class T>
void linear_attention_kernel(const Reference&, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                             View<accumulator_t<T>, 4> state, View<T, 4> out, const LinearAttentionOptions<T>& options,
                             View<accumulator_t<T>, 2> /*scratch*/) noexcept {
  using A = accumulator_t<T>;
  const Index head_dim = state.extent(2);
  const Index group = query.extent(2) / key.extent(2);
  const A scale = options.scale.value(head_dim);
  for (Index b = 0; b < out.extent(0); ++b) {
    const Index tokens = impl::tokens_of_row(options.key_lengths, b, out.extent(1));
    for (Index k = 0; k < key.extent(2); ++k) {
      const View<A, 2> s = state[b][k];
      for (Index t = 0; t < out.extent(1); ++t) {
        for (Index j = 0; j < s.extent(1) && t < tokens; ++j) {
          for (Index d = 0; d < head_dim && options.decay.present(); ++d) {
            s(d, j) *= std::exp(options.decay(b, t, k, options.decay.extent(3) == 1 ? 0 : d));
          }
          A written = widen(value(b, t, k, j));
          if (options.beta.present()) {
            A known = 0;
            for (Index d = 0; d < head_dim; ++d) known += s(d, j) * widen(key(b, t, k, d));
            written = options.beta(b, t, k) * (written - known);
          }
          for (Index d = 0; d < head_dim; ++d) s(d, j) += widen(key(b, t, k, d)) * written;
        }
        for (Index h = k * group; h < (k + 1) * group; ++h) {
          for (Index j = 0; j < s.extent(1); ++j) {
            A answer = 0;
            for (Index d = 0; d < head_dim && t < tokens; ++d) answer += widen(query(b, t, h, d)) * s(d, j);
            out(b, t, h, j) = narrow<T>(t < tokens ? scale * answer : A(0));
          }
        }
      }
    }
  }
}

}  // namespace heed::inline HEED_ABI
