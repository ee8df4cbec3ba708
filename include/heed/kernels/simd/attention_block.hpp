// One block of attention on vectors: some queries of one sequence, for all query heads that share a kv head, against
// tiles of their keys, with one softmax across the tiles (flash attention).
//
// A tile of keys and values is packed once for all rows of the block (a row is one query of one head). Rows go through
// it some at a time, so that their scores stay in the cache:
//
//   scores    = (scale · q) · kᵀ             a product over panels of keys; softcap, modifier, ALiBi, bias, mask
//   weights   = e^(scores − maximum)         with the tile's own maximum and sum
//   tile_out  = weights · v                  a product over panels of values
//   out       = out · α + tile_out · β       α = e^(old maximum − new), β = e^(tile's maximum − new); so for the sums
//
// and in the end out / sum. Bits: a tile holds attention_tile_keys keys, counted from the sequence's key 0, however the
// caller cuts his work. A key that a row does not attend has the weight 0 exactly, and neither adding 0 · v nor merging
// a tile without keys changes anything; so it does not matter which keys of a tile other rows need, nor which rows go
// together. (But for the sign of a zero, which the last step removes: it adds 0.)
#pragma once

#include <cmath>

#include "heed/core/workspace.hpp"
#include "heed/kernels/attention_arguments.hpp"
#include "heed/kernels/simd/attention_pack.hpp"
#include "heed/kernels/simd/attention_scores.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI::impl {

// Rows that go through a tile together: whole register tiles, whose scores fit the level-2 cache.
template <class A>
inline constexpr Index attention_rows = 64 / simd::tile_rows<A>* simd::tile_rows<A>;
// Rows of a block, for which a tile is packed once. (One query of a larger group is a block, too.)
template <class A>
inline constexpr Index attention_block_rows = 4 * attention_rows<A>;

// One worker's memory. Rows of scores and outputs are padded to whole panels.
template <class A>
struct AttentionScratch {
  Index score_stride = 0;
  Index out_stride = 0;
  A* query = nullptr;             // [block rows, D], times the scale
  KeyRange* keys = nullptr;       // [block rows]: what each may attend
  A* out = nullptr;               // [block rows, Dv]
  RowSum<A>* sum = nullptr;       // [block rows]
  A* key_panels = nullptr;        // of [D, tile keys]
  A* value_panels = nullptr;      // of [tile keys, Dv]
  A* scores = nullptr;            // [rows, tile keys]
  bool* attended = nullptr;       // [rows, tile keys], for tiles with values that are not finite
  A* tile_out = nullptr;          // [rows, Dv]
  RowSum<A>* tile_sum = nullptr;  // [rows]

  static AttentionScratch take(Workspace& workspace, const AttentionExtents& extents) noexcept {
    const auto at_most = [](Index value, Index limit) { return value < limit ? value : limit; };
    const Index group = extents.num_heads / extents.num_kv_heads;
    const Index block_rows =
        at_most(group * extents.queries, group < attention_block_rows<A> ? attention_block_rows<A> : group);
    const Index rows = at_most(block_rows, attention_rows<A>);
    const Index tile_keys = at_most(extents.keys, attention_tile_keys);

    AttentionScratch scratch;
    scratch.score_stride = simd::padded_columns<A>(tile_keys);
    scratch.out_stride = simd::padded_columns<A>(extents.value_head_dim);
    scratch.query = workspace.take<A>(block_rows * extents.head_dim);
    scratch.keys = workspace.take<KeyRange>(block_rows);
    scratch.out = workspace.take<A>(block_rows * scratch.out_stride);
    scratch.sum = workspace.take<RowSum<A>>(block_rows);
    scratch.key_panels = workspace.take<A>(extents.head_dim * scratch.score_stride);
    scratch.value_panels = workspace.take<A>(tile_keys * scratch.out_stride);
    scratch.scores = workspace.take<A>(rows * scratch.score_stride);
    scratch.attended = workspace.take<bool>(rows * scratch.score_stride);
    scratch.tile_out = workspace.take<A>(rows * scratch.out_stride);
    scratch.tile_sum = workspace.take<RowSum<A>>(rows);
    return scratch;
  }
};

