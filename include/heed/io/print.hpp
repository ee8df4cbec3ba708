// Printing views and tensors: their type, their shape, and their first and last elements.
#pragma once

#include <ostream>
#include <type_traits>

#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"

namespace heed {

// How much of a tensor is printed.
struct PrintOptions {
  Index edge = 3;     // along each axis longer than 2 · edge + 1: this many first and last entries, "..." between them
  int precision = 6;  // significant digits
};

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

template <class T>
constexpr const char* element_name() noexcept {
  using Element = std::remove_cv_t<T>;
  if constexpr (Scalar<Element>) {
    return scalar_name<Element>();
  } else if constexpr (std::is_same_v<Element, bool>) {
    return "bool";
  } else {
    static_assert(std::is_integral_v<Element>, "print() knows heed's scalars, bool and integers");
    constexpr const char* names[] = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"};
    constexpr int log_size = sizeof(Element) == 1 ? 0 : sizeof(Element) == 2 ? 1 : sizeof(Element) == 4 ? 2 : 3;
    return names[log_size + (std::is_signed_v<Element> ? 0 : 4)];
  }
}

template <class T>
void print_element(std::ostream& stream, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    stream << (value ? "true" : "false");
  } else if constexpr (Scalar<T>) {
    stream << widen(value);
  } else {
    stream << +value;  // 8-bit integers as numbers, not letters
  }
}

template <class T, int Rank>
void print_entries(std::ostream& stream, const View<T, Rank>& view, Index edge, int indent) {
  const Index count = view.extent(0);
  const bool cut = count > 2 * edge + 1;
  stream << "[";
  for (Index i = 0; i < count; ++i) {
    if (i > 0) {
      stream << ",";
      for (int line = 1; line < Rank; ++line) stream << "\n";  // an empty line between matrices, as NumPy has it
      for (int column = 0; column < (Rank > 1 ? indent : 1); ++column) stream << " ";
    }
    if (cut && i == edge) {
      stream << "...";
      i = count - edge - 1;
    } else if constexpr (Rank > 1) {
      print_entries(stream, view[i], edge, indent + 1);
    } else {
      print_element<std::remove_cv_t<T>>(stream, view(i));
    }
  }
  stream << "]";
}

}  // namespace impl

// Writes a view or tensor, its type and shape first:
//
//   float [2, 100]
//   [[0.5, 1, -2, ..., 3, 0, 1],
//    [1, 2, 3, ..., 4, 5, 6]]
//
// No newline at the end. The stream's precision and flags are left as they were.
template <class Tensorlike>
void print(std::ostream& stream, const Tensorlike& tensor, const PrintOptions& options = {}) {
  using T = typename Tensorlike::value_type;
  const View<const T, Tensorlike::rank()> view(tensor);
  const std::ios_base::fmtflags flags = stream.flags(std::ios_base::dec);
  const std::streamsize precision = stream.precision(options.precision);
  stream << impl::element_name<T>() << " [";
  for (int axis = 0; axis < view.rank(); ++axis) stream << (axis > 0 ? ", " : "") << view.extent(axis);
  stream << "]\n";
  impl::print_entries(stream, view, options.edge < 1 ? 1 : options.edge, 1);
  stream.precision(precision);
  stream.flags(flags);
}

// std::cout << view: print() with the default options.
template <class T, int Rank>
std::ostream& operator<<(std::ostream& stream, const View<T, Rank>& view) {
  print(stream, view);
  return stream;
}
template <class T, int Rank>
std::ostream& operator<<(std::ostream& stream, const Tensor<T, Rank>& tensor) {
  print(stream, tensor);
  return stream;
}

}  // namespace heed::inline HEED_ABI
