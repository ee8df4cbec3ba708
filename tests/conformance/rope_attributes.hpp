// The attribute `rope`, which several operations have.
#pragma once

#include "conformance/attributes.hpp"
#include "heed/ops/rope_options.hpp"

namespace conformance {

heed::RopeOptions rope_options(const Attributes& rope);

}  // namespace conformance
