// Executor: who runs the parts of a layer. Serial by default, OpenMP (heed/core/openmp_executor.hpp), or the caller's
// own pool.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include "heed/core/view.hpp"

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
// never nest; a caller's code may, by calling heed from a part of its own).
template <class Pool>
concept ParallelFor = requires(Pool& pool, Index count, PartFunction function) {
  { pool.concurrency() } -> std::convertible_to<int>;
  pool.parallel_for(count, function);
};

// A reference to any such pool, which must outlive it; default-made it is serial.
class Executor {
 public:
  HEED_INLINE Executor() noexcept = default;

  template <ParallelFor Pool>
  requires(!std::is_same_v<std::remove_cv_t<Pool>, Executor>) HEED_INLINE Executor(Pool& pool)
  noexcept
      : pool_(const_cast<void*>(static_cast<const void*>(std::addressof(pool)))),  // a const pool stays const in Pool
        concurrency_([](void* self) { return static_cast<int>(static_cast<Pool*>(self)->concurrency()); }),
        run_([](void* self, Index count, PartFunction part) { static_cast<Pool*>(self)->parallel_for(count, part); }) {}

  HEED_INLINE int concurrency() const {
    const int workers = pool_ == nullptr ? 1 : concurrency_(pool_);
    return workers < 1 ? 1 : workers;
  }

  HEED_INLINE void parallel_for(Index count, PartFunction part) const {
    if (pool_ == nullptr || count <= 1) {
      for (Index index = 0; index < count; ++index) part(index, 0);
    } else {
      run_(pool_, count, part);
    }
  }

 private:
  void* pool_ = nullptr;
  int (*concurrency_)(void*) = nullptr;
  void (*run_)(void*, Index, PartFunction) = nullptr;
};

}  // namespace heed
