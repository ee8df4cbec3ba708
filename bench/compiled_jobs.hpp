// The same work twice in one program: compiled for this machine on Cpu, and without a flag on Compiled.
#pragma once

#include <heed/core/tensor.hpp>

namespace bench {

// One layer of each kind, made once; what is measured is a call, which allocates nothing.
class CompiledJobs {
 public:
  virtual ~CompiledJobs() = default;
  virtual void linear(heed::View<const float, 2> x, heed::View<float, 2> out) const = 0;
  virtual void attention(heed::View<const float, 4> x, heed::View<float, 4> out) = 0;
  virtual void infini(heed::View<const float, 3> x, heed::View<float, 3> out) = 0;
};

inline constexpr heed::Index compiled_size = 512;  // hidden size: 8 heads of 64

CompiledJobs& native_jobs();
CompiledJobs& flagless_jobs();

}  // namespace bench
