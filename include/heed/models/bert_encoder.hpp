// BertEncoder: BERT as published weights describe it, from token ids to hidden states or sentence embeddings.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heed/models/load_blocks.hpp"
#include "heed/ops/embedding.hpp"

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
//
// Padding is taken out before the first layer and put back after the last one, so it costs nothing, and a row comes out
// the same whatever it is padded with, bit for bit; positions do not count it. Weights are read, converted to T and packed
// once; they are immutable, copies of the encoder share them, and threads may share it, each with its workspace.
//
// Source: Devlin et al. 2019 (arXiv 1810.04805); Reimers and Gurevych 2019 (arXiv 1908.10084) for sentence embeddings.
template <Scalar T, Backend B = Cpu>
class BertEncoder {
 public:
  using value_type = T;
  using Call = BertEncoderCall;

  // Reads config.json and model.safetensors, or the files that model.safetensors.index.json lists. Allocates. Errors:
  // SystemError for a file that cannot be opened; FormatError that names the member of config.json, or the tensor, that
  // is missing, left over, of another shape, or not supported. (The pooler and heads for other tasks are left alone.)
  static BertEncoder from_folder(const std::string& folder, const B& backend = B()) {
    const ModelConfig config = ModelConfig::open(folder + "/config.json");
    return BertEncoder(ShardedReader::open(folder), config, backend);
  }

  // The same from weights that are open.
  template <WeightSource Source>
  BertEncoder(const Source& weights, const ModelConfig& config, const B& backend = B())
      : BertEncoder(WeightLoader<Source>(weights), config, backend) {}

  Index hidden_size() const noexcept { return data_->words.extent(1); }
  Index vocabulary_size() const noexcept { return data_->words.extent(0); }
  Index num_layers() const noexcept { return static_cast<Index>(data_->blocks.size()); }
  // One of the layers.
  const EncoderBlock<T, B>& block(Index layer) const noexcept { return data_->blocks[static_cast<std::size_t>(layer)]; }
  // The longest sequence that there are position embeddings for.
  Index max_tokens() const noexcept { return data_->positions.extent(0); }

