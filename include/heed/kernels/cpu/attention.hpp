// Cpu kernel of ops::attention: Simd's blocks on all workers, each with scratch of its own.
#pragma once

#include "heed/backend/cpu.hpp"
#include "heed/kernels/simd/attention.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Multiply-adds below which a part is not worth waking a thread for (some 10 µs on one core).
inline constexpr Index attention_part = 1 << 18;

}  // namespace impl

template <class T>
std::size_t attention_workspace_kernel(const Cpu& cpu, const AttentionExtents& extents) noexcept {
  const std::size_t one = attention_workspace_kernel<T>(static_cast<const Simd&>(cpu), extents);
  return one * static_cast<std::size_t>(cpu.concurrency());
}

template <class T, class Modifier>
void attention_kernel(const Cpu& cpu, const AttentionArguments<T>& arguments, const Modifier& modifier,
                      Workspace& workspace) noexcept {
  using A = accumulator_t<T>;
  const AttentionExtents& extents = arguments.extents;
  const Workspace::Frame frame(workspace);
  const std::size_t bytes = attention_workspace_kernel<T>(static_cast<const Simd&>(cpu), extents);
  auto* memory = workspace.take<std::byte>(static_cast<Index>(bytes) * cpu.concurrency());

  const impl::AttentionCut cut = impl::cut_attention<A>(extents, cpu.concurrency());
  const Index block_work =
      arguments.group_size() * cut.queries * extents.keys * (extents.head_dim + extents.value_head_dim);
  const Index together = block_work < impl::attention_part ? impl::attention_part / (block_work + 1) + 1 : 1;
  cpu.executor().parallel_for((cut.blocks + together - 1) / together, [&](Index part, int worker) {
    Workspace own(std::span<std::byte>(memory + static_cast<std::size_t>(worker) * bytes, bytes));
    const auto scratch = impl::AttentionScratch<A>::take(own, extents);
    for (Index block = part * together; block < cut.blocks && block < (part + 1) * together; ++block)
      impl::run_attention_block<simd::PanelProduct>(arguments, modifier, scratch, cut, block);
  });
}

}  // namespace heed::inline HEED_ABI
