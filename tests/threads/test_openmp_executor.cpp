// OpenMpExecutor: the promises of any pool, with OpenMP's threads.
#include <doctest/doctest.h>
#include <omp.h>

#include "heed/backend/cpu.hpp"
#include "heed/core/openmp_executor.hpp"
#include "threads/pool_checks.hpp"

TEST_CASE("OpenMpExecutor: keeps a pool's promises, nested calls are serial") {
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    const heed::OpenMpExecutor pool(threads);
    CHECK(pool.concurrency() == threads);
    test::check_pool(heed::Executor(pool));
  }
}

TEST_CASE("OpenMpExecutor: inside a parallel region of the caller's it is serial") {
  const heed::OpenMpExecutor pool(3);
  std::atomic<int> calls = 0;
  std::atomic<int> faults = 0;
#pragma omp parallel num_threads(2)
  {
    const int thread = omp_get_thread_num();
    heed::Index expected = 0;
    const auto inner = [&](heed::Index index, int worker) {
      if (worker != 0 || index != expected++ || omp_get_thread_num() != thread) ++faults;
      ++calls;
    };
    pool.parallel_for(5, inner);
  }
  CHECK(calls == 10);
  CHECK(faults == 0);
}

TEST_CASE("OpenMpExecutor: 0 threads means as many as OpenMP offers") {
  CHECK(heed::OpenMpExecutor().concurrency() == omp_get_max_threads());
  CHECK(heed::OpenMpExecutor(-3).concurrency() == omp_get_max_threads());
}
