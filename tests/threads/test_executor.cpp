// Executors: what heed asks of a pool, with none, with pools of real threads, with a const one, and with pools that
// throw.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__unix__)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "heed/backend/cpu.hpp"
#include "heed/ops/linear.hpp"
#include "support/backends.hpp"
#include "support/errors.hpp"
#include "threads/pool_checks.hpp"

namespace {

using heed::Executor;
using heed::Index;
using test::error_text;

// The least a user can write: threads made for each call, which may throw.
struct ThreadsPerCall {
  int count = 4;
  int concurrency() const { return count; }
  void parallel_for(Index parts, heed::PartFunction part) const {
    if (inside()) {
      for (Index index = 0; index < parts; ++index) part(index, 0);
      return;
    }
    std::atomic<Index> next = 0;
    const auto work = [&](int worker) {
      inside() = true;
      for (Index index = next++; index < parts; index = next++) part(index, worker);
      inside() = false;
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < count; ++worker) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }
  static bool& inside() {
    thread_local bool flag = false;
    return flag;
  }
};

// A pool of any size whose calls throw as many times as told, before they begin.
struct Moody {
  int workers = 2;
  int throws = 0;
  bool throws_numbers = false;
  bool hides_its_size = false;
  int calls = 0;
  int concurrency() const {
    if (hides_its_size) throw std::runtime_error("nobody home");
    return workers;
  }
  void parallel_for(Index count, heed::PartFunction part) {
    ++calls;
    if (throws > 0) {
      --throws;
      if (throws_numbers) throw 7;
      throw std::runtime_error("no threads left");
    }
    for (Index index = 0; index < count; ++index) part(index, static_cast<int>(index % workers));
  }
};

// The same, but it promises not to throw.
struct Sure : Moody {
  void parallel_for(Index count, heed::PartFunction part) noexcept {
    ++calls;
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
  test::check_pool(serial);
}

TEST_CASE("Executor: a pool's promises hold for real threads, nested calls are serial") {
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    test::ReversePool reverse(threads);
    test::check_pool(Executor(reverse));
    CHECK(Executor(reverse).concurrency() == threads);
    CHECK((reverse.parts_elsewhere() > 0) == (threads > 1));
    const ThreadsPerCall each{threads};
    test::check_pool(Executor(each));
    CHECK(Executor(each).concurrency() == threads);
  }
}

TEST_CASE("Executor: refers to the pool, copies refer to the same one; a pool may be const") {
  test::ReversePool pool;
  const Executor executor = pool;
  const Executor copy = executor;
  const auto part = [](Index, int) {};
  copy.parallel_for(30, part);
  executor.parallel_for(30, part);
  CHECK(pool.parts_elsewhere() == 40);
  const ThreadsPerCall unchanging{3};
  const Executor of_const = unchanging;
  CHECK(of_const.concurrency() == 3);
  test::check_promises(of_const, 50);
  static_assert(std::is_trivially_copyable_v<Executor>);
  static_assert(!std::is_constructible_v<Executor, ThreadsPerCall>, "a temporary pool would dangle");
  static_assert(heed::ParallelFor<ThreadsPerCall> && heed::ParallelFor<Sure>);
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

TEST_CASE("Executor: a pool without workers is refused") {
  for (const int workers : {0, -4}) {
    Moody pool{workers};
    const std::string text = "heed: Executor: expected a pool of at least 1 worker, got " + std::to_string(workers);
    CHECK(error_text<heed::OptionError>([&] { static_cast<void>(Executor(pool)); }) == text);
    CHECK(error_text<heed::OptionError>([&] { static_cast<void>(heed::Cpu(pool)); }) == text);
  }
}

TEST_CASE("Executor: a pool that throws is refused when a backend is made of it, before there is any work") {
  Moody pool{.throws = 3};
  CHECK(error_text<heed::SystemError>([&] { static_cast<void>(Executor(pool)); }) ==
        "heed: Executor: the pool threw: no threads left");
  CHECK(error_text<heed::SystemError>([&] { static_cast<void>(heed::Cpu(pool)); }) ==
        "heed: Executor: the pool threw: no threads left");
  pool.throws_numbers = true;
  CHECK(error_text<heed::SystemError>([&] { static_cast<void>(Executor(pool)); }) ==
        "heed: Executor: the pool threw: something that is not a std::exception");
  CHECK(pool.calls == 3);
  CHECK(Executor(pool).concurrency() == 2);  // in a better mood
  CHECK(pool.calls == 4);
  pool.hides_its_size = true;
  CHECK(error_text<heed::SystemError>([&] { static_cast<void>(Executor(pool)); }) ==
        "heed: Executor: the pool threw: nobody home");
}

TEST_CASE("Executor: a pool whose parallel_for is noexcept is not tried") {
  Sure pool;
  static_cast<void>(Executor(pool));
  CHECK(pool.calls == 0);
}

TEST_CASE("Executor: where a pool throws later, the calling thread does the work") {
  Moody pool{.workers = 3};
  const heed::Cpu cpu(pool);
  heed::Tensor<float, 2> x({300, 70});
  heed::Tensor<float, 2> weight({90, 70});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i % 23);
  for (Index i = 0; i < weight.size(); ++i) weight.data()[i] = static_cast<float>(i % 7);
  heed::Tensor<float, 2> with_pool({300, 90});
  heed::Tensor<float, 2> alone({300, 90});
  pool.throws = 1;
  pool.calls = 0;
  heed::ops::linear(cpu, x, weight, {}, with_pool);
  CHECK(pool.calls == 1);
  CHECK(pool.throws == 0);
  heed::ops::linear(heed::Cpu(), x, weight, {}, alone);
  CHECK(std::equal(alone.data(), alone.data() + alone.size(), with_pool.data()));
  CHECK(alone(299, 89) != 0);

  // Every part once, as worker 0.
  pool.throws = 1;
  std::vector<int> calls(9);
  const auto part = [&](Index index, int worker) {
    CHECK(worker == 0);
    ++calls[static_cast<std::size_t>(index)];
  };
  Executor(cpu.executor()).parallel_for(9, part);
  CHECK(calls == std::vector<int>(9, 1));
}

#if defined(__unix__)
// Parts that a pool has begun cannot be taken back: one may be running still, or be lost. In a process of its own, which
// says by its exit code how it ended.
TEST_CASE("Executor: a pool that throws after it has begun a part ends the program") {
  struct Late {
    Index before = 0;  // parts that it runs, then it throws; none when it is tried
    bool tried = false;
    int concurrency() const { return 2; }
    void parallel_for(Index count, heed::PartFunction part) {
      if (!std::exchange(tried, true)) return;
      for (Index index = 0; index < count && index < before; ++index) part(index, 0);
      throw std::runtime_error("lost a thread");
    }
  };
  constexpr int terminated = 42;
  constexpr int returned = 43;
  for (const Index before : {0, 1, 3, 8}) {
    CAPTURE(before);
    Late pool{.before = before};
    const Executor executor(pool);
    std::atomic<int> runs = 0;
    const auto part = [&](Index, int) { ++runs; };
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::set_terminate([] { _exit(terminated); });
      executor.parallel_for(8, part);
      _exit(runs == 8 ? returned : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (before == 0 ? returned : terminated));
  }
}
#endif

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
