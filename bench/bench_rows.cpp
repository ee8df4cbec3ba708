// What reads and writes rows: RoPE, the norms, softmax and the activations. Bytes are those of the input and the output.
#include "inputs.hpp"

namespace {

using bench::Threads;
using heed::Index;

constexpr Index rows = 512;
constexpr Index features = 4096;

// A row operation f(cpu, x, weight, out) on [rows, features].
template <class T, class F>
void add(const char* name, F f) {
  const auto run = [f](benchmark::State& state) {
    const auto x = bench::random_tensor<T, 2>({rows, features}, 1);
    const auto weight = bench::random_tensor<T, 1>({features}, 2);
    heed::Tensor<T, 2> out({rows, features});
    bench::measure_memory(state, {1}, static_cast<double>(2 * rows * features) * sizeof(T),
                          [&] { f(heed::Cpu(), x.view(), weight.view(), out.view()); });
  };
  const std::string title = std::string("rows/") + name + "/" + heed::scalar_name<T>();
  bench::add(bench::name_of(title, {{"rows", rows}, {"features", features}}, {1}), {1}, run);
}

// In place, as layers do it.
template <class T>
void rope(benchmark::State& state, heed::RopeLayout layout) {
  using A = heed::accumulator_t<T>;
  constexpr Index heads = 32;
  constexpr Index dim = features / heads;
  auto x = bench::random_tensor<T, 4>({Index{1}, rows, heads, dim}, 1);
  heed::Tensor<std::int64_t, 2> positions({Index{1}, rows});
  for (Index t = 0; t < rows; ++t) positions(0, t) = t;
  const heed::RotaryEmbedding<T> rotary(dim, {.layout = layout});
  heed::Tensor<A, 3> cos({Index{1}, rows, dim / 2});
  heed::Tensor<A, 3> sin({Index{1}, rows, dim / 2});
  rotary.cos_sin(heed::Cpu(), positions, cos, sin);
  bench::measure_memory(state, {1}, static_cast<double>(2 * rows * features) * sizeof(T),
                        [&] { rotary.rotate(heed::Cpu(), x, cos, sin, x); });
}

template <class T>
void add_all() {
  using heed::ops::gelu;
  add<T>("softmax", [](const auto& cpu, auto x, auto, auto out) { heed::ops::softmax(cpu, x, out); });
  add<T>("rms_norm", [](const auto& cpu, auto x, auto weight, auto out) { heed::ops::rms_norm(cpu, x, weight, out); });
  add<T>("layer_norm",
         [](const auto& cpu, auto x, auto weight, auto out) { heed::ops::layer_norm(cpu, x, weight, weight, out); });
  add<T>("silu", [](const auto& cpu, auto x, auto, auto out) { heed::ops::silu(cpu, x, out); });
  add<T>("gelu_erf", [](const auto& cpu, auto x, auto, auto out) { gelu(cpu, x, out, heed::GeluForm::erf); });
  add<T>("gelu_tanh", [](const auto& cpu, auto x, auto, auto out) { gelu(cpu, x, out, heed::GeluForm::tanh); });
  const std::string scalar = heed::scalar_name<T>();
  bench::add(bench::name_of("rows/rope_half/" + scalar, {{"rows", rows}, {"features", features}}, {1}), {1}, rope<T>,
             heed::RopeLayout::half);
  bench::add(bench::name_of("rows/rope_interleaved/" + scalar, {{"rows", rows}, {"features", features}}, {1}), {1},
             rope<T>, heed::RopeLayout::interleaved);
}

const bool added = [] {
  add_all<float>();
  add_all<heed::bfloat16>();
  return true;
}();

}  // namespace
