// Device kernels of ops::attention by ordinary multiply-adds: any scalar type, every option.
#pragma once

#include <cstdint>

#include "heed/cuda/kernels/attention_mma.hpp"
#include "heed/cuda/kernels/attention_scores.hpp"
#include "heed/ops/attention_check.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Where a part of the keys leaves what it found for a row, to be merged: [parts, rows] of maximum, sum, and Σ p · v.
template <class A>
struct AttentionParts {
  A* data = nullptr;
  Index rows = 0;  // of the call: ((b · K + kv head) · T + t) · G + head of the group
  Index value_head_dim = 0;

  HEED_ANYWHERE A* at(Index part, Index row) const { return data + (part * rows + row) * (value_head_dim + 2); }
};

// How a call is cut into blocks. A row is a query of one head; those of a kv head's group are neighbours, so a block reads
// keys and values once for all of them.
template <class T, class Modifier>
struct AttentionWork {
  AttentionArguments<T> call;
  Modifier modifier;
  accumulator_t<T> scale;
  Index group;                               // query heads of a kv head
  Index row_tiles;                           // blocks of one kv head's rows
  Index parts;                               // of the keys
  Index keys_of_part;                        // a multiple of a tile
  AttentionParts<accumulator_t<T>> partial;  // if parts > 1
};