// α, β and the sum of two partial softmaxes made one.
template <class A>
struct Merged {
  A keep;  // α: what the first one's numbers are multiplied by
  A take;  // β: the second one's
  RowSum<A> sum;
};

template <class A>
Merged<A> merge(RowSum<A> first, RowSum<A> second) noexcept {
  const A maximum = first.maximum < second.maximum ? second.maximum : first.maximum;
  const A subtracted = maximum == masked_score<A> ? A(0) : maximum;  // no key in either: −inf − −inf would be NaN
  alignas(64) A factors[simd::width<A>] = {first.maximum - subtracted, second.maximum - subtracted};
  simd::store(factors, simd::exp_nonpositive(simd::load(factors)));
  return {factors[0], factors[1], {maximum, simd::fma(first.sum, factors[0], second.sum * factors[1])}};
}

// Product is simd::PanelProduct, or what stands for it.
template <class T, class Modifier, class Product>
class AttentionBlock {
 public:
  using A = accumulator_t<T>;

  // Queries first_query … first_query + queries − 1 of the heads that read kv_head.
  AttentionBlock(const AttentionArguments<T>& arguments, const Modifier& modifier, const AttentionScratch<A>& scratch,
                 Index batch, Index kv_head, Index first_query, Index queries) noexcept
      : arguments_(arguments),
        options_(arguments.options),
        modifier_(modifier),
        scratch_(scratch),
        sequence_(arguments.sequence(batch)),
        kv_head_(kv_head),
        first_query_(first_query),
        queries_(queries < sequence_.queries() - first_query ? queries : sequence_.queries() - first_query),
        key_panel_(Product::template panel_width<A>(scratch.score_stride)),
        value_panel_(Product::template panel_width<A>(scratch.out_stride)) {}

  void run() noexcept {
    if (queries_ <= 0) return;  // a packed sequence that is shorter than the longest one
    begin_rows();
    for_each_tile([&](const Tile& tile) {
      pack_values(tile);
      for_each_part(tile, [&](const Part& part) { attend(tile, part); });
    });
    for (Index row = 0; row < rows(); ++row) finish(row);
    if (sequence_.weights.present()) {
      for_each_tile(
          [&](const Tile& tile) { for_each_part(tile, [&](const Part& part) { write_weights(tile, part); }); });
    }
  }

 private:
  // Keys of the sequence from `key` on; columns are counted from there.
  struct Tile {
    Index key;
    KeyRange columns;  // what any row of the block attends
  };
  // Rows of the block that go through a tile together.
  struct Part {
    Index row;
    Index rows;
    KeyRange columns;  // what any of these rows attends
  };

  // Rows are counted head by head.
  Index rows() const noexcept { return arguments_.group_size() * queries_; }
  Index head(Index row) const noexcept { return kv_head_ * arguments_.group_size() + row / queries_; }
  Index query(Index row) const noexcept { return first_query_ + row % queries_; }

  // The columns of a tile that a row attends, as far as order decides.
  KeyRange columns(Index row, Index key) const noexcept {
    const KeyRange keys = scratch_.keys[row];
    const Index begin = keys.begin > key ? keys.begin - key : 0;
    const Index end = keys.end - key < attention_tile_keys ? keys.end - key : attention_tile_keys;
    return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
  }

  // The smallest range that holds both; an empty one is {0, 0}.
  static KeyRange join(KeyRange a, KeyRange b) noexcept {
    if (a.end == 0) return b;
    if (b.end == 0) return a;
    return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
  }

  void begin_rows() noexcept {
    const simd::Vec<A> scale = simd::broadcast<A>(arguments_.scale());
    const Index depth = arguments_.extents.head_dim;
    for (Index row = 0; row < rows(); ++row) {
      const KeyRange keys = attended_keys(sequence_, options_, modifier_, head(row), query(row));
      scratch_.keys[row] = keys;
      keys_ = join(keys_, keys);
      scratch_.sum[row] = {};
      A* out = scratch_.out + row * scratch_.out_stride;
      for (Index d = 0; d < scratch_.out_stride; ++d) out[d] = 0;

      const T* from = sequence_.query.pointer(query(row), head(row));
      A* to = scratch_.query + row * depth;
      for (Index d = 0; d < depth; d += simd::width<A>)
        simd::store_partial(to + d, depth - d, simd::load_partial(from + d, depth - d) * scale);
    }
  }

