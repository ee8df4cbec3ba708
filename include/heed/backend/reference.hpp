// Reference: plain loops, one thread. The specification that every other backend is tested against.
#pragma once

#include "heed/core/executor.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI {

// Every operation in the order the formula is written, in accumulator_t<T>. Slow, and meant to be read.
class Reference {
 public:
  using space_type = Host;  // the memory it works on

  static constexpr const char* name() noexcept { return "reference"; }
  // Workers that need scratch of their own.
  static constexpr int concurrency() noexcept { return 1; }
};

}  // namespace heed::inline HEED_ABI
