// Compiled: Cpu's kernels out of the library heed::compiled, which has them for several instruction sets and takes the
// widest that the processor has. For programs that are compiled without -march. Not in heed.hpp, because it wants the
// library linked (the CMake target heed::compiled).
#pragma once

#include "heed/backend/reference.hpp"
#include "heed/error.hpp"
#include "heed/kernels/compiled/table.hpp"

namespace heed::inline HEED_ABI {

// heed::Compiled compiled;         one thread
// heed::Compiled compiled(pool);   as with Cpu
// heed::Compiled compiled(pool, heed::InstructionSet::x86_64_v3);   no wider than that: for tests and comparisons
//
// The layers stay what they are, templates over the backend. The bits are those of Cpu compiled for the same instruction
// set. A weight is packed for one instruction set: doors refuse it on a backend with another.
class Compiled : public Reference {
 public:
  Compiled() noexcept : set_(best_instruction_set()) {}
  explicit Compiled(Executor executor) noexcept : executor_(executor), set_(best_instruction_set()) {}

  // Errors: OptionError if this processor does not have it.
  Compiled(Executor executor, InstructionSet set) : executor_(executor), set_(set) {
    if (!is_supported(set))
      raise(Problem(ErrorKind::option,
                    "heed: Compiled: this processor, or this build of the library, does not have the "
                    "instruction set"));
  }

  static constexpr const char* name() noexcept { return "compiled"; }
  int concurrency() const noexcept { return executor_.concurrency(); }
  const Executor& executor() const noexcept { return executor_; }
  InstructionSet instruction_set() const noexcept { return set_; }
  // That of a backend that is not told otherwise, as layers' describe() says it.
  static const char* instruction_set_name() noexcept {
    return kernel_table<float>(best_instruction_set()).instruction_set;
  }

  template <class T>
  const KernelTable<T>& kernels() const noexcept {
    return kernel_table<T>(set_);
  }

 private:
  Executor executor_;
  InstructionSet set_;
};

}  // namespace heed::inline HEED_ABI

// The hooks, which need the class. They come with it: whoever has the class alone would run Reference's.
#include "heed/kernels/compiled/from_table.hpp"
