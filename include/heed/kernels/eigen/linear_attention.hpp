// EigenMap kernel of ops::linear_attention: Simd's chunks on Eigen's product.
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/eigen/product.hpp"
#include "heed/kernels/simd/linear_attention.hpp"

namespace heed::inline HEED_ABI {

template <class T>
Index linear_attention_scratch_kernel(const EigenMap&, const LinearAttentionExtents& extents) noexcept {
  return linear_attention_scratch_kernel<T>(Simd(), extents);
}

template <class T>
void linear_attention_kernel(const EigenMap&, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                             View<accumulator_t<T>, 4> state, View<T, 4> out, const LinearAttentionOptions<T>& options,
                             View<accumulator_t<T>, 2> scratch) noexcept {
  impl::linear_attention<impl::EigenProduct, T>(query, key, value, state, out, options, scratch);
}

}  // namespace heed::inline HEED_ABI
