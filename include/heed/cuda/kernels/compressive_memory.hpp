// Device kernels of ops::memory_retrieve and ops::memory_update.
#pragma once

#include <cstdint>

#include "heed/cuda/kernels/kernel.hpp"
#include "heed/ops/compressive_memory_options.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// φ = ELU + 1.
template <class Context, class A>
HEED_DEVICE A device_phi(A x) {
  return x > 0 ? x + 1 : Context::exp(x);
}

// Is z = 0 everywhere? Asked by all lanes of a warp.
template <class Context, class A>
HEED_DEVICE bool is_empty_memory(Context& context, const View<const A, 1>& normalizer) {
  int found = 0;
  for (Index d = context.lane(); d < normalizer.extent(0); d += 32) found = normalizer(d) != 0 ? 1 : found;
  return warp_max(context, found) == 0;
}

// A block takes `tokens` queries of one head; each of its warps some of them, of which a lane has columns lane, lane + 32,
// … of the result.
template <class T>
struct MemoryRetrieveKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "memory_retrieve";
  static constexpr int threads = 128;
  static constexpr int tokens = 16;
  static constexpr int own_tokens = tokens / (threads / 32);

  View<const T, 4> query;
  View<const A, 4> memory;
  View<const A, 3> normalizer;
  View<T, 4> out;
  View<A, 3> denominator;
  A epsilon;

  int shared_bytes() const { return shared_array_bytes<A>(tokens * query.extent(3)); }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const Index dims = query.extent(3);
    const Index tiles = blocks_for<Index>(query.extent(1), tokens);
    const Index first = context.block() % tiles * tokens;
    const Index h = context.block() / tiles % query.extent(2);
    const Index b = context.block() / tiles / query.extent(2);
    const Index kv_head = h / (query.extent(2) / memory.extent(1));
    const View<const A, 2> m = memory[b][kv_head];
    const View<const A, 1> z = normalizer[b][kv_head];
    A* const features = context.template shared<A>(static_cast<int>(tokens * dims));  // φ(query)
    const bool empty = is_empty_memory(context, z);

    // A warp makes and reads its own tokens' features.
    A divisors[own_tokens];
    HEED_DEVICE_UNROLL
    for (int i = 0; i < own_tokens; ++i) {
      const int row = context.warp() * own_tokens + i;
      const bool exists = first + row < query.extent(1);
      A sum = 0;
      for (Index d = context.lane(); d < dims; d += 32) {
        const A feature = exists ? device_phi<Context>(Context::widen(query(b, first + row, h, d))) : A(0);
        features[row * dims + d] = feature;
        sum += feature * z(d);
      }
      divisors[i] = warp_sum(context, sum);
      divisors[i] = empty ? A(0) : divisors[i] + epsilon;
      if (exists && denominator.present() && context.lane() == 0) denominator(b, first + row, h) = divisors[i];
    }
    context.sync_warp();  // the features are there
    for (Index j = context.lane(); j < out.extent(3); j += 32) {
      A sums[own_tokens] = {};
      for (Index d = 0; d < dims; ++d) {
        const A element = m(d, j);
        HEED_DEVICE_UNROLL
        for (int i = 0; i < own_tokens; ++i) {
          sums[i] = Context::fma(features[(context.warp() * own_tokens + i) * dims + d], element, sums[i]);
        }
      }
      HEED_DEVICE_UNROLL
      for (int i = 0; i < own_tokens; ++i) {
        const Index t = first + context.warp() * own_tokens + i;
        if (t >= query.extent(1)) continue;
        out(b, t, h, j) = Context::template narrow<T>(divisors[i] == 0 ? A(0) : sums[i] / divisors[i]);
      }
    }
  }
};

// What both kernels of an update are handed.
template <class T>
struct MemorySegment {
  View<const T, 4> key;
  View<const T, 4> value;
  View<accumulator_t<T>, 4> memory;
  View<accumulator_t<T>, 3> normalizer;
  View<const std::int64_t, 1> key_lengths;
  MemoryUpdate rule;

