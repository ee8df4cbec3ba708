// What every pool must do (core/executor.hpp), checked from outside.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "heed/core/executor.hpp"

namespace test {

using heed::Index;

// Calls every index once, workers in range and never one twice at the same time.
inline void check_promises(const heed::Executor& executor, Index count) {
  const auto workers = static_cast<std::size_t>(executor.concurrency());
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
  std::vector<std::atomic<int>> busy(workers);
  std::atomic<int> faults = 0;
  const auto part = [&](Index index, int worker) {
    if (index < 0 || index >= count || worker < 0 || static_cast<std::size_t>(worker) >= workers) {
      ++faults;
      return;
    }
    if (++busy[static_cast<std::size_t>(worker)] != 1) ++faults;
    ++calls[static_cast<std::size_t>(index)];
    std::this_thread::yield();
    --busy[static_cast<std::size_t>(worker)];
  };
  executor.parallel_for(count, part);
  CHECK(faults == 0);
  for (const auto& times : calls) CHECK(times == 1);
}

// Two parts that wait for each other: on one thread they would wait in vain, and do so for ten seconds only.
inline void check_two_at_a_time(const heed::Executor& executor) {
  std::atomic<int> arrived = 0;
  std::atomic<bool> together = false;
  const auto part = [&](Index, int) {
    ++arrived;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (arrived < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    if (arrived == 2) together = true;
  };
  executor.parallel_for(2, part);
  CHECK(together);
}

// A parallel_for inside a part stays on the part's thread, and still runs every index.
inline void check_nested_is_serial(const heed::Executor& executor) {
  std::atomic<int> calls = 0;
  std::atomic<int> elsewhere = 0;
  std::atomic<int> out_of_range = 0;
  const auto outer = [&](Index, int) {
    const auto thread = std::this_thread::get_id();
    int here = 0;  // not atomic: a race if it is not serial
    const auto inner = [&](Index index, int worker) {
      if (std::this_thread::get_id() != thread) ++elsewhere;
      if (index < 0 || index >= 6 || worker < 0 || worker >= executor.concurrency()) ++out_of_range;
      ++here;
    };
    executor.parallel_for(6, inner);
    calls += here;
  };
  executor.parallel_for(7, outer);
  CHECK(calls == 42);
  CHECK(elsewhere == 0);
  CHECK(out_of_range == 0);
}

// All of it, for a pool that has threads.
inline void check_pool(const heed::Executor& executor) {
  for (const Index count : {0, 1, 2, 3, 17, 200}) {
    CAPTURE(count);
    check_promises(executor, count);
  }
  if (executor.concurrency() > 1) check_two_at_a_time(executor);
  check_nested_is_serial(executor);
  check_promises(executor, 50);  // as before, after a nested one
}

}  // namespace test
