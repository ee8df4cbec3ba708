// Executor: who runs the parts of a layer. Serial by default, OpenMP (heed/core/openmp_executor.hpp), TBB
// (heed/core/tbb_executor.hpp), or the caller's own pool.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "heed/core/view.hpp"
#include "heed/error.hpp"

#if HEED_EXCEPTIONS
#include <atomic>
#include <exception>
#endif

namespace heed {

// A reference to a callable void(Index index, int worker) noexcept; as cheap to pass as two pointers, never allocates.
class PartFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, PartFunction> && std::is_invocable_v<F&, Index, int>) HEED_INLINE
      PartFunction(F&& function)
  noexcept  // the callable outlives parallel_for, which waits
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Index index, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index, worker);
        }) {}
  HEED_INLINE void operator()(Index index, int worker) const { call_(object_, index, worker); }

 private:
  void* object_;
  void (*call_)(void*, Index, int);
};

// What a pool must offer: parallel_for(count, f) calls f(index, worker) once for every index in 0 … count − 1, with
// worker in 0 … concurrency() − 1 and never two calls at the same time with the same worker, and returns when all are
// done. f does not throw. A parallel_for from inside a part runs serially, on the calling thread (heed's own kernels
// never nest; a caller's code may, by calling heed from a part of its own). concurrency() is 1 or more and stays what it
// is as long as an Executor refers to the pool.
//
// Declare parallel_for noexcept if it can be: kernels are, so nothing that it throws could reach the caller. One that is
// not may throw before it has begun a part (for want of threads, say), never after: see Executor.
template <class Pool>
concept ParallelFor = requires(Pool& pool, Index count, PartFunction function) {
  { pool.concurrency() } -> std::convertible_to<int>;
  pool.parallel_for(count, function);
};

}  // namespace heed

namespace heed::inline HEED_ABI::impl {

template <class Pool>
inline constexpr bool never_throws = noexcept(std::declval<Pool&>().parallel_for(Index(),
                                                                                 std::declval<PartFunction>()));

// The pool's concurrency. A pool that is of no use is found out here, before there is any work.
template <class Pool>
int checked_concurrency(Pool& pool) {
  int workers = 0;
#if HEED_EXCEPTIONS
  Problem problem(ErrorKind::system, "heed: Executor: the pool threw: ");
  bool threw = true;
  try {
    workers = static_cast<int>(pool.concurrency());
    if constexpr (!never_throws<Pool>) {
      const auto nothing = [](Index, int) {};
      if (workers > 0) pool.parallel_for(Index{workers} + 1, PartFunction(nothing));  // one part might wake nobody
    }
    threw = false;
  } catch (const std::exception& error) {
    problem.append(error.what());
  } catch (...) {
    problem.append("something that is not a std::exception");
  }
  if (threw) raise(problem);
#else
  workers = static_cast<int>(pool.concurrency());
#endif
  if (workers < 1)
    raise(Problem(ErrorKind::option, "heed: Executor: expected a pool of at least 1 worker, got ").append(workers));
  return workers;
}

template <class Pool>
void run_parts(void* self, Index count, PartFunction part) noexcept {
  Pool& pool = *static_cast<Pool*>(self);
#if HEED_EXCEPTIONS
  if constexpr (!never_throws<Pool>) {
    std::atomic<bool> begun = false;
    const auto noted = [&](Index index, int worker) {
      begun.store(true, std::memory_order_relaxed);
      part(index, worker);
    };
    try {
      pool.parallel_for(count, PartFunction(noted));
    } catch (...) {
      if (begun) std::terminate();  // a part may be running still, or be lost
      for (Index index = 0; index < count; ++index) part(index, 0);
    }
    return;
  }
#endif
  pool.parallel_for(count, part);
}

}  // namespace heed::inline HEED_ABI::impl

namespace heed {

// A reference to any such pool, which must outlive it; default-made it is serial.
//
// Errors of the constructor: OptionError for a pool of no worker; SystemError, with its text, for a pool that throws. To
// find that out a pool whose parallel_for is not noexcept is asked once to run parts that do nothing. If such a pool
// throws later, the calling thread runs the parts: slower, with the same bits; std::terminate if it had begun one.
class Executor {
 public:
  HEED_INLINE Executor() noexcept = default;

  template <ParallelFor Pool>
  requires(!std::is_same_v<std::remove_cv_t<Pool>, Executor>) HEED_INLINE Executor(Pool& pool)
      : pool_(const_cast<void*>(static_cast<const void*>(std::addressof(pool)))),  // a const pool stays const in Pool
        concurrency_(impl::checked_concurrency(pool)),
        run_(impl::run_parts<Pool>) {}

  HEED_INLINE int concurrency() const noexcept { return concurrency_; }

  HEED_INLINE void parallel_for(Index count, PartFunction part) const noexcept {
    if (pool_ == nullptr || count <= 1) {
      for (Index index = 0; index < count; ++index) part(index, 0);
    } else {
      run_(pool_, count, part);
    }
  }

 private:
  void* pool_ = nullptr;
  int concurrency_ = 1;
  void (*run_)(void*, Index, PartFunction) noexcept = nullptr;
};

}  // namespace heed
