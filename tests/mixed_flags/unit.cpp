// Compiled several times, each with other flags and another name for its function in UNIT.
#include "unit.hpp"

#include <csetjmp>
#include <cstdio>
#include <exception>

#include "heed/heed.hpp"

namespace {

char text[512];

float product(heed::Index in_features) {
  const float weight[] = {1, 2};
  const float x[] = {10, 1};
  float y = 0;
  heed::ops::linear(heed::Simd(), heed::View<const float, 2>(x, {heed::Index{1}, in_features}),
                    heed::View<const float, 2>(weight, {1, 2}), {}, heed::View<float, 2>(&y, {1, 1}));
  return y;
}

// Values are the inputs times 3, and attention to two equal tokens is one of them: x = (1, …) in, (3, …) out. Weights,
// states and tensors are the types that units share.
float answer() {
  constexpr heed::HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 20};
  auto weights = heed::InfiniAttentionWeights<float>::random(1, 20, heads);
  for (heed::Index i = 0; i < 20; ++i) {
    for (heed::Index j = 0; j < 20; ++j) {
      weights.value.weight(i, j) = i == j ? 3.0F : 0.0F;
      weights.output.weight(i, j) = i == j ? 1.0F : 0.0F;
    }
  }
  const heed::InfiniAttention<float, heads> layer(weights, {.segment_length = 8, .update = heed::MemoryUpdate::delta});
  auto state = layer.make_state(1);
  heed::Tensor<float, 3> x({1, 2, 20});
  x.fill(1);
  const auto y = layer.forward(heed::Cpu(), x, state);
  return state.layout().segment_length == 8 && !layer.describe().empty() ? y(0, 1, 19) : 0;
}

#if !HEED_EXCEPTIONS
std::jmp_buf resume;

void report(const heed::Problem& problem) {
  std::snprintf(text, sizeof text, "%s", problem.text());
  std::longjmp(resume, 1);
}
#endif

}  // namespace

Result UNIT() {
#if HEED_EXCEPTIONS
  try {
    product(1);
  } catch (const std::exception& error) {
    std::snprintf(text, sizeof text, "%s", error.what());
  }
#else
  const heed::ErrorHandler before = heed::set_error_handler(report);
  if (setjmp(resume) == 0) product(1);
  heed::set_error_handler(before);
#endif
  return {product(2), answer(), text};
}
