// Cpu kernel of ops::linear_attention: kv heads, and where they are few the columns of the state, in parts.
#pragma once

#include "heed/backend/cpu.hpp"
#include "heed/kernels/simd/linear_attention.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void linear_attention_kernel(const Cpu& cpu, View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                             View<accumulator_t<T>, 4> state, View<T, 4> out, const LinearAttentionOptions<T>& options,
                             View<accumulator_t<T>, 2> scratch) noexcept {
  const Index kv_heads = key.extent(2);
  const Index heads = out.extent(0) * kv_heads;
  const Index group = query.extent(2) / kv_heads;
  const Index columns = value.extent(3);
  const Index work = out.extent(1) * (group + 2) * state.extent(2) * columns;  // of a kv head
  constexpr Index part_work = 1 << 18;

  // Columns of the state do not depend on each other; each part of them forms the scores anew.
  const Index panel = simd::panel_width<accumulator_t<T>>(columns);
  const bool whole = heads >= cpu.concurrency() || heads * work < 2 * part_work;
  const Index part_columns = whole ? columns : panel;
  const Index parts = whole ? 1 : (columns + panel - 1) / panel;

  const auto attend = [&](Index part, Index worker) noexcept {
    const Index b = part / parts / kv_heads;
    const Index k = part / parts % kv_heads;
    const Index first = part % parts * part_columns;
    const Index count = columns - first < part_columns ? columns - first : part_columns;
    LinearAttentionOptions<T> own = options;
    if (own.decay.present()) own.decay = options.decay.slice(0, b, 1).slice(2, k, 1);
    if (own.beta.present()) own.beta = options.beta.slice(0, b, 1).slice(2, k, 1);
    if (own.key_lengths.present()) own.key_lengths = options.key_lengths.slice(0, b, 1);
    const auto head = [b](const auto& view, Index begin, Index n) noexcept {
      return view.slice(0, b, 1).slice(2, begin, n);
    };
    linear_attention_kernel(static_cast<const Simd&>(cpu), head(query, k * group, group), head(key, k, 1),
                            head(value, k, 1).slice(3, first, count),
                            state.slice(0, b, 1).slice(1, k, 1).slice(3, first, count),
                            head(out, k * group, group).slice(3, first, count), own, scratch.slice(0, worker, 1));
  };
  const Index part = work / parts + 1;
  cpu.for_ranges(heads * parts, (part_work + part - 1) / part, [&](Index begin, Index count, int worker) {
    for (Index i = begin; i < begin + count; ++i) attend(i, worker);
  });
}

}  // namespace heed::inline HEED_ABI
