// Random tensors from a fixed seed, the same on every machine (the standard library's distributions are not).
#pragma once

#include <cmath>
#include <cstdint>

#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"

namespace test {

using heed::Index;

// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 0x1234567) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // In [low, high).
  double uniform(double low = 0, double high = 1) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
  // In 0 … count − 1.
  Index below(Index count) { return static_cast<Index>(bits() % static_cast<std::uint64_t>(count)); }
  // Mean 0, variance 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  std::uint64_t state_;
};

// T from a double, rounded once more on the way for the 16-bit types: what comes out is the input, so that is harmless.
template <class T>
T from_double(double value) {
  return heed::narrow<T>(static_cast<heed::accumulator_t<T>>(value));
}

// random_tensor<float>({2, 3}, 1): uniform in [low, high).
template <class T, int Rank>
heed::Tensor<T, Rank> random_tensor(const Index (&extents)[Rank], std::uint64_t seed, double low = -1,
                                    double high = 1) {
  heed::Tensor<T, Rank> tensor(extents);
  Random random(seed);
  for (T& element : tensor.span()) element = from_double<T>(random.uniform(low, high));
  return tensor;
}

// Integers in 0 … count − 1.
template <int Rank>
heed::Tensor<std::int64_t, Rank> random_ids(const Index (&extents)[Rank], std::uint64_t seed, Index count) {
  heed::Tensor<std::int64_t, Rank> ids(extents);
  Random random(seed);
  for (std::int64_t& id : ids.span()) id = random.below(count);
  return ids;
}

}  // namespace test
