// BertEncoder: BERT as published weights describe it, from token ids to hidden states or sentence embeddings.
#pragma once

#include <cstdint>
#include <string>

#include "heed/backend/backend.hpp"
#include "heed/backend/cpu.hpp"
#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"

namespace heed {

// What a call may come with.
struct BertEncoderCall {
  View<const bool, 2> valid = {};                // [batch, seq]: false = padding, anywhere; left out: all tokens
  View<const std::int64_t, 2> token_types = {};  // [batch, seq]: 0 first, 1 second sentence; left out: 0
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Hidden states of a batch of token ids, and sentence embeddings made from them.
//
//   const auto encoder = heed::BertEncoder<float>::from_folder("all-MiniLM-L6-v2");
//   heed::Workspace workspace(encoder.workspace_size(cpu, batch, seq));
//   encoder.forward(cpu, ids, hidden, workspace, {.valid = valid});     // [batch, seq] -> [batch, seq, hidden size]
//   encoder.embed(cpu, ids, embeddings, workspace, {.valid = valid});   // [batch, seq] -> [batch, hidden size]
template <Scalar T, Backend B = Cpu>
class BertEncoder {
 public:
  using Call = BertEncoderCall;

  // Reads config.json and model.safetensors (or its shards) of a folder.
  static BertEncoder from_folder(const std::string& folder, const B& backend = B());

  Index hidden_size() const noexcept;
  Index vocabulary_size() const noexcept;
  // The longest sequence that there are position embeddings for.
  Index max_tokens() const noexcept;

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept;

  // out = the last layer's hidden states; rows of padding are 0.
  //
  //   ids        [batch, seq]                each 0 <= id < vocabulary_size(), padding too
  //   out        [batch, seq, hidden size]
  //   workspace  workspace_size(backend, batch, seq) bytes
  template <class Out>
  void forward(const B& backend, View<const std::int64_t, 2> ids, Out&& out, Workspace& workspace,
               const Call& call = {}) const;
  // The same into a new tensor. Allocates it and the workspace.
  Tensor<T, 3> forward(const B& backend, View<const std::int64_t, 2> ids, const Call& call = {}) const;

  // out = the mean of each row's hidden states, padding left out, brought to length 1 (a row of padding only: 0).
  //
  //   out  [batch, hidden size]
  template <class Out>
  void embed(const B& backend, View<const std::int64_t, 2> ids, Out&& out, Workspace& workspace,
             const Call& call = {}) const;
  Tensor<T, 2> embed(const B& backend, View<const std::int64_t, 2> ids, const Call& call = {}) const;
};

}  // namespace heed::inline HEED_ABI
