// Whole layers: BERT's self-attention, and a decoder's grouped-query attention on a prompt and on a token.
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;

// Operations of the four projections and of attention over `pairs` pairs of query and key a head.
double operations(double rows, double pairs, double hidden_size, double kv_size) {
  return 4 * rows * hidden_size * (hidden_size + kv_size) + 4 * pairs * hidden_size;
}

void self_attention(benchmark::State& state, Index batch, Index tokens, Threads threads) {
  const Index hidden_size = 768;  // BERT base
  const heed::HeadLayout layout{.num_heads = 12, .num_kv_heads = 12, .head_dim = 64, .value_head_dim = 64};
  const heed::MultiHeadSelfAttention<float> attention(
      heed::ProjectionWeights<float>::random(1, hidden_size, layout, true), {}, layout);
  const auto x = bench::random_tensor<float, 3>({batch, tokens, hidden_size}, 1);
  heed::Tensor<float, 3> out({batch, tokens, hidden_size});
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(attention.workspace_size(cpu, batch, tokens));
  const auto rows = static_cast<double>(batch * tokens);
  const auto size = static_cast<double>(hidden_size);
  bench::measure_compute<float>(state, threads, operations(rows, rows * static_cast<double>(tokens), size, size),
                                [&] { attention.forward(cpu, x, out, workspace); });
}

constexpr heed::HeadLayout decoder{.num_heads = 16, .num_kv_heads = 4, .head_dim = 128, .value_head_dim = 128};
constexpr Index decoder_size = 2048;

heed::GroupedQueryAttention<float> decoder_layer() {
  return heed::GroupedQueryAttention<float>(heed::GroupedQueryAttentionWeights<float>::random(1, decoder_size, decoder),
                                            {}, decoder);
}

void prefill(benchmark::State& state, Index tokens, Threads threads) {
  const auto attention = decoder_layer();
  auto cache = attention.make_cache(Index{1}, tokens);
  const auto x = bench::random_tensor<float, 3>({Index{1}, tokens, decoder_size}, 1);
  heed::Tensor<float, 3> out({Index{1}, tokens, decoder_size});
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(attention.workspace_size(cpu, cache, tokens));
  const auto rows = static_cast<double>(tokens);
  const auto size = static_cast<double>(decoder_size);
  bench::measure_compute<float>(state, threads, operations(rows, rows * (rows + 1) / 2, size, size / 4), [&] {
    cache.reset();
    attention.forward(cpu, x, cache, out, workspace);
  });
}

// A token after so many: reads the weights and the cache.
void step(benchmark::State& state, Index past, Threads threads) {
  const auto attention = decoder_layer();
  auto cache = attention.make_cache(Index{1}, past + 1);
  constexpr Index piece = 256;
  for (Index at = 0; at < past; at += piece) {
    const auto heads = bench::random_tensor<float, 4>({Index{1}, piece, decoder.num_kv_heads, decoder.head_dim},
                                                      static_cast<std::uint32_t>(at));
    cache.append(heads, heads);
  }
  const auto x = bench::random_tensor<float, 3>({Index{1}, Index{1}, decoder_size}, 1);
  heed::Tensor<float, 3> out({Index{1}, Index{1}, decoder_size});
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(attention.workspace_size(cpu, cache, 1));
  bench::measure_memory(state, threads, static_cast<double>(attention.weight_bytes() + cache.size_bytes()), [&] {
    cache.truncate(0, past);
    attention.forward(cpu, x, cache, out, workspace);
  });
}

const bool added = [] {
  for (const int threads : {1, 2}) {
    const std::pair<Index, Index> shapes[] = {{1, 16}, {1, 128}, {1, 512}, {8, 128}, {32, 32}};
    for (const auto& [batch, tokens] : shapes) {
      bench::add(bench::name_of("layer/self_attention", {{"batch", batch}, {"tokens", tokens}}, {threads}), {threads},
                 self_attention, batch, tokens, Threads{threads});
    }
    for (const Index tokens : {128, 512, 2048}) {
      bench::add(bench::name_of("layer/grouped_query_prefill", {{"tokens", tokens}}, {threads}), {threads}, prefill,
                 tokens, Threads{threads});
    }
    for (const Index past : {1024, 16384}) {
      bench::add(bench::name_of("layer/grouped_query_step", {{"past", past}}, {threads}), {threads}, step, past,
                 Threads{threads});
    }
  }
  return true;
}();

}  // namespace
