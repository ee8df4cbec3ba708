// ops::linear_attention, its four rules. Operations are those of the recurrence, token by token; chunks do more of them,
// and faster.
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;

void linear_attention(benchmark::State& state, bool has_decay, bool has_beta, Index head_dim, Threads threads) {
  constexpr Index tokens = 2048;
  constexpr Index heads = 8;
  const auto query = bench::random_tensor<float, 4>({Index{1}, tokens, heads, head_dim}, 1);
  const auto key = bench::random_tensor<float, 4>({Index{1}, tokens, heads, head_dim}, 2,  // of length about 1
                                                  std::sqrt(3 / static_cast<double>(head_dim)));
  const auto value = bench::random_tensor<float, 4>({Index{1}, tokens, heads, head_dim}, 3);
  heed::Tensor<float, 4> decay({Index{1}, tokens, heads, Index{1}});
  decay.fill(-0.05F);
  heed::Tensor<float, 3> beta({Index{1}, tokens, heads});
  beta.fill(0.5F);
  heed::Tensor<float, 4> memory({Index{1}, heads, head_dim, head_dim});
  heed::Tensor<float, 4> out({Index{1}, tokens, heads, head_dim});
  heed::LinearAttentionOptions<float> options;
  if (has_decay) options.decay = decay;
  if (has_beta) options.beta = beta;
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  heed::Workspace workspace(heed::ops::linear_attention_workspace_size<float>(
      cpu, {.num_heads = heads, .num_kv_heads = heads, .head_dim = head_dim, .value_head_dim = head_dim}));
  const double products = has_beta ? 3 : 2;  // what the memory knows, what is new, what is asked
  const double operations = 2 * products * static_cast<double>(tokens * heads * head_dim * head_dim);
  bench::measure_compute<float>(state, threads, operations, [&] {
    heed::ops::linear_attention(cpu, query, key, value, memory, out, options, workspace);
  });
}

const bool added = [] {
  for (const Index head_dim : {64, 128}) {
    for (const int threads : {1, 2}) {
      const auto add = [&](const char* rule, bool has_decay, bool has_beta) {
        bench::add(bench::name_of(std::string("linear_attention/") + rule, {{"head_dim", head_dim}}, {threads}),
                   {threads}, linear_attention, has_decay, has_beta, head_dim, Threads{threads});
      };
      add("linear", false, false);
      add("gated", true, false);
      add("delta", false, true);
      add("gated_delta", true, true);
    }
  }
  return true;
}();

}  // namespace
