// EigenMap kernels of ops::memory_retrieve and ops::memory_update: Simd's on Eigen's product.
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/eigen/product.hpp"
#include "heed/kernels/simd/compressive_memory.hpp"

namespace heed::inline HEED_ABI {

template <class T>
Index memory_retrieve_scratch_kernel(const EigenMap&, Index head_dim, Index value_head_dim) noexcept {
  return memory_retrieve_scratch_kernel<T>(Simd(), head_dim, value_head_dim);
}

template <class T>
void memory_retrieve_kernel(const EigenMap&, View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                            View<const accumulator_t<T>, 3> normalizer, View<T, 4> out,
                            View<accumulator_t<T>, 3> denominator, accumulator_t<T> epsilon,
                            View<accumulator_t<T>, 2> scratch) noexcept {
  impl::memory_retrieve<impl::EigenProduct, T>(query, memory, normalizer, out, denominator, epsilon, scratch);
}

template <class T>
Index memory_update_scratch_kernel(const EigenMap&, Index head_dim, Index value_head_dim) noexcept {
  return memory_update_scratch_kernel<T>(Simd(), head_dim, value_head_dim);
}

template <class T>
void memory_update_kernel(const EigenMap&, View<const T, 4> key, View<const T, 4> value,
                          View<accumulator_t<T>, 4> memory, View<accumulator_t<T>, 3> normalizer,
                          const MemoryUpdateOptions& options, View<accumulator_t<T>, 2> scratch) noexcept {
  impl::memory_update<impl::EigenProduct, T>(key, value, memory, normalizer, options, scratch);
}

}  // namespace heed::inline HEED_ABI
