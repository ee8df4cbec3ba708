// The transformer, on heed's layers and operations: what a model on heed looks like.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/heed.hpp"
#include "heed/io/safetensors.hpp"

namespace needle {

// Whether what the memory answers is mixed in. Closed gates (β = −∞, g = 0) leave attention inside the segment.
enum class Memory { open, closed };

// What the model was trained to read.
struct ModelText {
  std::string needle;    // the sentence, "{k}" for the key
  std::string question;  // the end of the input
};

// Sizes and settings, from the file's metadata.
struct ModelSettings {
  heed::Index num_layers = 0;
  heed::Index num_heads = 0;
  heed::Index num_kv_heads = 0;
  heed::Index head_dim = 0;
  heed::Index hidden_size = 0;
  heed::Index intermediate_size = 0;
  heed::Index segment_length = 0;
  double rope_theta = 0;
  float rms_norm_eps = 0;
};

// The weights; immutable, and shared by any number of streams.
class Model {
 public:
  using Attention = heed::InfiniAttention<float>;

  // One transformer block.
  struct Layer {
    heed::Tensor<float, 1> attention_norm;  // [hidden size]
    Attention attention;
    heed::Tensor<float, 1> mlp_norm;  // [hidden size]
    heed::Linear<float> up;           // [intermediate size, hidden size]
    heed::Linear<float> down;         // [hidden size, intermediate size]
  };

  // Copies everything it needs. Errors: heed::FormatError if the file is not such a model.
  Model(const heed::SafetensorsReader& file, Memory memory);

  const ModelSettings& settings() const { return settings_; }
  const ModelText& text() const { return text_; }
  heed::Index segment_length() const { return settings_.segment_length; }
  heed::Index vocabulary() const { return embedding_.extent(0); }
  std::int64_t parameter_count() const { return parameter_count_; }
  // Bytes of the keys and values of so many tokens, which attention without a memory would keep.
  std::int64_t kv_cache_bytes(std::int64_t tokens) const;

  heed::View<const float, 2> embedding() const { return embedding_; }  // [vocabulary, hidden size]
  const std::vector<Layer>& layers() const { return layers_; }
  heed::View<const float, 1> final_norm() const { return final_norm_; }
  const heed::Linear<float>& output() const { return output_; }

 private:
  ModelSettings settings_;
  ModelText text_;
  heed::Tensor<float, 2> embedding_;
  std::vector<Layer> layers_;
  heed::Tensor<float, 1> final_norm_;
  heed::Linear<float> output_;
  std::int64_t parameter_count_ = 0;
};

// A batch of texts on their way through the model: one state a layer, and scratch memory for a piece of the texts. The
// constructor allocates all of it; read() allocates nothing.
class Stream {
 public:
  // For `batch` texts, read in pieces of at most `length` bytes. Model and backend must outlive the stream.
  Stream(const Model& model, const heed::Cpu& cpu, heed::Index batch, heed::Index length);

  // Reads the next bytes [batch, bytes] of every text; how a text is cut into pieces changes no bit of what follows.
  // With logits [batch, bytes, vocabulary], it says what comes after each byte; without, the last layer only remembers.
  void read(heed::View<const std::uint8_t, 2> bytes, heed::View<float, 3> logits = {});

  // Forgets what was read: the next texts begin.
  void reset();

  // Bytes of all that is remembered.
  std::int64_t state_bytes() const;
  const heed::InfiniState<float>& state(std::size_t layer) const { return states_[layer]; }

 private:
  // A buffer's first elements as activations of the piece being read.
  static heed::View<float, 3> activations(heed::Tensor<float, 1>& buffer, heed::Index batch, heed::Index bytes,
                                          heed::Index features);

  const Model& model_;
  const heed::Cpu& cpu_;
  std::vector<heed::InfiniState<float>> states_;
  heed::Tensor<std::int64_t, 1> tokens_;  // [batch, length]
  heed::Tensor<float, 1> x_;              // [batch, length, hidden size]: what the layers add to
  heed::Tensor<float, 1> h_;              // the same: a layer's input, normalised
  heed::Tensor<float, 1> y_;              // the same: a layer's output
  heed::Tensor<float, 1> inner_;          // [batch, length, intermediate size]
  heed::Workspace workspace_;
};

// Runs the file's test vector through a model with open gates and compares logits and memory with what a float64 run of
// another program gave. Returns the largest difference (of the memory, as a share of its largest element); throws
// std::runtime_error if it is too large to be rounding.
double verify(const Model& model, const heed::SafetensorsReader& file);

}  // namespace needle