// Flash attention: a block takes `Rows` rows and runs over the keys in tiles of `tile`, counted from key 0, with a running
// maximum and sum. A thread has Rows / 8 rows by tile / 16 keys of the scores, and by Dims / 16 dims of the result.
//
// Order (causal, window, lengths, a modifier's keys) is worked out once for each row, as a range of keys. A masked score
// becomes the weight −0: where a tile of values holds infinities or NaN, weights are looked at one by one, so that a masked
// key does not matter, whatever its value.
template <class T, int Dims, int Rows, class Modifier>
struct AttentionKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "attention";
  static constexpr int threads = 128;
  static constexpr int tile = sizeof(A) == 8 && Dims > 128 ? 32 : 64;
  static constexpr int own_rows = Rows / 8;
  static constexpr int own_keys = tile / 16;
  static constexpr int own_dims = Dims / 16;
  static constexpr int stride = Dims + 4;
  static constexpr int weight_stride = tile + 4;
  static_assert(Dims % 64 == 0 && Rows % 8 == 0);

  AttentionWork<T, Modifier> work;

  int shared_bytes() const {
    return shared_array_bytes<A>(Rows * stride) + shared_array_bytes<A>(tile * stride) +
           shared_array_bytes<A>(Rows * weight_stride) + 2 * shared_array_bytes<Index>(Rows) +
           shared_array_bytes<int>(threads / 32);
  }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const AttentionArguments<T>& call = work.call;
    Index block = context.block();
    const Index part = block % work.parts;
    block /= work.parts;
    const Index kv_head = block % call.extents.num_kv_heads;
    block /= call.extents.num_kv_heads;
    const Index batch = block % call.extents.batch;
    const AttentionSequence<T> sequence = sequence_in_kernel(call, batch);
    const Index rows = sequence.queries() * work.group;
    const Index first_row = (work.row_tiles - 1 - block / call.extents.batch) * Rows;  // the last ones have most keys
    if (first_row >= rows) return;

    Shared shared;
    shared.query = context.template shared<A>(Rows * stride);
    shared.keys = context.template shared<A>(tile * stride);
    shared.weights = context.template shared<A>(Rows * weight_stride);
    shared.begins = context.template shared<Index>(Rows);
    shared.ends = context.template shared<Index>(Rows);
    shared.special = context.template shared<int>(threads / 32);
    const Block here{sequence, kv_head, first_row, rows};

    for (int r = context.thread(); r < Rows; r += threads) {
      KeyRange range{0, 0};
      if (first_row + r < rows)
        range = attended_keys(sequence, call.options, work.modifier, head_of(here, r), query_of(here, r));
      shared.begins[r] = range.begin;
      shared.ends[r] = range.end;
    }
    load_queries(context, here, shared.query);
    context.sync();  // ranges and queries are there
    KeyRange keys{0, 0};
    for (int r = 0; r < Rows; ++r) {
      if (shared.begins[r] == shared.ends[r]) continue;
      if (keys.begin == keys.end || shared.begins[r] < keys.begin) keys.begin = shared.begins[r];
      if (shared.ends[r] > keys.end) keys.end = shared.ends[r];
    }
    if (work.parts > 1) {
      const Index first = sequence.first_key / work.keys_of_part * work.keys_of_part + part * work.keys_of_part;
      if (keys.begin < first && part > 0) keys.begin = first;
      if (keys.end > first + work.keys_of_part && part + 1 < work.parts) keys.end = first + work.keys_of_part;
    }

    A sums[own_rows][own_dims];
    A maximum[own_rows];
    A total[own_rows];  // this thread's share
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_rows; ++i) {
      maximum[i] = minus_infinity<A>();
      total[i] = 0;
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_dims; ++j) sums[i][j] = 0;
    }
    for (Index first = keys.begin / tile * tile; first < keys.end; first += tile) {
      score_tile(context, here, shared, keys, first);
      add_tile(context, here, shared, keys, first, sums, maximum, total);
    }
    finish(context, here, part, sums, maximum, total);
    if (!sequence.weights.present()) return;
    // The weights are known when all keys have been seen: the scores are worked out once more.
    const KeyRange all{sequence.first_key, sequence.end_key};
    for (Index first = 0; first < sequence.weights.extent(2); first += tile) {
      score_tile(context, here, shared, all, first);
      write_weights(context, here, shared, first, maximum, total);
    }
  }

 private:
  struct Shared {
    A* query;    // [Rows, stride]
    A* keys;     // [tile, stride]: a tile's keys, then its values
    A* weights;  // [Rows, weight_stride]
    Index* begins;
    Index* ends;   // of each row's keys
    int* special;  // [warps]: what the warp loaded of this tile's values holds infinities or NaN
  };
  struct Block {
    const AttentionSequence<T>& sequence;
    Index kv_head;
    Index first_row;
    Index rows;
  };

  HEED_DEVICE Index head_of(const Block& here, int r) const {
    return here.kv_head * work.group + (here.first_row + r) % work.group;
  }
  HEED_DEVICE Index query_of(const Block& here, int r) const { return (here.first_row + r) / work.group; }
  template <class Context>
  HEED_DEVICE static int first_own_row(Context& context) {
    return context.thread() / 16 * own_rows;
  }

  template <class Context>
  HEED_DEVICE void load_queries(Context& context, const Block& here, A* to) const {
    const View<const T, 3>& query = here.sequence.query;
    for (int r = context.warp(); r < Rows; r += threads / 32) {
      const bool exists = here.first_row + r < here.rows;
      const T* const from = exists ? query.pointer(query_of(here, r), head_of(here, r)) : nullptr;
      for (int d = context.lane(); d < rounded(query.extent(2)); d += 32) {
        to[r * stride + d] = exists && d < query.extent(2) ? Context::widen(from[d]) : A(0);
      }
    }
  }
  // Keys, or values, from key `first` on; 0 for those that no row attends. Notes numbers that are not finite.
  template <class Context>
  HEED_DEVICE static void load_tokens(Context& context, const RowHeads<T>& from, const KeyRange& keys, Index kv_head,
                                      Index dims, Index first, A* to, int* special) {
    bool finite = true;
    for (int r = context.warp(); r < tile; r += threads / 32) {
      const bool exists = first + r >= keys.begin && first + r < keys.end;
      TokenHead<T> token;
      if (exists) token = from.token(first + r, kv_head);
      for (int d = context.lane(); d < rounded(dims); d += 32) {
        A value = 0;
        if (exists && d < dims) {
          value =
              token.codes != nullptr ? token.scale * static_cast<A>(token.codes[d]) : Context::widen(token.elements[d]);
        }
        finite = finite && value - value == 0;  // not so for infinities and NaN
        to[r * stride + d] = value;
      }
    }
    if (special == nullptr) return;
    const int found = warp_max(context, finite ? 0 : 1);
    if (context.lane() == 0) special[context.warp()] = found;
  }
  HEED_DEVICE static int rounded(Index dims) { return static_cast<int>((dims + 3) / 4 * 4); }

  // A tile's scores, after everything that is done to them, to shared.weights; −∞ where not attended. Each thread goes on
  // with those that are its own.
  template <class Context>
  HEED_DEVICE void score_tile(Context& context, const Block& here, const Shared& shared, const KeyRange& keys,
                              Index first) const {
    const AttentionSequence<T>& sequence = here.sequence;
    context.sync();  // the values and weights of the tile before are no longer read
    load_tokens(context, sequence.key, keys, here.kv_head, sequence.query.extent(2), first, shared.keys, nullptr);
    context.sync();  // the keys are there
    const int own_row = first_own_row(context);
    const int own_key = context.thread() % 16;
    A scores[own_rows][own_keys];
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_rows; ++i) {
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_keys; ++j) scores[i][j] = 0;
    }
    const int dims = rounded(sequence.query.extent(2));
    for (int d = 0; d < dims; d += 4) {
      Four<A> key[own_keys];
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_keys; ++j) {
        key[j] = *reinterpret_cast<const Four<A>*>(shared.keys + (own_key + 16 * j) * stride + d);
      }
      HEED_DEVICE_UNROLL
      for (int i = 0; i < own_rows; ++i) {
        const auto query = *reinterpret_cast<const Four<A>*>(shared.query + (own_row + i) * stride + d);
        HEED_DEVICE_UNROLL
        for (int j = 0; j < own_keys; ++j) {
          HEED_DEVICE_UNROLL
          for (int e = 0; e < 4; ++e) scores[i][j] = Context::fma(query.at[e], key[j].at[e], scores[i][j]);
        }
      }
    }
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_rows; ++i) {
      // The row's keys, counted from the tile's first one.
      const int begin = within_tile(shared.begins[own_row + i] - first);
      const int end = within_tile(shared.ends[own_row + i] - first);
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_keys; ++j) {
        const int s = own_key + 16 * j;
        const bool attended = s >= begin && s < end;
        shared.weights[(own_row + i) * weight_stride + s] = attended ? work.scale * scores[i][j] : minus_infinity<A>();
      }
    }
    const AttentionOptions<T>& options = work.call.options;
    const bool plain = !(options.softcap > 0) && !options.alibi_slopes.present() && !options.bias.present() &&
                       !options.mask.present() && std::is_same_v<Modifier, NoModifier>;
    if (plain) return;
    // From here on not unrolled, for the sake of the code's size, as is what a thread does with its weights one by one.
    for (int e = 0; e < own_rows * own_keys; ++e) {
      const int r = own_row + e / own_keys;
      const int s = own_key + 16 * (e % own_keys);
      const bool attended = first + s >= shared.begins[r] && first + s < shared.ends[r];
      A& score = shared.weights[r * weight_stride + s];
      const auto row = score_row(options, sequence, head_of(here, r), query_of(here, r));
      if (attended) score = changed_score<Context>(options, work.modifier, row, first + s, score);
    }
  }
  HEED_DEVICE static int within_tile(Index s) { return s < 0 ? 0 : s > tile ? tile : static_cast<int>(s); }

  HEED_DEVICE A kept(const Block& here, int r, Index s) const {  // what dropout multiplies a weight by
    A factor = 1;
    Dropout dropout(static_cast<double>(work.call.options.dropout), work.call.options.dropout_seed, here.sequence.batch,
                    head_of(here, r), here.sequence.offset + query_of(here, r));
    dropout.apply(&factor, 1, s, 1, 1 / (1 - work.call.options.dropout));
    return factor;
  }

  template <class Context>
  HEED_DEVICE void add_tile(Context& context, const Block& here, const Shared& shared, const KeyRange& keys,
                            Index first, A (&sums)[own_rows][own_dims], A (&maximum)[own_rows],
                            A (&total)[own_rows]) const {
    const int own_row = first_own_row(context);
    const int own_key = context.thread() % 16;
    const AttentionSequence<T>& sequence = here.sequence;
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_rows; ++i) {
      A* const weights = shared.weights + (own_row + i) * weight_stride + own_key;
      A scores[own_keys];
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_keys; ++j) scores[j] = weights[16 * j];
      A largest = maximum[i];
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_keys; ++j) largest = scores[j] > largest ? scores[j] : largest;
      HEED_DEVICE_UNROLL
      for (int mask = 8; mask > 0; mask /= 2) {
        const A other = context.shuffle_xor(largest, mask);
        largest = other > largest ? other : largest;
      }
      const A shift = largest == minus_infinity<A>() ? A(0) : largest;
      const A shrink = Context::exp(maximum[i] - shift);
      maximum[i] = largest;
      total[i] *= shrink;
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_keys; ++j) {
        const A weight = scores[j] == minus_infinity<A>() ? -A(0) : Context::exp(scores[j] - shift);
        total[i] += weight;
        weights[16 * j] = weight;
      }
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_dims; ++j) sums[i][j] *= shrink;
    }
    for (int e = 0; work.call.options.dropout > 0 && e < own_rows * own_keys; ++e) {
      A& weight = shared.weights[(own_row + e / own_keys) * weight_stride + own_key + 16 * (e % own_keys)];
      if (!is_masked(weight)) weight *= kept(here, own_row + e / own_keys, first + own_key + 16 * (e % own_keys));
    }
    context.sync();  // the keys are no longer read
    load_tokens(context, sequence.value, keys, here.kv_head, sequence.out.extent(2), first, shared.keys,
                shared.special);
    context.sync();  // the values and weights are there
    int special = 0;
    for (int w = 0; w < threads / 32; ++w) special |= shared.special[w];
    if (special == 0) {
      add_values<Context>(shared, own_row, own_key, sums);
    } else {
      add_special_values<Context>(shared, own_row, own_key, sums);
    }
  }

  // sums += weights · values.
  template <class Context>
  HEED_DEVICE static void add_values(const Shared& shared, int own_row, int own_key, A (&sums)[own_rows][own_dims]) {
    for (int s = 0; s < tile; s += 4) {
      Four<A> weight[own_rows];
      HEED_DEVICE_UNROLL
      for (int i = 0; i < own_rows; ++i) {
        weight[i] = *reinterpret_cast<const Four<A>*>(shared.weights + (own_row + i) * weight_stride + s);
      }
      HEED_DEVICE_UNROLL
      for (int e = 0; e < 4; ++e) {
        HEED_DEVICE_UNROLL
        for (int j = 0; j < own_dims; j += 4) {
          const auto value = *reinterpret_cast<const Four<A>*>(shared.keys + (s + e) * stride + j * 16 + own_key * 4);
          HEED_DEVICE_UNROLL
          for (int i = 0; i < own_rows; ++i) {
            HEED_DEVICE_UNROLL
            for (int c = 0; c < 4; ++c) sums[i][j + c] = Context::fma(weight[i].at[e], value.at[c], sums[i][j + c]);
          }
        }
      }
    }
  }
  // The same key by key, without those that are masked: 0 · NaN must not appear.
  template <class Context>
  HEED_DEVICE static void add_special_values(const Shared& shared, int own_row, int own_key,
                                             A (&sums)[own_rows][own_dims]) {
    for (int s = 0; s < tile; ++s) {
      HEED_DEVICE_UNROLL
      for (int i = 0; i < own_rows; ++i) {
        const A weight = shared.weights[(own_row + i) * weight_stride + s];
        if (is_masked(weight)) continue;
        HEED_DEVICE_UNROLL
        for (int j = 0; j < own_dims; ++j) {
          const A value = shared.keys[s * stride + j / 4 * 64 + own_key * 4 + j % 4];
          sums[i][j] = Context::fma(weight, value, sums[i][j]);
        }
      }
    }
  }
  HEED_DEVICE static bool is_masked(A weight) { return weight == 0 && 1 / weight < 0; }  // −0

  template <class Context>
  HEED_DEVICE void finish(Context& context, const Block& here, Index part, A (&sums)[own_rows][own_dims],
                          A (&maximum)[own_rows], A (&total)[own_rows]) const {
    const AttentionOptions<T>& options = work.call.options;
    const AttentionSequence<T>& sequence = here.sequence;
    const int own_row = first_own_row(context);
    const int own_key = context.thread() % 16;
    const Index dims = sequence.out.extent(2);
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_rows; ++i) {
      HEED_DEVICE_UNROLL
      for (int mask = 8; mask > 0; mask /= 2) total[i] += context.shuffle_xor(total[i], mask);
      if (here.first_row + own_row + i >= here.rows) continue;
      const Index head = head_of(here, own_row + i);
      const Index t = query_of(here, own_row + i);
      if (work.parts > 1) {
        const Index row =
            (sequence.batch * work.call.extents.num_kv_heads + here.kv_head) * work.call.extents.queries * work.group +
            here.first_row + own_row + i;
        A* const to = work.partial.at(part, row);
        if (own_key == 0) {
          to[0] = maximum[i];
          to[1] = total[i];
        }
        HEED_DEVICE_UNROLL
        for (int j = 0; j < own_dims; ++j) {
          const int d = j / 4 * 64 + own_key * 4 + j % 4;
          if (d < dims) to[2 + d] = sums[i][j];
        }
        continue;
      }
      A factor = 1;  // of the sums
      if (options.sinks.present()) add_sink<Context>(options.sinks(head), maximum[i], total[i], factor);
      const bool none = total[i] == 0;
      factor /= total[i];
      HEED_DEVICE_UNROLL
      for (int j = 0; j < own_dims; ++j) {
        const int d = j / 4 * 64 + own_key * 4 + j % 4;
        if (d < dims) sequence.out(t, head, d) = Context::template narrow<T>(none ? A(0) : sums[i][j] * factor);
      }
      if (sequence.log_sum_exp.present() && own_key == 0) {
        sequence.log_sum_exp(head, t) = log_of_sum<Context>(maximum[i], total[i]);
      }
    }
  }

 public:
  // A logit without a value joins a row's maximum and sum; what was summed up before is to be multiplied by `factor`.
  template <class Context>
  HEED_DEVICE static void add_sink(A sink, A& maximum, A& total, A& factor) {
    const A largest = sink > maximum ? sink : maximum;
    if (largest == minus_infinity<A>()) return;
    factor = Context::exp(maximum - largest);
    total = total * factor + Context::exp(sink - largest);
    maximum = largest;
  }
  template <class Context>
  HEED_DEVICE static A log_of_sum(A maximum, A total) {
    return total == 0 ? minus_infinity<A>() : maximum + Context::log(total);
  }

 private:
  template <class Context>
  HEED_DEVICE void write_weights(Context& context, const Block& here, const Shared& shared, Index first,
                                 const A (&maximum)[own_rows], const A (&total)[own_rows]) const {
    const View<T, 3>& to = here.sequence.weights;
    const int own_row = first_own_row(context);
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_rows; ++i) {
      const int r = own_row + i;
      if (here.first_row + r >= here.rows) continue;
      for (int s = context.thread() % 16; s < tile && first + s < to.extent(2); s += 16) {
        const A score = shared.weights[r * weight_stride + s];
        A weight = 0;
        if (score != minus_infinity<A>()) {
          weight = Context::exp(score - maximum[i]) / total[i];
          if (work.call.options.dropout > 0) weight *= kept(here, r, first + s);
        }
        to(head_of(here, r), query_of(here, r), first + s) = Context::template narrow<T>(weight);
      }
    }
  }
};

