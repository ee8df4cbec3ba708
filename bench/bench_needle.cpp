// examples/needle: a text read by a small transformer on Infini-attention, one at a time and 48 at a time.
#include "haystack.hpp"
#include "inputs.hpp"
#include "model.hpp"
#include "search.hpp"

namespace {

using bench::Threads;
using heed::Index;

// Operations that a byte needs: all layers' products, less what the last one leaves out where it only remembers.
double operations(const needle::ModelSettings& s) {
  const auto size = static_cast<double>(s.hidden_size);
  const auto dim = static_cast<double>(s.head_dim);
  const double keys_and_values = 4 * size * size;
  const double update = 2 * dim * size;
  const double others = 4 * size * size + 4 * size * static_cast<double>(s.intermediate_size) +
                        2 * size * static_cast<double>(s.segment_length + 1) + 2 * dim * size;
  const auto layers = static_cast<double>(s.num_layers);
  return layers * (keys_and_values + update) + (layers - 1) * others;
}

// As the program does it: needle::search(), from word salad to the answers.
void search(benchmark::State& state, Index batch, std::int64_t length, Threads threads) {
  const auto file = heed::SafetensorsReader::open(HEED_NEEDLE_MODEL);
  const needle::Model model(file, needle::Memory::open);
  const std::string hidden = needle::needle_with(model.text().needle, "12345");
  needle::Plan plan;
  const std::string problem = needle::make_plan(length, 0.5, static_cast<std::int64_t>(hidden.size()),
                                                static_cast<std::int64_t>(model.text().question.size()),
                                                needle::answer_size, model.segment_length(), plan);
  if (!problem.empty()) return state.SkipWithError(problem.c_str());
  const bench::ThreadedCpu threaded(threads);
  const heed::Cpu& cpu = threaded;
  bool right = true;
  const auto work = [&] {
    std::vector<needle::Haystack> haystacks;
    for (Index row = 0; row < batch; ++row) {
      haystacks.emplace_back(plan, needle::Text::word_salad(static_cast<std::uint64_t>(row)), hidden,
                             model.text().question);
    }
    const needle::Found found = needle::search(model, cpu, haystacks, [](std::int64_t) {});
    for (const std::string& answer : found.answers) right = right && answer == "12345";
  };
  const auto bytes = static_cast<double>(batch * plan.size());
  bench::measure_compute<float>(state, threads, bytes * operations(model.settings()), work);
  // Of the median run, as the counters beside it.
  const double each = 1e-9 * operations(model.settings());
  state.counters["bytes/s"] = state.counters["GFLOP/s"].value / each;
  if (!right) state.SkipWithError("the key was not found");
}

const bool added = [] {
  for (const int threads : {1, 2}) {
    for (const Index batch : {1, 48}) {
      constexpr std::int64_t length = 10'000;
      bench::add(bench::name_of("needle", {{"batch", batch}, {"length", length}}, {threads}), {threads}, search, batch,
                 length, Threads{threads});
    }
  }
  return true;
}();

}  // namespace
