// InfiniAttention: attention inside a segment of fixed length, and a compressive memory of everything before it. A
// stream of any length takes constant memory and may be cut into calls anywhere.
// expect: memory 7\.8394, normalizer 2\.3679
// expect: it answers 3\.3107, and 3\.3107 once restored
// expect: pending: 1, and 0 with one taken back
// expect: after 100003 tokens the state has grown by 0 bytes
#include <cstdio>
#include <filesystem>
#include <heed/heed.hpp>
#include <heed/io/safetensors.hpp>
#include <limits>

constexpr heed::HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 1};

int main() {
  // One feature, one head, segments of two tokens. A token x has query x, key x and value 4 - x.
  heed::InfiniAttentionWeights<float> weights;
  for (auto* projection : {&weights.query, &weights.key, &weights.value, &weights.output}) {
    projection->weight = heed::Tensor<float, 2>({1, 1});
    projection->weight(0, 0) = 1;
  }
  weights.value.weight(0, 0) = -1;
  weights.value.bias = heed::Tensor<float, 1>({1});
  weights.value.bias(0) = 4;
  weights.beta = heed::Tensor<float, 1>({1});
  weights.beta(0) = std::numeric_limits<float>::infinity();  // gate 1: what the memory says, and nothing else
  const heed::InfiniAttention<float, heads> attention(
      weights, {.segment_length = 2, .local_positions = heed::TokenPositions::none});

  // Two tokens fill the first segment: keys 1, -1 and values 3, 5 enter the memory. With φ(1) = 2 and φ(-1) = 1/e,
  // M = 2 · 3 + 5/e = 7.8394 and z = 2 + 1/e = 2.3679.
  const heed::Cpu cpu;
  auto state = attention.make_state(1);
  const float tokens[] = {1, -1, 0.5F};
  const heed::View<const float, 3> x(tokens, {1, 3, 1});  // [batch, tokens, hidden size]
  attention.forward(cpu, x.slice(1, 0, 1), state);
  attention.forward(cpu, x.slice(1, 1, 1), state);
  std::printf("memory %.4f, normalizer %.4f\n", state.memory()(0, 0, 0, 0), state.normalizer()(0, 0, 0));

  // A state can be saved and restored. Any query reads φ(q) M / (φ(q) z) = 7.8394 / 2.3679 = 3.3107.
  const auto path = (std::filesystem::temp_directory_path() / "heed_infini_attention_example").string();
  heed::SafetensorsWriter writer;
  state.save(writer);
  writer.write(path);
  auto restored = attention.load_state(heed::SafetensorsReader::open(path));
  std::filesystem::remove(path);
  const auto y = attention.forward(cpu, x.slice(1, 2, 1), state);
  const auto z = attention.forward(cpu, x.slice(1, 2, 1), restored);
  std::printf("it answers %.4f, and %.4f once restored\n", y(0, 0, 0), z(0, 0, 0));

  // Tokens of the open segment can be taken back; clone() keeps what a longer way back needs.
  restored.rollback(1);
  std::printf("pending: %td, and %td with one taken back\n", heed::Index{state.pending()(0)},
              heed::Index{restored.pending()(0)});
  const heed::Index bytes = state.size_bytes();
  attention.forward(cpu, heed::Tensor<float, 3>({1, 100000, 1}), state);
  std::printf("after %td tokens the state has grown by %td bytes\n", heed::Index{state.position()(0)},
              state.size_bytes() - bytes);
}
