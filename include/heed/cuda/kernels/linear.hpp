// Device kernels of ops::linear: tiles in shared memory, products by ordinary multiply-adds; 16-bit elements go to tensor
// cores where their rows are aligned.
#pragma once

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/cuda/kernels/linear_mma.hpp"
#include "heed/kernels/packed_weight.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// out [m, n] = x [m, k] · weightᵀ + bias. A block makes Rows x Columns elements, a thread OwnRows x OwnColumns of them.
// Each element is one chain of fma in ascending k that begins with the bias, whatever the tile: a row's bits do not
// depend on its neighbours.
//
// Two tiles of `depth` input features are in shared memory: one is computed with while the next one, which was loaded to
// registers before, is written to the other.
template <class T, int Rows, int Columns, int OwnRows, int OwnColumns>
struct LinearTile {
  using A = accumulator_t<T>;
  static constexpr const char* name = "linear";
  static constexpr int thread_columns = Columns / OwnColumns;
  static constexpr int threads = Rows / OwnRows * thread_columns;
  static constexpr int depth = 16;
  static constexpr int pad = 4;  // keeps four elements aligned and spreads a column over the banks
  static constexpr int x_stride = Rows + pad;
  static constexpr int weight_stride = Columns + pad;
  static constexpr int x_loads = Rows * depth / threads;
  static constexpr int weight_loads = Columns * depth / threads;
  static_assert(Rows * depth % threads == 0 && Columns * depth % threads == 0 && threads % depth == 0);
  static_assert(OwnColumns % 4 == 0 && (OwnRows % 4 == 0 || OwnRows == 1));

  View<const T, 2> x;
  View<const T, 2> weight;
  View<const T, 1> bias;
  View<T, 2> out;

  int shared_bytes() const {
    return shared_array_bytes<A>(2 * depth * x_stride) + shared_array_bytes<A>(2 * depth * weight_stride);
  }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const Index tiles = blocks_for<Index>(out.extent(1), Columns);
    const Index first_row = context.block() / tiles * Rows;
    const Index first_column = context.block() % tiles * Columns;
    A* const x_tiles = context.template shared<A>(2 * depth * x_stride);
    A* const weight_tiles = context.template shared<A>(2 * depth * weight_stride);
    const int own_row = context.thread() / thread_columns * OwnRows;
    const int own_column = context.thread() % thread_columns * 4;

    A sums[OwnRows][OwnColumns];
    HEED_DEVICE_UNROLL
    for (int j = 0; j < OwnColumns; ++j) {
      const Index column = first_column + column_of(own_column, j);
      const A begin = bias.present() && column < out.extent(1) ? Context::widen(bias(column)) : A(0);
      HEED_DEVICE_UNROLL
      for (int i = 0; i < OwnRows; ++i) sums[i][j] = begin;
    }

    A x_next[x_loads];
    A weight_next[weight_loads];
    load<x_loads>(context, x, first_row, 0, x_next);
    load<weight_loads>(context, weight, first_column, 0, weight_next);
    store<x_loads, x_stride>(context, x_next, x_tiles);
    store<weight_loads, weight_stride>(context, weight_next, weight_tiles);
    context.sync();  // the first tile is there
    int now = 0;
    for (Index k = 0; k < x.extent(1); k += depth) {
      const bool more = k + depth < x.extent(1);
      if (more) {
        load<x_loads>(context, x, first_row, k + depth, x_next);
        load<weight_loads>(context, weight, first_column, k + depth, weight_next);
      }
      const A* const x_tile = x_tiles + now * depth * x_stride + own_row;
      const A* const weight_tile = weight_tiles + now * depth * weight_stride + own_column;
      const int count = x.extent(1) - k < depth ? static_cast<int>(x.extent(1) - k) : depth;
      for (int p = 0; p < count; ++p) multiply<Context>(x_tile + p * x_stride, weight_tile + p * weight_stride, sums);
      now ^= 1;
      if (more) {
        store<x_loads, x_stride>(context, x_next, x_tiles + now * depth * x_stride);
        store<weight_loads, weight_stride>(context, weight_next, weight_tiles + now * depth * weight_stride);
      }
      context.sync();  // the next tile is there, and this one is no longer read
    }

