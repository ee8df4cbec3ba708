// The backends that every operation and layer is tested on, and a pool that is unkind to races and orders.
#pragma once

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "heed/backend/cpu.hpp"
#if HEED_TEST_COMPILED
#include "heed/backend/compiled.hpp"
#endif

namespace test {

using heed::Index;

// Three workers, or as many as asked for: the caller and threads of its own. Part `count − 1 − i` goes to worker i mod 3
// and every worker begins with its last part, so parts run at the same time, on real threads, and in an order no serial
// loop has. After construction it allocates nothing.
class ReversePool {
 public:
  static constexpr int workers = 3;

  explicit ReversePool(int count = workers) : workers_(count) {
    for (int worker = 1; worker < workers_; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
  }
  ~ReversePool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ReversePool(const ReversePool&) = delete;
  ReversePool& operator=(const ReversePool&) = delete;

  int concurrency() const noexcept { return workers_; }
  // Parts that threads other than the caller's have run: shows that a test did reach them.
  Index parts_elsewhere() const { return parts_elsewhere_; }

  void parallel_for(Index count, heed::PartFunction part) noexcept {
    if (current_worker() >= 0) {  // nested: serially, as this worker
      for (Index index = count; index-- > 0;) part(index, current_worker());
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      part_ = &part;
      count_ = count;
      busy_ = workers_ - 1;
      ++generation_;
      parts_elsewhere_ += count - (count + workers_ - 1) / workers_;
    }
    wake_.notify_all();
    run_share(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  static int& current_worker() {
    thread_local int worker = -1;
    return worker;
  }
  void run_share(int worker) {
    current_worker() = worker;
    for (Index index = count_ - 1 - worker; index >= 0; index -= workers_) (*part_)(index, worker);
    current_worker() = -1;
  }
  void serve(int worker) {
    long seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
      }
      run_share(worker);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const heed::PartFunction* part_ = nullptr;
  Index count_ = 0;
  Index parts_elsewhere_ = 0;
  long generation_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  const int workers_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

// Calls check(backend) with Simd, Cpu on one thread and Cpu on three. A failed check says which one it was.
template <class F>
void for_each_fast_backend(F&& check) {
  {
    INFO("backend: simd");
    check(heed::Simd());
  }
  ReversePool pool;
  for (const int workers : {1, ReversePool::workers}) {
    INFO("backend: cpu, workers: ", workers);
    check(workers == 1 ? heed::Cpu() : heed::Cpu(pool));
  }
}

// The same with Reference first.
template <class F>
void for_each_backend(F&& check) {
  {
    INFO("backend: reference");
    check(heed::Reference());
  }
  for_each_fast_backend(check);
}

// A reference to a backend whose type is known at run time only. A test that calls heed through a function of its own
// that takes an AnyBackend is compiled once, not once a backend, which is most of the time it takes to compile.
class AnyBackend {
 public:
  AnyBackend(const heed::Reference& backend) : reference_(&backend) {}
  AnyBackend(const heed::Simd& backend) : simd_(&backend) {}
  AnyBackend(const heed::Cpu& backend) : cpu_(&backend) {}
#if HEED_TEST_COMPILED
  AnyBackend(const heed::Compiled& backend) : compiled_(&backend) {}
#endif

  // Calls f with the backend itself.
  template <class F>
  void visit(F&& f) const {
    if (reference_ != nullptr) f(*reference_);
    if (simd_ != nullptr) f(*simd_);
    if (cpu_ != nullptr) f(*cpu_);
#if HEED_TEST_COMPILED
    if (compiled_ != nullptr) f(*compiled_);
#endif
  }

 private:
  const heed::Reference* reference_ = nullptr;
  const heed::Simd* simd_ = nullptr;
  const heed::Cpu* cpu_ = nullptr;
#if HEED_TEST_COMPILED
  const heed::Compiled* compiled_ = nullptr;
#endif
};

// Calls check(AnyBackend) with Reference, Simd, Cpu on one thread and on three, and Compiled on three where it is built.
template <class F>
void for_each_any_backend(F&& check) {
  ReversePool pool;
  const heed::Reference reference;
  const heed::Simd simd;
  const heed::Cpu serial;
  const heed::Cpu threads(pool);
#if HEED_TEST_COMPILED
  const heed::Compiled compiled(pool);
#endif
  const struct {
    const char* name;
    AnyBackend backend;
  } backends[] = {
    {"reference", reference},
    {"simd", simd},
    {"cpu, 1 worker", serial},
    {"cpu, 3 workers", threads},
#if HEED_TEST_COMPILED
    {"compiled, 3 workers", compiled},
#endif
  };
  for (const auto& each : backends) {
    INFO("backend: ", each.name);
    check(each.backend);
  }
}

}  // namespace test
