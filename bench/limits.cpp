#include "limits.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace bench {

namespace {

using heed::Index;
namespace simd = heed::simd;

using Clock = std::chrono::steady_clock;

struct Together {
  double seconds = 0;
  int threads = 0;  // that there really were
};

// part(worker) on all threads at once. They wait for each other before they begin, because a thread that sleeps takes
// longer to wake up than a part takes; the time is from the first one's beginning to the last one's end.
template <class F>
Together run_together(Threads threads, F&& part) {
  const bool crowded = threads.count > cores();
  int count = 0;
  std::atomic<int> awaited = 0;
  Clock::time_point first = Clock::time_point::max();
  Clock::time_point last = Clock::time_point::min();
#pragma omp parallel num_threads(threads.count)
  {
#pragma omp single
    awaited = count = omp_get_num_threads();
    --awaited;
    while (awaited > 0) {
      if (crowded) std::this_thread::yield();
    }
    const auto begin = Clock::now();
    part(omp_get_thread_num(), count);
    const auto end = Clock::now();
#pragma omp critical
    {
      first = std::min(first, begin);
      last = std::max(last, end);
    }
  }
  return {std::chrono::duration<double>(last - first).count(), count};
}

// As many chains as hide an fma's latency on any machine, and leave registers for the two operands.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int chains = 24;  // of 32 registers
#else
constexpr int chains = 12;  // of 16
#endif

// The same elements through four accumulators; with Ahead, what will be needed 4 KiB later is asked for now, which helps
// where the hardware does not look beyond a page.
template <bool Ahead>
void read_all(const float* from, Index count) {
  constexpr Index w = simd::width<float>;
  constexpr int streams = 4;
  simd::Vec<float> sum[streams];
  for (auto& each : sum) each = simd::broadcast(0.0F);
  for (Index i = 0; i + streams * w <= count; i += streams * w) {
    HEED_UNROLL
    for (int s = 0; s < streams; ++s) {
      if constexpr (Ahead) __builtin_prefetch(from + i + s * w + 1024);
      sum[s] = sum[s] + simd::load(from + i + s * w);
    }
  }
  keep((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

}  // namespace

int cores() {
  return omp_get_num_procs();
}

template <class A>
double peak_gflops(Threads threads) {
  constexpr Index steps = 100000;
  const Together run = run_together(threads, [&](int /*worker*/, int /*workers*/) {
    simd::Vec<A> sum[chains];
    for (auto& each : sum) each = simd::broadcast<A>(0);
    const simd::Vec<A> a = simd::broadcast<A>(A(0.5));
    const simd::Vec<A> b = simd::broadcast<A>(A(0.25));
    for (Index step = 0; step < steps; ++step) {
      HEED_UNROLL
      for (int i = 0; i < chains; ++i) sum[i] = simd::fma(a, sum[i], b);
    }
    simd::Vec<A> all = sum[0];
    HEED_UNROLL
    for (int i = 1; i < chains; ++i) all = all + sum[i];
    keep(all);  // not the array: it might live in memory then
  });
  return 2e-9 * static_cast<double>(simd::width<A> * chains * steps * run.threads) / run.seconds;
}

template double peak_gflops<float>(Threads);
template double peak_gflops<double>(Threads);

double read_gbytes(Threads threads, double bytes) {
  constexpr Index most = Index{64} << 20;  // elements: 256 MiB
  constexpr Index least = 1024;            // 4 KiB a thread
  static const std::vector<float> memory(static_cast<std::size_t>(most), 1.0F);
  const Index count = std::clamp(static_cast<Index>(bytes / sizeof(float)), least * threads.count, most);
  const Index times = std::max<Index>(1, most / 8 / count);
  double best = 0;
  for (const bool ahead : {false, true}) {
    const Together run = run_together(threads, [&](int worker, int workers) {
      const Index share = count / workers;
      const float* from = memory.data() + worker * share;
      for (Index i = 0; i < times; ++i) ahead ? read_all<true>(from, share) : read_all<false>(from, share);
    });
    best = std::max(best, 1e-9 * static_cast<double>(sizeof(float)) * static_cast<double>(count * times) / run.seconds);
  }
  return best;
}

}  // namespace bench
