// The table of one scalar for the instruction set that this unit is compiled for: Cpu's hooks, called by type. The build
// names the instruction set in HEED_ABI_ISA, so that no symbol here is one of a program that has other flags.
#pragma once

#include "heed/kernels/cpu/activations.hpp"
#include "heed/kernels/cpu/attention.hpp"
#include "heed/kernels/cpu/compressive_memory.hpp"
#include "heed/kernels/cpu/embedding.hpp"
#include "heed/kernels/cpu/gated_mix.hpp"
#include "heed/kernels/cpu/layer_norm.hpp"
#include "heed/kernels/cpu/linear.hpp"
#include "heed/kernels/cpu/linear_attention.hpp"
#include "heed/kernels/cpu/repeat_kv.hpp"
#include "heed/kernels/cpu/rms_norm.hpp"
#include "heed/kernels/cpu/rotary_embedding.hpp"
#include "heed/kernels/cpu/softmax.hpp"
#include "heed/layers/describe.hpp"
#include "levels.hpp"

namespace heed::inline HEED_ABI::impl {

// A pointer to the hook for Cpu of whatever arguments the table's member has.
#define HEED_TABLE_HOOK(hook) \
  [](const Executor& executor, auto... arguments) noexcept { return hook(Cpu(executor), arguments...); }

template <class T>
constexpr KernelTable<T> make_table() noexcept {
  KernelTable<T> table{};
  table.weight_panel = [](Index out_features) noexcept { return weight_panel_kernel<T>(Cpu(), out_features); };
  table.linear = HEED_TABLE_HOOK(linear_kernel);
  table.linear_packed = HEED_TABLE_HOOK(linear_kernel);
  table.embedding = HEED_TABLE_HOOK(embedding_kernel);
  table.softmax = HEED_TABLE_HOOK(softmax_kernel);
  table.softmax_columns = HEED_TABLE_HOOK(softmax_columns_kernel);
  table.log_sum_exp = HEED_TABLE_HOOK(log_sum_exp_kernel);
  table.log_sum_exp_columns = HEED_TABLE_HOOK(log_sum_exp_columns_kernel);
  table.rms_norm = HEED_TABLE_HOOK(rms_norm_kernel);
  table.layer_norm = HEED_TABLE_HOOK(layer_norm_kernel);
  table.silu = HEED_TABLE_HOOK(silu_kernel);
  table.gelu = HEED_TABLE_HOOK(gelu_kernel);
  table.rotary_tables = HEED_TABLE_HOOK(rotary_tables_kernel);
  table.rotary_embedding = HEED_TABLE_HOOK(rotary_embedding_kernel);
  table.repeat_kv = HEED_TABLE_HOOK(repeat_kv_kernel);
  table.attention_workspace = HEED_TABLE_HOOK(attention_workspace_kernel<T>);
  table.attention = [](const Executor& executor, const AttentionArguments<T>& arguments,
                       const ModifierReference<accumulator_t<T>>* modifier, Workspace& workspace) noexcept {
    if (modifier == nullptr) {
      attention_kernel(Cpu(executor), arguments, NoModifier(), workspace);
    } else {
      attention_kernel(Cpu(executor), arguments, *modifier, workspace);
    }
  };
  table.memory_retrieve_scratch = [](Index head_dim, Index value_head_dim) noexcept {
    return memory_retrieve_scratch_kernel<T>(Cpu(), head_dim, value_head_dim);
  };
  table.memory_retrieve = HEED_TABLE_HOOK(memory_retrieve_kernel);
  table.memory_update_scratch = [](Index head_dim, Index value_head_dim) noexcept {
    return memory_update_scratch_kernel<T>(Cpu(), head_dim, value_head_dim);
  };
  table.memory_update = HEED_TABLE_HOOK(memory_update_kernel);
  table.gated_mix = HEED_TABLE_HOOK(gated_mix_kernel);
  table.linear_attention_scratch = [](const LinearAttentionExtents& extents) noexcept {
    return linear_attention_scratch_kernel<T>(Cpu(), extents);
  };
  table.linear_attention = HEED_TABLE_HOOK(linear_attention_kernel);
  table.instruction_set = instruction_set();
  return table;
}

#undef HEED_TABLE_HOOK

template <class T>
inline constexpr KernelTable<T> kernels = make_table<T>();

}  // namespace heed::inline HEED_ABI::impl

namespace heed::inline HEED_LIBRARY {

template <class T>
const KernelTable<T>& HEED_LEVEL_KERNELS() noexcept {
  return impl::kernels<T>;
}

}  // namespace heed::inline HEED_LIBRARY
