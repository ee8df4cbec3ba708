// Executors: what heed asks of a pool, with none, with a pool of real threads, and with a const one.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heed/backend/cpu.hpp"
#include "support/backends.hpp"

namespace {

using heed::Executor;
using heed::Index;

// Calls every index once, workers in range and never one twice at the same time.
void check_promises(const Executor& executor, Index count) {
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

// The least a user can write: threads made for each call.
struct ThreadsPerCall {
  int count = 4;
  int concurrency() const { return count; }
  void parallel_for(Index parts, heed::PartFunction part) const {
    std::atomic<Index> next = 0;
    const auto work = [&](int worker) {
      for (Index index = next++; index < parts; index = next++) part(index, worker);
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < count; ++worker) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }
};

// Says something silly about its size.
struct Zero {
  int concurrency() const { return 0; }
  void parallel_for(Index count, heed::PartFunction part) {
    for (Index index = 0; index < count; ++index) part(index, 0);
  }
};

struct NoPool {
  int concurrency() const { return 1; }
};

}  // namespace

TEST_CASE("Executor: default-made it is serial, in order, on the calling thread") {
  const Executor serial;
  CHECK(serial.concurrency() == 1);
  std::vector<Index> order;
  const auto thread = std::this_thread::get_id();
  bool here = true;
  const auto part = [&](Index index, int worker) {
    here = here && worker == 0 && std::this_thread::get_id() == thread;
    order.push_back(index);
  };
  serial.parallel_for(5, part);
  CHECK(order == std::vector<Index>{0, 1, 2, 3, 4});
  CHECK(here);
  order.clear();
  serial.parallel_for(0, part);
  serial.parallel_for(-3, part);
  CHECK(order.empty());
}

TEST_CASE("Executor: a pool's promises hold for real threads") {
  test::ReversePool reverse;
  ThreadsPerCall each;
  Zero zero;
  for (const Index count : {0, 1, 2, 3, 17, 200}) {
    CAPTURE(count);
    check_promises(Executor(), count);
    check_promises(Executor(reverse), count);
    check_promises(Executor(each), count);
    check_promises(Executor(zero), count);
  }
  CHECK(Executor(reverse).concurrency() == 3);
  CHECK(Executor(each).concurrency() == 4);
  CHECK(Executor(zero).concurrency() == 1);
  CHECK(reverse.parts_elsewhere() > 0);
}

TEST_CASE("Executor: refers to the pool, copies refer to the same one; a pool may be const") {
  ThreadsPerCall pool{2};
  const Executor executor = pool;
  const Executor copy = executor;
  pool.count = 5;
  CHECK(copy.concurrency() == 5);
  const ThreadsPerCall unchanging{3};
  const Executor of_const = unchanging;
  CHECK(of_const.concurrency() == 3);
  check_promises(of_const, 50);
  static_assert(std::is_trivially_copyable_v<Executor>);
  static_assert(!std::is_constructible_v<Executor, ThreadsPerCall>, "a temporary pool would dangle");
  static_assert(heed::ParallelFor<ThreadsPerCall> && heed::ParallelFor<Zero>);
  static_assert(!heed::ParallelFor<NoPool> && !heed::ParallelFor<int>);
}

TEST_CASE("Executor: one part does not wake the pool") {
  test::ReversePool pool;
  const Executor executor(pool);
  int calls = 0;
  const auto part = [&](Index, int) { ++calls; };
  executor.parallel_for(1, part);
  CHECK(calls == 1);
  CHECK(pool.parts_elsewhere() == 0);
}

TEST_CASE("Executor: a parallel_for inside a part runs serially") {
  test::ReversePool pool;
  const Executor executor(pool);
  std::atomic<int> calls = 0;
  std::atomic<int> elsewhere = 0;
  const auto outer = [&](Index, int) {
    const auto thread = std::this_thread::get_id();
    const auto inner = [&](Index, int) {
      ++calls;
      if (std::this_thread::get_id() != thread) ++elsewhere;
    };
    executor.parallel_for(6, inner);
  };
  executor.parallel_for(7, outer);
  CHECK(calls == 42);
  CHECK(elsewhere == 0);
}

TEST_CASE("PartFunction: refers to const, mutable and plain functions") {
  Index last = -1;
  const auto constant = [&](Index index, int worker) { last = 10 * index + worker; };
  const heed::PartFunction of_const(constant);
  of_const(4, 2);
  CHECK(last == 42);
  int state = 0;
  auto counting = [state](Index, int) mutable { ++state; };
  const heed::PartFunction of_mutable(counting);
  of_mutable(0, 0);
  static_assert(std::is_trivially_copyable_v<heed::PartFunction>);
  static_assert(!std::is_constructible_v<heed::PartFunction, int>);
}

TEST_CASE("Cpu: ranges cover all items once, hold about the grain or more, and small work stays on one thread") {
  test::ReversePool pool;
  const heed::Cpu three(pool);
  const heed::Cpu one;
  CHECK(three.concurrency() == 3);
  CHECK(one.concurrency() == 1);
  for (const heed::Cpu& cpu : {one, three}) {
    for (const Index count : {0, 1, 5, 12, 100, 1001}) {
      for (const Index grain : {0, 1, 4, 50, 5000}) {
        CAPTURE(count);
        CAPTURE(grain);
        std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
        std::atomic<int> ranges = 0;
        std::atomic<int> small = 0;
        cpu.for_ranges(count, grain, [&](Index begin, Index items, int worker) {
          ++ranges;
          if (items < grain / 2 || items < 1 || worker >= cpu.concurrency()) ++small;
          for (Index i = begin; i < begin + items; ++i) ++calls[static_cast<std::size_t>(i)];
        });
        for (const auto& times : calls) CHECK(times == 1);
        if (cpu.concurrency() == 1 || count <= grain) CHECK(ranges == (count > 0 ? 1 : 0));
        if (cpu.concurrency() == 3 && count == 1001 && grain == 1) CHECK(ranges == 12);  // a few a worker
        if (count >= grain) CHECK(small == 0);
      }
    }
  }
}