// Merges what the parts of the keys found: a warp a row.
template <class T>
struct AttentionMerge {
  using A = accumulator_t<T>;
  static constexpr const char* name = "attention_merge";

  AttentionArguments<T> call;
  AttentionParts<A> partial;
  Index parts;
  Index group;

  template <class Context>
  HEED_DEVICE void row(Context& context, Index row) const {
    using Kernel = AttentionKernel<T, 64, 16, NoModifier>;
    const Index of_kv_head = call.extents.queries * group;
    const Index batch = row / of_kv_head / call.extents.num_kv_heads;
    const AttentionSequence<T> sequence = sequence_in_kernel(call, batch);
    const Index t = row % of_kv_head / group;
    const Index head = row / of_kv_head % call.extents.num_kv_heads * group + row % group;
    if (t >= sequence.queries()) return;

    A maximum = minus_infinity<A>();
    for (Index part = 0; part < parts; ++part) {
      if (partial.at(part, row)[0] > maximum) maximum = partial.at(part, row)[0];
    }
    A total = 0;
    for (Index part = 0; part < parts; ++part) total += share<Context>(part, row, maximum) * partial.at(part, row)[1];
    const A of_keys = maximum;
    A factor = 1;
    if (call.options.sinks.present())
      Kernel::template add_sink<Context>(call.options.sinks(head), maximum, total, factor);
    const bool none = total == 0;
    factor /= total;
    for (Index d = context.lane(); d < partial.value_head_dim; d += 32) {
      A sum = 0;
      for (Index part = 0; part < parts; ++part) {
        const A weight = share<Context>(part, row, of_keys);
        if (weight != 0) sum += weight * partial.at(part, row)[2 + d];
      }
      sequence.out(t, head, d) = Context::template narrow<T>(none ? A(0) : sum * factor);
    }
    if (sequence.log_sum_exp.present() && context.lane() == 0) {
      sequence.log_sum_exp(head, t) = Kernel::template log_of_sum<Context>(maximum, total);
    }
  }

