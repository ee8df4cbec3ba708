// CausalLM: decoders of the Llama family as published weights describe them, from token ids to logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heed/models/kv_caches.hpp"
#include "heed/models/load_blocks.hpp"
#include "heed/ops/embedding.hpp"

namespace heed {

// What a call may come with.
struct CausalLMCall {
  View<const bool, 2> valid = {};  // [batch, seq]: false = padding, anywhere; left out: all tokens
  Index rope_length = 0;           // dynamic and longrope scaling: length of the whole sequence; 0: the longest row
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Logits of the next token after the tokens of a batch. Families: decoder_families.hpp.
//
//   const auto model = heed::CausalLM<float>::from_folder("TinyLlama");
//   auto caches = model.make_caches(batch, capacity);           // or make_caches<heed::SlidingKvCache<float>>(…), …
//   heed::Workspace workspace(model.workspace_size(cpu, caches, seq));
//   model.next_logits(cpu, prompt, caches, logits, workspace);  // [batch, seq] -> [batch, vocabulary]
//   model.next_logits(cpu, token, caches, logits, workspace);   // one token more: [batch, 1]
//
// Weights are read, converted to T and packed once; they are immutable, copies of the model share them, and threads may
// share the model, each with its caches and workspace.
template <Scalar T, Backend B = Cpu>
class CausalLM {
 public:
  using value_type = T;
  using Call = CausalLMCall;

  // Reads config.json and model.safetensors, or the files that model.safetensors.index.json lists. Allocates. Errors:
  // SystemError for a file that cannot be opened; FormatError that names the member of config.json, or the tensor, that
  // is missing, left over, of another shape, or not supported.
  static CausalLM from_folder(const std::string& folder, const B& backend = B()) {
    const ModelConfig config = ModelConfig::open(folder + "/config.json");
    return CausalLM(ShardedReader::open(folder), config, backend);
  }

  // The same from weights that are open.
  template <WeightSource Source>
  CausalLM(const Source& weights, const ModelConfig& config, const B& backend = B())
      : CausalLM(WeightLoader<Source>(weights), config, backend) {}

  Index hidden_size() const noexcept { return data_->embeddings.extent(1); }
  Index vocabulary_size() const noexcept { return data_->embeddings.extent(0); }
  Index num_layers() const noexcept { return static_cast<Index>(data_->blocks.size()); }
  // One of the layers.
  const DecoderBlock<T, B>& block(Index layer) const noexcept { return data_->blocks[static_cast<std::size_t>(layer)]; }

  // make_caches(batch, capacity), or make_caches<Cache>(…) with the sizes that Cache is made from (state/kv_cache.hpp).
  // Allocates. Errors: OptionError.
  template <KvCache Cache = StaticKvCache<T>, class... Sizes>
  KvCaches<Cache> make_caches(Sizes... sizes) const {
    KvCaches<Cache> caches;
    for (const auto& layer : data_->blocks) caches.append(layer.attention().template make_cache<Cache>(sizes...));
    return caches;
  }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    return workspace_size(backend, batch, tokens, tokens);
  }
  // The same with up to `keys` tokens a row in the caches after the call.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens, Index keys) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, batch, tokens);
    std::size_t largest = 0;
    for (const auto& layer : data_->blocks) {
      const std::size_t size = layer.workspace_size(backend, batch, tokens, keys);
      largest = size > largest ? size : largest;
    }
    return measured.size_needed() + largest;
  }
  // The same for caches, however full (growing ones: until they grow).
  template <KvCache Cache>
  std::size_t workspace_size(const B& backend, const KvCaches<Cache>& caches, Index tokens) const noexcept {
    return workspace_size(backend, caches.batch(), tokens, caches.most_keys());
  }

