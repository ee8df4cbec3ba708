// OpenMpExecutor: the same promises as any pool (test_executor.cpp), with OpenMP's threads.
#include <doctest/doctest.h>
#include <omp.h>

#include <atomic>
#include <vector>

#include "heed/backend/cpu.hpp"
#include "heed/core/openmp_executor.hpp"

TEST_CASE("OpenMpExecutor: every index once, workers below concurrency, never one worker twice at a time") {
  for (const int threads : {1, 2, 3, 8}) {
    const heed::OpenMpExecutor pool(threads);
    CHECK(pool.concurrency() == threads);
    for (const heed::Index count : {0, 1, 2, 7, 1000}) {
      CAPTURE(threads);
      CAPTURE(count);
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
      std::atomic<int> faults = 0;
      const auto part = [&](heed::Index index, int worker) {
        if (index < 0 || index >= count || worker < 0 || worker >= threads) {
          ++faults;
          return;
        }
        if (++busy[static_cast<std::size_t>(worker)] != 1) ++faults;
        ++calls[static_cast<std::size_t>(index)];
        --busy[static_cast<std::size_t>(worker)];
      };
      pool.parallel_for(count, part);
      CHECK(faults == 0);
      for (const auto& times : calls) CHECK(times == 1);
    }
  }
}

TEST_CASE("OpenMpExecutor: more than one thread really works") {
  const heed::OpenMpExecutor pool(2);
  std::atomic<int> arrived = 0;
  std::atomic<bool> together = false;
  const auto part = [&](heed::Index, int) {
    ++arrived;
    const double until = omp_get_wtime() + 10;  // a serial executor would wait in vain
    while (arrived < 2 && omp_get_wtime() < until) {
    }
    if (arrived == 2) together = true;
  };
  pool.parallel_for(2, part);
  CHECK(together);
}

TEST_CASE("OpenMpExecutor: nested use runs serially, as worker 0 of the inner call") {
  const heed::OpenMpExecutor pool(3);
  std::atomic<int> inner_calls = 0;
  std::atomic<int> faults = 0;
  const auto outer = [&](heed::Index, int) {
    const int thread = omp_get_thread_num();
    heed::Index expected = 0;
    const auto inner = [&](heed::Index index, int worker) {
      if (worker != 0 || index != expected++ || omp_get_thread_num() != thread) ++faults;
      ++inner_calls;
    };
    pool.parallel_for(5, inner);
  };
  pool.parallel_for(4, outer);
  CHECK(inner_calls == 20);
  CHECK(faults == 0);
}

TEST_CASE("OpenMpExecutor: 0 threads means as many as OpenMP offers") {
  CHECK(heed::OpenMpExecutor().concurrency() == omp_get_max_threads());
  CHECK(heed::OpenMpExecutor(-3).concurrency() == omp_get_max_threads());
}

TEST_CASE("OpenMpExecutor: runs a Cpu backend") {
  heed::OpenMpExecutor pool(3);
  const heed::Cpu cpu(pool);
  CHECK(cpu.concurrency() == 3);
  std::vector<std::atomic<int>> calls(100);
  cpu.for_ranges(100, 7, [&](heed::Index begin, heed::Index count, int) {
    for (heed::Index i = begin; i < begin + count; ++i) ++calls[static_cast<std::size_t>(i)];
  });
  for (const auto& times : calls) CHECK(times == 1);
}