  // Calls f for the tiles that some row attends, in ascending order, with their keys packed.
  template <class F>
  void for_each_tile(F&& f) noexcept {
    for (Index key = keys_.begin / attention_tile_keys * attention_tile_keys; key < keys_.end;
         key += attention_tile_keys) {
      Tile tile{key, {0, 0}};
      for (Index row = 0; row < rows(); ++row) tile.columns = join(tile.columns, columns(row, key));
      if (tile.columns.end == 0) continue;
      pack_keys(tile);
      f(tile);
    }
  }

  // Calls f for the parts of the block that attend anything in the tile, with their scores made.
  template <class F>
  void for_each_part(const Tile& tile, F&& f) noexcept {
    for (Index row = 0; row < rows(); row += attention_rows<A>) {
      Part part{row, rows() - row < attention_rows<A> ? rows() - row : attention_rows<A>, {0, 0}};
      for (Index i = 0; i < part.rows; ++i) part.columns = join(part.columns, columns(row + i, tile.key));
      if (part.columns.end == 0) continue;
      make_scores(tile, part);
      f(part);
    }
  }

  // Panels of kᵀ, from the panel that holds the first column on.
  void pack_keys(const Tile& tile) noexcept {
    const Index depth = arguments_.extents.head_dim;
    for (Index column = tile.columns.begin / key_panel_ * key_panel_; column < tile.columns.end; column += key_panel_) {
      // A panel may begin before the oldest key that a cache keeps.
      const Index first = column + tile.key < sequence_.first_key ? sequence_.first_key - tile.key - column : 0;
      const Index left = tile.columns.end - column;
      pack_key_panel(sequence_.key, tile.key + column, {first, left < key_panel_ ? left : key_panel_}, kv_head_, depth,
                     key_panel_, scratch_.key_panels + column * depth);
    }
  }

  // Panels of v; a row of a panel lies at its column of the tile. Finds out whether all values are finite.
  void pack_values(const Tile& tile) noexcept {
    const Index width = arguments_.extents.value_head_dim;
    simd::Vec<A> zeros = simd::broadcast<A>(0);
    for (Index column = tile.columns.begin; column < tile.columns.end; ++column) {
      const TokenHead<T> token = sequence_.value.token(tile.key + column, kv_head_);
      for (Index d = 0; d < scratch_.out_stride; d += simd::width<A>) {
        const simd::Vec<A> value = d < width ? load_token(token, d, width - d) : simd::broadcast<A>(0);
        simd::store(value_panel(d) + column * value_panel_, value);
        zeros = simd::fma(value, simd::broadcast<A>(0), zeros);  // NaN · 0 and inf · 0 are NaN
      }
    }
    values_are_finite_ = simd::reduce_add<A>(zeros) == 0;
  }

  // Where the tile's first key has dimension d of its value; the keys are value_panel_ apart.
  A* value_panel(Index d) const noexcept {
    return scratch_.value_panels + d / value_panel_ * value_panel_ * tile_keys() + d % value_panel_;
  }

  // Keys that a panel of values has room for.
  Index tile_keys() const noexcept {
    return arguments_.extents.keys < attention_tile_keys ? arguments_.extents.keys : attention_tile_keys;
  }