    HEED_DEVICE_UNROLL
    for (int i = 0; i < OwnRows; ++i) {
      const Index row = first_row + own_row + i;
      HEED_DEVICE_UNROLL
      for (int j = 0; j < OwnColumns; ++j) {
        const Index column = first_column + column_of(own_column, j);
        if (row < out.extent(0) && column < out.extent(1)) out(row, column) = Context::template narrow<T>(sums[i][j]);
      }
    }
  }

 private:
  // A thread's columns are groups of four, so that threads side by side read side by side.
  HEED_DEVICE static int column_of(int own_column, int j) { return j / 4 * (4 * thread_columns) + own_column + j % 4; }

  // This thread's elements of a tile of `from` that begins at row `first` and feature k; 0 beyond the end.
  template <int Loads, class Context>
  HEED_DEVICE static void load(Context& context, const View<const T, 2>& from, Index first, Index k, A (&next)[Loads]) {
    const Index feature = k + context.thread() % depth;
    HEED_DEVICE_UNROLL
    for (int i = 0; i < Loads; ++i) {
      const Index row = first + context.thread() / depth + i * (threads / depth);
      const bool exists = row < from.extent(0) && feature < from.extent(1);
      next[i] = exists ? Context::widen(from(row, feature)) : A(0);
    }
  }
  template <int Loads, int Stride, class Context>
  HEED_DEVICE static void store(Context& context, const A (&next)[Loads], A* tile) {
    const int p = context.thread() % depth;
    HEED_DEVICE_UNROLL
    for (int i = 0; i < Loads; ++i) tile[p * Stride + context.thread() / depth + i * (threads / depth)] = next[i];
  }
  template <class Context>
  HEED_DEVICE static void multiply(const A* from_x, const A* from_weight, A (&sums)[OwnRows][OwnColumns]) {
    A rows[OwnRows];
    if constexpr (OwnRows == 1) {
      rows[0] = from_x[0];
    } else {
      HEED_DEVICE_UNROLL
      for (int i = 0; i < OwnRows; i += 4) {
        const auto four = *reinterpret_cast<const Four<A>*>(from_x + i);
        HEED_DEVICE_UNROLL
        for (int e = 0; e < 4; ++e) rows[i + e] = four.at[e];
      }
    }
    HEED_DEVICE_UNROLL
    for (int j = 0; j < OwnColumns; j += 4) {
      const auto four = *reinterpret_cast<const Four<A>*>(from_weight + j * thread_columns);
      HEED_DEVICE_UNROLL
      for (int e = 0; e < 4; ++e) {
        HEED_DEVICE_UNROLL
        for (int i = 0; i < OwnRows; ++i) sums[i][j + e] = Context::fma(rows[i], four.at[e], sums[i][j + e]);
      }
    }
  }
};

template <class T, int Rows, int Columns, int OwnRows, int OwnColumns, class Runtime>
void launch_linear_tile(const Device<Runtime>& device, const View<const T, 2>& x, const View<const T, 2>& weight,
                        const View<const T, 1>& bias, const View<T, 2>& out) {
  const Index blocks = blocks_for<Index>(out.extent(0), Rows) * blocks_for<Index>(out.extent(1), Columns);
  device.launch(LinearTile<T, Rows, Columns, OwnRows, OwnColumns>{x, weight, bias, out}, blocks);
}

}  // namespace impl

template <class Runtime, class T>
void linear_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                   View<const T, 2, DeviceMemory<Runtime>> weight, View<const T, 1, DeviceMemory<Runtime>> bias,
                   View<T, 2, DeviceMemory<Runtime>> out) {
  const auto from = in_kernel(x);
  const auto w = in_kernel(weight);
  const auto b = in_kernel(bias);
  const auto to = in_kernel(out);
  if (impl::launch_linear_mma(device, from, w, b, to)) return;
  if (out.extent(0) <= 16) {  // a few tokens: many blocks, which read the weight once
    impl::launch_linear_tile<T, 16, 32, 1, 4>(device, from, w, b, to);
  } else if (sizeof(T) == 8 || out.extent(0) * out.extent(1) < Index{128} * 128 * 132) {
    impl::launch_linear_tile<T, 64, 64, 4, 4>(device, from, w, b, to);
  } else {
    impl::launch_linear_tile<T, 128, 128, 8, 8>(device, from, w, b, to);
  }
}

// A device reads weights as they are.
template <class T, class Runtime>
Index weight_panel_kernel(const Device<Runtime>&, Index /*out_features*/) noexcept {
  return 1;
}
template <class Runtime, class T>
void linear_kernel(const Device<Runtime>& device, View<const T, 2, DeviceMemory<Runtime>> x,
                   const WeightPanels<T>& weight, View<const T, 1, DeviceMemory<Runtime>> bias,
                   View<T, 2, DeviceMemory<Runtime>> out) {
  HEED_ASSERT(weight.panel == 1);
  const View<const T, 2, DeviceMemory<Runtime>> plain(weight.data, {weight.out_features, weight.in_features});
  linear_kernel(device, x, plain, bias, out);
}

}  // namespace heed::inline HEED_ABI
