// Comparing tensors: largest errors against doubles, and equality of bits.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"

namespace test {

using heed::Index;

template <class T>
double to_double(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(heed::widen(value));
  }
}

// Half the distance from 1 to the next number: the largest relative error of one rounding to T.
template <class T>
inline constexpr double unit_roundoff = 0x1p-24;
template <>
inline constexpr double unit_roundoff<double> = 0x1p-53;
template <>
inline constexpr double unit_roundoff<heed::bfloat16> = 0x1p-8;
template <>
inline constexpr double unit_roundoff<heed::float16> = 0x1p-11;

// A View<const T> of a View or a Tensor.
template <class T, int Rank>
heed::View<const T, Rank> const_view(const heed::View<T, Rank>& view) {
  return view;
}
template <class T, int Rank>
heed::View<const T, Rank> const_view(const heed::Tensor<T, Rank>& tensor) {
  return tensor.view();
}

// Calls f(element of first, element of each rest …) for all elements in row-major order.
template <class F, class First, class... Rest>
void for_each_element(F&& f, const First& first, const Rest&... rest) {
  for (Index i = 0; i < first.extent(0); ++i) {
    if constexpr (First::rank() == 1) {
      f(first(i), rest(i)...);
    } else {
      for_each_element(f, first[i], rest[i]...);
    }
  }
}

template <class A, class B>
bool same_shape(const A& a, const B& b) {
  static_assert(A::rank() == B::rank());
  for (int axis = 0; axis < A::rank(); ++axis) {
    if (a.extent(axis) != b.extent(axis)) return false;
  }
  return true;
}

// |a − b|; 0 for two NaN and for equal infinities, infinite where only one is NaN or infinite.
inline double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double error = std::fabs(a - b);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

// The largest difference of two tensors of one shape and any types; infinite if the shapes differ.
template <class A, class B>
double max_error(const A& got, const B& want) {
  if (!same_shape(got, want)) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for_each_element(
      [&](auto a, auto b) {
        const double error = difference(to_double(a), to_double(b));
        if (error > largest) largest = error;
      },
      const_view(got), const_view(want));
  return largest;
}

// The largest difference / (1 + |want|): what the conformance files call tolerance.
template <class A, class B>
double max_scaled_error(const A& got, const B& want) {
  if (!same_shape(got, want)) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for_each_element(
      [&](auto a, auto b) {
        const double wanted = to_double(b);
        const double error = difference(to_double(a), wanted);
        const double scaled = error == 0 ? 0 : error / (1 + (std::isfinite(wanted) ? std::fabs(wanted) : 0));
        if (scaled > largest) largest = scaled;
      },
      const_view(got), const_view(want));
  return largest;
}

template <class T>
bool same_bits_of(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Every element has the same bits: NaN equals itself, 0 differs from −0.
template <class A, class B>
bool same_bits(const A& a, const B& b) {
  bool same = same_shape(a, b);
  if (same) for_each_element([&](auto x, auto y) { same = same && same_bits_of(x, y); }, const_view(a), const_view(b));
  return same;
}

// The elements as doubles, contiguous.
template <class A>
heed::Tensor<double, A::rank()> as_double(const A& tensor) {
  Index extents[A::rank()];
  for (int axis = 0; axis < A::rank(); ++axis) extents[axis] = tensor.extent(axis);
  heed::Tensor<double, A::rank()> result(extents);
  for_each_element([](auto from, double& to) { to = to_double(from); }, const_view(tensor), result.view());
  return result;
}

}  // namespace test