 private:
  template <class Context>
  HEED_DEVICE A share(Index part, Index row, A maximum) const {
    const A own = partial.at(part, row)[0];
    return own == minus_infinity<A>() ? A(partial.at(part, row)[1]) : Context::exp(own - maximum);
  }
};

// The keys of rows that are few are cut into parts, so that there are blocks enough for a device; their number depends on
// the sizes of the tensors alone, not on lengths, which only the device knows.
inline constexpr Index attention_rows_cut_by_keys = 16;
inline constexpr Index device_attention_blocks = 512;
inline constexpr Index device_attention_least_keys = 256;

inline Index device_attention_parts(Index blocks, Index keys) noexcept {
  const Index by_keys = keys / device_attention_least_keys;
  const Index by_blocks = blocks > 0 ? device_attention_blocks / blocks : 0;
  const Index parts = by_keys < by_blocks ? by_keys : by_blocks;
  return parts < 1 ? 1 : parts;
}

template <class T, class Runtime>
AttentionArguments<T> arguments_in_kernel(const AttentionArguments<T, DeviceMemory<Runtime>>& arguments) noexcept {
  const auto to = [](const auto& view) noexcept { return in_kernel(view); };
  return {in_kernel(arguments.query),
          key_values_in<Host>(arguments.keys, to),
          in_kernel(arguments.out),
          options_in<Host>(arguments.options, to),
          in_kernel(arguments.cu_seqlens_q),
          in_kernel(arguments.cu_seqlens_k),
          arguments.extents};
}

