// Linear: y = x · Wᵀ + b, the layer that everything else is made of.
// expect: y = 3\.5 -0\.5 9\.5 -0\.5
// expect: without a bias: 3 0 9 0
// expect: Linear<float>: in_features 3, out_features 2, bias
#include <cstdio>
#include <heed/heed.hpp>

int main() {
  // Weights are [out features, in features], as PyTorch stores them. Tensors start at zero.
  heed::Tensor<float, 2> weight({2, 3});
  for (heed::Index i = 0; i < 3; ++i) weight(0, i) = 1;  // feature 0: the sum of a row
  weight(1, 0) = 1;                                      // feature 1: its first element minus its last
  weight(1, 2) = -1;
  heed::Tensor<float, 1> bias({2});
  bias(0) = 0.5F;
  bias(1) = -0.5F;

  // The backend says who computes; the layer packs its own copy of the weights for it.
  const heed::Cpu cpu;
  const heed::Linear<float> linear({.weight = weight, .bias = bias});

  // Two rows of three features. Any number of axes may come before the last one: [batch, tokens, features] as well.
  heed::Tensor<float, 2> x({2, 3});
  for (heed::Index i = 0; i < 3; ++i) {
    x(0, i) = 1;  // sum 3, first - last = 0
    x(1, i) = 3;  // sum 9, first - last = 0
  }
  const heed::Tensor<float, 2> y = linear.forward(cpu, x);  // allocates the result
  std::printf("y = %g %g %g %g\n", y(0, 0), y(0, 1), y(1, 0), y(1, 1));

  // Into memory of your own, which allocates nothing; an absent view stands for "no bias".
  heed::Tensor<float, 2> out({2, 2});
  const heed::Linear<float> plain({.weight = weight});
  plain.forward(cpu, x, out);
  std::printf("without a bias: %g %g %g %g\n", out(0, 0), out(0, 1), out(1, 0), out(1, 1));

  std::printf("%s\n", linear.describe().c_str());
}
