// EigenMap: the products by Eigen, for programs that live in Eigen. Needs Eigen 3.4 (the CMake target heed::eigen) and is
// not in heed.hpp.
#pragma once

#include "heed/backend/reference.hpp"

namespace heed::inline HEED_ABI {

// One thread. Products run through Eigen::Map on tensors where they lie, in blocks so small that Eigen neither allocates
// nor starts threads; it takes some 100 KB of stack for them. Everything around the products is as accurate as on Simd.
//
// Two promises of the other backends do not hold. A row's bits depend on its neighbours, because Eigen multiplies a
// single row by other code than many. And units with different flags must not be linked if both use it: heed's symbols
// are named after the flags, Eigen's are not.
class EigenMap : public Reference {
 public:
  static constexpr const char* name() noexcept { return "eigen"; }
};

}  // namespace heed::inline HEED_ABI

// The bodies, which need the class. They come with it: whoever has the class alone would run Reference's.
#include "heed/kernels/eigen/attention.hpp"
#include "heed/kernels/eigen/compressive_memory.hpp"
#include "heed/kernels/eigen/from_simd.hpp"
#include "heed/kernels/eigen/layer_norm.hpp"
#include "heed/kernels/eigen/linear.hpp"
#include "heed/kernels/eigen/linear_attention.hpp"
#include "heed/kernels/eigen/rms_norm.hpp"