template <int Dims, int Rows, class Runtime, class T, class Modifier>
void launch_attention(const Device<Runtime>& device, AttentionWork<T, Modifier> work) {
  work.row_tiles = blocks_for<Index>(work.call.extents.queries * work.group, Rows);
  const Index blocks = work.row_tiles * work.call.extents.batch * work.call.extents.num_kv_heads;
  device.launch(AttentionKernel<T, Dims, Rows, Modifier>{work}, blocks * work.parts);
}

template <int Rows, class Runtime, class T, class Modifier>
void launch_attention_dims(const Device<Runtime>& device, const AttentionWork<T, Modifier>& work) {
  const AttentionExtents& extents = work.call.extents;
  const Index dims = extents.head_dim > extents.value_head_dim ? extents.head_dim : extents.value_head_dim;
  if (dims <= 64) {
    launch_attention<64, Rows>(device, work);
  } else if (dims <= 128) {
    launch_attention<128, Rows>(device, work);
  } else {
    launch_attention<256, (Rows > 32 ? 32 : Rows)>(device, work);  // what a thread has of the result is in registers
  }
}

}  // namespace impl

template <class T, class Runtime>
std::size_t attention_workspace_kernel(const Device<Runtime>&, const AttentionExtents& extents) noexcept {
  auto measure = BasicWorkspace<DeviceMemory<Runtime>>::measuring();
  if (extents.keys >= 2 * impl::device_attention_least_keys) {
    measure.template take<accumulator_t<T>>(impl::device_attention_blocks * impl::attention_rows_cut_by_keys *
                                            (extents.value_head_dim + 2));
  }
  return measure.size_needed();
}

