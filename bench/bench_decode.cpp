// Decoding: few queries over a long KV cache, which is reading the cache. 32 query heads share 8 kv heads of 128, as in
// Llama 3 8B.
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;

constexpr Index heads = 32;
constexpr heed::KvCacheLayout layout{.num_kv_heads = 8, .head_dim = 128, .value_head_dim = 128};

// Queries and results in T, the cache's elements in Element: T, or 8-bit codes.
template <class T, class Element>
void decode(benchmark::State& state, Index queries, Index keys, Threads threads) {
  heed::StaticKvCache<T, Element> cache(layout, 1, keys);
  constexpr Index piece = 256;
  for (Index at = 0; at < keys; at += piece) {
    const auto seed = static_cast<std::uint32_t>(at);
    const auto key = bench::random_tensor<T, 4>({Index{1}, piece, layout.num_kv_heads, layout.head_dim}, seed + 1);
    const auto value = bench::random_tensor<T, 4>({Index{1}, piece, layout.num_kv_heads, layout.head_dim}, seed + 2);
    cache.append(key, value);
  }
  const auto query = bench::random_tensor<T, 4>({Index{1}, queries, heads, layout.head_dim}, 3);
  heed::Tensor<T, 4> out({Index{1}, queries, heads, layout.value_head_dim});
  heed::AttentionOptions<T> options;
  options.causal = heed::Causal::bottom_right;
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(heed::ops::attention_workspace_size<T>(cpu, {.batch = 1,
                                                                         .queries = queries,
                                                                         .keys = keys,
                                                                         .num_heads = heads,
                                                                         .num_kv_heads = layout.num_kv_heads,
                                                                         .head_dim = layout.head_dim,
                                                                         .value_head_dim = layout.value_head_dim}));
  bench::measure_memory(state, threads, static_cast<double>(cache.size_bytes()),
                        [&] { heed::ops::attention(cpu, query, cache.key_values(), out, options, workspace); });
}

template <class T, class Element>
void add(const char* cache, Index queries, Index keys, Threads threads) {
  bench::add(bench::name_of(std::string("decode/") + cache, {{"queries", queries}, {"keys", keys}}, threads), threads,
             decode<T, Element>, queries, keys, threads);
}

const bool added = [] {
  for (const Index keys : {1024, 4096, 16384}) {
    for (const Index queries : {1, 4}) {
      add<float, float>("float", queries, keys, {1});
      add<heed::bfloat16, heed::bfloat16>("bfloat16", queries, keys, {1});
      add<float, std::int8_t>("int8", queries, keys, {1});
    }
    add<float, float>("float", 1, keys, {2});
    add<heed::bfloat16, heed::bfloat16>("bfloat16", 1, keys, {2});
    add<float, std::int8_t>("int8", 1, keys, {2});
  }
  return true;
}();

}  // namespace
