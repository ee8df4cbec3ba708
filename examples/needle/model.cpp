#include "model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace needle {

namespace {

using heed::Index;

// A metadata entry of the file as a number or text.
[[noreturn]] void refuse(const std::string& problem) {
  throw std::runtime_error("the model file: " + problem);
}

std::string text_of(const heed::SafetensorsReader& file, const char* key) {
  const std::string_view value = file.metadata(key);
  if (value.empty()) refuse(std::string("no \"") + key + "\" in the metadata");
  return std::string(value);
}

double number_of(const heed::SafetensorsReader& file, const char* key) {
  const std::string text = text_of(file, key);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(std::string(key) + " is not a number: " + text);
  return value;
}

Index size_of(const heed::SafetensorsReader& file, const char* key) {
  const double value = number_of(file, key);
  if (value < 1 || value > 1e6 || value != std::floor(value)) refuse(std::string(key) + " is not a size");
  return static_cast<Index>(value);
}

// What this program computes; another value would need other code.
void expect(const heed::SafetensorsReader& file, const char* key, std::string_view value) {
  const std::string found = text_of(file, key);
  if (found != value) refuse(std::string(key) + " is " + found + ", this program knows " + std::string(value));
}

ModelSettings read_settings(const heed::SafetensorsReader& file) {
  expect(file, "format", "heed.needle");
  expect(file, "update", "linear");
  expect(file, "empty_memory", "apply_gate");
  expect(file, "memory_positions", "none");
  expect(file, "rope_layout", "half");
  expect(file, "activation", "gelu_tanh");
  return {.num_layers = size_of(file, "num_layers"),
          .num_heads = size_of(file, "num_heads"),
          .num_kv_heads = size_of(file, "num_kv_heads"),
          .head_dim = size_of(file, "head_dim"),
          .hidden_size = size_of(file, "hidden_size"),
          .intermediate_size = size_of(file, "intermediate_size"),
          .segment_length = size_of(file, "segment_length"),
          .rope_theta = number_of(file, "rope_theta"),
          .rms_norm_eps = static_cast<float>(number_of(file, "rms_norm_eps"))};
}

// The file's weights of layer `number`, packed.
Model::Layer read_layer(const heed::SafetensorsReader& file, const ModelSettings& settings, Index number,
                        Memory memory) {
  const std::string prefix = "layers." + std::to_string(number) + ".";
  const heed::PrefixedSource part(file, prefix);
  auto weights = heed::InfiniAttentionWeights<float>::from_file(part, "attention");
  if (memory == Memory::closed) weights.beta.fill(-std::numeric_limits<float>::infinity());
  return {.attention_norm = part.read<float, 1>("attention_norm.weight"),
          .attention = Model::Attention(
              weights,
              {.segment_length = settings.segment_length,
               .update = heed::MemoryUpdate::linear,
               .empty_memory = heed::EmptyMemory::apply_gate,
               .rope = {.theta = settings.rope_theta}},
              {.num_heads = settings.num_heads, .num_kv_heads = settings.num_kv_heads, .head_dim = settings.head_dim}),
          .mlp_norm = part.read<float, 1>("mlp_norm.weight"),
          .up = heed::Linear<float>(heed::LinearWeights<float>::from_file(part, "mlp.up")),
          .down = heed::Linear<float>(heed::LinearWeights<float>::from_file(part, "mlp.down"))};
}

// x += y.
void add(const heed::Cpu& cpu, heed::View<const float, 3> y, heed::View<float, 3> x) {
  const Index features = x.extent(2);
  cpu.for_ranges(x.extent(0) * x.extent(1), 4096, [&](Index begin, Index count, int /*worker*/) {
    const float* from = y.data_handle() + begin * features;
    float* to = x.data_handle() + begin * features;
    for (Index i = 0; i < count * features; ++i) to[i] += from[i];
  });
}

}  // namespace

Model::Model(const heed::SafetensorsReader& file, Memory memory)
    : settings_(read_settings(file)),
      text_{text_of(file, "needle"), text_of(file, "question")},
      embedding_(file.read<float, 2>("embedding.weight", {256, settings_.hidden_size})),
      final_norm_(file.read<float, 1>("final_norm.weight", {settings_.hidden_size})),
      output_(
          heed::LinearWeights<float>{.weight = file.read<float, 2>("output.weight", {256, settings_.hidden_size})}) {
  for (Index number = 0; number < settings_.num_layers; ++number) {
    layers_.push_back(read_layer(file, settings_, number, memory));
  }
  for (const heed::TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.starts_with("test.")) parameter_count_ += tensor.size();
  }
}

std::int64_t Model::kv_cache_bytes(std::int64_t tokens) const {
  return tokens * settings_.num_layers * settings_.num_kv_heads * settings_.head_dim * 2 *
         static_cast<std::int64_t>(sizeof(float));
}

Stream::Stream(const Model& model, const heed::Cpu& cpu, Index batch, Index length)
    : model_(model),
      cpu_(cpu),
      tokens_({batch * length}),
      x_({batch * length * model.settings().hidden_size}),
      h_({batch * length * model.settings().hidden_size}),
      y_({batch * length * model.settings().hidden_size}),
      inner_({batch * length * model.settings().intermediate_size}),
      workspace_(model.layers().front().attention.workspace_size(cpu, batch, length)) {
  for (const Model::Layer& layer : model.layers()) states_.push_back(layer.attention.make_state(batch));
}