  // Logits after each token of a batch, whose rows begin at position 0.
  //
  //   ids        [batch, seq]              each 0 <= id < vocabulary_size(), padding too
  //   logits     [batch, seq, vocabulary]  rows of padding are 0
  //   workspace  workspace_size(backend, batch, seq) bytes
  //   call       padding; it has no position, and no token sees it
  //
  // Past the checks it allocates nothing. Numerics: as the operations, each result rounded to T. Errors: ShapeError,
  // OptionError, WorkspaceError, before anything is written.
  template <class Out>
  void forward(const B& backend, View<const std::int64_t, 2> ids, Out&& logits, Workspace& workspace,
               const Call& call = {}) const {
    const View<T, 3> to = output_view(logits);
    const Axis seq{"seq", ids.extent(1)};
    raise_if(first_problem(check_call(ids, call), check_output(door, "logits", to, {batch_of(ids), seq, vocabulary()}),
                           check_workspace(door, workspace, workspace_size(backend, ids.extent(0), ids.extent(1)))));
    if (to.empty()) return;
    const Workspace::Frame frame(workspace);
    all_logits(backend, to, call, run(backend, ids, workspace, call));
  }

  // The same for rows that go on from caches, to which the tokens are appended.
  //
  //   caches     of this model: make_caches()
  //   workspace  workspace_size(backend, caches, seq) bytes
  //
  // Growing caches that are full allocate. Errors: CapacityError as well; then nothing is appended.
  template <KvCache Cache, class Out>
  void forward(const B& backend, View<const std::int64_t, 2> ids, KvCaches<Cache>& caches, Out&& logits,
               Workspace& workspace, const Call& call = {}) const {
    const View<T, 3> to = output_view(logits);
    const Axis seq{"seq", ids.extent(1)};
    raise_if(first_problem(check_call(ids, call), check_output(door, "logits", to, {batch_of(ids), seq, vocabulary()}),
                           check_caches(backend, ids, caches, workspace, call)));
    if (to.empty()) return;
    const Workspace::Frame frame(workspace);
    all_logits(backend, to, call, run(backend, ids, workspace, call, caches));
  }

  // The same for the last token of each row only, padding left out: what generation goes on from.
  //
  //   logits  [batch, vocabulary]  0 for a row of padding only
  template <KvCache Cache, class Out>
  void next_logits(const B& backend, View<const std::int64_t, 2> ids, KvCaches<Cache>& caches, Out&& logits,
                   Workspace& workspace, const Call& call = {}) const {
    const View<T, 2> to = output_view(logits);
    raise_if(first_problem(check_call(ids, call), check_output(door, "logits", to, {batch_of(ids), vocabulary()}),
                           check_caches(backend, ids, caches, workspace, call)));
    if (ids.empty() || to.empty()) return;
    const Workspace::Frame frame(workspace);
    last_logits(backend, to, call, run(backend, ids, workspace, call, caches));
  }

  // Bytes of all weights.
  Index weight_bytes() const noexcept {
    Index bytes = data_->embeddings.size() * static_cast<Index>(sizeof(T)) + data_->norm.weight_bytes() +
                  data_->head.weight_bytes();
    for (const auto& layer : data_->blocks) bytes += layer.weight_bytes();
    return bytes;
  }

  // "CausalLM<float>: vocabulary_size 32000, hidden_size 2048, num_layers 22; … bytes of weights; backend cpu, avx2 …"
  std::string describe() const {
    impl::Description text("CausalLM", scalar_name<T>());
    text.size("vocabulary_size", vocabulary_size()).size("hidden_size", hidden_size()).size("num_layers", num_layers());
    return text.build<B>(weight_bytes());
  }

 private:
  static constexpr const char* door = "CausalLM::forward";

  struct Data {
    Tensor<T, 2> embeddings;  // [vocabulary, hidden size]
    double embedding_scale;
    std::vector<DecoderBlock<T, B>> blocks;
    Norm<T, B> norm;
    Linear<T, B> head;
    double logit_softcap;  // 0: none
  };

