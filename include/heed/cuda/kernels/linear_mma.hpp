// Device kernel of ops::linear for 16-bit elements: products by tensor cores, tiles fetched several ahead.
#pragma once

#include "heed/cuda/kernels/mma.hpp"

namespace heed::inline HEED_ABI::impl {

// out [m, n] = x [m, k] · weightᵀ + bias, T bfloat16 or float16. A block makes Rows x Columns elements, a warp OwnRows x
// OwnColumns of them, in products of 16 x 8 elements over 16 features.
//
// Each element is one chain of such products in ascending k that begins with the bias, in float, whatever the tile: a
// row's bits do not depend on its neighbours. It is rounded once, where it is stored.
//
// `stages` tiles of `depth` features are in shared memory: one is computed with while the others are on their way.
template <class T, int Rows, int Columns, int OwnRows, int OwnColumns, int Stages>
struct LinearMma {
  static constexpr const char* name = "linear by tensor cores";
  static constexpr int warp_columns = Columns / OwnColumns;
  static constexpr int threads = Rows / OwnRows * warp_columns * 32;
  static constexpr int stages = Stages;
  static constexpr int depth = 32;
  static constexpr int chunk = mma_chunk;
  static constexpr int row_chunks = depth / chunk;
  static constexpr int row_fragments = OwnRows / 16;
  static constexpr int column_fragments = OwnColumns / 8;
  static constexpr Index tile_rows_together = 8;
  static_assert(OwnRows % 16 == 0 && OwnColumns % 16 == 0 && Rows % OwnRows == 0 && Columns % OwnColumns == 0);
  static_assert(Stages >= 2 && threads % row_chunks == 0);

  View<const T, 2> x;
  View<const T, 2> weight;
  View<const T, 1> bias;
  View<T, 2> out;

  int shared_bytes() const {
    return shared_array_bytes<T>(stages * Rows * depth) + shared_array_bytes<T>(stages * Columns * depth);
  }
  Index blocks() const { return blocks_for<Index>(out.extent(0), Rows) * blocks_for<Index>(out.extent(1), Columns); }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    Index first_row = 0;
    Index first_column = 0;
    find_tile(context.block(), first_row, first_column);
    T* const x_tiles = context.template shared<T>(stages * Rows * depth);
    T* const weight_tiles = context.template shared<T>(stages * Columns * depth);
    const int own_row = context.warp() / warp_columns * OwnRows;
    const int own_column = context.warp() % warp_columns * OwnColumns;

    float sums[row_fragments][column_fragments][4];
    begin_with_bias(context, first_column + own_column, sums);

    const int tiles = static_cast<int>(blocks_for<Index>(x.extent(1), depth));
    for (int tile = 0; tile < stages - 1; ++tile) {
      if (tile < tiles) fetch_tiles(context, first_row, first_column, tile, x_tiles, weight_tiles);
      context.commit_copies();
    }
    for (int tile = 0; tile < tiles; ++tile) {
      context.template wait_copies<stages - 2>();
      context.sync();  // this tile is there, and the one before is no longer read
      const int ahead = tile + stages - 1;
      if (ahead < tiles) fetch_tiles(context, first_row, first_column, ahead, x_tiles, weight_tiles);
      context.commit_copies();  // of nothing at the end, so that as many groups as ever are newer
      const int stage = tile % stages;
      multiply_tile(context, x_tiles + (stage * Rows + own_row) * depth,
                    weight_tiles + (stage * Columns + own_column) * depth, sums);
    }
    store(context, first_row + own_row, first_column + own_column, sums);
  }

 private:
  // Where 16 bytes lie in a tile: rows of 64 bytes, two in all 32 banks; eight rows' chunks fall into different ones.
  HEED_DEVICE static int place(int row, int chunk_of_row) {
    return row * depth + (chunk_of_row ^ ((row / 2) % row_chunks)) * chunk;
  }

  // Blocks that run at the same time share rows and columns: eight tiles of rows go through all columns together.
  HEED_DEVICE void find_tile(Index block, Index& first_row, Index& first_column) const {
    const Index tile_rows = blocks_for<Index>(out.extent(0), Rows);
    const Index tile_columns = blocks_for<Index>(out.extent(1), Columns);
    const Index begin = block / (tile_rows_together * tile_columns) * tile_rows_together;
    const Index left = tile_rows - begin;
    const Index together = left < tile_rows_together ? left : tile_rows_together;
    const Index number = block - begin * tile_columns;
    first_row = (begin + number % together) * Rows;
    first_column = number / together * Columns;
  }

