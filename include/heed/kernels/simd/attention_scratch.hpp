// The memory of the Simd kernel of ops::attention, and the sizes it works in.
#pragma once

#include "heed/core/workspace.hpp"
#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI::impl {

// Rows that go through a tile together: whole vectors, and few rows more than whole register tiles.
template <class A>
inline constexpr Index attention_part_rows = (simd::tile_rows<A> == 14 ? 4 : 6) * simd::width<A>;
// Rows of a block, for which a tile is copied once: as many as stay in a level-2 cache, with their results, at the usual
// head dims. (One query of a larger group is a block, too.)
template <class A>
inline constexpr Index attention_block_rows = 1024 / attention_part_rows<A>* attention_part_rows<A>;

// The smallest range that holds both; an empty one is {0, 0}.
HEED_INLINE KeyRange join(KeyRange a, KeyRange b) noexcept {
  if (a.end == 0) return b;
  if (b.end == 0) return a;
  return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

// One row more attends these keys, or columns: what any and what all of them attend.
HEED_INLINE void widen_to(KeyRange& some, KeyRange& every, KeyRange attended) noexcept {
  some = join(some, attended);
  if (attended.begin > every.begin) every.begin = attended.begin;
  if (attended.end < every.end) every.end = attended.end;
}

// What is known about a part of a block's rows.
struct AttentionPart {
  KeyRange some;   // holds what any row attends,
  KeyRange every;  // what all of them do, as far as order decides
  bool has_begun;  // a tile has been attended: the results so far are in `out`
};

// What is known about the rows of a part, lane by lane.
template <class A>
struct AttentionLanes {
  A* first = nullptr;    // keys of the tile that a row attends by order: first …
  A* end = nullptr;      // … end − 1
  A* maximum = nullptr;  // of the tile's softmax
  A* sum = nullptr;
  A* keep = nullptr;  // α
  A* take = nullptr;  // β
  A* slope = nullptr;
  A* query = nullptr;  // its position, counted from somewhere near

  static AttentionLanes take_from(Workspace& workspace, Index lanes) noexcept {
    AttentionLanes all;
    for (A** each : {&all.first, &all.end, &all.maximum, &all.sum, &all.keep, &all.take, &all.slope, &all.query})
      *each = workspace.take<A>(lanes);
    return all;
  }
};

// One worker's memory.
template <class A>
struct AttentionScratch {
  Index lanes = 0;           // of a part: whole panels
  Index out_stride = 0;      // Dv, padded to whole panels
  Index key_stride = 0;      // D, padded to whole vectors
  A* query = nullptr;        // for each part panels of [D, lanes], times the scale
  KeyRange* keys = nullptr;  // [block rows]: what each may attend
  AttentionPart* parts = nullptr;
  A* out = nullptr;          // [block rows, Dv]
  A* maximum = nullptr;      // [block rows]
  A* sum = nullptr;          // [block rows]
  A* tile_keys = nullptr;    // [tile keys, D]
  A* tile_values = nullptr;  // panels of [tile keys, Dv]
  A* scores = nullptr;       // [tile keys, lanes]
  bool* attended = nullptr;  // [tile keys, lanes], for tiles with values that are not finite
  A* modified = nullptr;     // [lanes, tile keys], for modifiers
  A* tile_out = nullptr;     // [lanes, Dv]
  AttentionLanes<A> lane{};  // [lanes]

  static AttentionScratch take(Workspace& workspace, const AttentionExtents& extents) noexcept {
    const auto at_most = [](Index value, Index limit) { return value < limit ? value : limit; };
    const Index group = extents.num_heads / extents.num_kv_heads;
    const Index rows =
        at_most(group * extents.queries, group < attention_block_rows<A> ? attention_block_rows<A> : group);
    const Index keys = at_most(extents.keys, attention_tile_keys);
    constexpr Index w = simd::width<A>;
    const Index whole_keys = (keys + w - 1) / w * w;

    AttentionScratch scratch;
    scratch.lanes = simd::padded_columns<A>(at_most(rows, attention_part_rows<A>));
    scratch.out_stride = simd::padded_columns<A>(extents.value_head_dim);
    scratch.key_stride = (extents.head_dim + w - 1) / w * w;
    const Index padded_rows = (rows + scratch.lanes - 1) / (scratch.lanes > 0 ? scratch.lanes : 1) * scratch.lanes;
    scratch.query = workspace.take<A>(padded_rows * extents.head_dim);
    scratch.keys = workspace.take<KeyRange>(rows);
    scratch.parts = workspace.take<AttentionPart>(padded_rows / (scratch.lanes > 0 ? scratch.lanes : 1));
    scratch.out = workspace.take<A>(rows * scratch.out_stride);
    scratch.maximum = workspace.take<A>(padded_rows);
    scratch.sum = workspace.take<A>(padded_rows);
    scratch.tile_keys = workspace.take<A>(keys * scratch.key_stride);
    scratch.tile_values = workspace.take<A>(keys * scratch.out_stride);
    scratch.scores = workspace.take<A>(whole_keys * scratch.lanes);
    scratch.attended = workspace.take<bool>(keys * scratch.lanes);
    scratch.modified = workspace.take<A>(scratch.lanes * whole_keys);
    scratch.tile_out = workspace.take<A>(scratch.lanes * scratch.out_stride);
    scratch.lane = AttentionLanes<A>::take_from(workspace, scratch.lanes);
    return scratch;
  }
};

}  // namespace heed::inline HEED_ABI::impl
