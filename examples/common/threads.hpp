// A pool of threads for heed::Cpu that sleeps between calls. (heed::OpenMpExecutor would do as well; but idle OpenMP
// threads spin, unless OMP_WAIT_POLICY=passive, and on a machine that has other things to do they are in its way.)
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "heed/core/executor.hpp"

namespace common {

class Threads {
 public:
  // `count` workers, the calling thread among them; 0: one a core.
  explicit Threads(int count) {
    if (count < 1) count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int worker = 1; worker < count; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
  }
  ~Threads() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int concurrency() const noexcept { return static_cast<int>(threads_.size()) + 1; }

  // part(index, worker) for each index, from one thread at a time. A worker that wakes up too late is not waited for.
  void parallel_for(heed::Index count, heed::PartFunction part) noexcept {
    if (inside_) {  // called from a part: this thread does it alone
      for (heed::Index index = 0; index < count; ++index) part(index, 0);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      part_ = &part;
      count_ = count;
      next_ = 0;
      ++call_;
    }
    wake_.notify_all();
    work(part, 0);
    std::unique_lock lock(mutex_);
    part_ = nullptr;  // no worker may begin any more
    done_.wait(lock, [this] { return active_ == 0; });
  }

 private:
  void serve(int worker) {
    std::unique_lock lock(mutex_);
    for (long seen = 0;;) {
      wake_.wait(lock, [&] { return stop_ || (part_ != nullptr && call_ != seen); });
      if (stop_) return;
      seen = call_;
      const heed::PartFunction& part = *part_;
      ++active_;
      lock.unlock();
      work(part, worker);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  void work(const heed::PartFunction& part, int worker) {
    inside_ = true;
    for (heed::Index index = next_++; index < count_; index = next_++) part(index, worker);
    inside_ = false;
  }

  static inline thread_local bool inside_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const heed::PartFunction* part_ = nullptr;  // of the call in progress
  heed::Index count_ = 0;
  std::atomic<heed::Index> next_ = 0;
  long call_ = 0;
  int active_ = 0;  // threads of the pool that are at work
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace common
