// case 44, 45: units with different -march and exception settings in one program, linked in this order and the other;
// each must run its own code. A wrong choice of the linker shows as an abort, or, on an old processor (under
// qemu-x86_64 -cpu Nehalem), where only the baseline's unit is called, as an illegal instruction.
#include <cstdio>
#include <cstring>

#include "unit.hpp"

namespace {

bool right(const char* name, const Result& result) {
  const bool good =
      result.product == 12 && result.answer == 3 &&
      std::strcmp(result.error, "heed: linear: x: expected [*, 2] (axis 0, in features), got [1, 1]") == 0;
  std::printf("%s: %g, %g, %s\n", name, static_cast<double>(result.product), static_cast<double>(result.answer),
              result.error);
  return good;
}

}  // namespace

int main() {
  bool good = right("baseline, exceptions", baseline_throws());
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    good = right("x86-64-v3, exceptions", v3_throws()) && good;
    good = right("x86-64-v3, no exceptions", v3_aborts()) && good;
    good = right("baseline, exceptions, again", baseline_throws()) && good;
  }
  return good ? 0 : 1;
}
