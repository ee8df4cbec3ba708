// TbbExecutor: the promises of any pool, with oneTBB's threads.
#include <doctest/doctest.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "heed/backend/cpu.hpp"
#include "heed/core/tbb_executor.hpp"
#include "threads/pool_checks.hpp"

namespace {

// TBB starts as many threads as there are cores, unless told that there may be more.
const tbb::global_control eight_threads(tbb::global_control::max_allowed_parallelism, 8);

}  // namespace

TEST_CASE("TbbExecutor: keeps a pool's promises, nested calls are serial") {
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    heed::TbbExecutor pool(threads);
    CHECK(pool.concurrency() == threads);
    test::check_pool(heed::Executor(pool));
  }
}

TEST_CASE("TbbExecutor: 0 threads means as many as TBB offers") {
  const int offered = tbb::this_task_arena::max_concurrency();
  CHECK(heed::TbbExecutor().concurrency() == (offered < 8 ? offered : 8));
  CHECK(heed::TbbExecutor(-3).concurrency() == heed::TbbExecutor().concurrency());
}

TEST_CASE("TbbExecutor: has no more threads than TBB allows") {
  CHECK(heed::TbbExecutor(99).concurrency() == 8);
  const tbb::global_control fewer(tbb::global_control::max_allowed_parallelism, 3);
  heed::TbbExecutor pool(99);
  CHECK(pool.concurrency() == 3);
  test::check_pool(heed::Executor(pool));
}

TEST_CASE("TbbExecutor: callers on several threads at once each keep the promises") {
  heed::TbbExecutor pool(3);
  const heed::Executor executor(pool);
  std::atomic<int> faults = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 5; ++caller) {
    callers.emplace_back([&] {
      for (int time = 0; time < 20; ++time) {
        std::vector<std::atomic<int>> calls(40);
        std::vector<std::atomic<int>> busy(3);
        const auto part = [&](heed::Index index, int worker) {
          if (worker < 0 || worker >= 3) {
            ++faults;
            return;
          }
          if (++busy[static_cast<std::size_t>(worker)] != 1) ++faults;
          ++calls[static_cast<std::size_t>(index)];
          --busy[static_cast<std::size_t>(worker)];
        };
        executor.parallel_for(40, part);
        for (const auto& times : calls) faults += times == 1 ? 0 : 1;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(faults == 0);
}

TEST_CASE("TbbExecutor: a part that waits for tasks of its own is not given another part meanwhile") {
  heed::TbbExecutor pool(2);
  tbb::task_arena elsewhere(2);  // does the part's tasks, so that it has nothing to do but wait
  std::vector<std::atomic<int>> busy(2);
  std::atomic<int> faults = 0;
  std::atomic<int> done = 0;
  const auto part = [&](heed::Index, int worker) {
    if (++busy[static_cast<std::size_t>(worker)] != 1) ++faults;
    tbb::task_group tasks;
    elsewhere.enqueue(tasks.defer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++done;
    }));
    tasks.wait();
    --busy[static_cast<std::size_t>(worker)];
  };
  pool.parallel_for(40, part);
  CHECK(done == 40);
  CHECK(faults == 0);
}

TEST_CASE("TbbExecutor: may be used from the caller's own TBB tasks") {
  heed::TbbExecutor pool(3);
  std::atomic<int> calls = 0;
  tbb::parallel_for(0, 10, [&](int) {
    const auto part = [&](heed::Index, int) { ++calls; };
    pool.parallel_for(7, part);
  });
  CHECK(calls == 70);
}