  // Bytes that calls of up to `batch` rows of up to `tokens` tokens take; monotone in both.
  std::size_t workspace_size(const B& backend, Index batch, Index tokens) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, batch, batch * tokens);
    std::size_t largest = 0;
    for (const auto& block : data_->blocks) {
      const std::size_t size = block.workspace_size(backend, batch, batch * tokens);
      largest = size > largest ? size : largest;
    }
    return measured.size_needed() + largest;
  }

  // out = the last layer's hidden states.
  //
  //   ids        [batch, seq]               each 0 <= id < vocabulary_size(); of padding, any number
  //   out        [batch, seq, hidden size]  rows of padding are 0
  //   workspace  workspace_size(backend, batch, seq) bytes
  //
  // Past the checks it allocates nothing. Numerics: as the operations, each result rounded to T. Errors: ShapeError,
  // OptionError (an id or token type that is out of range, a row longer than max_tokens()), WorkspaceError, before
  // anything is written.
  template <class Out>
  void forward(const B& backend, View<const std::int64_t, 2> ids, Out&& out, Workspace& workspace,
               const Call& call = {}) const {
    const char* door = "BertEncoder::forward";
    const View<T, 3> to = output_view(out);
    const Axis batch{"batch", ids.extent(0)};
    raise_if(
        first_problem(check_call(door, backend, ids, workspace, call),
                      check_output(door, "out", to, {batch, {"seq", ids.extent(1)}, {"hidden size", hidden_size()}})));
    if (to.empty()) return;
    const Workspace::Frame frame(workspace);
    const Buffers buffers = run(backend, ids, workspace, call);
    Index next = 0;
    for (Index b = 0; b < to.extent(0); ++b) {
      for (Index t = 0; t < to.extent(1); ++t) {
        if (present(call)(b, t)) {
          impl::move_row<T>(buffers.x[next++], to[b][t]);
        } else {
          impl::fill_row(to[b][t], T{});
        }
      }
    }
  }
  // The same into a new tensor. Allocates it and the workspace.
  Tensor<T, 3> forward(const B& backend, View<const std::int64_t, 2> ids, const Call& call = {}) const {
    Tensor<T, 3> out({ids.extent(0), ids.extent(1), hidden_size()});
    Workspace workspace(workspace_size(backend, ids.extent(0), ids.extent(1)));
    forward(backend, ids, out, workspace, call);
    return out;
  }

  // out = the mean of each row's hidden states, padding left out, brought to length 1: the embedding of a sentence.
  //
  //   out  [batch, hidden size]  0 for a row of padding only
  //
  // Otherwise as forward(). Numerics: the mean in accumulator_t<T>, tokens in order, rounded once.
  template <class Out>
  void embed(const B& backend, View<const std::int64_t, 2> ids, Out&& out, Workspace& workspace,
             const Call& call = {}) const {
    const char* door = "BertEncoder::embed";
    const View<T, 2> to = output_view(out);
    raise_if(first_problem(check_call(door, backend, ids, workspace, call),
                           check_output(door, "out", to, {{"batch", ids.extent(0)}, {"hidden size", hidden_size()}})));
    if (to.empty()) return;
    const Workspace::Frame frame(workspace);
    const Buffers buffers = run(backend, ids, workspace, call);
    for (Index b = 0; b < to.extent(0); ++b) {
      const auto first = static_cast<Index>(buffers.cu_seqlens(b));
      const auto count = static_cast<Index>(buffers.cu_seqlens(b + 1)) - first;
      mean_direction(buffers.x.slice(0, first, count), buffers.sum, to[b]);
    }
  }
  // The same into a new tensor. Allocates it and the workspace.
  Tensor<T, 2> embed(const B& backend, View<const std::int64_t, 2> ids, const Call& call = {}) const {
    Tensor<T, 2> out({ids.extent(0), hidden_size()});
    Workspace workspace(workspace_size(backend, ids.extent(0), ids.extent(1)));
    embed(backend, ids, out, workspace, call);
    return out;
  }

  // Bytes of all weights.
  Index weight_bytes() const noexcept {
    const Index tables = data_->words.size() + data_->positions.size() + data_->token_types.size();
    Index bytes = tables * static_cast<Index>(sizeof(T)) + data_->norm.weight_bytes();
    for (const auto& block : data_->blocks) bytes += block.weight_bytes();
    return bytes;
  }

  // "BertEncoder<float>: vocabulary_size 30522, hidden_size 384, num_layers 6, max_tokens 512; … bytes of weights; …"
  std::string describe() const {
    impl::Description text("BertEncoder", scalar_name<T>());
    text.size("vocabulary_size", vocabulary_size()).size("hidden_size", hidden_size()).size("num_layers", num_layers());
    text.size("max_tokens", max_tokens());
    return text.build<B>(weight_bytes());
  }

 private:
  using A = accumulator_t<T>;

  struct Data {
    Tensor<T, 2> words;        // [vocabulary, hidden size]
    Tensor<T, 2> positions;    // [max tokens, hidden size]
    Tensor<T, 2> token_types;  // [token types, hidden size]
    Norm<T, B> norm;
    std::vector<EncoderBlock<T, B>> blocks;
  };

  template <class Source>
  BertEncoder(const WeightLoader<Source>& loader, const ModelConfig& config, const B& backend) {
    const ConfigReader members = config.reader();
    members.expect("model_type", "\"bert\"");
    const Index hidden = members.size("hidden_size");
    // Files of a model with a head for some task have "bert." before the names.
    const std::string prefix = loader.contains("bert.embeddings.word_embeddings.weight") ? "bert" : "";
    const auto table = [&](const char* name, const char* size) {
      return loader.template read<T, 2>(joined_name(prefix, name), {members.size(size), hidden});
    };
    Tensor<T, 2> words = table("embeddings.word_embeddings.weight", "vocab_size");
    Tensor<T, 2> positions = table("embeddings.position_embeddings.weight", "max_position_embeddings");
    Tensor<T, 2> token_types = table("embeddings.token_type_embeddings.weight", "type_vocab_size");
    Norm<T, B> norm(impl::load_norm<T>(loader, joined_name(prefix, "embeddings.LayerNorm"), hidden, NormKind::layer),
                    {.kind = NormKind::layer, .eps = members.number("layer_norm_eps")});
    std::vector<EncoderBlock<T, B>> blocks;
    const Index num_layers = members.size("num_hidden_layers");
    for (Index layer = 0; layer < num_layers; ++layer) {
      const std::string name = joined_name(prefix, "encoder.layer.") + std::to_string(layer);
      blocks.push_back(impl::load_bert_block<T>(loader, name, config, layer, backend));
    }
    loader.finish(prefix, {joined_name(prefix, "pooler")});
    data_ = std::make_shared<const Data>(
        Data{std::move(words), std::move(positions), std::move(token_types), std::move(norm), std::move(blocks)});
  }

  static PresentTokens present(const Call& call) noexcept { return {call.valid, {}}; }

  Problem check_call(const char* door, const B& backend, View<const std::int64_t, 2> ids, const Workspace& workspace,
                     const Call& call) const noexcept {
    const Axis batch{"batch", ids.extent(0)};
    const Axis seq{"seq", ids.extent(1)};
    Problem problem = check_input(door, "ids", ids, {{"batch", any}, {"seq", any}});
    if (!problem && call.valid.present()) problem = check_input(door, "valid", call.valid, {batch, seq});
    if (!problem && call.token_types.present())
      problem = check_input(door, "token_types", call.token_types, {batch, seq});
    for (Index b = 0; b < ids.extent(0) && !problem; ++b) problem = check_row(door, ids, call, b);
    if (!problem) problem = check_workspace(door, workspace, workspace_size(backend, batch.extent, seq.extent));
    return problem;
  }

  Problem check_row(const char* door, View<const std::int64_t, 2> ids, const Call& call, Index row) const noexcept {
    const auto check_number = [&](const char* tensor, View<const std::int64_t, 2> numbers, Index t,
                                  Index end) noexcept {
      const auto number = static_cast<Index>(numbers(row, t));
      if (number >= 0 && number < end) return Problem();
      Problem problem = problem_at(ErrorKind::option, door, tensor).append("expected 0 <= id < ").append(end);
      problem.append(", got ").append(number).append(" at position [").append(row).append(", ").append(t);
      return problem.append("]");
    };
    for (Index t = 0; t < ids.extent(1); ++t) {
      if (!present(call)(row, t)) continue;
      if (const Problem problem = check_number("ids", ids, t, vocabulary_size())) return problem;
      if (!call.token_types.present()) continue;
      if (const Problem problem = check_number("token_types", call.token_types, t, data_->token_types.extent(0))) {
        return problem;
      }
    }
    const Index tokens = present(call).count(row, ids.extent(1));
    if (tokens <= max_tokens()) return {};
    return problem_at(ErrorKind::option, door, "ids")
        .append("expected rows of at most ")
        .append(max_tokens())
        .append(" tokens, got ")
        .append(tokens)
        .append(" in batch row ")
        .append(row);
  }

  struct Buffers {
    View<T, 2> x;                      // [tokens, E]: all rows without their padding, one after the other
    View<T, 2> y;                      // [tokens, E]
    View<std::int64_t, 2> numbers;     // [3, tokens]: ids, positions, token types
    View<std::int64_t, 1> cu_seqlens;  // [batch + 1]
    View<A, 1> sum;                    // [E]
  };
  Buffers take(Workspace& workspace, Index batch, Index tokens) const noexcept {
    Buffers buffers;
    buffers.x = workspace.take<T>({tokens, hidden_size()});
    buffers.y = workspace.take<T>({tokens, hidden_size()});
    buffers.numbers = workspace.take<std::int64_t>({Index{3}, tokens});
    buffers.cu_seqlens = View<std::int64_t, 1>(workspace.take<std::int64_t>(batch + 1), {batch + 1});
    buffers.sum = View<A, 1>(workspace.take<A>(hidden_size()), {hidden_size()});
    return buffers;
  }

  // The hidden states after the last layer, in the workspace.
  Buffers run(const B& backend, View<const std::int64_t, 2> ids, Workspace& workspace, const Call& call) const {
    Index tokens = 0;
    for (Index b = 0; b < ids.extent(0); ++b) tokens += present(call).count(b, ids.extent(1));
    const Buffers buffers = take(workspace, ids.extent(0), tokens);
    Index next = 0;
    for (Index b = 0; b < ids.extent(0); ++b) {
      buffers.cu_seqlens(b) = next;
      for (Index t = 0; t < ids.extent(1); ++t) {
        if (!present(call)(b, t)) continue;
        buffers.numbers(0, next) = ids(b, t);
        buffers.numbers(1, next) = next - buffers.cu_seqlens(b);
        buffers.numbers(2, next) = call.token_types.present() ? call.token_types(b, t) : 0;
        ++next;
      }
    }
    buffers.cu_seqlens(ids.extent(0)) = next;
    if (next == 0) return buffers;

    const View<const T, 2> tables[] = {data_->words, data_->positions, data_->token_types};
    ops::embedding(backend, buffers.numbers[0], tables[0], buffers.x);
    for (Index table = 1; table < 3; ++table) {
      ops::embedding(backend, buffers.numbers[table], tables[table], buffers.y);
      impl::add_rows<T>(backend, buffers.y, buffers.x);
    }
    data_->norm.forward(backend, buffers.x, buffers.x);
    for (const auto& block : data_->blocks) block.forward(backend, buffers.x, buffers.cu_seqlens, workspace);
    return buffers;
  }

  // The mean of rows, over its length; 0 if that is 0.
  static void mean_direction(View<const T, 2> rows, View<A, 1> sum, View<T, 1> out) noexcept {
    impl::fill_row(sum, A{});
    for (Index t = 0; t < rows.extent(0); ++t) {
      for (Index i = 0; i < sum.extent(0); ++i) sum(i) += widen(rows(t, i));
    }
    A squares = 0;
    for (Index i = 0; i < sum.extent(0); ++i) {
      sum(i) /= static_cast<A>(rows.extent(0) > 0 ? rows.extent(0) : 1);
      squares += sum(i) * sum(i);
    }
    const A length = std::sqrt(squares);
    for (Index i = 0; i < sum.extent(0); ++i) out(i) = narrow<T>(length > 0 ? sum(i) / length : A{});
  }

  std::shared_ptr<const Data> data_;
};

}  // namespace heed::inline HEED_ABI
