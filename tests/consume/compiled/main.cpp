// A layer on the kernels of heed::compiled, in a unit without -march: it must say that it runs another instruction set than
// the unit's where the processor has one.
#include <cstdio>
#include <heed/backend/compiled.hpp>
#include <heed/layers/linear.hpp>
#include <string>

int main() {
  const float weight[] = {1, 2, 3, 4};
  const float x[] = {10, 1};
  const heed::Compiled backend;
  const heed::Linear<float, heed::Compiled> linear({.weight = heed::View<const float, 2>(weight, {2, 2})}, backend);
  heed::Tensor<float, 2> y({1, 2});
  linear.forward(backend, heed::View<const float, 2>(x, {1, 2}), y);
  const std::string text = linear.describe();
  std::printf("%s\n%g %g\n", text.c_str(), static_cast<double>(y(0, 0)), static_cast<double>(y(0, 1)));
  const bool wider = heed::best_instruction_set() != heed::InstructionSet::baseline;
  return y(0, 0) == 12 && y(0, 1) == 34 && wider == (text.find("x86_64_v") != std::string::npos) ? 0 : 1;
}
