// Eigen with its assertions on, in release builds too, and with its allocations counted: they are calls of malloc, which
// the count of operator new does not see. Every source of this room includes it before any other header of Eigen's.
#pragma once

#define EIGEN_RUNTIME_NO_MALLOC  // an allocation asserts that one is allowed
#define eigen_assert(condition) \
  if (!(condition)) test::eigen_assertion_failed(#condition)

namespace test {

void eigen_assertion_failed(const char* condition) noexcept;
// How many have failed since the program began.
long eigen_assertions_failed() noexcept;

}  // namespace test

#include "heed/core/intrinsics.hpp"  // first

#include <Eigen/Core>

#include "support/allocation_counter.hpp"

namespace test {

// How often operator new is called, or Eigen allocates, or one of Eigen's assertions fails, while f runs.
template <class F>
long eigen_allocations_in(F&& f) {
  Eigen::nbThreads();  // asks OpenMP's runtime, whose first use may allocate (clang's does under sanitizers)
  const long before = allocations() + eigen_assertions_failed();
  Eigen::internal::set_is_malloc_allowed(false);
  f();
  Eigen::internal::set_is_malloc_allowed(true);
  return allocations() + eigen_assertions_failed() - before;
}

}  // namespace test
