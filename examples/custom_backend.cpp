// A backend of your own: derive from one of heed's, and overload the hook of the one kernel you replace. Layers and
// operations find it by the backend's type; everything else stays as it is.
// expect: in float: 0
// expect: in double: 1
#include <cstdio>
#include <heed/heed.hpp>

namespace mine {

// Linear products of floats summed in double.
class Exact : public heed::Cpu {
 public:
  using heed::Cpu::Cpu;
  static constexpr const char* name() noexcept { return "exact"; }
};

// How many output features lie interleaved in a packed weight: 1, so that each feature is a row.
template <class T>
heed::Index weight_panel_kernel(const Exact&, heed::Index /*out_features*/) noexcept {
  return 1;
}

// The hook: out [rows, out features] = x [rows, in features] · weightᵀ + bias. The shapes are checked already.
void linear_kernel(const Exact& backend, heed::View<const float, 2> x, const heed::WeightPanels<float>& weight,
                   heed::View<const float, 1> bias, heed::View<float, 2> out) noexcept {
  backend.for_ranges(x.extent(0), 1, [&](heed::Index begin, heed::Index count, int /*worker*/) {
    for (heed::Index row = begin; row < begin + count; ++row) {
      for (heed::Index j = 0; j < weight.out_features; ++j) {
        double sum = bias.present() ? static_cast<double>(bias(j)) : 0.0;
        const float* w = weight.data + j * weight.in_features;
        for (heed::Index i = 0; i < weight.in_features; ++i) sum += double{x(row, i)} * double{w[i]};
        out(row, j) = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace mine

// 1e8 + 1 − 1e8: a float next to 1e8 is 8 away, so that in float the 1 is lost.
template <class Backend>
float sum_of(const Backend& backend) {
  const float numbers[] = {1e8F, 1, -1e8F};
  const float ones[] = {1, 1, 1};
  const heed::Linear<float, Backend> sum({.weight = heed::View<const float, 2>(ones, {1, 3})}, backend);
  return sum.forward(backend, heed::View<const float, 2>(numbers, {1, 3}))(0, 0);
}

int main() {
  std::printf("in float: %g\n", sum_of(heed::Cpu()));
  std::printf("in double: %g\n", sum_of(mine::Exact()));
}