  // scores = q · kᵀ, and all that changes them, but for the columns a row does not attend by order.
  void make_scores(const Tile& tile, const Part& part) noexcept {
    const Index depth = arguments_.extents.head_dim;
    const Index stride = scratch_.score_stride;
    const Index begin = part.columns.begin / key_panel_ * key_panel_;
    const Index end = (part.columns.end + key_panel_ - 1) / key_panel_ * key_panel_;
    Product::multiply(part.rows, end - begin, depth, simd::Rows<A>{scratch_.query + part.row * depth, depth, 1},
                      simd::Panels<A>{scratch_.key_panels + begin * depth, depth * key_panel_, key_panel_},
                      scratch_.scores + begin, stride, simd::Start::zero);

    for (Index i = 0; i < part.rows;) {  // the rows of one head at a time
      const Index row = part.row + i;
      const Index left = queries_ - row % queries_;
      const Index count = left < part.rows - i ? left : part.rows - i;
      const Index t = query(row);
      ScoreTile<A> scores{scratch_.scores + i * stride + begin,
                          stride,
                          count,
                          part.columns.end - begin,
                          sequence_.batch,
                          head(row),
                          sequence_.offset + t,
                          tile.key + begin};
      if (options_.softcap > 0) softcap_scores(scores, options_.softcap);
      modifier_(scores);
      if (options_.alibi_slopes.present()) alibi_scores(scores, options_.alibi_slopes(scores.head));
      if (options_.bias.present()) bias_scores(scores, options_.bias, t);
      if (options_.mask.present()) mask_scores(scores, options_.mask, t);
      i += count;
    }
  }

  // The columns a part's softmax and products go over: whole vectors.
  static KeyRange whole_vectors(KeyRange columns) noexcept {
    constexpr Index w = simd::width<A>;
    return {columns.begin / w * w, (columns.end + w - 1) / w * w};
  }

  // Softmax of one part within one tile, weighted values, merge.
  void attend(const Tile& tile, const Part& part) noexcept {
    const KeyRange vectors = whole_vectors(part.columns);
    for (Index i = 0; i < part.rows; ++i) {
      A* scores = scratch_.scores + i * scratch_.score_stride;
      const KeyRange attended = columns(part.row + i, tile.key);
      mask_outside(scores, vectors.begin, vectors.end, attended);
      if (!values_are_finite_) remember_attended(i, part.columns);
      scratch_.tile_sum[i] = softmax_row(scores, vectors.begin, vectors.end);
      drop(scores, part.row + i, tile.key, attended);
    }
    if (values_are_finite_) {
      Product::multiply(
          part.rows, scratch_.out_stride, part.columns.end - part.columns.begin,
          simd::Rows<A>{scratch_.scores + part.columns.begin, scratch_.score_stride, 1},
          simd::Panels<A>{value_panel(0) + part.columns.begin * value_panel_, tile_keys() * value_panel_, value_panel_},
          scratch_.tile_out, scratch_.out_stride, simd::Start::zero);
    } else {
      for (Index i = 0; i < part.rows; ++i) weigh_attended(i, part.columns);
    }
    for (Index i = 0; i < part.rows; ++i) merge_row(part.row + i, i);
  }

  // Weights after dropout; the sum is that of all weights.
  void drop(A* weights, Index row, Index key, KeyRange attended) const noexcept {
    if (options_.dropout == 0) return;
    Dropout dropout(static_cast<double>(options_.dropout), options_.dropout_seed, sequence_.batch, head(row),
                    sequence_.offset + query(row));
    dropout.apply(weights + attended.begin, key + attended.begin, attended.end - attended.begin,
                  1 / (1 - options_.dropout));
  }

  void remember_attended(Index i, KeyRange columns) noexcept {
    const Index row = i * scratch_.score_stride;
    for (Index column = columns.begin; column < columns.end; ++column)
      scratch_.attended[row + column] = scratch_.scores[row + column] != masked_score<A>;
  }

  // The product for one row, with the keys it does not attend left out: 0 · NaN is not 0.
  void weigh_attended(Index i, KeyRange columns) noexcept {
    const Index row = i * scratch_.score_stride;
    for (Index d = 0; d < scratch_.out_stride; d += simd::width<A>) {
      const A* value = value_panel(d);
      simd::Vec<A> sum = simd::broadcast<A>(0);
      for (Index column = columns.begin; column < columns.end; ++column) {
        if (!scratch_.attended[row + column]) continue;
        sum = simd::fma(simd::broadcast<A>(scratch_.scores[row + column]), simd::load(value + column * value_panel_),
                        sum);
      }
      simd::store(scratch_.tile_out + i * scratch_.out_stride + d, sum);
    }
  }

