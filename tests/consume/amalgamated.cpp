// One file that was made by tools/amalgamate.py of heed/heed.hpp and heed/io/safetensors.hpp, and nothing else of heed.
#include "all_of_heed.hpp"

template <class T>
bool passes_on_its_only_token() {
  constexpr heed::HeadLayout heads{.num_heads = 2, .num_kv_heads = 1, .head_dim = 2};
  auto weights = heed::InfiniAttentionWeights<T>::random(1, 4, heads);
  const T value[] = {1, 0, 0, 0, 0, 1, 0, 0};                           // takes the first two of four numbers
  const T output[] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};  // the heads side by side
  for (int i = 0; i < 8; ++i) weights.value.weight.data()[i] = value[i];
  for (int i = 0; i < 16; ++i) weights.output.weight.data()[i] = output[i];
  const heed::InfiniAttention<T, heads> attention(weights, {.segment_length = 8});
  auto state = attention.make_state(1);
  heed::Tensor<T, 3> x({1, 1, 4});
  for (int i = 0; i < 4; ++i) x(0, 0, i) = static_cast<T>(i + 1);
  const auto y = attention.forward(heed::Cpu(), x, state);
  return y(0, 0, 0) == 1 && y(0, 0, 1) == 2 && y(0, 0, 2) == 1 && y(0, 0, 3) == 2;
}

int main() {
  try {
    static_cast<void>(heed::SafetensorsReader::open("there is no such file"));
    return 1;
  } catch (const heed::Error&) {
    return passes_on_its_only_token<float>() && passes_on_its_only_token<double>() ? 0 : 2;
  }
}
