// Infini-attention: the compressive memory for a segment of 2048 tokens, and a long text against full causal attention.
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;
using heed::MemoryUpdate;

constexpr Index segment = 2048;

struct Heads {
  Index num_heads, num_kv_heads, head_dim;
};

const char* name_of(MemoryUpdate rule) {
  switch (rule) {
    case MemoryUpdate::linear: return "linear";
    case MemoryUpdate::delta: return "delta";
    case MemoryUpdate::safe_delta: return "safe_delta";
  }
  return "";
}

// A memory and the segment that it takes in or answers.
struct Memory {
  explicit Memory(Heads heads)
      : query(bench::random_tensor<float, 4>({Index{1}, segment, heads.num_heads, heads.head_dim}, 1)),
        key(bench::random_tensor<float, 4>({Index{1}, segment, heads.num_kv_heads, heads.head_dim}, 2)),
        value(bench::random_tensor<float, 4>({Index{1}, segment, heads.num_kv_heads, heads.head_dim}, 3)),
        memory({Index{1}, heads.num_kv_heads, heads.head_dim, heads.head_dim}),
        normalizer({Index{1}, heads.num_kv_heads, heads.head_dim}) {}

  heed::Tensor<float, 4> query, key, value, memory;
  heed::Tensor<float, 3> normalizer;
};

// Operations of a product with the memory for each token of so many heads.
double products(Index count, Heads heads) {
  return 2 * static_cast<double>(segment * count) * static_cast<double>(heads.head_dim * heads.head_dim);
}

void retrieve(benchmark::State& state, Heads heads, Threads threads) {
  Memory m(heads);
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  const Index dim = heads.head_dim;
  const std::size_t bytes = heed::ops::memory_update_workspace_size<float>(cpu, dim, dim) +
                            heed::ops::memory_retrieve_workspace_size<float>(cpu, dim, dim);
  heed::Workspace workspace(bytes);
  heed::ops::memory_update(cpu, m.key, m.value, m.memory, m.normalizer, workspace);
  heed::Tensor<float, 4> out({Index{1}, segment, heads.num_heads, dim});
  bench::measure_compute<float>(state, threads, products(heads.num_heads, heads), [&] {
    heed::ops::memory_retrieve(cpu, m.query, m.memory, m.normalizer, out, workspace);
  });
}

void update(benchmark::State& state, MemoryUpdate rule, Heads heads, Threads threads) {
  Memory m(heads);
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(heed::ops::memory_update_workspace_size<float>(cpu, heads.head_dim, heads.head_dim));
  const heed::MemoryUpdateOptions options{.rule = rule};
  heed::ops::memory_update(cpu, m.key, m.value, m.memory, m.normalizer, workspace, options);  // no longer empty
  const double each = products(heads.num_kv_heads, heads);
  bench::measure_compute<float>(state, threads, rule == MemoryUpdate::linear ? each : 2 * each, [&] {
    heed::ops::memory_update(cpu, m.key, m.value, m.memory, m.normalizer, workspace, options);
  });
}

// What lies between the projections of an InfiniAttention layer, over a text, against causal attention over all of it.
// times_faster is how much less time it takes, of_count the share of what the operations promise: N / (L + 2 D).
void against_full(benchmark::State& state, Index tokens, Heads heads, MemoryUpdate rule, Threads threads) {
  using Clock = std::chrono::steady_clock;
  const auto query = bench::random_tensor<float, 4>({Index{1}, tokens, heads.num_heads, heads.head_dim}, 1);
  const auto key = bench::random_tensor<float, 4>({Index{1}, tokens, heads.num_kv_heads, heads.head_dim}, 2);
  const auto value = bench::random_tensor<float, 4>({Index{1}, tokens, heads.num_kv_heads, heads.head_dim}, 3);
  heed::Tensor<float, 4> out({Index{1}, tokens, heads.num_heads, heads.head_dim});
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;

  heed::AttentionOptions<float> options;
  options.causal = heed::Causal::top_left;
  heed::Workspace full_workspace(heed::ops::attention_workspace_size<float>(cpu, {.batch = 1,
                                                                                  .queries = tokens,
                                                                                  .keys = tokens,
                                                                                  .num_heads = heads.num_heads,
                                                                                  .num_kv_heads = heads.num_kv_heads,
                                                                                  .head_dim = heads.head_dim,
                                                                                  .value_head_dim = heads.head_dim}));
  const auto full_seconds = [&] {
    const auto start = Clock::now();
    heed::ops::attention(cpu, query, key, value, out, options, full_workspace);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };

  const heed::Tensor<float, 1> beta({heads.num_heads});
  const heed::InfiniAttentionCore<float> core(
      {.num_heads = heads.num_heads, .num_kv_heads = heads.num_kv_heads, .head_dim = heads.head_dim}, beta,
      {.segment_length = segment, .update = rule});
  auto infini = core.make_state(1);
  heed::Workspace workspace(core.workspace_size(cpu, 1, tokens));
  const auto infini_seconds = [&] {
    const auto start = Clock::now();
    infini.reset();
    core.forward(cpu, query, key, value, infini, out, workspace);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };

  infini_seconds();  // pages, caches, clocks
  double full = full_seconds();
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(infini_seconds());
    state.SetIterationTime(times.back());
  }
  full = (full + full_seconds()) / 2;
  const double faster = full / bench::detail::median(times);
  state.counters["times_faster"] = faster;
  state.counters["of_count"] = faster * static_cast<double>(segment + 2 * heads.head_dim) / static_cast<double>(tokens);
}

