// OpenMpExecutor: parts of a layer on OpenMP's threads. Included by name only; link heed::openmp (or compile and link
// with -fopenmp).
#pragma once

#if !defined(_OPENMP)
#error "heed/core/openmp_executor.hpp needs OpenMP: link the CMake target heed::openmp, or compile with -fopenmp."
#endif

#include <omp.h>

#include "heed/core/executor.hpp"

namespace heed::inline HEED_ABI {

// heed::OpenMpExecutor pool;      all that OpenMP offers (OMP_NUM_THREADS, else one a core)
// heed::OpenMpExecutor pool(4);   four
// heed::Cpu cpu(pool);            the pool must outlive the backend
//
// Holds no threads of its own: OpenMP keeps one pool for the program. Inside a parallel region (the caller's, or a
// parallel_for of this class) everything runs on the calling thread. How long idle threads spin before they sleep is
// OpenMP's affair (OMP_WAIT_POLICY=passive: not at all).
class OpenMpExecutor {
 public:
  explicit OpenMpExecutor(int threads = 0) noexcept : threads_(threads > 0 ? threads : omp_get_max_threads()) {}

  int concurrency() const noexcept { return threads_; }

  // part(index, worker) for each index in 0 … count − 1; next index to whoever is free. Returns when all are done.
  void parallel_for(Index count, PartFunction part) const noexcept {
    const int workers = count < threads_ ? static_cast<int>(count) : threads_;
    if (workers <= 1 || omp_in_parallel() != 0) {
      for (Index index = 0; index < count; ++index) part(index, 0);
      return;
    }
#pragma omp parallel num_threads(workers)
    {
      const int worker = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
      for (Index index = 0; index < count; ++index) part(index, worker);
    }
  }

 private:
  int threads_;
};

}  // namespace heed::inline HEED_ABI
