// Compiled's hooks: each calls the library's kernel. What is not here is Reference's, as it is for Cpu.
#pragma once

#include "heed/backend/compiled.hpp"

namespace heed::inline HEED_ABI {

template <class T>
Index weight_panel_kernel(const Compiled& compiled, Index out_features) noexcept {
  return compiled.kernels<T>().weight_panel(out_features);
}

template <class T>
void linear_kernel(const Compiled& compiled, View<const T, 2> x, View<const T, 2> weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  compiled.kernels<T>().linear(compiled.executor(), x, weight, bias, out);
}

template <class T>
void linear_kernel(const Compiled& compiled, View<const T, 2> x, const WeightPanels<T>& weight, View<const T, 1> bias,
                   View<T, 2> out) noexcept {
  compiled.kernels<T>().linear_packed(compiled.executor(), x, weight, bias, out);
}

template <class T>
void embedding_kernel(const Compiled& compiled, View<const std::int64_t, 1> ids, View<const T, 2> table,
                      View<T, 2> out) noexcept {
  compiled.kernels<T>().embedding(compiled.executor(), ids, table, out);
}

template <class T>
void softmax_kernel(const Compiled& compiled, View<const T, 2> x, View<T, 2> out) noexcept {
  compiled.kernels<T>().softmax(compiled.executor(), x, out);
}

template <class T>
void softmax_columns_kernel(const Compiled& compiled, View<const T, 3> x, View<T, 3> out) noexcept {
  compiled.kernels<T>().softmax_columns(compiled.executor(), x, out);
}

template <class T>
void log_sum_exp_kernel(const Compiled& compiled, View<const T, 2> x, View<T, 1> out) noexcept {
  compiled.kernels<T>().log_sum_exp(compiled.executor(), x, out);
}

template <class T>
void log_sum_exp_columns_kernel(const Compiled& compiled, View<const T, 3> x, View<T, 2> out) noexcept {
  compiled.kernels<T>().log_sum_exp_columns(compiled.executor(), x, out);
}

template <class T>
void rms_norm_kernel(const Compiled& compiled, View<const T, 2> x, View<const T, 1> weight, RmsNormOptions options,
                     View<T, 2> out) noexcept {
  compiled.kernels<T>().rms_norm(compiled.executor(), x, weight, options, out);
}

template <class T>
void layer_norm_kernel(const Compiled& compiled, View<const T, 2> x, View<const T, 1> weight, View<const T, 1> bias,
                       LayerNormOptions options, View<T, 2> out) noexcept {
  compiled.kernels<T>().layer_norm(compiled.executor(), x, weight, bias, options, out);
}

template <class T>
void silu_kernel(const Compiled& compiled, View<const T, 2> x, View<T, 2> out) noexcept {
  compiled.kernels<T>().silu(compiled.executor(), x, out);
}

template <class T>
void gelu_kernel(const Compiled& compiled, View<const T, 2> x, GeluForm form, View<T, 2> out) noexcept {
  compiled.kernels<T>().gelu(compiled.executor(), x, form, out);
}

template <class A>
void rotary_tables_kernel(const Compiled& compiled, View<const std::int64_t, 2> positions,
                          View<const double, 1> inv_freq, double factor, View<A, 3> cos, View<A, 3> sin) noexcept {
  compiled.kernels<A>().rotary_tables(compiled.executor(), positions, inv_freq, factor, cos, sin);
}

template <class T>
void rotary_embedding_kernel(const Compiled& compiled, View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                             View<const accumulator_t<T>, 3> sin, RopeLayout layout, View<T, 4> out) noexcept {
  compiled.kernels<T>().rotary_embedding(compiled.executor(), x, cos, sin, layout, out);
}

template <class T>
void repeat_kv_kernel(const Compiled& compiled, View<const T, 4> x, View<T, 4> out) noexcept {
  compiled.kernels<T>().repeat_kv(compiled.executor(), x, out);
}

template <class T>
std::size_t attention_workspace_kernel(const Compiled& compiled, const AttentionExtents& extents) noexcept {
  return compiled.kernels<T>().attention_workspace(compiled.executor(), extents);
}

namespace impl {

// Calls from the library back into this unit, and its flags.
template <class A, class Modifier>
ModifierReference<A> reference_to(const Modifier& modifier) noexcept {
  ModifierReference<A> reference;
  reference.object = &modifier;
  reference.modify = [](const void* object, ScoreTile<A>& tile) noexcept {
    (*static_cast<const Modifier*>(object))(tile);
  };
  if constexpr (SelectsKeys<Modifier>) {
    reference.select = [](const void* object, Index batch, Index head, Index query) noexcept {
      return static_cast<KeyRange>(static_cast<const Modifier*>(object)->keys(batch, head, query));
    };
  }
  return reference;
}

}  // namespace impl

template <class T, class Modifier>
void attention_kernel(const Compiled& compiled, const AttentionArguments<T>& arguments, const Modifier& modifier,
                      Workspace& workspace) noexcept {
  if constexpr (std::is_same_v<Modifier, NoModifier>) {
    compiled.kernels<T>().attention(compiled.executor(), arguments, nullptr, workspace);
  } else {
    const auto reference = impl::reference_to<accumulator_t<T>>(modifier);
    compiled.kernels<T>().attention(compiled.executor(), arguments, &reference, workspace);
  }
}

template <class T>
Index memory_retrieve_scratch_kernel(const Compiled& compiled, Index head_dim, Index value_head_dim) noexcept {
  return compiled.kernels<T>().memory_retrieve_scratch(head_dim, value_head_dim);
}

template <class T>
void memory_retrieve_kernel(const Compiled& compiled, View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                            View<const accumulator_t<T>, 3> normalizer, View<T, 4> out,
                            View<accumulator_t<T>, 3> denominator, accumulator_t<T> epsilon,
                            View<accumulator_t<T>, 2> scratch) noexcept {
  compiled.kernels<T>().memory_retrieve(compiled.executor(), query, memory, normalizer, out, denominator, epsilon,
                                        scratch);
}

template <class T>
Index memory_update_scratch_kernel(const Compiled& compiled, Index head_dim, Index value_head_dim) noexcept {
  return compiled.kernels<T>().memory_update_scratch(head_dim, value_head_dim);
}

template <class T>
void memory_update_kernel(const Compiled& compiled, View<const T, 4> key, View<const T, 4> value,
                          View<accumulator_t<T>, 4> memory, View<accumulator_t<T>, 3> normalizer,
                          const MemoryUpdateOptions& options, View<accumulator_t<T>, 2> scratch) noexcept {
  compiled.kernels<T>().memory_update(compiled.executor(), key, value, memory, normalizer, options, scratch);
}

template <class T>
void gated_mix_kernel(const Compiled& compiled, View<const T, 4> memory, View<const T, 4> local,
                      View<const accumulator_t<T>, 1> beta, View<T, 4> out, EmptyMemory empty_memory,
                      View<const accumulator_t<T>, 3> denominator) noexcept {
  compiled.kernels<T>().gated_mix(compiled.executor(), memory, local, beta, out, empty_memory, denominator);
}

template <class T>
Index linear_attention_scratch_kernel(const Compiled& compiled, const LinearAttentionExtents& extents) noexcept {
  return compiled.kernels<T>().linear_attention_scratch(extents);
}

template <class T>
void linear_attention_kernel(const Compiled& compiled, View<const T, 4> query, View<const T, 4> key,
                             View<const T, 4> value, View<accumulator_t<T>, 4> state, View<T, 4> out,
                             const LinearAttentionOptions<T>& options, View<accumulator_t<T>, 2> scratch) noexcept {
  compiled.kernels<T>().linear_attention(compiled.executor(), query, key, value, state, out, options, scratch);
}

}  // namespace heed::inline HEED_ABI
