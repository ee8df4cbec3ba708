// The kernels of all operations on devices.
#pragma once

#include "heed/cuda/kernels/activations.hpp"
#include "heed/cuda/kernels/attention.hpp"
#include "heed/cuda/kernels/compressive_memory.hpp"
#include "heed/cuda/kernels/embedding.hpp"
#include "heed/cuda/kernels/gated_mix.hpp"
#include "heed/cuda/kernels/linear.hpp"
#include "heed/cuda/kernels/norms.hpp"
#include "heed/cuda/kernels/repeat_kv.hpp"
#include "heed/cuda/kernels/rotary_embedding.hpp"
#include "heed/cuda/kernels/softmax.hpp"
