// Device kernel of ops::attention for 16-bit elements: products by tensor cores, keys and values on their way while the
// scores before them are computed with.
#pragma once

#include "heed/cuda/kernels/attention_scores.hpp"
#include "heed/cuda/kernels/mma.hpp"

namespace heed::inline HEED_ABI::impl {

// Flash attention (Dao 2023, FlashAttention-2): a block takes `rows` rows, a row being a query of one head, those of a kv
// head's group side by side, and runs over keys in tiles of `tile`, counted from the sequence's key 0, with a running
// maximum and sum for each row. A warp has its rows to itself; scores, weights and the result stay in registers, in the
// fragments of products of 16 x 8 elements. Heads are filled up to Dims with zeros in shared memory.
//
// Which keys a row may attend by order is worked out once, as a range. Warps leave out tiles that none of their rows
// attends, and look at single scores only where ranges end or options want them changed. What is left out would change
// nothing, so a row's bits do not depend on its neighbours.
//
// Numerics: scores, maximum, sum and result in float; weights, at most 1, are rounded to T for the product with the values;
// the result is rounded to T once. Products with 0 would let NaN of masked keys in: where not all rows of a block attend
// all keys of a tile, its values are looked through, and if some are not finite, weights are taken one by one.
//
// Registers are what is scarce: what is seldom needed stays in shared memory, or is worked out again.
template <class T, int Dims, class Modifier>
struct AttentionMma {
  static constexpr const char* name = "attention by tensor cores";
  static constexpr int row_fragments = Dims > 128 ? 1 : 2;  // the more, the fewer reads of shared memory
  static constexpr int warps = 8 / row_fragments;
  static constexpr int threads = warps * 32;
  static constexpr int own_rows = row_fragments * 16;
  static constexpr int rows = warps * own_rows;
  static constexpr int tile = 64;
  static constexpr int key_fragments = tile / 8;
  static constexpr int dim_fragments = Dims / 8;
  static constexpr int chunks = Dims / mma_chunk;  // of a row
  static_assert(Dims % 64 == 0 && Dims <= 256);

  AttentionArguments<T> call;
  Modifier modifier;
  float scale;
  Index group;      // query heads of a kv head
  Index row_tiles;  // blocks of one kv head's rows
  bool aligned;     // all rows begin at multiples of 16 bytes, dims are multiples of 8
  bool even;        // aligned, and tokens are evenly apart
  bool modified;    // scores are not just the products times a positive number
  bool masks;       // not order alone masks

  int shared_bytes() const {
    return shared_array_bytes<T>(rows * Dims) + 2 * shared_array_bytes<T>(tile * Dims) +
           shared_array_bytes<KeyRange>(rows) + shared_array_bytes<Reach>(warps) + shared_array_bytes<Span>(warps + 1) +
           shared_array_bytes<Block>(1) + shared_array_bytes<int>(warps) +
           shared_array_bytes<std::uint32_t>(row_fragments * threads) + shared_array_bytes<OwnTokens>(threads);
  }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    Block here = block_of(context.block());
    if (here.first_query >= here.queries) return;
    Shared shared;
    shared.query = context.template shared<T>(rows * Dims);
    shared.keys = context.template shared<T>(tile * Dims);
    shared.values = context.template shared<T>(tile * Dims);
    shared.ranges = context.template shared<KeyRange>(rows);
    shared.reaches = context.template shared<Reach>(warps);
    shared.spans = context.template shared<Span>(warps + 1);
    shared.here = context.template shared<Block>(1);
    shared.special = context.template shared<int>(warps);
    shared.masked = context.template shared<std::uint32_t>(row_fragments * threads);
    shared.tokens = context.template shared<OwnTokens>(threads);

    find_ranges(context, here, shared);
    fetch_queries(context, here, shared);
    context.sync();  // what all warps attend is known
    Reach reach;
    for (int w = 0; w < warps; ++w) reach.add(shared.reaches[w]);
    here.origin = reach.begin / tile * tile;
    const int end = reach.from(here.origin).end;
    if (context.lane() == 0) shared.spans[context.warp()] = shared.reaches[context.warp()].from(here.origin);
    if (context.thread() == 0) {
      shared.spans[warps] = reach.from(here.origin);
      *shared.here = here;
    }
    context.sync();  // that is there
    if (end <= 0) return finish(context, shared, Rows());

