// The same checkpoint with heed::InfiniAttention in the place of its attention: it reads a text of any length in constant
// memory. What the memory answers was not learnt by such a checkpoint, so its share (the gate) is 0 unless asked for, which
// leaves attention inside segments; a checkpoint that was trained on has gates of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/layers/infini_attention.hpp"
#include "heed/models/mlp.hpp"
#include "heed/models/norm.hpp"
#include "infini_options.hpp"

namespace generate {

// A decoder of Llama's, Mistral's or Qwen2's form. Weights are copied and packed; immutable.
class InfiniModel {
 public:
  // Errors: heed::Error, of a family without the above's form too.
  InfiniModel(const std::string& folder, const InfiniOptions& options);

  heed::Index vocabulary_size() const { return embeddings_.extent(0); }

  // A text on its way through the model.
  class Stream {
   public:
    // Calls have at most `tokens` tokens. Model and backend must live longer.
    Stream(const InfiniModel& model, const heed::Cpu& cpu, heed::Index tokens);

    // Reads the next tokens [1, tokens] and says what comes after the last of them [1, vocabulary].
    void next_logits(heed::View<const std::int64_t, 2> ids, heed::View<float, 2> logits);

   private:
    const InfiniModel& model_;
    const heed::Cpu& cpu_;
    std::vector<heed::InfiniState<float>> states_;
    heed::Tensor<float, 2> x_, y_;  // [tokens, hidden size]
    heed::Workspace workspace_;
  };

 private:
  struct Layer {
    heed::Norm<float> attention_norm;
    heed::InfiniAttention<float> attention;
    heed::Norm<float> mlp_norm;
    heed::Mlp<float> mlp;
  };

  heed::Tensor<float, 2> embeddings_;  // [vocabulary, hidden size]
  std::vector<Layer> layers_;
  std::optional<heed::Norm<float>> final_norm_;  // always there after construction
  std::optional<heed::Linear<float>> head_;
};

}  // namespace generate
