// How a benchmark measures: the work's time alone, and between its runs the machine's limit, so that both saw the same
// machine, whatever else it was doing.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>

#include "limits.hpp"

namespace bench {

namespace detail {

template <class F, class Limit>
void measure(benchmark::State& state, double amount, const char* rate, const char* share, F&& work, Limit&& limit) {
  using clock = std::chrono::steady_clock;
  work();  // pages, caches, clocks
  limit();
  double seconds = 0, limits = 0, since_limit = 0;
  heed::Index runs = 0, measured = 0;
  for (auto _ : state) {
    const auto start = clock::now();
    work();
    const double once = std::chrono::duration<double>(clock::now() - start).count();
    state.SetIterationTime(once);
    seconds += once;
    since_limit += once;
    ++runs;
    if (measured == 0 || since_limit > 20e-3) {
      limits += limit();
      ++measured;
      since_limit = 0;
    }
  }
  const double reached = amount * static_cast<double>(runs) / seconds;
  state.counters[rate] = reached;
  state.counters[share] = reached / (limits / static_cast<double>(measured));
}

}  // namespace detail

// Work of so many floating-point operations in A, beside the peak: counters GFLOP/s and of_peak.
template <class A, class F>
void measure_compute(benchmark::State& state, Threads threads, double operations, F&& work) {
  detail::measure(state, 1e-9 * operations, "GFLOP/s", "of_peak", work, [&] { return peak_gflops<A>(threads); });
}

// Work that has to read so many bytes, beside plain reading: counters GB/s and of_read.
template <class F>
void measure_memory(benchmark::State& state, Threads threads, double bytes, F&& work) {
  detail::measure(state, 1e-9 * bytes, "GB/s", "of_read", work, [&] { return read_gbytes(threads); });
}

}  // namespace bench
