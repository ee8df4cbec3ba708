// What Infini-attention in the place of a checkpoint's attention can be asked for.
#pragma once

#include <cstdint>

namespace generate {

struct InfiniOptions {
  std::int64_t segment_length = 2048;
  // The memory's share, 0 to 1, of heads that the checkpoint has no gates for (self_attn.beta [num_heads], before the
  // sigmoid).
  double gate = 0;
};

}  // namespace generate