  // Tokens of a row that enter; lengths come from the device's memory, and are cut off at what there is.
  HEED_DEVICE Index tokens_of_row(Index b) const {
    const auto tokens = key_lengths.present() ? static_cast<Index>(key_lengths(b)) : key.extent(1);
    return tokens < 0 ? 0 : tokens > key.extent(1) ? key.extent(1) : tokens;
  }
  // Σ φ(K) of a row and head to mass [D] in shared memory, by all threads of a block; `partial` is as long as the block.
  template <class Context, class A>
  HEED_DEVICE void sum_features(Context& context, int threads, Index b, Index k, Index tokens, A* partial,
                                A* mass) const {
    const Index dims = key.extent(3);
    for (Index first = 0; first < dims; first += threads) {
      const Index width = dims - first < threads ? dims - first : threads;
      const Index groups = threads / width;  // of threads; each sums up every groups-th token
      const Index group = context.thread() / width;
      const Index d = first + context.thread() % width;
      A sum = 0;
      for (Index t = group; t < tokens && group < groups; t += groups) {
        sum += device_phi<Context>(Context::widen(key(b, t, k, d)));
      }
      partial[context.thread()] = sum;
      context.sync();  // all groups' sums are there
      if (group == 0) {
        for (Index g = 1; g < groups; ++g) sum += partial[g * width + context.thread()];
        mass[d] = sum;
      }
      context.sync();  // they are read, and the mass is there
    }
  }
};

// M of one row and kv head, `columns` of its columns: reads the old M to its end before it writes the new one. z stays as
// it is, since the blocks of the other columns read it.
template <class T>
struct MemoryUpdateKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "memory_update";
  static constexpr int threads = 256;
  static constexpr int tokens = 32;  // worked on at a time

  MemorySegment<T> segment;
  int columns;

  int shared_bytes() const {
    const Index dims = segment.key.extent(3);
    return 2 * shared_array_bytes<A>(dims * columns) + shared_array_bytes<A>(tokens * dims) +
           shared_array_bytes<A>(tokens * columns) + shared_array_bytes<A>(dims) + shared_array_bytes<A>(threads) +
           shared_array_bytes<A>(tokens);
  }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const Index dims = segment.key.extent(3);
    const int dims_int = static_cast<int>(dims);
    const Index tiles = blocks_for<Index>(segment.value.extent(3), columns);
    const Index first_column = context.block() % tiles * columns;
    const Index k = context.block() / tiles % segment.memory.extent(1);
    const Index b = context.block() / tiles / segment.memory.extent(1);
    const Index width =
        segment.value.extent(3) - first_column < columns ? segment.value.extent(3) - first_column : columns;
    const Index count = segment.tokens_of_row(b);
    if (count == 0) return;
    const View<A, 2> m = segment.memory[b][k];
    const View<A, 1> z = segment.normalizer[b][k];
    A* const old = context.template shared<A>(dims_int * columns);     // [D, columns]
    A* const change = context.template shared<A>(dims_int * columns);  // [D, columns]
    A* const features = context.template shared<A>(tokens * dims_int);
    A* const written = context.template shared<A>(tokens * columns);
    A* const mass = context.template shared<A>(dims_int);
    A* const partial = context.template shared<A>(threads);
    A* const divisors = context.template shared<A>(tokens);

    for (Index i = context.thread(); i < dims * columns; i += threads) {
      const Index j = i % columns;
      old[i] = j < width ? m(i / columns, first_column + j) : A(0);
      change[i] = 0;
    }
    segment.sum_features(context, threads, b, k, count, partial, mass);
    const A share = subtracted_share(context, z, mass);

    for (Index first = 0; first < count; first += tokens) {
      const int n = count - first < tokens ? static_cast<int>(count - first) : tokens;
      context.sync();  // the features and values of the tokens before are no longer read; old and mass are there
      for (Index i = context.thread(); i < n * dims; i += threads) {
        features[i] = device_phi<Context>(Context::widen(segment.key(b, first + i / dims, k, i % dims)));
      }
      context.sync();  // the features are there
      for (int t = context.warp(); t < n; t += threads / 32) {
        A sum = 0;
        for (Index d = context.lane(); d < dims; d += 32) sum += features[t * dims + d] * z(d);
        sum = warp_sum(context, sum);
        if (context.lane() == 0) divisors[t] = sum;
      }
      context.sync();  // the divisors are there
      for (int i = context.thread(); i < n * columns; i += threads) {
        const int t = i / columns;
        const int j = i % columns;
        A value = j < width ? Context::widen(segment.value(b, first + t, k, first_column + j)) : A(0);
        if (share != 0 && divisors[t] != 0) {
          A known = 0;
          for (Index d = 0; d < dims; ++d) known = Context::fma(features[t * dims + d], old[d * columns + j], known);
          value -= share * (known / divisors[t]);
        }
        written[i] = value;
      }
      context.sync();  // what is written is there
      for (Index i = context.thread(); i < dims * columns; i += threads) {
        const Index d = i / columns;
        const Index j = i % columns;
        A sum = change[i];
        for (int t = 0; t < n; ++t) sum = Context::fma(features[t * dims + d], written[t * columns + j], sum);
        change[i] = sum;
      }
    }
    for (Index i = context.thread(); i < dims * columns; i += threads) {  // a thread's own elements
      const Index j = i % columns;
      if (j < width) m(i / columns, first_column + j) = old[i] + change[i];
    }
  }

 private:
  // As Reference's: the η of safe_delta, 1 for delta, 0 for linear and for an empty memory.
  template <class Context>
  HEED_DEVICE A subtracted_share(Context& context, const View<A, 1>& z, const A* mass) const {
    if (segment.rule == MemoryUpdate::linear) return 0;
    A share = 1;
    int found = 0;
    for (Index d = context.lane(); d < z.extent(0); d += 32) {
      found = z(d) != 0 ? 1 : found;
      if (segment.rule == MemoryUpdate::safe_delta && mass[d] > 0 && z(d) / mass[d] < share) share = z(d) / mass[d];
    }
    share = -warp_max(context, -share);
    return warp_max(context, found) == 0 ? A(0) : share;
  }
};

