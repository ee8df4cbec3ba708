// One block of attention on vectors: some queries of one sequence, for all query heads that share a kv head, against
// tiles of their keys, with one softmax across the tiles (flash attention).
//
// A row is one query of one head. Rows lie in the lanes of vectors: a tile of keys is the left operand of q·kᵀ, so
// neither keys nor values are transposed (or even copied, where they lie well), and softmax and merging are operations of whole vectors. Rows go through a
// tile some at a time, so that their scores stay in the cache:
//
//   scores    = k · (scale · q)ᵀ             a product over panels of queries; softcap, modifier, ALiBi, bias, mask
//   weights   = e^(scores − maximum)         with the tile's own maximum and sum
//   tile_out  = weightsᵀ · v                 a product over panels of values
//   out       = out · α + tile_out · β       α = e^(old maximum − new), β = e^(tile's maximum − new); so for the sums
//
// and in the end out / sum. Bits: a tile holds attention_tile_keys keys, counted from the sequence's key 0, however the
// caller cuts his work. A key that a row does not attend has the weight 0 exactly, and neither adding 0 · v nor merging
// a tile without keys changes anything; so it does not matter which keys of a tile other rows need, nor which rows go
// together. (But for the sign of a zero, which the last step removes: it adds 0.)
#pragma once

#include <cmath>
#include <type_traits>