// The whole layer, with its projections.
void layer(benchmark::State& state, Index tokens, Heads heads, MemoryUpdate rule, Threads threads) {
  const Index hidden_size = heads.num_heads * heads.head_dim;
  const heed::HeadLayout layout{.num_heads = heads.num_heads,
                                .num_kv_heads = heads.num_kv_heads,
                                .head_dim = heads.head_dim,
                                .value_head_dim = heads.head_dim};
  const heed::InfiniAttention<float> attention(heed::InfiniAttentionWeights<float>::random(1, hidden_size, layout),
                                               {.segment_length = segment, .update = rule}, layout);
  const auto x = bench::random_tensor<float, 3>({Index{1}, tokens, hidden_size}, 1);
  heed::Tensor<float, 3> out({Index{1}, tokens, hidden_size});
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  auto infini = attention.make_state(1);
  heed::Workspace workspace(attention.workspace_size(cpu, 1, tokens));
  // For a token: its projections, half a segment of keys, and the products with the memory.
  const auto size = static_cast<double>(hidden_size);
  const double kv_size = size * static_cast<double>(heads.num_kv_heads) / static_cast<double>(heads.num_heads);
  const auto dim = static_cast<double>(heads.head_dim);
  const double updates = rule == MemoryUpdate::linear ? 1 : 2;
  const double each = 4 * size * (size + kv_size) + 2 * size * static_cast<double>(segment + 1) + 2 * dim * size +
                      2 * dim * kv_size * updates;
  bench::measure_compute<float>(state, threads, each * static_cast<double>(tokens), [&] {
    infini.reset();
    attention.forward(cpu, x, infini, out, workspace);
  });
}

const bool added = [] {
  constexpr Heads all_have_their_own{8, 8, 64};
  constexpr Heads grouped{8, 2, 128};
  const MemoryUpdate rules[] = {MemoryUpdate::linear, MemoryUpdate::delta, MemoryUpdate::safe_delta};
  const auto name = [](const std::string& work, Heads heads, Threads threads) {
    return bench::name_of(
        work, {{"heads", heads.num_heads}, {"kv_heads", heads.num_kv_heads}, {"head_dim", heads.head_dim}}, threads);
  };
  for (const Heads heads : {all_have_their_own, grouped}) {
    for (const int threads : {1, 2}) {
      bench::add(name("memory_retrieve", heads, {threads}), {threads}, retrieve, heads, Threads{threads});
      for (const MemoryUpdate rule : rules) {
        bench::add(name(std::string("memory_update/") + name_of(rule), heads, {threads}), {threads}, update, rule,
                   heads, Threads{threads});
      }
    }
  }
  constexpr Index tokens = 32768;
  constexpr Heads four{4, 4, 64};
  for (const int threads : {1, 2}) {
    for (const MemoryUpdate rule : rules) {
      bench::add(name(std::string("infini/against_full_32768/") + name_of(rule), four, {threads}), {threads},
                 against_full, tokens, four, rule, Threads{threads});
    }
    bench::add(name("infini/layer_32768/linear", grouped, {threads}), {threads}, layer, tokens, grouped,
               MemoryUpdate::linear, Threads{threads});
  }
  return true;
}();

}  // namespace
