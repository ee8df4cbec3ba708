// The rule by which a result counts as right: |got - want| <= t (floor + |want|), infinities equal, integers exact.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>

#include "heed/core/view.hpp"

namespace conformance {

// How far one value is off, in the unit of the tolerance: it passes if this is at most t. Infinity for what no tolerance
// forgives: another infinity, a NaN where there should be a number, a number where there should be a NaN.
inline double error_of(double got, double want, double floor = 1) {
  if (std::isnan(want) || std::isnan(got)) {
    return std::isnan(want) && std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  }
  if (std::isinf(want) || std::isinf(got)) return got == want ? 0 : std::numeric_limits<double>::infinity();
  return std::fabs(got - want) / (floor + std::fabs(want));
}

// The worst element of a tensor.
struct Comparison {
  std::size_t elements = 0;
  std::size_t wrong = 0;  // elements beyond the tolerance
  double largest = 0;     // error_of() the worst one,
  std::size_t where = 0;  // which that is, counted row-major,
  double got = 0;         // and its values
  double want = 0;

  bool passed() const { return wrong == 0; }
};

// The two hold as many elements.
inline Comparison compare(std::span<const double> got, std::span<const double> want, double tolerance,
                          double floor = 1) {
  Comparison result;
  result.elements = want.size();
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = error_of(got[i], want[i], floor);
    if (!(error <= tolerance)) ++result.wrong;
    if (i == 0 || error > result.largest) {
      result.largest = error;
      result.where = i;
      result.got = got[i];
      result.want = want[i];
    }
  }
  return result;
}

// "[2, 3]".
inline std::string shape_text(std::span<const heed::Index> shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

// The indices of element `where` of a tensor of this shape: "[0, 2]".
inline std::string place_text(std::size_t where, std::span<const heed::Index> shape) {
  std::string text;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[axis]);
    text = std::to_string(where % extent) + (text.empty() ? "" : ", " + text);
    where /= extent;
  }
  return "[" + text + "]";
}

// A short number: "1.5e-07".
inline std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace conformance
