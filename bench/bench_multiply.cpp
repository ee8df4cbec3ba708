// The micro-kernel alone, on one thread: simd::multiply in the shapes that its users call it with, everything in the cache.
#include "heed/kernels/simd/gemm.hpp"
#include "inputs.hpp"

namespace {

using heed::Index;
namespace simd = heed::simd;

// C [m, n] = A [m, k] · B [k, n], B in panels.
template <class A>
void multiply(benchmark::State& state, Index m, Index n, Index k) {
  const auto a = bench::random_tensor<A, 2>({m, k}, 1);
  const auto b = bench::random_tensor<A, 2>({k, n}, 2);
  heed::Tensor<A, 1> panels({k * simd::padded_columns<A>(n)});
  simd::pack<A>(b.data(), n, Index{1}, k, n, panels.data());
  heed::Tensor<A, 2> c({m, n});
  const Index width = simd::panel_width<A>(n);
  const double operations = 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  bench::measure_compute<A>(state, {1}, operations, [&] {
    simd::multiply(m, n, k, simd::Rows<A>{a.data(), k, 1}, simd::Panels<A>{panels.data(), k * width, width}, c.data(),
                   n, simd::Start::zero);
    bench::keep(c);
  });
}

template <class A>
void add(const char* user, Index m, Index n, Index k) {
  const std::string name = std::string("multiply/") + user + "/" + heed::scalar_name<A>();
  bench::add(bench::name_of(name, {{"m", m}, {"n", n}, {"k", k}}, {1}), {1}, multiply<A>, m, n, k);
}

template <class A>
void add_all() {
  for (const Index dim : {64, 128}) {  // a block of queries against a tile of keys
    add<A>("scores", 112, heed::attention_tile_keys, dim);
    add<A>("weighted_sum", 112, dim, heed::attention_tile_keys);
  }
  for (const Index rows : {1, 8, 64, 512}) add<A>("linear", rows, 128, 256);
  add<A>("memory", 64, 64, 256);
}

const bool added = [] {
  add_all<float>();
  add_all<double>();
  return true;
}();

}  // namespace
