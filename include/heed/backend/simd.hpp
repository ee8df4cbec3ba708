// Simd: one thread, vector instructions through core/simd.hpp, at the width the compiler's flags allow.
#pragma once

#include "heed/backend/reference.hpp"

namespace heed::inline HEED_ABI {

class Simd : public Reference {
 public:
  static constexpr const char* name() noexcept { return "simd"; }
};

}  // namespace heed::inline HEED_ABI