  template <class Context>
  HEED_DEVICE void fetch_tiles(Context& context, Index first_row, Index first_column, int tile, T* x_tiles,
                               T* weight_tiles) const {
    const Index feature = Index{tile} * depth;
    const int stage = tile % stages;
    fetch<Rows>(context, x, first_row, feature, x_tiles + stage * Rows * depth);
    fetch<Columns>(context, weight, first_column, feature, weight_tiles + stage * Columns * depth);
  }
  // Rows first … first + Count − 1 of `from`, `depth` features of them; 0 beyond the end.
  template <int Count, class Context>
  HEED_DEVICE static void fetch(Context& context, const View<const T, 2>& from, Index first, Index feature, T* tile) {
    constexpr int rows_at_once = threads / row_chunks;
    const int own_chunk = context.thread() % row_chunks;
    const Index own_feature = feature + own_chunk * chunk;
    HEED_DEVICE_UNROLL
    for (int i = 0; i < Count; i += rows_at_once) {
      const int row = i + context.thread() / row_chunks;
      if (Count % rows_at_once != 0 && row >= Count) break;
      const bool exists = first + row < from.extent(0) && own_feature < from.extent(1);
      const T* const source = exists ? from.pointer(first + row, own_feature) : from.data_handle();
      context.copy_async(tile + place(row, own_chunk), source, exists);
    }
  }

  template <class Context>
  HEED_DEVICE void begin_with_bias(Context& context, Index first_column,
                                   float (&sums)[row_fragments][column_fragments][4]) const {
    HEED_DEVICE_UNROLL
    for (int j = 0; j < column_fragments; ++j) {
      HEED_DEVICE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Index column = first_column + j * 8 + context.lane() % 4 * 2 + e;
        const float begin = bias.present() && column < out.extent(1) ? Context::widen(bias(column)) : 0.0F;
        HEED_DEVICE_UNROLL
        for (int i = 0; i < row_fragments; ++i) sums[i][j][e] = sums[i][j][2 + e] = begin;
      }
    }
  }

  // x_tile and weight_tile begin with this warp's rows, a multiple of 16.
  template <class Context>
  HEED_DEVICE static void multiply_tile(Context& context, const T* x_tile, const T* weight_tile,
                                        float (&sums)[row_fragments][column_fragments][4]) {
    const int lane = context.lane();
    HEED_DEVICE_UNROLL
    for (int k = 0; k < depth / 16; ++k) {
      std::uint32_t rows[row_fragments][4];
      HEED_DEVICE_UNROLL
      for (int i = 0; i < row_fragments; ++i)
        context.load_matrices(rows[i], x_tile + place(i * 16 + lane % 16, k * 2 + lane / 16), false);
      HEED_DEVICE_UNROLL
      for (int j = 0; j < column_fragments; j += 2) {
        std::uint32_t columns[4];  // of 16 columns: features 0 and 8 on of the first eight, then of the others
        const int row = j * 8 + lane % 8 + lane / 16 * 8;
        context.load_matrices(columns, weight_tile + place(row, k * 2 + lane / 8 % 2), false);
        const std::uint32_t first[2] = {columns[0], columns[1]};
        const std::uint32_t second[2] = {columns[2], columns[3]};
        HEED_DEVICE_UNROLL
        for (int i = 0; i < row_fragments; ++i) {
          context.template multiply<T>(sums[i][j], rows[i], first);
          context.template multiply<T>(sums[i][j + 1], rows[i], second);
        }
      }
    }
  }

  template <class Context>
  HEED_DEVICE void store(Context& context, Index first_row, Index first_column,
                         const float (&sums)[row_fragments][column_fragments][4]) const {
    const bool aligned = has_aligned_rows(out, 4);
    HEED_DEVICE_UNROLL
    for (int i = 0; i < row_fragments; ++i) {
      HEED_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Index row = first_row + i * 16 + half * 8 + context.lane() / 4;
        if (row >= out.extent(0)) continue;
        HEED_DEVICE_UNROLL
        for (int j = 0; j < column_fragments; ++j) {
          const Index column = first_column + j * 8 + context.lane() % 4 * 2;
          const float* const pair = sums[i][j] + 2 * half;
          store_pair<Context>(out.pointer(row, column), out.extent(1) - column, aligned, pair[0], pair[1]);
        }
      }
    }
  }
};

// A few tokens: narrow tiles, so that all multiprocessors read the weight. Some: small ones, for as many blocks. Many:
// those that read the least.
template <class T>
using LinearMmaFew = LinearMma<T, 16, 32, 16, 16, 8>;
template <class T>
using LinearMmaSome = LinearMma<T, 64, 64, 32, 32, 4>;
template <class T>
using LinearMmaMany = LinearMma<T, 128, 128, 64, 64, 4>;

// False, and nothing done, if tensor cores cannot take it: 16-bit elements, in_features a multiple of 8 and rows that
// begin at multiples of 16 bytes are what they need.
template <class T, class Runtime>
bool launch_linear_mma(const Device<Runtime>& device, const View<const T, 2>& x, const View<const T, 2>& weight,
                       const View<const T, 1>& bias, const View<T, 2>& out) {
  if constexpr (sizeof(T) != 2) {
    return false;
  } else {
    if (x.extent(1) % mma_chunk != 0 || !has_aligned_rows(x, 16) || !has_aligned_rows(weight, 16)) return false;
    const auto launch = [&](const auto& kernel) { device.launch(kernel, kernel.blocks()); };
    const LinearMmaMany<T> many{x, weight, bias, out};
    if (out.extent(0) <= 16) {
      launch(LinearMmaFew<T>{x, weight, bias, out});
    } else if (many.blocks() < 132) {
      launch(LinearMmaSome<T>{x, weight, bias, out});
    } else {
      launch(many);
    }
    return true;
  }
}

}  // namespace heed::inline HEED_ABI::impl