    Rows result;
    const AttentionSequence<T> sequence = call.sequence(here.batch);
    shared.tokens[context.thread()] = {own_token(context, sequence.key, here),
                                       own_token(context, sequence.value, here)};
    fetch_keys(context, shared, 0);
    context.commit_copies();
    for (int first = 0; first < end; first += tile) {
      context.template wait_copies<0>();
      context.sync();  // the keys are there, and the values before are no longer read
      fetch_values(context, shared, first);
      context.commit_copies();

      const Span own = shared.spans[context.warp()];
      const bool attends = own.begin < first + tile && own.end > first;
      Weights weights;
      if (attends) {
        Scores scores;
        multiply_keys(context, shared, scores);
        if (changes(own, first)) change_scores(context, shared, first, scores);
        weigh(context, scores, result);
        pack<Context>(scores, weights);
        if (call.options.dropout > 0) drop(context, shared, first, weights);
      }

      context.template wait_copies<0>();
      const bool unlike = masks || !shared.spans[warps].covers(first);
      if (unlike) note_special(context, shared);
      context.sync();  // the values are there, and the keys are no longer read
      if (first + tile < end) fetch_keys(context, shared, first + tile);
      context.commit_copies();
      const bool special = unlike && holds_special(shared);
      if (attends && !special) add_values(context, shared, weights, result);
      if (attends && special) {
        add_special_values(context, shared, changes(shared.spans[context.warp()], first), weights, result);
        fetch_queries(context, *shared.here, shared);  // the weights were there
        context.commit_copies();
      }
    }
    finish(context, shared, result);
  }

 private:
  static constexpr float log2_e = 1.44269504088896341F;
  static constexpr float ln_2 = 0.693147180559945309F;
  static constexpr Index far = Index{1} << 62;

  // Keys, counted from a block's first tile on.
  struct Span {
    int begin;
    int end;
    int begin_of_all;
    int end_of_all;

    HEED_DEVICE bool covers(int first) const { return first >= begin_of_all && first + tile <= end_of_all; }
  };
  // The keys of some rows: those that any of them attends, and those that all do.
  struct Reach {
    Index begin = far;
    Index end = -far;
    Index begin_of_all = -far;
    Index end_of_all = far;

    HEED_DEVICE void add(const Reach& other) {
      begin = other.begin < begin ? other.begin : begin;
      end = other.end > end ? other.end : end;
      begin_of_all = other.begin_of_all > begin_of_all ? other.begin_of_all : begin_of_all;
      end_of_all = other.end_of_all < end_of_all ? other.end_of_all : end_of_all;
    }
    HEED_DEVICE Span from(Index origin) const {
      return {clamped(begin - origin, 1 << 30), clamped(end - origin, 1 << 30), clamped(begin_of_all - origin, 1 << 30),
              clamped(end_of_all - origin, 1 << 30)};
    }
  };
  HEED_DEVICE static int clamped(Index key, int most) {
    return static_cast<int>(key < -most ? -most : key > most ? most : key);
  }
  struct Block {
    Index batch;
    Index kv_head;
    Index first_query;  // of the block's rows
    Index queries;
    Index origin;        // the key that its first tile begins with
    int first_of_group;  // which head's
  };
  // Where a thread's 16 bytes of the first tile are, if tokens are evenly apart.
  struct alignas(16) OwnTokens {
    const T* key;
    const T* value;
  };
  struct Shared {
    T* query;   // [rows, Dims], each row used by its warp only
    T* keys;    // [tile, Dims]
    T* values;  // [tile, Dims]
    KeyRange* ranges;
    Reach* reaches;  // [warps]
    Span* spans;     // [warps + 1]: the warps', the block's
    Block* here;
    int* special;           // [warps]: what the warp fetched of the tile's values is not all finite
    OwnTokens* tokens;      // [threads]
    std::uint32_t* masked;  // [row_fragments, threads]: bit 4 j + e for Scores::at[i][j][e], of the tile, if changes()
  };
  // Of a thread, with g = lane / 4 and t = lane mod 4: of rows g and g + 8 of each 16, elements 2t and 2t + 1 of each 8.
  struct Scores {
    float at[row_fragments][key_fragments][4];
  };
  struct Weights {  // of 16 keys each: first factors of products
    std::uint32_t at[row_fragments][key_fragments / 2][4];
  };
  struct Rows {
    float sums[row_fragments][dim_fragments][4];
    float maximum[row_fragments][2];  // before they are multiplied by factor()
    float total[row_fragments][2];    // this thread's share

