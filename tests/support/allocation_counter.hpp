// Counts allocations: every call of operator new, by any thread. A program of tests replaces operator new in one of its
// sources, by `#define HEED_TEST_COUNT_ALLOCATIONS` before this include, and may ask allocations() in all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "heed/config.hpp"

namespace test {

// Calls of operator new since the program began.
long allocations() noexcept;

// How many times operator new is called while f runs.
template <class F>
long allocations_in(F&& f) {
  const long before = allocations();
  f();
  return allocations() - before;
}

}  // namespace test

#if defined(HEED_TEST_COUNT_ALLOCATIONS)

namespace test {

inline std::atomic<long> allocation_count = 0;

long allocations() noexcept {
  return allocation_count.load();
}

inline void* counted_new(std::size_t size, std::size_t alignment) {
  ++allocation_count;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace test

// Not inlined: g++ would see free() where it expects operator delete, and warn.
HEED_NOINLINE void* operator new(std::size_t size) {
  return test::counted_new(size, alignof(std::max_align_t));
}
HEED_NOINLINE void* operator new(std::size_t size, std::align_val_t alignment) {
  return test::counted_new(size, static_cast<std::size_t>(alignment));
}
HEED_NOINLINE void operator delete(void* memory) noexcept {
  std::free(memory);
}
HEED_NOINLINE void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
HEED_NOINLINE void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
HEED_NOINLINE void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

#endif
