// Everything that runs on a CUDA device: for .cu files, which nvcc compiles. Programs of the host's compiler alone have
// heed.hpp.
#pragma once

#include "heed/config.hpp"

#if !defined(HEED_REFUSED)
#include "heed/cuda/cuda_runtime.hpp"
#include "heed/cuda/device.hpp"
#include "heed/cuda/kernels.hpp"
#include "heed/cuda/kv_cache.hpp"
#include "heed/layers/multi_head_self_attention.hpp"
#include "heed/ops/activations.hpp"
#include "heed/ops/attention.hpp"
#include "heed/ops/compressive_memory.hpp"
#include "heed/ops/embedding.hpp"
#include "heed/ops/gated_mix.hpp"
#include "heed/ops/layer_norm.hpp"
#include "heed/ops/linear.hpp"
#include "heed/ops/repeat_kv.hpp"
#include "heed/ops/rms_norm.hpp"
#include "heed/ops/rotary_embedding.hpp"
#include "heed/ops/softmax.hpp"
#include "heed/version.hpp"

namespace heed::inline HEED_ABI {

// The backend of CUDA devices: heed::Cuda cuda(stream). docs/cuda.md.
using Cuda = Device<CudaRuntime>;

}  // namespace heed::inline HEED_ABI
#endif
