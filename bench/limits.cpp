#include "limits.hpp"

#include <chrono>
#include <vector>

#include "heed/core/openmp_executor.hpp"

namespace bench {

namespace {

using heed::Index;
namespace simd = heed::simd;

// Runs part(worker) on all threads at once and returns the seconds until the last one is done.
template <class F>
double seconds_of(Threads threads, F&& part) {
  const heed::OpenMpExecutor pool(threads.count);
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(threads.count, [&](Index index, int) { part(index); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

template <class A>
double peak_gflops(Threads threads) {
  // Chains enough to hide an fma's latency, few enough to stay in the registers with the two operands.
  constexpr int chains = simd::tile_rows<A> * 2 < 24 ? simd::tile_rows<A> * 2 : 24;
  constexpr Index steps = 40000;
  const double seconds = seconds_of(threads, [&](Index) {
    simd::Vec<A> sum[chains];
    for (auto& each : sum) each = simd::broadcast<A>(0);
    simd::Vec<A> a = simd::broadcast<A>(A(0.5));
    const simd::Vec<A> b = simd::broadcast<A>(A(0.25));
    for (Index step = 0; step < steps; ++step) {
      HEED_UNROLL
      for (auto& each : sum) each = simd::fma(a, each, b);
    }
    keep(sum);
  });
  return 2e-9 * static_cast<double>(simd::width<A> * chains * steps * threads.count) / seconds;
}

template double peak_gflops<float>(Threads);
template double peak_gflops<double>(Threads);

double read_gbytes(Threads threads) {
  static const std::vector<float> memory(std::size_t{64} << 20, 1.0F);  // 256 MiB
  const Index share = static_cast<Index>(memory.size()) / threads.count;
  const double seconds = seconds_of(threads, [&](Index worker) {
    const float* from = memory.data() + worker * share;
    constexpr int streams = 4;
    constexpr Index w = simd::width<float>;
    simd::Vec<float> sum[streams];
    for (auto& each : sum) each = simd::broadcast(0.0F);
    for (Index i = 0; i + streams * w <= share; i += streams * w) {
      HEED_UNROLL
      for (int s = 0; s < streams; ++s) sum[s] = sum[s] + simd::load(from + i + s * w);
    }
    keep(sum);
  });
  return 4e-9 * static_cast<double>(share * threads.count) / seconds;
}

}  // namespace bench