  // Row i of the tile's results joins those of the tiles before it.
  void merge_row(Index row, Index i) noexcept {
    const Merged<A> merged = merge(scratch_.sum[row], scratch_.tile_sum[i]);
    scratch_.sum[row] = merged.sum;
    A* out = scratch_.out + row * scratch_.out_stride;
    const A* added = scratch_.tile_out + i * scratch_.out_stride;
    const simd::Vec<A> keep = simd::broadcast<A>(merged.keep);
    const simd::Vec<A> take = simd::broadcast<A>(merged.take);
    for (Index d = 0; d < scratch_.out_stride; d += simd::width<A>)
      simd::store(out + d, simd::fma(simd::load(out + d), keep, simd::load(added + d) * take));
  }

  // The sink joins, the sum divides; the results go to the caller's tensors.
  void finish(Index row) noexcept {
    A* out = scratch_.out + row * scratch_.out_stride;
    A keep = 1;
    if (options_.sinks.present()) {
      const Merged<A> merged = merge(scratch_.sum[row], RowSum<A>{options_.sinks(head(row)), 1});
      scratch_.sum[row] = merged.sum;
      keep = merged.keep;
    }
    const auto [maximum, sum] = scratch_.sum[row];
    if (sequence_.log_sum_exp.present())
      sequence_.log_sum_exp(head(row), query(row)) = sum == 0 ? masked_score<A> : maximum + std::log(sum);

    const simd::Vec<A> divisor = simd::broadcast<A>(sum == 0 ? A(1) : sum);  // without keys 0 / 1, never 0 / 0
    const Index width = arguments_.extents.value_head_dim;
    T* to = sequence_.out.pointer(query(row), head(row));
    for (Index d = 0; d < width; d += simd::width<A>) {
      const simd::Vec<A> mean = simd::divide<A>(simd::load(out + d) * simd::broadcast<A>(keep), divisor);
      simd::store_partial(to + d, width - d, mean + simd::broadcast<A>(0));
    }
    if (sequence_.weights.present()) {
      T* weights = sequence_.weights.pointer(head(row), query(row));
      for (Index s = 0; s < sequence_.weights.extent(2); ++s) weights[s] = narrow<T>(0);
    }
  }

  // Weights of one part and tile, now that the rows' maxima and sums are known.
  void write_weights(const Tile& tile, const Part& part) noexcept {
    for (Index i = 0; i < part.rows; ++i) {
      const Index row = part.row + i;
      const auto [maximum, sum] = scratch_.sum[row];
      const KeyRange attended = columns(row, tile.key);
      if (sum == 0 || attended.end == 0) continue;
      const KeyRange vectors = whole_vectors(attended);
      A* scores = scratch_.scores + i * scratch_.score_stride;
      for (Index column = vectors.begin; column < vectors.end; column += simd::width<A>) {
        const simd::Vec<A> score = simd::load(scores + column);
        const simd::Vec<A> weight =
            simd::divide<A>(simd::exp_nonpositive(score - simd::broadcast<A>(maximum)), simd::broadcast<A>(sum));
        simd::store(scores + column,
                    simd::select<A>(score == simd::broadcast<A>(masked_score<A>), simd::broadcast<A>(0), weight));
      }
      drop(scores, row, tile.key, attended);
      T* to = sequence_.weights.pointer(head(row), query(row), tile.key);
      for (Index column = attended.begin; column < attended.end; ++column) to[column] = narrow<T>(scores[column]);
    }
  }

  const AttentionArguments<T>& arguments_;
  const AttentionOptions<T>& options_;
  const Modifier& modifier_;
  const AttentionScratch<A> scratch_;
  const AttentionSequence<T> sequence_;
  const Index kv_head_;
  const Index first_query_;
  const Index queries_;
  const Index key_panel_;
  const Index value_panel_;
  KeyRange keys_ = {0, 0};  // what any row attends
  bool values_are_finite_ = true;
};

}  // namespace heed::inline HEED_ABI::impl
