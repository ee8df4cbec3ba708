// How a benchmark measures: the work's time alone, and between its runs the machine's limit, so that both saw the same
// machine, whatever else it was doing.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "limits.hpp"

namespace bench {

namespace detail {

inline double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `amount` (GFLOP or GB) a run. The rate is that of the median run and the share is of the median limit, so that runs
// which another program disturbed count for nothing. (The time that is printed is the mean, as Google Benchmark has it.)
template <class F, class Limit>
void measure(benchmark::State& state, double amount, const char* rate, const char* share, F&& work, Limit&& limit) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  std::vector<double> limits;
  work();  // pages, caches, clocks
  limit();
  double since_limit = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    work();
    const double once = std::chrono::duration<double>(Clock::now() - start).count();
    state.SetIterationTime(once);
    times.push_back(once);
    since_limit += once;
    if (limits.empty() || since_limit > 20e-3) {
      limits.push_back(limit());
      since_limit = 0;
    }
  }
  const double reached = amount / median(times);
  state.counters[rate] = reached;
  state.counters[share] = reached / median(limits);
}

}  // namespace detail

// Work of so many floating-point operations in A, beside the peak: counters GFLOP/s and of_peak.
template <class A, class F>
void measure_compute(benchmark::State& state, Threads threads, double operations, F&& work) {
  detail::measure(state, 1e-9 * operations, "GFLOP/s", "of_peak", work, [&] { return peak_gflops<A>(threads); });
}

// Work that has to read (and write) so many bytes, beside plain reading of as many: counters GB/s and of_read.
template <class F>
void measure_memory(benchmark::State& state, Threads threads, double bytes, F&& work) {
  detail::measure(state, 1e-9 * bytes, "GB/s", "of_read", work, [&] { return read_gbytes(threads, bytes); });
}

}  // namespace bench
