// What the machine can do at most, measured in the same process as the work that is judged by it.
#pragma once

#include "heed/heed.hpp"

namespace bench {

// Threads that a benchmark's work runs on; limits are measured on as many.
struct Threads {
  int count = 1;
};

// Cores that this process may run on. Work on more threads than these says nothing about either.
int cores();

// Multiply-adds from registers alone, in GFLOP/s, at the width this program is compiled for. Takes a millisecond.
template <class A>
double peak_gflops(Threads threads);

// Reading, in GB/s. Work that reads so many bytes again and again finds them in the nearest cache that holds them, and so
// does this, which reads as many (but at most 256 MiB: then, and where caches are smaller than that, it is the memory).
// Takes some ten milliseconds.
double read_gbytes(Threads threads, double bytes);

// What the optimiser must believe to be used.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace bench
