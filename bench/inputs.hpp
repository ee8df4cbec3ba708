// What the benchmarks run on: numbers from a fixed seed, a Cpu with threads.
#pragma once

#include "heed/core/openmp_executor.hpp"
#include "heed/heed.hpp"
#include "meter.hpp"

namespace bench {

using heed::Index;

// Uniform in −1 … 1.
template <class T, int Rank>
heed::Tensor<T, Rank> random_tensor(const Index (&extents)[Rank], std::uint32_t seed = 1) {
  heed::Tensor<T, Rank> tensor(extents);
  std::uint32_t state = seed * 2654435761U + 12345U;
  for (T& element : tensor.span()) {
    state = state * 1664525U + 1013904223U;
    element = heed::narrow<T>(static_cast<heed::accumulator_t<T>>(state >> 8) / heed::accumulator_t<T>(1 << 23) - 1);
  }
  return tensor;
}

// A backend on so many of OpenMP's threads.
class ThreadedCpu {
 public:
  explicit ThreadedCpu(Threads threads) : pool_(threads.count), cpu_(pool_) {}
  ThreadedCpu(const ThreadedCpu&) = delete;
  ThreadedCpu& operator=(const ThreadedCpu&) = delete;
  operator const heed::Cpu&() const { return cpu_; }

 private:
  heed::OpenMpExecutor pool_;
  heed::Cpu cpu_;
};

}  // namespace bench
