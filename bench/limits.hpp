// What the machine can do at most, measured in the same process as the work that is judged by it.
#pragma once

#include "heed/heed.hpp"

namespace bench {

// Threads that a benchmark's work runs on; limits are measured on as many.
struct Threads {
  int count = 1;
};

// Multiply-adds from registers alone, in GFLOP/s, at the width this program is compiled for. Takes a millisecond.
template <class A>
double peak_gflops(Threads threads);

// Reading memory far larger than the caches, in GB/s. Takes some ten milliseconds.
double read_gbytes(Threads threads);

// What the optimiser must believe to be used.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace bench
