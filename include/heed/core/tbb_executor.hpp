// TbbExecutor: parts of a layer on oneTBB's threads. Included by name only; link heed::tbb (or -ltbb).
#pragma once

#if !__has_include(<tbb/task_arena.h>)
#error "heed/core/tbb_executor.hpp needs oneTBB: link the CMake target heed::tbb (Debian, Ubuntu: libtbb-dev)."
#endif

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <cstddef>

#include "heed/core/executor.hpp"

namespace heed::inline HEED_ABI {

// heed::TbbExecutor pool;      as many threads as TBB has: one a core, unless a tbb::global_control says otherwise
// heed::TbbExecutor pool(4);   four, if TBB has as many
// heed::Cpu cpu(pool);         the pool must outlive the backend
//
// An arena of its own in TBB's one pool of threads, so it goes together with whatever else the program does in TBB.
// Inside a part of any TbbExecutor everything runs on the calling thread. Idle threads go to sleep. TBB takes memory for
// its tasks from caches of its own, not from operator new; if there is none left, the program ends.
class TbbExecutor {
 public:
  explicit TbbExecutor(int threads = 0) : threads_(available(threads)), arena_(threads_) { arena_.initialize(); }
  TbbExecutor(const TbbExecutor&) = delete;
  TbbExecutor& operator=(const TbbExecutor&) = delete;

  int concurrency() const noexcept { return threads_; }

  // part(index, worker) for each index in 0 … count − 1; next index to whoever is free. Returns when all are done.
  // Threads may call it at the same time.
  void parallel_for(Index count, PartFunction part) noexcept {
    if (threads_ == 1 || count <= 1 || inside()) {
      for (Index index = 0; index < count; ++index) part(index, 0);
      return;
    }
    arena_.execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<Index>(0, count),
          [&](const tbb::blocked_range<Index>& range) {
            const int worker = tbb::this_task_arena::current_thread_index();  // its place in the arena: below threads_
            // A part of a caller's may wait for TBB tasks of its own; isolated, it cannot be given another part of ours
            // meanwhile, which would have the same worker's scratch.
            tbb::this_task_arena::isolate([&] {
              inside() = true;
              for (Index index = range.begin(); index < range.end(); ++index) part(index, worker);
              inside() = false;
            });
          },
          tbb::simple_partitioner());  // every index is a task: parts are few, and unequal
    });
  }

 private:
  // More than TBB has it would only warn about.
  static int available(int wanted) {
    const std::size_t limit = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
    const int most = limit < 4096 ? static_cast<int>(limit) : 4096;
    if (wanted <= 0) wanted = tbb::this_task_arena::max_concurrency();
    return wanted < most ? wanted : most;
  }
  static bool& inside() noexcept {
    thread_local bool inside_a_part = false;
    return inside_a_part;
  }

  int threads_;
  tbb::task_arena arena_;
};

}  // namespace heed::inline HEED_ABI
