// Cpu kernels of ops::memory_retrieve and ops::memory_update: queries in parts; kv heads, and where they are few the
// columns of M, in parts.
#pragma once

#include "heed/kernels/cpu/token_ranges.hpp"
#include "heed/kernels/simd/compressive_memory.hpp"

namespace heed::inline HEED_ABI {

template <class T>
void memory_retrieve_kernel(const Cpu& cpu, View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                            View<const accumulator_t<T>, 3> normalizer, View<T, 4> out,
                            View<accumulator_t<T>, 3> denominator, accumulator_t<T> epsilon,
                            View<accumulator_t<T>, 2> scratch) noexcept {
  const Index work = query.extent(2) * memory.extent(2) * memory.extent(3);
  impl::for_token_ranges(cpu, out.extent(0), out.extent(1), work, [&](Index row, Index first, Index n, int worker) {
    const Index begin = row < 0 ? 0 : row;
    const Index rows = row < 0 ? out.extent(0) : 1;
    memory_retrieve_kernel(static_cast<const Simd&>(cpu), impl::token_range(query, row, first, n),
                           memory.slice(0, begin, rows), normalizer.slice(0, begin, rows),
                           impl::token_range(out, row, first, n), impl::token_range(denominator, row, first, n),
                           epsilon, scratch.slice(0, worker, 1));
  });
}

template <class T>
void memory_update_kernel(const Cpu& cpu, View<const T, 4> key, View<const T, 4> value,
                          View<accumulator_t<T>, 4> memory, View<accumulator_t<T>, 3> normalizer,
                          const MemoryUpdateOptions& options, View<accumulator_t<T>, 2> scratch) noexcept {
  using A = accumulator_t<T>;
  const Index kv_heads = memory.extent(1);
  const Index heads = memory.extent(0) * kv_heads;
  const Index head_dim = memory.extent(2);
  const Index columns = memory.extent(3);
  const Index work = key.extent(1) * head_dim * columns;  // of a head
  constexpr Index part_work = 1 << 18;

  // Parts of a head are groups of columns: each forms φ(K) anew, but shares nothing that is written.
  const Index panel = simd::panel_width<A>(columns);
  const Index panels = (columns + panel - 1) / panel;
  const bool whole = heads >= cpu.concurrency() || heads * work < 2 * part_work || panels == 1;
  const Index groups = whole ? 1 : panels;
  const Index group_columns = whole ? columns : panel;

  const auto update = [&](Index part, A* own, bool with_normalizer) noexcept {
    const Index head = part / groups;
    const Index b = head / kv_heads;
    const Index k = head % kv_heads;
    const Index first = part % groups * group_columns;
    const Index count = columns - first < group_columns ? columns - first : group_columns;
    const Index tokens = impl::tokens_of_row(options.key_lengths, b, key.extent(1));
    if (tokens == 0) return;
    const View<A, 1> z = normalizer[b][k];
    impl::memory_update_head<simd::PanelProduct, T>(
        impl::head_rows(key, b, k, tokens), impl::head_rows(value.slice(3, first, count), b, k, tokens),
        memory[b][k].slice(1, first, count), z, options.rule, own + head_dim, own);
    if (with_normalizer) impl::add_row(own, head_dim, z.data_handle());
  };
  const Index part = work / groups + 1;
  cpu.for_ranges(heads * groups, (part_work + part - 1) / part, [&](Index begin, Index count, int worker) {
    for (Index i = begin; i < begin + count; ++i) update(i, scratch.pointer(worker), groups == 1);
  });
  if (groups == 1) return;

  // Every part has read the old z by now.
  cpu.for_ranges(heads, 1, [&](Index begin, Index count, int worker) {
    for (Index head = begin; head < begin + count; ++head) {
      const Index b = head / kv_heads;
      const Index tokens = impl::tokens_of_row(options.key_lengths, b, key.extent(1));
      if (tokens == 0) continue;
      A* const mass = scratch.pointer(worker);
      impl::memory_mass(impl::head_rows(key, b, head % kv_heads, tokens), mass);
      impl::add_row(mass, head_dim, normalizer.pointer(b, head % kv_heads));
    }
  });
}

}  // namespace heed::inline HEED_ABI