    HEED_DEVICE Rows() {
      HEED_DEVICE_UNROLL
      for (int i = 0; i < row_fragments; ++i) {
        HEED_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          maximum[i][half] = minus_infinity<float>();
          total[i][half] = 0;
        }
        HEED_DEVICE_UNROLL
        for (int j = 0; j < dim_fragments; ++j) {
          HEED_DEVICE_UNROLL
          for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
        }
      }
    }
  };

  HEED_DEVICE int head_dim() const { return static_cast<int>(call.extents.head_dim); }
  HEED_DEVICE int value_dim() const { return static_cast<int>(call.extents.value_head_dim); }
  // Makes logarithms to base 2 of the scores.
  HEED_DEVICE float factor() const { return modified ? 1.0F : scale * log2_e; }

  HEED_DEVICE Block block_of(Index block) const {
    const Index of_head = block / row_tiles;
    // The last rows have most keys, if there is a difference, and begin.
    const Index first_row = (row_tiles - 1 - block % row_tiles) * rows;
    const Index batch = of_head / call.extents.num_kv_heads;
    return {batch, of_head % call.extents.num_kv_heads, first_row / group, call.sequence(batch).queries(),
            0,     static_cast<int>(first_row % group)};
  }
  HEED_DEVICE Index query_of(const Block& here, int r) const {
    return here.first_query + (here.first_of_group + r) / static_cast<int>(group);
  }
  HEED_DEVICE Index head_of(const Block& here, int r) const {
    return here.kv_head * group + (here.first_of_group + r) % static_cast<int>(group);
  }
  template <class Context>
  HEED_DEVICE static int row_of(Context& context, int i, int half) {
    return context.warp() * own_rows + i * 16 + half * 8 + context.lane() / 4;
  }
  // Where 16 bytes lie: those of eight rows in different banks.
  HEED_DEVICE static int place(int row, int chunk) { return row * Dims + (chunk ^ (row & 7)) * mma_chunk; }

  template <class Context>
  HEED_DEVICE void find_ranges(Context& context, const Block& here, const Shared& shared) const {
    const AttentionSequence<T> sequence = sequence_in_kernel(call, here.batch);
    Reach reach;
    if (context.lane() < own_rows) {
      const int r = context.warp() * own_rows + context.lane();
      KeyRange range{0, 0};
      if (query_of(here, r) < here.queries) {
        range = attended_keys(sequence, call.options, modifier, head_of(here, r), query_of(here, r));
        if (range.begin < range.end) {
          reach = {range.begin, range.end, range.begin, range.end};
        } else {
          reach.end_of_all = -far;
        }
      }
      shared.ranges[r] = range;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      reach.add({context.shuffle_xor(reach.begin, mask), context.shuffle_xor(reach.end, mask),
                 context.shuffle_xor(reach.begin_of_all, mask), context.shuffle_xor(reach.end_of_all, mask)});
    }
    if (context.lane() == 0) shared.reaches[context.warp()] = reach;
  }

  // 16 bytes of a row of `dims` elements; zeros beyond its end, or if there is none.
  template <class Context>
  HEED_DEVICE void fetch(Context& context, const T* row, const T* anything, int chunk, int dims, T* to) const {
    if (aligned) {
      const bool exists = row != nullptr && chunk * mma_chunk < dims;
      context.copy_async(to, exists ? row + chunk * mma_chunk : anything, exists);
    } else {
      for (int e = 0; e < mma_chunk; ++e) {
        const int d = chunk * mma_chunk + e;
        to[e] = row != nullptr && d < dims ? row[d] : T{};
      }
    }
  }
  template <class Context>
  HEED_DEVICE void fetch_queries(Context& context, const Block& here, const Shared& shared) const {
    const View<const T, 3> query = call.sequence(here.batch).query;
    for (int c = context.lane(); c < own_rows * chunks; c += 32) {
      const int r = context.warp() * own_rows + c / chunks;
      const bool exists = query_of(here, r) < here.queries;
      const T* const row = exists ? query.pointer(query_of(here, r), head_of(here, r)) : nullptr;
      fetch(context, row, query.data_handle(), c % chunks, head_dim(), shared.query + place(r, c % chunks));
    }
  }
  template <class Context>
  HEED_DEVICE const T* own_token(Context& context, const RowHeads<T>& from, const Block& here) const {
    const Index token = here.origin + context.thread() / chunks - from.first;
    return from.heads.elements.pointer(from.block, token, here.kv_head) + context.thread() % chunks * mma_chunk;
  }
  // Tiles of keys and values, of those that some row attends.
  template <class Context>
  HEED_DEVICE void fetch_keys(Context& context, const Shared& shared, int first) const {
    if (even) {
      fetch_even(context, shared, call.keys.key.elements, shared.tokens[context.thread()].key, head_dim(), first,
                 shared.keys);
    } else {
      const RowHeads<T> from = sequence_in_kernel(call, shared.here->batch).key;
      fetch_uneven(context, shared, from, head_dim(), first, shared.keys);
    }
  }
  template <class Context>
  HEED_DEVICE void fetch_values(Context& context, const Shared& shared, int first) const {
    if (even) {
      fetch_even(context, shared, call.keys.value.elements, shared.tokens[context.thread()].value, value_dim(), first,
                 shared.values);
    } else {
      const RowHeads<T> from = sequence_in_kernel(call, shared.here->batch).value;
      fetch_uneven(context, shared, from, value_dim(), first, shared.values);
    }
  }
  template <class Context>
  HEED_DEVICE static void fetch_even(Context& context, const Shared& shared, const View<const T, 4>& tokens,
                                     const T* own, int dims, int first, T* to) {
    constexpr int at_once = threads / chunks;
    static_assert(at_once % 8 == 0);
    const Span all = shared.spans[warps];
    const int row = context.thread() / chunks;
    const int chunk = context.thread() % chunks;
    const T* from = own + first * tokens.stride(1);
    T* const own_to = to + place(row, chunk);  // further ones, multiples of eight rows on, are as they were placed
    HEED_DEVICE_UNROLL
    for (int i = 0; i < tile; i += at_once) {
      const int s = first + row + i;
      const bool exists = s >= all.begin && s < all.end && chunk * mma_chunk < dims;
      context.copy_async(own_to + i * Dims, exists ? from : tokens.data_handle(), exists);
      from += at_once * tokens.stride(1);
    }
  }
  template <class Context>
  HEED_DEVICE void fetch_uneven(Context& context, const Shared& shared, const RowHeads<T>& from, int dims, int first,
                                T* to) const {
    const Span all = shared.spans[warps];
    const int chunk = context.thread() % chunks;
    for (int r = context.thread() / chunks; r < tile; r += threads / chunks) {
      const bool exists = first + r >= all.begin && first + r < all.end;
      const Index s = shared.here->origin + first + r;
      const T* const row = exists ? from.token(s, shared.here->kv_head).elements : nullptr;
      fetch(context, row, from.heads.elements.data_handle(), chunk, dims, to + place(r, chunk));
    }
  }
  // Whether there are infinities or NaN among a tile's values: each thread looks at those it fetched.
  template <class Context>
  HEED_DEVICE static void note_special(Context& context, const Shared& shared) {
    struct alignas(16) Chunk {
      std::uint32_t at[mma_chunk / 2];
    };
    constexpr std::uint32_t exponent = std::is_same_v<T, bfloat16> ? 0x7f80 : 0x7c00;
    bool special = false;
    for (int r = context.thread() / chunks; r < tile; r += threads / chunks) {
      const Chunk chunk = *reinterpret_cast<const Chunk*>(shared.values + place(r, context.thread() % chunks));
      HEED_DEVICE_UNROLL
      for (const std::uint32_t pair : chunk.at) {
        special = special || (pair & exponent) == exponent || (pair >> 16 & exponent) == exponent;
      }
    }
    const int of_warp = warp_max(context, special ? 1 : 0);
    if (context.lane() == 0) shared.special[context.warp()] = of_warp;
  }
  HEED_DEVICE static bool holds_special(const Shared& shared) {
    int special = 0;
    for (int w = 0; w < warps; ++w) special |= shared.special[w];
    return special != 0;
  }

  template <class Context>
  HEED_DEVICE static void multiply_keys(Context& context, const Shared& shared, Scores& scores) {
    const int lane = context.lane();
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      HEED_DEVICE_UNROLL
      for (int j = 0; j < key_fragments; ++j) {
        HEED_DEVICE_UNROLL
        for (int e = 0; e < 4; ++e) scores.at[i][j][e] = 0;
      }
    }
    HEED_DEVICE_UNROLL
    for (int k = 0; k < Dims / 16; ++k) {
      std::uint32_t query[row_fragments][4];
      HEED_DEVICE_UNROLL
      for (int i = 0; i < row_fragments; ++i) {
        const int row = context.warp() * own_rows + i * 16 + lane % 16;
        context.load_matrices(query[i], shared.query + place(row, k * 2 + lane / 16), false);
      }
      HEED_DEVICE_UNROLL
      for (int j = 0; j < key_fragments; j += 2) {
        std::uint32_t keys[4];  // of 16 keys: dims 0 and 8 on of the first eight, then of the others
        const int row = j * 8 + lane % 8 + lane / 16 * 8;
        context.load_matrices(keys, shared.keys + place(row, k * 2 + lane / 8 % 2), false);
        const std::uint32_t first[2] = {keys[0], keys[1]};
        const std::uint32_t second[2] = {keys[2], keys[3]};
        HEED_DEVICE_UNROLL
        for (int i = 0; i < row_fragments; ++i) {
          context.template multiply<T>(scores.at[i][j], query[i], first);
          context.template multiply<T>(scores.at[i][j + 1], query[i], second);
        }
      }
    }
  }

  // Whether there is something between the product and the softmax for a warp.
  HEED_DEVICE bool changes(const Span& own, int first) const { return modified || !own.covers(first); }
  // Everything between the product and the softmax; −∞ for what is not attended.
  template <class Context>
  HEED_DEVICE void change_scores(Context& context, const Shared& shared, int first, Scores& scores) const {
    const Index own_key = shared.here->origin + first + context.lane() % 4 * 2;
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      std::uint32_t masked = 0;
      HEED_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int r = row_of(context, i, half);
        const KeyRange range = shared.ranges[r];
        const int begin = clamped(range.begin - own_key, tile);
        const int end = clamped(range.end - own_key, tile);
        ScoreRow<float> row;
        if (modified && range.begin < range.end) {
          const Block here = *shared.here;
          row = score_row(call.options, call.sequence(here.batch), head_of(here, r), query_of(here, r));
        }
        HEED_DEVICE_UNROLL
        for (int j = 0; j < key_fragments; ++j) {
          HEED_DEVICE_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = scores.at[i][j][2 * half + e];
            const bool attended = j * 8 + e >= begin && j * 8 + e < end;
            if (modified && attended) {
              score =
                  changed_score<Context>(call.options, modifier, row, own_key + (j * 8 + e), score * scale) * log2_e;
            }
            if (!attended) score = minus_infinity<float>();
            if (score == minus_infinity<float>()) masked |= 1U << (4 * j + 2 * half + e);
          }
        }
      }
      shared.masked[i * threads + context.thread()] = masked;
    }
  }

  // Scores become weights: exp2 of what they are above the row's maximum so far.
  template <class Context>
  HEED_DEVICE void weigh(Context& context, Scores& scores, Rows& result) const {
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      HEED_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        float largest = result.maximum[i][half];
        HEED_DEVICE_UNROLL
        for (int j = 0; j < key_fragments; ++j) {
          HEED_DEVICE_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) largest = Context::max(scores.at[i][j][e], largest);
        }
        largest = Context::max(context.shuffle_xor(largest, 1), largest);
        largest = Context::max(context.shuffle_xor(largest, 2), largest);
        const float base = largest == minus_infinity<float>() ? 0.0F : largest * factor();
        const float shrink = Context::fast_exp2(Context::fma(result.maximum[i][half], factor(), -base));
        result.maximum[i][half] = largest;
        float total = result.total[i][half] * shrink;
        HEED_DEVICE_UNROLL
        for (int j = 0; j < key_fragments; ++j) {
          HEED_DEVICE_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores.at[i][j][e] = Context::fast_exp2(Context::fma(scores.at[i][j][e], factor(), -base));
            total += scores.at[i][j][e];
          }
        }
        result.total[i][half] = total;
        HEED_DEVICE_UNROLL
        for (int j = 0; j < dim_fragments; ++j) {
          result.sums[i][j][2 * half] *= shrink;
          result.sums[i][j][2 * half + 1] *= shrink;
        }
      }
    }
  }
  template <class Context>
  HEED_DEVICE static void pack(const Scores& scores, Weights& weights) {
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      HEED_DEVICE_UNROLL
      for (int j = 0; j < key_fragments; ++j) {
        HEED_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float* const pair = scores.at[i][j] + 2 * half;
          weights.at[i][j / 2][j % 2 * 2 + half] = Context::template pack<T>(pair[0], pair[1]);
        }
      }
    }
  }
  // Weights that are dropped become 0; the others are scaled in the end.
  template <class Context>
  HEED_DEVICE void drop(Context& context, const Shared& shared, int first, Weights& weights) const {
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      std::uint32_t kept = 0;  // bit 4 j + e
      for (int bit = 0; bit < 32; bit += 2) {
        const int r = row_of(context, i, bit / 2 % 2);
        const Block here = *shared.here;
        Dropout dropout(static_cast<double>(call.options.dropout), call.options.dropout_seed, here.batch,
                        head_of(here, r), call.sequence(here.batch).offset + query_of(here, r));
        float pair[2] = {1, 1};
        dropout.apply(pair, 1, here.origin + first + bit / 4 * 8 + context.lane() % 4 * 2, 2, 1.0F);
        kept |= (pair[0] != 0 ? 1U : 0U) << bit;
        kept |= (pair[1] != 0 ? 2U : 0U) << bit;
      }
      HEED_DEVICE_UNROLL
      for (int j = 0; j < key_fragments; ++j) {
        HEED_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t both = kept >> (4 * j + 2 * half);
          weights.at[i][j / 2][j % 2 * 2 + half] &= (both & 1U) * 0xffffU | (both >> 1 & 1U) * 0xffff0000U;
        }
      }
    }
  }

  template <class Context>
  HEED_DEVICE static void add_values(Context& context, const Shared& shared, const Weights& weights, Rows& result) {
    const int lane = context.lane();
    HEED_DEVICE_UNROLL
    for (int k = 0; k < tile / 16; ++k) {
      HEED_DEVICE_UNROLL
      for (int j = 0; j < dim_fragments; j += 2) {
        std::uint32_t values[4];  // of 16 dims: keys 0 and 8 on of the first eight, then of the others
        context.load_matrices(values, shared.values + place(k * 16 + lane % 16, j + lane / 16), true);
        const std::uint32_t first[2] = {values[0], values[1]};
        const std::uint32_t second[2] = {values[2], values[3]};
        HEED_DEVICE_UNROLL
        for (int i = 0; i < row_fragments; ++i) {
          context.template multiply<T>(result.sums[i][j], weights.at[i][k], first);
          context.template multiply<T>(result.sums[i][j + 1], weights.at[i][k], second);
        }
      }
    }
  }
  // The same without what is masked. The weights of the warp's rows go where its queries were, which
  // no one reads since the block's last barrier: −0 if masked.
  template <class Context>
  HEED_DEVICE static void add_special_values(Context& context, const Shared& shared, bool changed,
                                             const Weights& weights, Rows& result) {
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      const std::uint32_t all_masked = changed ? shared.masked[i * threads + context.thread()] : 0;
      HEED_DEVICE_UNROLL
      for (int j = 0; j < key_fragments; ++j) {
        HEED_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t masked = all_masked >> (4 * j + 2 * half);
          const std::uint32_t pair = weights.at[i][j / 2][j % 2 * 2 + half] | (masked & 1U) << 15 | (masked & 2U) << 30;
          T* const row = shared.query + row_of(context, i, half) * Dims;
          *reinterpret_cast<std::uint32_t*>(row + j * 8 + context.lane() % 4 * 2) = pair;
        }
      }
    }
    context.sync_warp();  // the weights are there
    for (int s = 0; s < tile; ++s) {
      HEED_DEVICE_UNROLL
      for (int i = 0; i < row_fragments; ++i) {
        HEED_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const T weight = shared.query[row_of(context, i, half) * Dims + s];
          if (weight.bits == 0x8000) continue;
          HEED_DEVICE_UNROLL
          for (int j = 0; j < dim_fragments; ++j) {
            const T* const value = shared.values + place(s, j) + context.lane() % 4 * 2;
            float* const sums = result.sums[i][j] + 2 * half;
            sums[0] = Context::fma(Context::widen(weight), Context::widen(value[0]), sums[0]);
            sums[1] = Context::fma(Context::widen(weight), Context::widen(value[1]), sums[1]);
          }
        }
      }
    }
    context.sync_warp();  // the weights are no longer read
  }

  template <class Context>
  HEED_DEVICE void finish(Context& context, const Shared& shared, const Rows& result) const {
    const Block here = *shared.here;
    const AttentionSequence<T> sequence = call.sequence(here.batch);
    const bool in_pairs = has_aligned_rows(sequence.out, 4);
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      HEED_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        float total = result.total[i][half];
        total += context.shuffle_xor(total, 1);
        total += context.shuffle_xor(total, 2);
        const int r = row_of(context, i, half);
        const Index t = query_of(here, r);
        if (t >= here.queries) continue;
        const Index head = head_of(here, r);
        float maximum = result.maximum[i][half] * factor();
        float share = 1 / (1 - call.options.dropout);
        if (call.options.sinks.present()) {
          const float sink = call.options.sinks(head) * log2_e;
          const float largest = Context::max(sink, maximum);
          if (largest != minus_infinity<float>()) {
            const float shrink = Context::exp2(maximum - largest);
            total = total * shrink + Context::exp2(sink - largest);
            share *= shrink;
            maximum = largest;
          }
        }
        const bool none = total == 0;
        share /= total;
        if (sequence.log_sum_exp.present() && context.lane() % 4 == 0) {
          sequence.log_sum_exp(head, t) = none ? minus_infinity<float>() : maximum * ln_2 + Context::log(total);
        }
        HEED_DEVICE_UNROLL
        for (int j = 0; j < dim_fragments; ++j) {
          const int d = j * 8 + context.lane() % 4 * 2;
          const float* const pair = result.sums[i][j] + 2 * half;
          store_pair<Context>(sequence.out.pointer(t, head) + d, value_dim() - d, in_pairs,
                              none ? 0.0F : pair[0] * share, none ? 0.0F : pair[1] * share);
        }
      }
    }
  }
};

