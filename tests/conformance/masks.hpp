// A case's mask, boolean or additive, and the attribute that says which.
#pragma once

#include "conformance/case.hpp"
#include "heed/core/scalar.hpp"

namespace conformance {

// Where there is no such tensor, both are absent.
template <class T>
struct Mask {
  heed::Tensor<bool, 4> boolean;  // true = attend
  heed::Tensor<heed::accumulator_t<T>, 4> additive;

  Mask() = default;
  Mask(const Case& test, const std::string& tensor) {
    if (!test.contains(tensor)) return;
    if (test.is_boolean(tensor)) {
      boolean = test.read_right_aligned<bool>(tensor);
    } else {
      additive = test.read_right_aligned<heed::accumulator_t<T>>(tensor);
    }
  }
};

// The attribute `mask` must say what the tensor is: null if there is none, else its kind, and `axes`.
inline void expect_mask(const Case& test, const std::string& tensor, const nlohmann::json& axes) {
  const Attributes& attributes = test.attributes();
  if (!test.contains(tensor)) {
    attributes.expect("mask", nullptr);
    return;
  }
  const Attributes mask = attributes.object("mask");
  mask.expect("axes", axes);
  mask.expect("kind", test.is_boolean(tensor) ? "boolean" : "additive");
  mask.finish();
}

// The same where `axes` is the tensor's shape.
inline void expect_mask(const Case& test, const std::string& tensor) {
  if (!test.contains(tensor)) return expect_mask(test, tensor, nullptr);
  const auto shape = test.shape(tensor);
  expect_mask(test, tensor, std::vector<heed::Index>(shape.begin(), shape.end()));
}

}  // namespace conformance