heed::View<float, 3> Stream::activations(heed::Tensor<float, 1>& buffer, Index batch, Index bytes, Index features) {
  return {buffer.data(), {batch, bytes, features}};
}

void Stream::read(heed::View<const std::uint8_t, 2> bytes, heed::View<float, 3> logits) {
  const Index batch = bytes.extent(0);
  const Index count = bytes.extent(1);
  const auto x = activations(x_, batch, count, model_.settings().hidden_size);
  const auto h = activations(h_, batch, count, model_.settings().hidden_size);
  const auto y = activations(y_, batch, count, model_.settings().hidden_size);
  const auto inner = activations(inner_, batch, count, model_.settings().intermediate_size);
  const heed::RmsNormOptions norm{.eps = model_.settings().rms_norm_eps};

  const heed::View<std::int64_t, 2> tokens(tokens_.data(), {batch, count});
  for (Index row = 0; row < batch; ++row) {
    for (Index i = 0; i < count; ++i) tokens(row, i) = bytes(row, i);
  }
  heed::ops::embedding(cpu_, tokens, model_.embedding(), x);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Model::Layer& layer = model_.layers()[i];
    heed::ops::rms_norm(cpu_, x, layer.attention_norm, h, norm);
    if (i + 1 == states_.size() && !logits.present()) {
      layer.attention.read(cpu_, h, states_[i], workspace_);
      return;
    }
    layer.attention.forward(cpu_, h, states_[i], y, workspace_);
    add(cpu_, y, x);

    heed::ops::rms_norm(cpu_, x, layer.mlp_norm, h, norm);
    layer.up.forward(cpu_, h, inner);
    heed::ops::gelu(cpu_, inner, inner, heed::GeluForm::tanh);
    layer.down.forward(cpu_, inner, y);
    add(cpu_, y, x);
  }
  heed::ops::rms_norm(cpu_, x, model_.final_norm(), h, norm);
  model_.output().forward(cpu_, h, logits);
}

void Stream::reset() {
  for (auto& state : states_) state.reset();
}

std::int64_t Stream::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& state : states_) bytes += state.size_bytes();
  return bytes;
}

namespace {

// Calls f(got, want) for each pair of elements.
template <int Rank, class F>
void for_each_pair(heed::View<const float, Rank> got, heed::View<const double, Rank> want, F&& f) {
  for (Index i = 0; i < got.extent(0); ++i) {
    if constexpr (Rank == 1) {
      f(static_cast<double>(got(i)), want(i));
    } else {
      for_each_pair<Rank - 1>(got[i], want[i], f);
    }
  }
}

// The largest |got − want| and the largest |want|. A NaN makes the difference infinite.
struct Difference {
  double largest = 0;
  double scale = 0;

  void operator()(double got, double want) {
    const double difference = std::abs(got - want);
    largest = std::max(largest, std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
    scale = std::max(scale, std::abs(want));
  }
};

}  // namespace

double verify(const Model& model, const heed::SafetensorsReader& file) {
  const auto input = file.read<std::uint8_t, 1>("test.input");
  const auto positions = file.read<std::int64_t, 1>("test.positions");
  const auto logits = file.read<double, 2>("test.logits", {positions.size(), model.vocabulary()});
  const Index size = input.size();
  const heed::View<const std::uint8_t, 2> bytes(input.data(), {Index{1}, size});
  const heed::Cpu cpu;
  double largest = 0;

  // All at once with logits, and in pieces without; the states after the full segments must come out of both.
  Stream whole(model, cpu, 1, size);
  heed::Tensor<float, 3> got({Index{1}, size, model.vocabulary()});
  whole.read(bytes, got);
  for (Index i = 0; i < positions.size(); ++i) {
    const std::int64_t at = positions(i);
    if (at < 0 || at >= size) refuse("test.positions are not positions of test.input");
    Difference difference;
    for_each_pair<1>(got.view()[0][at], logits.view()[i], difference);
    largest = std::max(largest, difference.largest);
  }
  constexpr Index piece = 100;
  Stream pieces(model, cpu, 1, piece);
  for (Index at = 0; at < size; at += piece) pieces.read(bytes.slice(1, at, std::min(piece, size - at)));
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const std::string name = "test.state." + std::to_string(i);
    const auto memory = file.read<double, 3>(name + ".M");
    const auto normalizer = file.read<double, 2>(name + ".z");
    for (const Stream* stream : {&whole, &pieces}) {
      const heed::InfiniState<float>& state = stream->state(i);
      Difference m;
      Difference z;
      for_each_pair<3>(state.memory()[0], memory, m);
      for_each_pair<2>(state.normalizer()[0], normalizer, z);
      largest = std::max({largest, m.largest / m.scale, z.largest / z.scale});  // sums over all tokens: relative
    }
  }
  constexpr double tolerance = 1e-3;  // what float may differ by from double; logits are up to 16
  if (!(largest <= tolerance)) {
    refuse("its test vector is missed by " + std::to_string(largest) + " (at most " + std::to_string(tolerance) +
           " is rounding): not used");
  }
  return largest;
}

}  // namespace needle
