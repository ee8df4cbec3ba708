// The kernels of the library heed::compiled: functions that are templates no more, once for each instruction set.
//
// Nothing here depends on compiler flags: a program without any calls, through these pointers, code for its processor.
#pragma once

#include <cstdint>
#include <limits>

#include "heed/core/executor.hpp"
#include "heed/core/workspace.hpp"
#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/packed_weight.hpp"
#include "heed/kernels/reference/activations.hpp"
#include "heed/kernels/reference/layer_norm.hpp"
#include "heed/kernels/reference/rms_norm.hpp"
#include "heed/ops/compressive_memory_options.hpp"
#include "heed/ops/linear_attention_options.hpp"
#include "heed/ops/rope_options.hpp"

#define HEED_LIBRARY_JOIN(major, minor, patch) library_##major##_##minor##_##patch
#define HEED_LIBRARY_EXPAND(major, minor, patch) HEED_LIBRARY_JOIN(major, minor, patch)
#define HEED_LIBRARY HEED_LIBRARY_EXPAND(HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH)

namespace heed {

// What the kernels are compiled for.
enum class InstructionSet {
  baseline,   // what every processor of the architecture has: SSE2 on x86-64, NEON on 64-bit ARM
  x86_64_v3,  // AVX2, FMA
  x86_64_v4,  // AVX-512 (F, BW, CD, DQ, VL)
};

// A score modifier (ops/score_modifier.hpp) whose type is known at run time only. Itself one that selects keys.
template <class A>
struct ModifierReference {
  const void* object = nullptr;
  void (*modify)(const void* object, ScoreTile<A>& tile) noexcept = nullptr;
  KeyRange (*select)(const void* object, Index batch, Index head, Index query) noexcept = nullptr;  // null: all keys

  HEED_INLINE void operator()(ScoreTile<A>& tile) const noexcept { modify(object, tile); }
  HEED_INLINE KeyRange keys(Index batch, Index head, Index query) const noexcept {
    constexpr Index most = (std::numeric_limits<Index>::max)();
    return select != nullptr ? select(object, batch, head, query) : KeyRange{-most, most};
  }
};

// The hooks of Cpu for scalars T, with the arguments that they have there; `executor` runs the parts.
template <class T>
struct KernelTable {
  using A = accumulator_t<T>;
  using Run = const Executor&;

  const char* instruction_set;  // as describe() says it

  Index (*weight_panel)(Index out_features) noexcept;
  void (*linear)(Run, View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias, View<T, 2> out) noexcept;
  void (*linear_packed)(Run, View<const T, 2> x, const WeightPanels<T>& weight, View<const T, 1> bias,
                        View<T, 2> out) noexcept;
  void (*embedding)(Run, View<const std::int64_t, 1> ids, View<const T, 2> table, View<T, 2> out) noexcept;

  void (*softmax)(Run, View<const T, 2> x, View<T, 2> out) noexcept;
  void (*softmax_columns)(Run, View<const T, 3> x, View<T, 3> out) noexcept;
  void (*log_sum_exp)(Run, View<const T, 2> x, View<T, 1> out) noexcept;
  void (*log_sum_exp_columns)(Run, View<const T, 3> x, View<T, 2> out) noexcept;
  void (*rms_norm)(Run, View<const T, 2> x, View<const T, 1> weight, RmsNormOptions options, View<T, 2> out) noexcept;
  void (*layer_norm)(Run, View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias, LayerNormOptions options,
                     View<T, 2> out) noexcept;
  void (*silu)(Run, View<const T, 2> x, View<T, 2> out) noexcept;
  void (*gelu)(Run, View<const T, 2> x, GeluForm form, View<T, 2> out) noexcept;

  void (*rotary_tables)(Run, View<const std::int64_t, 2> positions, View<const double, 1> inv_freq, double factor,
                        View<A, 3> cos, View<A, 3> sin) noexcept;
  void (*rotary_embedding)(Run, View<const T, 4> x, View<const A, 3> cos, View<const A, 3> sin, RopeLayout layout,
                           View<T, 4> out) noexcept;
  void (*repeat_kv)(Run, View<const T, 4> x, View<T, 4> out) noexcept;

  std::size_t (*attention_workspace)(Run, const AttentionExtents& extents) noexcept;
  // A null `modifier` is none.
  void (*attention)(Run, const AttentionArguments<T>& arguments, const ModifierReference<A>* modifier,
                    Workspace& workspace) noexcept;

  Index (*memory_retrieve_scratch)(Index head_dim, Index value_head_dim) noexcept;
  void (*memory_retrieve)(Run, View<const T, 4> query, View<const A, 4> memory, View<const A, 3> normalizer,
                          View<T, 4> out, View<A, 3> denominator, A epsilon, View<A, 2> scratch) noexcept;
  Index (*memory_update_scratch)(Index head_dim, Index value_head_dim) noexcept;
  void (*memory_update)(Run, View<const T, 4> key, View<const T, 4> value, View<A, 4> memory, View<A, 3> normalizer,
                        const MemoryUpdateOptions& options, View<A, 2> scratch) noexcept;
  void (*gated_mix)(Run, View<const T, 4> memory, View<const T, 4> local, View<const A, 1> beta, View<T, 4> out,
                    EmptyMemory empty_memory, View<const A, 3> denominator) noexcept;

  Index (*linear_attention_scratch)(const LinearAttentionExtents& extents) noexcept;
  void (*linear_attention)(Run, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value, View<A, 4> state,
                           View<T, 4> out, const LinearAttentionOptions<T>& options, View<A, 2> scratch) noexcept;
};

// The library's part. Its version is in the names: headers of another version do not link with it.
inline namespace HEED_LIBRARY {

// True if this processor has it, and the library kernels for it.
bool is_supported(InstructionSet set) noexcept;

// The widest one that is.
InstructionSet best_instruction_set() noexcept;

// For T of float, double, bfloat16, float16.
template <class T>
const KernelTable<T>& kernel_table(InstructionSet set) noexcept;

}  // namespace HEED_LIBRARY
}  // namespace heed
