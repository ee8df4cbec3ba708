// Simd kernel of ops::attention: the call cut into blocks, one after the other.
#pragma once

#include "heed/backend/simd.hpp"
#include "heed/kernels/simd/attention_block.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Blocks are counted sequence by sequence, kv head by kv head, so that neighbours read the same keys.
struct AttentionCut {
  Index queries;   // of one block
  Index per_head;  // blocks of one sequence and kv head
  Index blocks;    // all of them
};

template <class A>
AttentionCut cut_attention(const AttentionExtents& extents, Index workers) noexcept {
  const Index group = extents.num_heads / extents.num_kv_heads;
  const Index heads = extents.batch * extents.num_kv_heads;
  Index queries = group < attention_block_rows<A> ? attention_block_rows<A> / group : 1;
  if (queries > extents.queries) queries = extents.queries;
  const auto per_head = [&] { return (extents.queries + queries - 1) / queries; };
  // Where there are too few blocks for all workers: smaller ones, down to what goes through a tile together.
  while (workers > 1 && heads * per_head() < 4 * workers && queries * group > attention_part_rows<A>)
    queries = (queries + 1) / 2;
  return {queries, per_head(), heads * per_head()};
}

template <class Product, class T, class Modifier>
void run_attention_block(const AttentionArguments<T>& arguments, const Modifier& modifier,
                         const AttentionScratch<accumulator_t<T>>& scratch, const AttentionCut& cut,
                         Index block) noexcept {
  const Index head = block / cut.per_head;
  // The last queries first: with causal order they have the most keys, and no worker is left with them in the end.
  const Index part = cut.per_head - 1 - block % cut.per_head;
  AttentionBlock<T, Modifier, Product>(arguments, modifier, scratch, head / arguments.extents.num_kv_heads,
                                       head % arguments.extents.num_kv_heads, part * cut.queries, cut.queries)
      .run();
}

// The whole call on one thread.
template <class Product, class T, class Modifier>
void run_attention(const AttentionArguments<T>& arguments, const Modifier& modifier, Workspace& workspace) noexcept {
  using A = accumulator_t<T>;
  const Workspace::Frame frame(workspace);
  const auto scratch = AttentionScratch<A>::take(workspace, arguments.extents);
  const AttentionCut cut = cut_attention<A>(arguments.extents, 1);
  for (Index block = 0; block < cut.blocks; ++block)
    run_attention_block<Product>(arguments, modifier, scratch, cut, block);
}

}  // namespace impl

template <class T>
std::size_t attention_workspace_kernel(const Simd&, const AttentionExtents& extents) noexcept {
  if (extents.num_heads == 0 || extents.num_kv_heads == 0) return 0;
  Workspace measure = Workspace::measuring();
  impl::AttentionScratch<accumulator_t<T>>::take(measure, extents);
  return measure.size_needed();
}

template <class T, class Modifier>
void attention_kernel(const Simd&, const AttentionArguments<T>& arguments, const Modifier& modifier,
                      Workspace& workspace) noexcept {
  impl::run_attention<simd::PanelProduct>(arguments, modifier, workspace);
}

}  // namespace heed::inline HEED_ABI
