// The layer Linear, from one row (a token being decoded: reads the weight) to many (a prompt: multiplies).
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;

template <class T>
void linear(benchmark::State& state, Index m, Index n, Index k, Threads threads) {
  const auto weight = bench::random_tensor<T, 2>({n, k}, 1);
  const auto bias = bench::random_tensor<T, 1>({n}, 2);
  const heed::Linear<T> layer(heed::LinearWeightsView<T>{weight, bias});
  const auto x = bench::random_tensor<T, 2>({m, k}, 3);
  heed::Tensor<T, 2> out({m, n});
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  const auto work = [&] { layer.forward(cpu, x, out); };
  if (m == 1) {
    bench::measure_memory(state, threads, static_cast<double>(layer.weight_bytes()), work);
  } else {
    const double operations = 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    bench::measure_compute<heed::accumulator_t<T>>(state, threads, operations, work);
  }
}

template <class T>
void add(Index m, Index n, Index k, Threads threads) {
  const std::string name = std::string("linear/") + heed::scalar_name<T>();
  bench::add(bench::name_of(name, {{"m", m}, {"n", n}, {"k", k}}, threads), threads, linear<T>, m, n, k, threads);
}

const bool added = [] {
  for (const Index m : {1, 8, 64, 512, 2048}) {
    for (const int threads : {1, 2}) {
      for (const auto& [n, k] :
           {std::pair<Index, Index>{384, 384}, {768, 768}, {3072, 768}, {768, 3072}, {4096, 4096}}) {
        add<float>(m, n, k, {threads});
      }
      add<heed::bfloat16>(m, 768, 768, {threads});
      add<heed::bfloat16>(m, 4096, 4096, {threads});
    }
  }
  return true;
}();

}  // namespace
