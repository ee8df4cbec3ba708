// Sums and products of rows, element by element: what blocks are joined by.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/kernels/cpu/rows.hpp"
#include "heed/kernels/simd/rows.hpp"

namespace heed::inline HEED_ABI::impl {

enum class RowOperation { sum, product };

// to = to op from, in accumulator_t<T>, rounded once.
template <RowOperation op, class T>
void combine_rows(const Reference&, View<const T, 2> from, View<T, 2> to) noexcept {
  for (Index i = 0; i < to.extent(0); ++i) {
    for (Index j = 0; j < to.extent(1); ++j) {
      const auto a = widen(to(i, j));
      const auto b = widen(from(i, j));
      to(i, j) = narrow<T>(op == RowOperation::sum ? a + b : a * b);
    }
  }
}

template <RowOperation op, class T>
void combine_rows(const Simd&, View<const T, 2> from, View<T, 2> to) noexcept {
  for (Index i = 0; i < to.extent(0); ++i) {
    const T* other = from.pointer(i);
    simd::map_row(to.pointer(i), to.pointer(i), to.extent(1), [&](auto value, Index j) {
      const auto operand = simd::load_partial(other + j, to.extent(1) - j);
      return op == RowOperation::sum ? value + operand : value * operand;
    });
  }
}

template <RowOperation op, class T>
void combine_rows(const Cpu& cpu, View<const T, 2> from, View<T, 2> to) noexcept {
  for_rows(cpu, to.extent(0), to.extent(1), [&](Index begin, Index count) {
    combine_rows<op, T>(static_cast<const Simd&>(cpu), from.slice(0, begin, count), to.slice(0, begin, count));
  });
}

// to += from and to *= from, for rows of the same shape.
template <class T, class B>
void add_rows(const B& backend, View<const T, 2> from, View<T, 2> to) noexcept {
  combine_rows<RowOperation::sum, T>(backend, from, to);
}
template <class T, class B>
void multiply_rows(const B& backend, View<const T, 2> from, View<T, 2> to) noexcept {
  combine_rows<RowOperation::product, T>(backend, from, to);
}

// [batch, seq, features] without gaps as rows.
template <class T>
View<T, 2> as_rows(const View<T, 3>& x) noexcept {
  return {x.data_handle(), {x.extent(0) * x.extent(1), x.extent(2)}};
}

}  // namespace heed::inline HEED_ABI::impl
