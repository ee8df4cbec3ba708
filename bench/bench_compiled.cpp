// What a program without -march gets from heed::compiled: its own time, and the share of what Cpu reaches in a unit that is
// compiled for this machine, measured in turns.
#include "compiled_jobs.hpp"
#include "inputs.hpp"

namespace {

using bench::CompiledJobs;
using heed::Index;

// Counter of_native: the median time of a native run / that of a flagless one.
template <class F>
void compare(benchmark::State& state, F&& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times[2];
  CompiledJobs* const jobs[] = {&bench::native_jobs(), &bench::flagless_jobs()};
  for (CompiledJobs* each : jobs) run(*each);  // pages, caches, clocks
  for (auto _ : state) {
    for (int i = 0; i < 2; ++i) {
      const auto start = Clock::now();
      run(*jobs[i]);
      times[i].push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    state.SetIterationTime(times[1].back());
  }
  state.counters["of_native"] = bench::detail::median(times[0]) / bench::detail::median(times[1]);
}

void linear(benchmark::State& state, Index rows) {
  const auto x = bench::random_tensor<float, 2>({rows, bench::compiled_size});
  heed::Tensor<float, 2> out({rows, bench::compiled_size});
  compare(state, [&](CompiledJobs& jobs) { jobs.linear(x, out); });
}

void attention(benchmark::State& state, Index tokens) {
  const auto x = bench::random_tensor<float, 4>({Index{1}, tokens, Index{8}, Index{64}});
  heed::Tensor<float, 4> out({Index{1}, tokens, Index{8}, Index{64}});
  compare(state, [&](CompiledJobs& jobs) { jobs.attention(x, out); });
}

void infini(benchmark::State& state, Index tokens) {
  const auto x = bench::random_tensor<float, 3>({Index{1}, tokens, bench::compiled_size});
  heed::Tensor<float, 3> out({Index{1}, tokens, bench::compiled_size});
  compare(state, [&](CompiledJobs& jobs) { jobs.infini(x, out); });
}

const bool added = [] {
  for (const Index rows : {1, 8, 512})
    bench::add(bench::name_of("compiled/linear", {{"rows", rows}}, {1}), {1}, linear, rows);
  for (const Index tokens : {1, 32, 512, 2048})
    bench::add(bench::name_of("compiled/attention", {{"tokens", tokens}}, {1}), {1}, attention, tokens);
  for (const Index tokens : {1, 2048})
    bench::add(bench::name_of("compiled/infini", {{"tokens", tokens}}, {1}), {1}, infini, tokens);
  return true;
}();

}  // namespace