template <int Dims, class Runtime, class T, class Modifier>
void launch_attention_mma_dims(const Device<Runtime>& device, const AttentionArguments<T>& call,
                               const Modifier& modifier, float scale) {
  using Kernel = AttentionMma<T, Dims, Modifier>;
  const AttentionExtents& extents = call.extents;
  const AttentionOptions<T>& options = call.options;
  const auto& key = call.keys.key.elements;
  const auto& value = call.keys.value.elements;
  const bool aligned = extents.head_dim % mma_chunk == 0 && extents.value_head_dim % mma_chunk == 0 &&
                       has_aligned_rows(call.query, 16) && has_aligned_rows(key, 16) && has_aligned_rows(value, 16);
  const bool masks = options.bias.present() || options.mask.present() || !std::is_same_v<Modifier, NoModifier>;
  const bool modified = masks || !(scale > 1e-30F) || options.softcap > 0 || options.alibi_slopes.present();
  const bool even = aligned && !call.keys.pages.present();
  const Index group = call.group_size();
  const Index row_tiles = blocks_for<Index>(extents.queries * group, Kernel::rows);
  device.launch(Kernel{call, modifier, scale, group, row_tiles, aligned, even, modified, masks},
                row_tiles * extents.batch * extents.num_kv_heads);
}

// False, and nothing done, if it is not for tensor cores: they take 16-bit elements, heads of up to 256 dims, and all
// options but `weights` and caches of 8-bit codes.
template <class Runtime, class T, class Modifier>
bool launch_attention_mma(const Device<Runtime>& device, const AttentionArguments<T>& call, const Modifier& modifier,
                          float scale) {
  const AttentionExtents& extents = call.extents;
  const Index dims = extents.head_dim > extents.value_head_dim ? extents.head_dim : extents.value_head_dim;
  if (dims > 256 || call.options.weights.present() || call.keys.key.codes.present() ||
      call.keys.value.codes.present()) {
    return false;
  }
  if (dims <= 64) {
    launch_attention_mma_dims<64>(device, call, modifier, scale);
  } else if (dims <= 128) {
    launch_attention_mma_dims<128>(device, call, modifier, scale);
  } else {
    launch_attention_mma_dims<256>(device, call, modifier, scale);
  }
  return true;
}

}  // namespace heed::inline HEED_ABI::impl
