// What EigenMap takes from Simd as it is: operations without a product, most of them on exponentials. (Eigen 3.4's
// vectorised exp is not heed's: of −inf it makes 2.9e-39, not 0, and whole vectors and tails differ.)
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/simd/activations.hpp"
#include "heed/kernels/simd/gated_mix.hpp"
#include "heed/kernels/simd/rotary_embedding.hpp"
#include "heed/kernels/simd/softmax.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void softmax_kernel(const EigenMap&, View<const T, 2> x, View<T, 2> out) noexcept {
  softmax_kernel(Simd(), x, out);
}

template <class T>
void softmax_columns_kernel(const EigenMap&, View<const T, 3> x, View<T, 3> out) noexcept {
  softmax_columns_kernel(Simd(), x, out);
}

template <class T>
void log_sum_exp_kernel(const EigenMap&, View<const T, 2> x, View<T, 1> out) noexcept {
  log_sum_exp_kernel(Simd(), x, out);
}

template <class T>
void log_sum_exp_columns_kernel(const EigenMap&, View<const T, 3> x, View<T, 2> out) noexcept {
  log_sum_exp_columns_kernel(Simd(), x, out);
}

template <class T>
void silu_kernel(const EigenMap&, View<const T, 2> x, View<T, 2> out) noexcept {
  silu_kernel(Simd(), x, out);
}

template <class T>
void gelu_kernel(const EigenMap&, View<const T, 2> x, GeluForm form, View<T, 2> out) noexcept {
  gelu_kernel(Simd(), x, form, out);
}

template <class T>
void gated_mix_kernel(const EigenMap&, View<const T, 4> memory, View<const T, 4> local,
                      View<const accumulator_t<T>, 1> beta, View<T, 4> out, EmptyMemory empty_memory,
                      View<const accumulator_t<T>, 3> denominator) noexcept {
  gated_mix_kernel(Simd(), memory, local, beta, out, empty_memory, denominator);
}

template <class T>
void rotary_embedding_kernel(const EigenMap&, View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                             View<const accumulator_t<T>, 3> sin, RopeLayout layout, View<T, 4> out) noexcept {
  rotary_embedding_kernel(Simd(), x, cos, sin, layout, out);
}

}  // namespace heed::inline HEED_ABI