  template <class Source>
  CausalLM(const WeightLoader<Source>& loader, const ModelConfig& config, const B& backend) {
    const DecoderFamily& family = decoder_family(config);
    const ConfigReader members = config.reader();
    const Index vocabulary = members.size("vocab_size");
    const Index hidden = members.size("hidden_size");
    // Files of a model without its head have no "model." before the names.
    const std::string prefix = loader.contains("model.embed_tokens.weight") ? "model" : "";
    const std::string head_name = "lm_head";
    const bool tied = members.flag("tie_word_embeddings", !loader.contains(head_name + ".weight"));

    auto embeddings = loader.template read<T, 2>(joined_name(prefix, "embed_tokens.weight"), {vocabulary, hidden});
    std::vector<DecoderBlock<T, B>> blocks;
    const Index num_layers = members.size("num_hidden_layers");
    for (Index layer = 0; layer < num_layers; ++layer) {
      const std::string name = joined_name(prefix, "layers.") + std::to_string(layer);
      blocks.push_back(impl::load_decoder_block<T>(loader, name, config, layer, backend));
    }
    Norm<T, B> norm(impl::load_norm<T>(loader, joined_name(prefix, "norm"), hidden, NormKind::rms),
                    {.eps = members.number("rms_norm_eps"), .weight_offset = family.norm_weight_offset});
    Linear<T, B> head = tied ? Linear<T, B>({.weight = embeddings}, backend)
                             : Linear<T, B>(loader.template linear<T>(head_name, vocabulary, hidden, false), backend);
    // Some files have the head of a model that ties it to the embeddings.
    loader.finish("", {tied ? head_name : std::string("-")});
    const double scale = family.scaled_embeddings ? std::sqrt(static_cast<double>(hidden)) : 1;
    const double softcap = family.logit_softcap != nullptr ? members.number(family.logit_softcap, 0) : 0;
    data_ = std::make_shared<const Data>(
        Data{std::move(embeddings), scale, std::move(blocks), std::move(norm), std::move(head), softcap});
  }

  static Axis batch_of(View<const std::int64_t, 2> ids) noexcept { return {"batch", ids.extent(0)}; }
  Axis vocabulary() const noexcept { return {"vocabulary", vocabulary_size()}; }

  Problem check_call(View<const std::int64_t, 2> ids, const Call& call) const noexcept {
    Problem problem = check_input(door, "ids", ids, {{"batch", any}, {"seq", any}});
    if (!problem && call.valid.present()) {
      problem = check_input(door, "valid", call.valid, {batch_of(ids), {"seq", ids.extent(1)}});
    }
    if (!problem) problem = ops::check_embedding(ids, data_->embeddings.view(), like(ids, nullptr));
    return problem;
  }

  // All layers' caches, before any of them is appended to.
  template <class Cache>
  Problem check_caches(const B& backend, View<const std::int64_t, 2> ids, const KvCaches<Cache>& caches,
                       const Workspace& workspace, const Call& call) const noexcept {
    if (caches.num_layers() != num_layers()) {
      return problem_at(ErrorKind::shape, door, "caches")
          .append("expected those of ")
          .append(num_layers())
          .append(" layers, got ")
          .append(caches.num_layers());
    }
    Index keys = 0;
    for (Index layer = 0; layer < num_layers(); ++layer) {
      const Cache& cache = caches[layer];
      const KvCacheLayout layout = block(layer).attention().cache_layout();
      Problem problem = check_kv_cache(door, cache.layout(), cache.batch(), layout, ids.extent(0));
      if (!problem) problem = cache.check_append((std::min)(ids.extent(1), cache.append_limit()), {call.valid, {}});
      if (problem) return problem;
      keys = (std::max)(keys, cache.key_values().most_keys(longest_after(cache, ids, call)));
    }
    Problem problem = check_workspace(door, workspace, workspace_size(backend, ids.extent(0), ids.extent(1), keys));
    const View<T, 3> x = like(ids, nullptr);
    for (Index layer = 0; layer < num_layers() && !problem; ++layer) {
      const auto& attention = block(layer).attention();
      problem = attention.check_forward(backend, x, caches[layer], x, workspace, attention_call(call));
    }
    return problem;
  }