#include "heed/kernels/simd/attention_few_rows.hpp"
#include "heed/kernels/simd/attention_pack.hpp"
#include "heed/kernels/simd/attention_scores.hpp"
#include "heed/kernels/simd/attention_scratch.hpp"
#include "heed/kernels/simd/attention_tokens.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI::impl {

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
        query_panel_(Product::template panel_width<A>(scratch.lanes)),
        value_panel_(Product::template panel_width<A>(scratch.out_stride)),
        tokens_(sequence_, arguments.extents, kv_head, scratch_, value_panel_, rows() <= 2 * attention_part_rows<A>) {}

  void run() noexcept {
    if (queries_ <= 0) return;  // a packed sequence that is shorter than the longest one
    begin_rows();
    for_each_tile([&](const Tile& tile) {
      if (!weighs_in_place(tile)) tokens_.take_values(is_full(tile));
      for_each_part(tile, [&](const Part& part) { attend(tile, part); });
    });
    finish_rows();
    if (sequence_.weights.present()) {
      for_each_tile([&](const Tile& tile) {
        for_each_part(tile, [&](const Part& part) {
          for_each_panel(tile, part, [&](const Panel& panel) { write_weights(tile, part, panel); });
        });
      });
    }
  }

 private:
  static constexpr Index width = simd::width<A>;

  // Keys of the sequence from `key` on; columns are counted from there.
  struct Tile {
    Index key;
    KeyRange columns;  // holds what any row of the block attends, and
    KeyRange inside;   // what all of them do, as far as order decides
  };
  // Rows of the block that go through a tile together; a row's lane is its number in the part.
  struct Part {
    Index row;
    Index rows;
    KeyRange columns;  // holds what any of these rows attends
    bool is_first;     // no row has attended anything so far
  };
  // Some lanes of a part, for whose queries there is a panel.
  struct Panel {
    Index lane;
    Index rows;
    KeyRange columns;  // what any of these rows attends, and
    KeyRange inside;   // what all of them do, as far as order decides
  };

  // Rows are counted head by head.
  Index rows() const noexcept { return arguments_.group_size() * queries_; }
  Index head(Index row) const noexcept { return kv_head_ * arguments_.group_size() + row / queries_; }
  Index query(Index row) const noexcept { return first_query_ + row % queries_; }

  // What of a range of keys lies in a tile, in columns.
  static KeyRange columns(KeyRange keys, Index key) noexcept {
    const Index begin = keys.begin > key ? keys.begin - key : 0;
    const Index end = keys.end - key < attention_tile_keys ? keys.end - key : attention_tile_keys;
    return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
  }
  // The columns of a tile that a row attends, as far as order decides, and the smallest range that holds those of rows
  // row … row + count − 1.
  KeyRange columns(Index row, Index key) const noexcept { return columns(scratch_.keys[row], key); }
  KeyRange columns(Index row, Index count, Index key) const noexcept {
    KeyRange all{0, 0};
    for (Index i = 0; i < count; ++i) all = join(all, columns(row + i, key));
    return all;
  }

  void begin_rows() noexcept {
    const Index depth = arguments_.extents.head_dim;
    const Index lanes = scratch_.lanes;
    for (Index row = 0; row < rows(); ++row) {
      scratch_.keys[row] = attended_keys(sequence_, options_, modifier_, head(row), query(row));
      AttentionPart& part = scratch_.parts[row / lanes];
      if (row % lanes == 0) part = {{0, 0}, {0, sequence_.keys()}, false};
      widen_to(part.some, part.every, scratch_.keys[row]);
    }
    for (Index first = 0; first < rows(); first += lanes) {
      keys_ = join(keys_, scratch_.parts[first / lanes].some);
      for (Index lane = first; lane < first + lanes; lane += width) {
        simd::store(scratch_.maximum + lane, simd::broadcast<A>(masked_score<A>));
        simd::store(scratch_.sum + lane, simd::broadcast<A>(0));
      }
      for (Index lane = 0; lane < lanes && first + lane < rows(); lane += query_panel_) {
        const Index row = first + lane;
        pack_query_panel<T>([&](Index i) { return sequence_.query.pointer(query(row + i), head(row + i)); },
                            rows() - row, query_panel_, depth, query_panel_, arguments_.scale(),
                            scratch_.query + row * depth);
      }
    }
  }

  // Calls f for the tiles that some row attends, in ascending order, with their keys copied.
  template <class F>
  void for_each_tile(F&& f) noexcept {
    for (Index key = keys_.begin / attention_tile_keys * attention_tile_keys; key < keys_.end;
         key += attention_tile_keys) {
      Tile tile{key, {0, 0}, {0, attention_tile_keys}};
      for (Index row = 0; row < rows(); row += scratch_.lanes) {
        const AttentionPart& part = scratch_.parts[row / scratch_.lanes];
        KeyRange unused{0, 0};
        widen_to(tile.columns, unused, columns(part.some, key));
        widen_to(unused, tile.inside, columns(part.every, key));
      }
      if (tile.columns.end == 0) continue;
      tokens_.begin_tile(key, tile.columns, keys_.end);
      if (!are_few()) tokens_.take_keys();
      f(tile);
    }
  }

  // Calls f for the parts of the block that attend anything in the tile.
  template <class F>
  void for_each_part(const Tile& tile, F&& f) noexcept {
    for (Index row = 0; row < rows(); row += scratch_.lanes) {
      const Index count = rows() - row < scratch_.lanes ? rows() - row : scratch_.lanes;
      AttentionPart& known = scratch_.parts[row / scratch_.lanes];
      const Part part{row, count, columns(known.some, tile.key), !known.has_begun};
      if (part.columns.end == 0) continue;
      known.has_begun = true;
      f(part);
    }
  }

  // Calls f for the panels of a part that attend anything in the tile, with their scores made.
  template <class F>
  void for_each_panel(const Tile& tile, const Part& part, F&& f) noexcept {
    for (Index lane = 0; lane < part.rows; lane += query_panel_) {
      Panel panel{
          lane, part.rows - lane < query_panel_ ? part.rows - lane : query_panel_, {0, 0}, {0, attention_tile_keys}};
      for (Index i = 0; i < query_panel_; ++i) {
        const KeyRange attended = i < panel.rows ? columns(part.row + lane + i, tile.key) : part.columns;
        scratch_.lane.first[lane + i] = static_cast<A>(attended.begin);
        scratch_.lane.end[lane + i] = static_cast<A>(attended.end);
        if (i >= panel.rows) continue;  // a lane without a row: anything goes
        widen_to(panel.columns, panel.inside, attended);
      }
      if (panel.columns.end != 0) make_scores(tile, part, panel);
      f(panel);
    }
  }

  // True if every row attends every column.
  bool is_full(const Tile& tile) const noexcept {
    return std::is_same_v<Modifier, NoModifier> && !options_.bias.present() && !options_.mask.present() &&
           tile.inside.begin <= tile.columns.begin && tile.inside.end >= tile.columns.end;
  }

  // True if keys, and then values, are read where they lie, for few rows.
  bool are_few() const noexcept { return Product::is_packed && rows() <= attention_few_rows<A>; }
  bool weighs_in_place(const Tile& tile) const noexcept { return are_few() && is_full(tile); }

  ScoreLanes<A> scores_of(const Panel& panel) const noexcept {
    return {scratch_.scores + panel.lane, scratch_.lanes, query_panel_, panel.columns};
  }

  // scores = k · qᵀ, and all that changes them; −inf where a row does not attend a key.
  void make_scores(const Tile& tile, const Part& part, const Panel& panel) noexcept {
    const Index depth = arguments_.extents.head_dim;
    const ScoreLanes<A> scores = scores_of(panel);
    const KeyRange keys = panel.columns;
    const Index row = part.row + panel.lane;
    const A* const packed = scratch_.query + row * depth;
    if (are_few()) {
      score_few(tile, packed, scores);
    } else {
      Product::multiply(keys.end - keys.begin, query_panel_, depth, tokens_.keys(keys.begin),
                        simd::Panels<A>{packed, query_panel_ * depth, query_panel_},
                        scores.data + keys.begin * scores.stride, scores.stride, simd::Start::zero);
    }

    if (options_.softcap > 0) softcap_scores(scores, options_.softcap);
    if constexpr (!std::is_same_v<Modifier, NoModifier>) modify(tile, row, panel, scores);
    if (options_.alibi_slopes.present()) {
      const Index origin = tile.key & ~Index{0xfff};  // so that the numbers are the same wherever the tile begins
      for (Index i = 0; i < query_panel_; ++i) {
        const bool there = i < panel.rows;
        scratch_.lane.slope[panel.lane + i] = there ? options_.alibi_slopes(head(row + i)) : A(0);
        scratch_.lane.query[panel.lane + i] = there ? static_cast<A>(sequence_.offset + query(row + i) - origin) : A(0);
      }
      alibi_scores(scores, scratch_.lane.slope + panel.lane, scratch_.lane.query + panel.lane, tile.key - origin);
    }
    if (options_.bias.present()) bias_scores(scores, elements_of(options_.bias, tile, row, panel));
    if (options_.mask.present()) mask_scores(scores, elements_of(options_.mask, tile, row, panel));
    exclude_scores(scores, scratch_.lane.first + panel.lane, scratch_.lane.end + panel.lane, panel.inside);
  }

  // The products for few rows.
  void score_few(const Tile& tile, const A* packed, const ScoreLanes<A>& scores) const noexcept {
    with_few_rows<A>(rows(), [&](auto count) {
      const auto score = [&](auto codes) {
        score_few_rows<count(), codes()>(tokens_.key(), tile.key, packed, query_panel_, scores, tokens_.value());
      };
      tokens_.key().has_codes() ? score(std::true_type()) : score(std::false_type());
    });
  }
  void weigh_few(const Tile& tile, A* out) const noexcept {
    const Index next = tile.key + attention_tile_keys < keys_.end ? tile.key + attention_tile_keys : keys_.end;
    const Index end = next + attention_tile_keys < keys_.end ? next + attention_tile_keys : keys_.end;
    with_few_rows<A>(rows(), [&](auto count) {
      const auto weigh = [&](auto codes) {
        weigh_few_rows<count(), codes()>(tokens_.value(), tile.key, tile.columns, scratch_.scores, scratch_.lanes, out,
                                         scratch_.out_stride, tokens_.key(), next, end);
      };
      tokens_.value().has_codes() ? weigh(std::true_type()) : weigh(std::false_type());
    });
  }

  // The rows of a mask or bias that belong to a panel's lanes.
  template <class M>
  LaneElements<M> elements_of(const ScoreView<M>& view, const Tile& tile, Index row,
                              const Panel& panel) const noexcept {
    static_assert(LaneElements<M>::most >= attention_part_rows<A>);
    LaneElements<M> elements;
    elements.key_stride = view.key_stride();
    elements.same = true;
    for (Index i = 0; i < query_panel_; ++i) {
      const Index of = row + (i < panel.rows ? i : panel.rows - 1);
      elements.rows[i] = view.row(sequence_.batch, head(of), query(of)) + tile.key * view.key_stride();
      elements.same = elements.same && elements.rows[i] == elements.rows[0];
    }
    return elements;
  }

  // Hands the scores to the modifier as it wants them: row by row, one head at a time.
  void modify(const Tile& tile, Index row, const Panel& panel, const ScoreLanes<A>& scores) noexcept {
    const Index stride = (tokens_.room() + width - 1) / width * width;
    const KeyRange keys = panel.columns;
    turn(scores, stride, [](simd::Vec<A>(&block)[width], A* lanes, Index lane_stride, A* turned, Index turned_stride) {
      for (Index i = 0; i < width; ++i) block[i] = simd::load(lanes + i * lane_stride);
      simd::transpose<A>(block);
      for (Index i = 0; i < width; ++i) simd::store(turned + i * turned_stride, block[i]);
    });
    for (Index i = 0; i < panel.rows;) {
      const Index left = queries_ - (row + i) % queries_;
      const Index count = left < panel.rows - i ? left : panel.rows - i;
      ScoreTile<A> part{scratch_.modified + i * stride + keys.begin,
                        stride,
                        count,
                        keys.end - keys.begin,
                        sequence_.batch,
                        head(row + i),
                        sequence_.offset + query(row + i),
                        tile.key + keys.begin};
      modifier_(part);
      i += count;
    }
    turn(scores, stride, [](simd::Vec<A>(&block)[width], A* lanes, Index lane_stride, A* turned, Index turned_stride) {
      for (Index i = 0; i < width; ++i) block[i] = simd::load(turned + i * turned_stride);
      simd::transpose<A>(block);
      for (Index i = 0; i < width; ++i) simd::store(lanes + i * lane_stride, block[i]);
    });
  }

  // Calls f for the square blocks of a panel's scores and of the same scores row by row.
  template <class F>
  void turn(const ScoreLanes<A>& scores, Index stride, F&& f) noexcept {
    simd::Vec<A> block[width];
    for (Index lane = 0; lane < scores.lanes; lane += width) {
      for (Index key = scores.keys.begin / width * width; key < scores.keys.end; key += width) {
        f(block, scores.data + key * scores.stride + lane, scores.stride, scratch_.modified + lane * stride + key,
          stride);
      }
    }
  }

  // Softmax of one part within one tile, weighted values, merge.
  void attend(const Tile& tile, const Part& part) noexcept {
    const AttentionLanes<A>& lane = scratch_.lane;
    for_each_panel(tile, part, [&](const Panel& panel) {
      clear_weights(panel, part.columns);
      if (panel.columns.end == 0) {
        for (Index i = panel.lane; i < panel.lane + query_panel_; ++i) {
          lane.maximum[i] = masked_score<A>;
          lane.sum[i] = 0;
        }
        return;
      }
      const ScoreLanes<A> scores = scores_of(panel);
      if (!tokens_.values_are_finite()) remember_attended(scores, panel.lane);
      softmax_scores(scores, lane.maximum + panel.lane, lane.sum + panel.lane);
      if (options_.dropout != 0) {
        for (Index i = 0; i < panel.rows; ++i) drop(tile, part.row + panel.lane + i, scores.data + i);
      }
    });
    weigh(tile, part);
    merge_rows(part);
  }

  // 0 for keys that other panels of the part attend.
  void clear_weights(const Panel& panel, KeyRange all) noexcept {
    for (Index key = all.begin; key < all.end; ++key) {
      if (key == panel.columns.begin) key = panel.columns.end;
      if (key >= all.end) return;
      A* const scores = scratch_.scores + key * scratch_.lanes + panel.lane;
      for (Index lane = 0; lane < query_panel_; lane += width) simd::store(scores + lane, simd::broadcast<A>(0));
    }
  }

  // Weights of one row after dropout; the sum is that of all weights.
  void drop(const Tile& tile, Index row, A* weights) const noexcept {
    const KeyRange attended = columns(row, tile.key);
    Dropout dropout(static_cast<double>(options_.dropout), options_.dropout_seed, sequence_.batch, head(row),
                    sequence_.offset + query(row));
    dropout.apply(weights + attended.begin * scratch_.lanes, scratch_.lanes, tile.key + attended.begin,
                  attended.end - attended.begin, 1 / (1 - options_.dropout));
  }

  void remember_attended(const ScoreLanes<A>& scores, Index lane) noexcept {
    for (Index key = scores.keys.begin; key < scores.keys.end; ++key) {
      for (Index i = 0; i < scores.lanes; ++i)
        scratch_.attended[key * scratch_.lanes + lane + i] = scores.data[key * scores.stride + i] != masked_score<A>;
    }
  }

  // tile_out = weightsᵀ · v; a part's first tile makes `out` itself. Under causal order some rows of a part need fewer
  // keys than others.
  void weigh(const Tile& tile, const Part& part) noexcept {
    A* const out = part.is_first ? scratch_.out + part.row * scratch_.out_stride : scratch_.tile_out;
    if (weighs_in_place(tile)) return weigh_few(tile, out);
    constexpr Index together = simd::tile_rows<A>;
    for (Index i = 0; i < part.rows; i += together) {
      const Index count = part.rows - i < together ? part.rows - i : together;
      const KeyRange keys = columns(part.row + i, count, tile.key);
      if (!tokens_.values_are_finite()) {
        for (Index lane = i; lane < i + count; ++lane)
          weigh_attended(lane, columns(part.row + lane, tile.key), out + lane * scratch_.out_stride);
        continue;
      }
      Product::multiply(count, scratch_.out_stride, keys.end - keys.begin,
                        simd::Rows<A>{scratch_.scores + keys.begin * scratch_.lanes + i, 1, scratch_.lanes},
                        tokens_.values(keys.begin), out + i * scratch_.out_stride, scratch_.out_stride,
                        simd::Start::zero);
    }
  }

  // The product for one row, with the keys it does not attend left out: 0 · NaN is not 0.
  void weigh_attended(Index lane, KeyRange keys, A* out) noexcept {
    for (Index d = 0; d < scratch_.out_stride; d += width) {
      const simd::Panels<A> values = tokens_.values(keys.begin);
      const A* const value = values.data + d / value_panel_ * values.panel_stride + d % value_panel_;
      simd::Vec<A> sum = simd::broadcast<A>(0);
      for (Index key = keys.begin; key < keys.end; ++key) {
        if (!scratch_.attended[key * scratch_.lanes + lane]) continue;
        sum = simd::fma(simd::broadcast<A>(scratch_.scores[key * scratch_.lanes + lane]),
                        simd::load(value + (key - keys.begin) * values.row_stride), sum);
      }
      simd::store(out + d, sum);
    }
  }

  // The tile's results join those of the tiles before it.
  void merge_rows(const Part& part) noexcept {
    const AttentionLanes<A>& lane = scratch_.lane;
    A* const maximum = scratch_.maximum + part.row;
    A* const sum = scratch_.sum + part.row;
    for (Index i = 0; part.is_first && i < part.rows; i += width) {
      simd::store(maximum + i, simd::load(lane.maximum + i));
      simd::store(sum + i, simd::load(lane.sum + i));
    }
    if (part.is_first) return;
    for (Index i = 0; i < part.rows; i += width) {
      const Merged<A> merged = merge<A>(simd::load(maximum + i), simd::load(sum + i), simd::load(lane.maximum + i),
                                        simd::load(lane.sum + i));
      simd::store(maximum + i, merged.maximum);
      simd::store(sum + i, merged.sum);
      simd::store(lane.keep + i, merged.keep);
      simd::store(lane.take + i, merged.take);
    }
    for (Index i = 0; i < part.rows; ++i) {
      A* const out = scratch_.out + (part.row + i) * scratch_.out_stride;
      const A* const added = scratch_.tile_out + i * scratch_.out_stride;
      const simd::Vec<A> keep = simd::broadcast<A>(lane.keep[i]);
      const simd::Vec<A> take = simd::broadcast<A>(lane.take[i]);
      for (Index d = 0; d < scratch_.out_stride; d += width)
        simd::store(out + d, simd::fma(simd::load(out + d), keep, simd::load(added + d) * take));
    }
  }

  void finish_rows() noexcept {
    for (Index row = 0; row < rows(); ++row) {
      A* const out = scratch_.out + row * scratch_.out_stride;
      const bool none = !scratch_.parts[row / scratch_.lanes].has_begun;
      for (Index d = 0; none && d < scratch_.out_stride; d += width) simd::store(out + d, simd::broadcast<A>(0));
      finish(row);
    }
  }

  // The sink joins, the sum divides; the results go to the caller's tensors.
  void finish(Index row) noexcept {
    A* out = scratch_.out + row * scratch_.out_stride;
    A keep = 1;
    if (options_.sinks.present()) {
      const Merged<A> merged =
          merge<A>(simd::broadcast<A>(scratch_.maximum[row]), simd::broadcast<A>(scratch_.sum[row]),
                   simd::broadcast<A>(options_.sinks(head(row))), simd::broadcast<A>(1));
      simd::store_partial(scratch_.maximum + row, 1, merged.maximum);
      simd::store_partial(scratch_.sum + row, 1, merged.sum);
      simd::store_partial(&keep, 1, merged.keep);
    }
    const A maximum = scratch_.maximum[row];
    const A sum = scratch_.sum[row];
    if (sequence_.log_sum_exp.present())
      sequence_.log_sum_exp(head(row), query(row)) = sum == 0 ? masked_score<A> : maximum + std::log(sum);

    const simd::Vec<A> divisor = simd::broadcast<A>(sum == 0 ? A(1) : sum);  // without keys 0 / 1, never 0 / 0
    const Index dim = arguments_.extents.value_head_dim;
    T* to = sequence_.out.pointer(query(row), head(row));
    for (Index d = 0; d < dim; d += width) {
      const simd::Vec<A> mean = simd::divide<A>(simd::load(out + d) * simd::broadcast<A>(keep), divisor);
      simd::store_partial(to + d, dim - d, mean + simd::broadcast<A>(0));
    }
    if (sequence_.weights.present()) {
      T* weights = sequence_.weights.pointer(head(row), query(row));
      for (Index s = 0; s < sequence_.weights.extent(2); ++s) weights[s] = narrow<T>(0);
    }
  }

  // Weights of one panel and tile, now that the rows' maxima and sums are known.
  void write_weights(const Tile& tile, const Part& part, const Panel& panel) noexcept {
    for (Index i = 0; i < panel.rows; ++i) {
      const Index row = part.row + panel.lane + i;
      const KeyRange attended = columns(row, tile.key);
      const A maximum = scratch_.maximum[row];
      const A sum = scratch_.sum[row];
      if (sum == 0 || attended.end == 0) continue;
      A* const scores = scratch_.scores + panel.lane + i;
      for (Index key = attended.begin; key < attended.end; ++key) {
        A& score = scores[key * scratch_.lanes];
        alignas(64) A lanes[width] = {score - maximum};
        simd::store(lanes, simd::divide<A>(simd::exp_difference(simd::load(lanes)), simd::broadcast<A>(sum)));
        score = score == masked_score<A> ? A(0) : lanes[0];
      }
      if (options_.dropout != 0) drop(tile, row, scores);
      T* const to = sequence_.weights.pointer(head(row), query(row), tile.key);
      for (Index key = attended.begin; key < attended.end; ++key) to[key] = narrow<T>(scores[key * scratch_.lanes]);
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
  const Index query_panel_;
  const Index value_panel_;
  KeyRange keys_ = {0, 0};  // what any row attends
  AttentionTokens<T> tokens_;
};

}  // namespace heed::inline HEED_ABI::impl
