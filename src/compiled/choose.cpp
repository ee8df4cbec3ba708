// What the processor has, and the table for it. HEED_X86_64_LEVELS: the library has the tables of x86-64-v3 and -v4.
#include "levels.hpp"

namespace heed::inline HEED_LIBRARY {

bool is_supported(InstructionSet set) noexcept {
#if defined(HEED_X86_64_LEVELS)
  // Not by the levels' names, which clang 14 does not know: by the features that heed's code uses and those for which
  // the operating system must save more registers. No processor has these and lacks the rest of its level.
  __builtin_cpu_init();  // before a constructor of the C library's own: backends may be globals
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  switch (set) {
    case InstructionSet::x86_64_v3: return v3;
    case InstructionSet::x86_64_v4: return v4;
    case InstructionSet::baseline: break;
  }
#endif
  return set == InstructionSet::baseline;
}

InstructionSet best_instruction_set() noexcept {
  if (is_supported(InstructionSet::x86_64_v4)) return InstructionSet::x86_64_v4;
  if (is_supported(InstructionSet::x86_64_v3)) return InstructionSet::x86_64_v3;
  return InstructionSet::baseline;
}

template <class T>
const KernelTable<T>& kernel_table(InstructionSet set) noexcept {
#if defined(HEED_X86_64_LEVELS)
  if (set == InstructionSet::x86_64_v4) return x86_64_v4_kernels<T>();
  if (set == InstructionSet::x86_64_v3) return x86_64_v3_kernels<T>();
#endif
  static_cast<void>(set);
  return baseline_kernels<T>();
}

template const KernelTable<float>& kernel_table(InstructionSet) noexcept;
template const KernelTable<double>& kernel_table(InstructionSet) noexcept;
template const KernelTable<bfloat16>& kernel_table(InstructionSet) noexcept;
template const KernelTable<float16>& kernel_table(InstructionSet) noexcept;

}  // namespace heed::inline HEED_LIBRARY
