// What the benchmarks run on: names, numbers from a fixed seed, a Cpu with threads.
#pragma once

#include <initializer_list>
#include <string>

#include "heed/core/openmp_executor.hpp"
#include "heed/heed.hpp"
#include "meter.hpp"

namespace bench {

using heed::Index;

struct Size {
  const char* name;
  Index value;
};

// "attention/full/float/tokens:512/head_dim:64/threads:1"
inline std::string name_of(std::string name, std::initializer_list<Size> sizes, Threads threads) {
  for (const Size& size : sizes) name += std::string("/") + size.name + ":" + std::to_string(size.value);
  return name + "/threads:" + std::to_string(threads.count);
}

// Registers function(state, arguments…), unless the machine has fewer cores than the benchmark has threads.
template <class F, class... Arguments>
void add(const std::string& name, Threads threads, F&& function, Arguments&&... arguments) {
  if (threads.count > cores()) return;
  benchmark::RegisterBenchmark(name.c_str(), std::forward<F>(function), std::forward<Arguments>(arguments)...)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

// Uniform in −1 … 1, or in as much as `bound` says.
template <class T, int Rank>
heed::Tensor<T, Rank> random_tensor(const Index (&extents)[Rank], std::uint32_t seed = 1, double bound = 1) {
  using A = heed::accumulator_t<T>;
  heed::Tensor<T, Rank> tensor(extents);
  std::uint32_t state = seed * 2654435761U + 12345U;
  for (T& element : tensor.span()) {
    state = state * 1664525U + 1013904223U;
    const double unit = static_cast<double>(state >> 8) / (1 << 23) - 1;
    element = heed::narrow<T>(static_cast<A>(bound * unit));
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