// z of one row and kv head, once all blocks of M have read it.
template <class T>
struct NormalizerUpdateKernel {
  using A = accumulator_t<T>;
  static constexpr const char* name = "normalizer_update";
  static constexpr int threads = 256;

  MemorySegment<T> segment;

  int shared_bytes() const { return shared_array_bytes<A>(segment.key.extent(3)) + shared_array_bytes<A>(threads); }

  template <class Context>
  HEED_DEVICE void operator()(Context& context) const {
    const Index dims = segment.key.extent(3);
    const Index k = context.block() % segment.memory.extent(1);
    const Index b = context.block() / segment.memory.extent(1);
    A* const mass = context.template shared<A>(static_cast<int>(dims));
    A* const partial = context.template shared<A>(threads);
    segment.sum_features(context, threads, b, k, segment.tokens_of_row(b), partial, mass);
    for (Index d = context.thread(); d < dims; d += threads) segment.normalizer(b, k, d) += mass[d];
  }
};

}  // namespace impl

template <class T, class Runtime>
Index memory_retrieve_scratch_kernel(const Device<Runtime>&, Index /*head_dim*/, Index /*value_head_dim*/) noexcept {
  return 0;
}
template <class Runtime, class T>
void memory_retrieve_kernel(const Device<Runtime>& device, View<const T, 4, DeviceMemory<Runtime>> query,
                            View<const accumulator_t<T>, 4, DeviceMemory<Runtime>> memory,
                            View<const accumulator_t<T>, 3, DeviceMemory<Runtime>> normalizer,
                            View<T, 4, DeviceMemory<Runtime>> out,
                            View<accumulator_t<T>, 3, DeviceMemory<Runtime>> denominator, accumulator_t<T> epsilon,
                            View<accumulator_t<T>, 2, DeviceMemory<Runtime>> /*scratch*/) {
  using Kernel = impl::MemoryRetrieveKernel<T>;
  const Index tiles = impl::blocks_for<Index>(query.extent(1), Kernel::tokens);
  device.launch(Kernel{in_kernel(query), in_kernel(memory), in_kernel(normalizer), in_kernel(out),
                       in_kernel(denominator), epsilon},
                query.extent(0) * query.extent(2) * tiles);
}

template <class T, class Runtime>
Index memory_update_scratch_kernel(const Device<Runtime>&, Index /*head_dim*/, Index /*value_head_dim*/) noexcept {
  return 0;
}
template <class Runtime, class T>
void memory_update_kernel(const Device<Runtime>& device, View<const T, 4, DeviceMemory<Runtime>> key,
                          View<const T, 4, DeviceMemory<Runtime>> value,
                          View<accumulator_t<T>, 4, DeviceMemory<Runtime>> memory,
                          View<accumulator_t<T>, 3, DeviceMemory<Runtime>> normalizer,
                          const BasicMemoryUpdateOptions<DeviceMemory<Runtime>>& options,
                          View<accumulator_t<T>, 2, DeviceMemory<Runtime>> /*scratch*/) {
  constexpr int most_shared_bytes = 160 * 1024;  // of sm_80, and a little to spare
  const impl::MemorySegment<T> segment{
      in_kernel(key), in_kernel(value), in_kernel(memory), in_kernel(normalizer), in_kernel(options.key_lengths),
      options.rule};
  impl::MemoryUpdateKernel<T> kernel{segment, 32};
  while (kernel.columns > 1 && kernel.shared_bytes() > most_shared_bytes) kernel.columns /= 2;
  const Index rows = memory.extent(0) * memory.extent(1);
  device.launch(kernel, rows * impl::blocks_for<Index>(value.extent(3), kernel.columns));
  device.launch(impl::NormalizerUpdateKernel<T>{segment}, rows);
}

}  // namespace heed::inline HEED_ABI