// Heads of up to 256 dims. Errors: OptionError.
template <class Runtime, class T, class Modifier>
void attention_kernel(const Device<Runtime>& device, const AttentionArguments<T, DeviceMemory<Runtime>>& arguments,
                      const Modifier& modifier, BasicWorkspace<DeviceMemory<Runtime>>& workspace) {
  using A = accumulator_t<T>;
  const AttentionExtents& extents = arguments.extents;
  if (extents.head_dim > 256 || extents.value_head_dim > 256) {
    raise(problem_at(ErrorKind::option, "attention", "query").append("heads on a device have up to 256 dims"));
  }
  const typename BasicWorkspace<DeviceMemory<Runtime>>::Frame frame(workspace);
  const Index group = extents.num_heads / extents.num_kv_heads;
  impl::AttentionWork<T, Modifier> work{impl::arguments_in_kernel(arguments),
                                        modifier,
                                        arguments.options.scale.value(extents.head_dim),
                                        group,
                                        0,
                                        1,
                                        0,
                                        {}};
  if (extents.queries * group > impl::attention_rows_cut_by_keys) {
    if constexpr (sizeof(T) == 2) {
      if (impl::launch_attention_mma(device, work.call, modifier, work.scale)) return;
    }
    if constexpr (sizeof(A) == 8) {
      impl::launch_attention_dims<32>(device, work);
    } else {
      impl::launch_attention_dims<64>(device, work);
    }
    return;
  }
  if (!arguments.options.weights.present()) {
    work.parts = impl::device_attention_parts(extents.batch * extents.num_kv_heads, extents.keys);
  }
  if (work.parts > 1) {
    const Index tile = attention_tile_keys;  // a multiple of all kernels' tiles
    work.keys_of_part = impl::blocks_for(impl::blocks_for(extents.keys, work.parts), tile) * tile;
    work.partial.rows = extents.batch * extents.num_heads * extents.queries;
    work.partial.value_head_dim = extents.value_head_dim;
    work.partial.data = workspace.template take<A>(work.parts * work.partial.rows * (extents.value_head_dim + 2));
  }
  impl::launch_attention_dims<16>(device, work);
  if (work.parts > 1) {
    impl::launch_rows(device, impl::AttentionMerge<T>{work.call, work.partial, work.parts, group}, work.partial.rows);
  }
}

}  // namespace heed::inline HEED_ABI
