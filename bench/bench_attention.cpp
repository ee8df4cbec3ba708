// ops::attention: full, causal, windowed and masked; long and short; on several heads of one sequence, and one alone.
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;

enum class Kind { full, causal, window, mask, alibi, softcap, modifier };

struct Shape {
  Index batch, tokens, heads, head_dim;
};

template <class T>
void attention(benchmark::State& state, Kind kind, Shape shape, Threads threads) {
  const auto [batch, tokens, heads, head_dim] = shape;
  const auto query = bench::random_tensor<T, 4>({batch, tokens, heads, head_dim}, 1);
  const auto key = bench::random_tensor<T, 4>({batch, tokens, heads, head_dim}, 2);
  const auto value = bench::random_tensor<T, 4>({batch, tokens, heads, head_dim}, 3);
  heed::Tensor<T, 4> out({batch, tokens, heads, head_dim});
  heed::AttentionOptions<T> options;
  double pairs = static_cast<double>(tokens) * static_cast<double>(tokens);
  heed::Tensor<bool, 2> mask;
  heed::Tensor<heed::accumulator_t<T>, 1> slopes({heads});
  slopes.fill(0.1F);
  constexpr Index window = 256;
  switch (kind) {
    case Kind::full:
    case Kind::modifier: break;
    case Kind::causal:
      options.causal = heed::Causal::top_left;
      pairs = pairs / 2 + static_cast<double>(tokens) / 2;
      break;
    case Kind::window:
      options.causal = heed::Causal::top_left;
      options.window = {window - 1, 0};
      pairs = static_cast<double>(window) * static_cast<double>(tokens - window) +
              static_cast<double>(window * (window + 1)) / 2;
      break;
    case Kind::mask:
      mask = heed::Tensor<bool, 2>({tokens, tokens});
      for (Index t = 0; t < tokens; ++t) {
        for (Index s = 0; s < tokens; ++s) mask(t, s) = (t * 7 + s * 3) % 11 != 0;
      }
      options.mask = mask;
      break;
    case Kind::alibi: options.alibi_slopes = slopes; break;
    case Kind::softcap: options.softcap = 30; break;
  }
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(heed::ops::attention_workspace_size<T>(cpu, {.batch = batch,
                                                                         .queries = tokens,
                                                                         .keys = tokens,
                                                                         .num_heads = heads,
                                                                         .num_kv_heads = heads,
                                                                         .head_dim = head_dim,
                                                                         .value_head_dim = head_dim}));
  const double operations = 4 * pairs * static_cast<double>(head_dim * heads * batch);
  bench::measure_compute<heed::accumulator_t<T>>(state, threads, operations, [&] {
    if (kind == Kind::modifier) {
      heed::ops::attention(
          cpu, query, key, value, out, options, workspace,
          heed::per_score([](auto score, const heed::Position& p) { return p.key % 2 == 0 ? score : score * 2; }));
    } else {
      heed::ops::attention(cpu, query, key, value, out, options, workspace);
    }
  });
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::full: return "full";
    case Kind::causal: return "causal";
    case Kind::window: return "window";
    case Kind::mask: return "mask";
    case Kind::alibi: return "alibi";
    case Kind::softcap: return "softcap";
    case Kind::modifier: return "modifier";
  }
  return "";
}

template <class T>
void add(Kind kind, Shape shape, Threads threads) {
  const std::string name = std::string("attention/") + name_of(kind) + "/" + heed::scalar_name<T>();
  bench::add(
      bench::name_of(
          name,
          {{"batch", shape.batch}, {"tokens", shape.tokens}, {"heads", shape.heads}, {"head_dim", shape.head_dim}},
          threads),
      threads, attention<T>, kind, shape, threads);
}

const bool added = [] {
  for (const Index tokens : {512, 2048, 8192}) {
    for (const Index head_dim : {64, 128}) {
      const Index heads = tokens >= 8192 ? 2 : tokens >= 2048 ? 4 : 8;
      for (const Kind kind : {Kind::full, Kind::causal}) {
        add<float>(kind, {1, tokens, heads, head_dim}, {1});
        add<float>(kind, {1, tokens, heads, head_dim}, {2});
      }
    }
  }
  for (const Kind kind : {Kind::window, Kind::mask, Kind::alibi, Kind::softcap, Kind::modifier})
    add<float>(kind, {1, 2048, 4, 64}, {1});
  for (const Kind kind : {Kind::full, Kind::causal}) {
    add<heed::bfloat16>(kind, {1, 2048, 4, 64}, {1});
    add<double>(kind, {1, 2048, 4, 64}, {1});
  }
  add<float>(Kind::full, {1, 8192, 1, 64}, {2});  // one head of one sequence, cut into query blocks
  for (const Index tokens : {16, 32, 64, 128}) add<float>(Kind::full, {8, tokens, 12, 64}, {1});  // BERT's sentences
  return true;
}();

}  // namespace