  // The longest row of a cache after the call.
  template <class Cache>
  static Index longest_after(const Cache& cache, View<const std::int64_t, 2> ids, const Call& call) noexcept {
    const PresentTokens present{call.valid, {}};
    Index longest = 0;
    for (Index b = 0; b < ids.extent(0); ++b) {
      longest = (std::max)(longest, static_cast<Index>(cache.lengths()(b)) + present.count(b, ids.extent(1)));
    }
    return longest;
  }

  static typename DecoderBlock<T, B>::Call attention_call(const Call& call) noexcept {
    return {.valid = call.valid, .rope_length = call.rope_length};
  }

  struct Buffers {
    View<T, 3> x;     // [B, T, E]
    View<T, 2> last;  // [B, E]
  };
  Buffers take(Workspace& workspace, Index batch, Index tokens) const noexcept {
    const auto x = workspace.take<T>({batch, tokens, hidden_size()});
    return {x, workspace.take<T>({batch, hidden_size()})};
  }
  View<T, 3> like(View<const std::int64_t, 2> ids, T* data) const noexcept {
    return {data, {ids.extent(0), ids.extent(1), hidden_size()}};
  }

  // Hidden states before the last norm, in the workspace.
  template <class... Caches>
  Buffers run(const B& backend, View<const std::int64_t, 2> ids, Workspace& workspace, const Call& call,
              Caches&... caches) const {
    const Buffers buffers = take(workspace, ids.extent(0), ids.extent(1));
    ops::embedding(backend, ids, data_->embeddings.view(), buffers.x);
    if (data_->embedding_scale != 1) {
      const auto scale = static_cast<accumulator_t<T>>(data_->embedding_scale);
      for (T& element : buffers.x.span()) element = narrow<T>(widen(element) * scale);
    }
    for (Index layer = 0; layer < num_layers(); ++layer) {
      block(layer).forward(backend, buffers.x, workspace, attention_call(call), caches[layer]...);
    }
    return buffers;
  }

  void all_logits(const B& backend, View<T, 3> logits, const Call& call, const Buffers& buffers) const {
    const View<T, 2> rows = impl::as_rows(buffers.x);
    data_->norm.forward(backend, rows, rows);
    data_->head.forward(backend, buffers.x, logits);
    for (Index b = 0; b < logits.extent(0); ++b) {
      for (Index t = 0; t < logits.extent(1); ++t)
        finish_logits(!call.valid.present() || call.valid(b, t), logits[b][t]);
    }
  }

  void last_logits(const B& backend, View<T, 2> logits, const Call& call, const Buffers& buffers) const {
    const auto last_of = [&](Index b) {
      Index t = buffers.x.extent(1) - 1;
      while (t >= 0 && call.valid.present() && !call.valid(b, t)) --t;
      return t;
    };
    for (Index b = 0; b < logits.extent(0); ++b) {
      const Index t = last_of(b);
      impl::move_row<T>(buffers.x[b][t < 0 ? 0 : t], buffers.last[b]);
    }
    data_->norm.forward(backend, buffers.last, buffers.last);
    data_->head.forward(backend, buffers.last, logits);
    for (Index b = 0; b < logits.extent(0); ++b) finish_logits(last_of(b) >= 0, logits[b]);
  }

  // What is left to do for one token's logits; those of padding are 0.
  void finish_logits(bool present, View<T, 1> logits) const noexcept {
    if (!present) return impl::fill_row(logits, T{});
    if (data_->logit_softcap == 0) return;
    const auto cap = static_cast<accumulator_t<T>>(data_->logit_softcap);
    for (Index i = 0; i < logits.extent(0); ++i) logits(i) = narrow<T>(cap * std::tanh(widen(logits(i)) / cap));
  }

  std::shared_ptr<const Data> data_;
};

}  // namespace heed::inline HEED_ABI
