// Layers' weights in double.
#pragma once

#include "heed/layers/projections.hpp"
#include "support/compare.hpp"

namespace test {

template <class T>
heed::LinearWeights<double> as_double(const heed::LinearWeights<T>& weights) {
  return {test::as_double(weights.weight), test::as_double(weights.bias)};
}
template <class T>
heed::ProjectionWeights<double> as_double(const heed::ProjectionWeights<T>& weights) {
  return {as_double(weights.query), as_double(weights.key), as_double(weights.value), as_double(weights.output)};
}

}  // namespace test
