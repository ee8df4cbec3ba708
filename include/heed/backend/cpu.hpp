// Cpu: Simd's kernels on parts of the work, run by an executor. The default backend.
#pragma once

#include "heed/backend/simd.hpp"

namespace heed::inline HEED_ABI {

// heed::Cpu cpu;        one thread
// heed::Cpu cpu(pool);  OpenMpExecutor, TbbExecutor, or any pool of the caller's (core/executor.hpp, which says what a
//                       pool must offer and when it is refused); it must outlive the backend
//
// Parts are whole rows, so the bits of a result do not depend on the number of threads.
class Cpu : public Simd {
 public:
  Cpu() noexcept = default;
  explicit Cpu(Executor executor) noexcept : executor_(executor) {}

  static constexpr const char* name() noexcept { return "cpu"; }
  int concurrency() const noexcept { return executor_.concurrency(); }
  const Executor& executor() const noexcept { return executor_; }

  // Calls part(begin, count, worker) on disjoint ranges that cover 0 … count − 1. Ranges hold about `grain` items or
  // more (at least half as many), so that small work runs on the calling thread.
  template <class F>
  void for_ranges(Index count, Index grain, F&& part) const {
    if (count <= 0) return;
    const Index at_most = static_cast<Index>(concurrency()) * 4;  // a few ranges a worker even out unequal ones
    if (grain < 1) grain = 1;
    const Index wanted = (count + grain - 1) / grain;
    const Index ranges = concurrency() == 1 ? 1 : (wanted < at_most ? wanted : at_most);
    executor_.parallel_for(ranges, [&](Index range, int worker) {
      const Index begin = count * range / ranges;
      part(begin, count * (range + 1) / ranges - begin, worker);
    });
  }

 private:
  Executor executor_;
};

}  // namespace heed::inline HEED_ABI
