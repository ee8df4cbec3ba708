// CausalLM: decoders of the Llama family as published weights describe them, from token ids to logits.
#pragma once

#include <cstdint>
#include <string>

#include "heed/backend/backend.hpp"
#include "heed/backend/cpu.hpp"
#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"
#include "heed/state/kv_cache.hpp"

namespace heed {

// What a call may come with.
struct CausalLMCall {
  View<const bool, 2> valid = {};  // [batch, seq]: false = padding, anywhere; left out: all tokens
  Index rope_length = 0;           // as in GroupedQueryAttentionCall
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// The caches of a model: one for each layer. caches[i] is layer i's; caches.batch(), caches.length(row).
template <KvCache Cache>
class KvCaches;

// Logits of the next token after every token of a batch.
//
//   const auto model = heed::CausalLM<float>::from_folder("TinyLlama");
//   auto caches = model.make_caches(batch, capacity);           // or make_caches<heed::SlidingKvCache<float>>(…), …
//   heed::Workspace workspace(model.workspace_size(cpu, caches, seq));
//   model.next_logits(cpu, prompt, caches, logits, workspace);  // [batch, seq] -> [batch, vocabulary]
//   model.next_logits(cpu, token, caches, logits, workspace);   // one token more: [batch, 1]
template <Scalar T, Backend B = Cpu>
class CausalLM {
 public:
  using Call = CausalLMCall;

  // Reads config.json and model.safetensors (or its shards) of a folder.
  static CausalLM from_folder(const std::string& folder, const B& backend = B());

  Index hidden_size() const noexcept;
  Index vocabulary_size() const noexcept;
  Index num_layers() const noexcept;

  // make_caches(batch, capacity), or make_caches<Cache>(…) with the sizes that Cache is made from. Allocates.
  template <KvCache Cache = StaticKvCache<T>, class... Sizes>
  KvCaches<Cache> make_caches(Sizes... sizes) const;

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept;
  // The same with caches, however full (growing ones: until they grow).
  template <KvCache Cache>
  std::size_t workspace_size(const B& backend, const KvCaches<Cache>& caches, Index tokens) const noexcept;

  // Appends tokens to the caches and gives the logits after each of them; rows of padding are 0.
  //
  //   ids     [batch, seq]
  //   logits  [batch, seq, vocabulary]
  template <KvCache Cache, class Out>
  void forward(const B& backend, View<const std::int64_t, 2> ids, KvCaches<Cache>& caches, Out&& logits,
               Workspace& workspace, const Call& call = {}) const;
  // Without a cache: rows begin at position 0.
  template <class Out>
  void forward(const B& backend, View<const std::int64_t, 2> ids, Out&& logits, Workspace& workspace,
               const Call& call = {}) const;

  // The same for the last token of each row only (padding left out): what generation goes on from.
  //
  //   logits  [batch, vocabulary]
  template <KvCache Cache, class Out>
  void next_logits(const B& backend, View<const std::int64_t, 2> ids, KvCaches<Cache>& caches, Out&& logits,
                   Workspace& workspace, const Call& call = {}) const;
};

}  // namespace heed::inline HEED_ABI
