// Cpu kernels of ops::rotary_tables and ops::rotary_embedding: tokens in parts.
#pragma once

#include "heed/kernels/cpu/token_ranges.hpp"
#include "heed/kernels/simd/rotary_embedding.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// What an angle's sine and cosine, and an element that passes through memory, cost in multiply-adds.
inline constexpr Index rotary_angle_work = 512;
inline constexpr Index rotary_element_work = 8;

}  // namespace impl

template <class A>
void rotary_tables_kernel(const Cpu& cpu, View<const std::int64_t, 2> positions, View<const double, 1> inv_freq,
                          double factor, View<A, 3> cos, View<A, 3> sin) noexcept {
  impl::for_token_ranges(cpu, cos.extent(0), cos.extent(1), cos.extent(2) * impl::rotary_angle_work,
                         [&](Index row, Index first, Index tokens, int) {
                           rotary_tables_kernel(static_cast<const Simd&>(cpu),
                                                impl::token_range(positions, row, first, tokens), inv_freq, factor,
                                                impl::token_range(cos, row, first, tokens),
                                                impl::token_range(sin, row, first, tokens));
                         });
}

template <class T>
void rotary_embedding_kernel(const Cpu& cpu, View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                             View<const accumulator_t<T>, 3> sin, RopeLayout layout, View<T, 4> out) noexcept {
  impl::for_token_ranges(cpu, out.extent(0), out.extent(1), out.extent(2) * out.extent(3) * impl::rotary_element_work,
                         [&](Index row, Index first, Index tokens, int) {
                           rotary_embedding_kernel(
                               static_cast<const Simd&>(cpu), impl::token_range(x, row, first, tokens),
                               impl::token_range(cos, row, first, tokens), impl::token_range(sin, row, first, tokens),
                               layout, impl::token_range(out, row, first, tokens));
                         });
}

}  // namespace heed::inline HEED_ABI
