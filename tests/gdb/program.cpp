// Stopped in stop() by the test heed.gdb, which prints what is here through tools/gdb/heed_printers.py.
#include "heed/core/heads.hpp"
#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"

void stop();
void stop() {}

int main() {
  float numbers[] = {1, 2, 3, 4.5F, -5, 6, 7, 8};
  [[maybe_unused]] const heed::View<float, 2> view(numbers, {2, 3});
  [[maybe_unused]] const heed::View<const float, 2> columns(numbers, {2, 2}, {4, 1});
  [[maybe_unused]] const heed::View<const float, 3> repeated(numbers, {2, 1, 2}, {0, 9, 1});
  [[maybe_unused]] const heed::View<float, 4> absent;
  [[maybe_unused]] const heed::View<float, 2> empty(numbers, {2, 0});
  heed::Tensor<double, 2> tensor({2, 2});
  tensor(1, 0) = 0.25;
  heed::Tensor<heed::bfloat16, 1> halves({3});
  halves(1) = heed::bfloat16(1.5F);
  heed::Tensor<bool, 1> flags({2});
  flags(1) = true;
  [[maybe_unused]] const heed::View<float, 1> many(numbers, {8});
  [[maybe_unused]] const heed::float16 half(-0.5F);
  [[maybe_unused]] const heed::HeadLayout heads{.num_heads = 8, .num_kv_heads = 2};
  stop();
}
