// To build something of your own on heed::BertEncoder, read this file first.
#include "encoder.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "heed/models/bert_encoder.hpp"
#include "unicode.hpp"
#include "wordpiece.hpp"

namespace embed {

namespace {

using heed::Index;

nlohmann::json read_object(const std::string& path) {
  auto json = nlohmann::json::parse(text::read_file(path), nullptr, false);
  if (!json.is_object()) throw text::BadFile(path + ": is not a JSON object");
  return json;
}

// The encoder makes means of tokens; a model that was trained for another pooling would give nonsense.
void check_pooling(const std::string& folder) {
  const std::string path = folder + "/1_Pooling/config.json";
  if (!std::filesystem::exists(path)) return;
  const nlohmann::json config = read_object(path);
  for (const auto& [name, value] : config.items()) {
    if (name.starts_with("pooling_mode_") && value != (name == "pooling_mode_mean_tokens")) {
      throw text::BadFile(path + ": " + name + ": only the mean over tokens is supported");
    }
  }
}

Index read_max_tokens(const std::string& folder, Index most) {
  const std::string path = folder + "/sentence_bert_config.json";
  if (!std::filesystem::exists(path)) return most;
  const auto config = read_object(path);
  const auto found = config.find("max_seq_length");
  if (found == config.end() || found->is_null()) return most;
  if (!found->is_number_integer() || *found < 2) {
    throw text::BadFile(path + ": max_seq_length: expected a number of at least 2");
  }
  return std::min(most, found->get<Index>());
}

// Texts to run together: positions begin ... end - 1 of those sorted by length, all padded to the last one's.
struct Batch {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Rows share each weight that is loaded, up to a few hundred tokens; more only take more memory. (Padding costs nothing:
// the encoder leaves it out.)
std::vector<Batch> batches_of(std::span<const std::size_t> lengths) {
  constexpr std::size_t most_tokens = 512;
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Batch* last = batches.empty() ? nullptr : &batches.back();
    const bool fits = last != nullptr && lengths[i] * (i + 1 - last->begin) <= most_tokens;
    if (fits) {
      last->end = i + 1;
    } else {
      batches.push_back({i, i + 1});
    }
  }
  return batches;
}

}  // namespace

struct Encoder::Parts {
  text::WordPiece tokenizer;
  heed::BertEncoder<float> model;
  Index max_tokens = 0;
};

Encoder::Encoder(const std::string& folder) {
  auto parts =
      std::make_unique<Parts>(Parts{text::WordPiece::open(folder), heed::BertEncoder<float>::from_folder(folder)});
  check_pooling(folder);
  parts->max_tokens = read_max_tokens(folder, parts->model.max_tokens());
  if (static_cast<Index>(parts->tokenizer.size()) > parts->model.vocabulary_size()) {
    throw text::BadFile(folder + "/vocab.txt: has " + std::to_string(parts->tokenizer.size()) +
                        " tokens, and the model " + std::to_string(parts->model.vocabulary_size()));
  }
  parts_ = std::move(parts);
}
Encoder::~Encoder() = default;

Index Encoder::hidden_size() const {
  return parts_->model.hidden_size();
}
Index Encoder::max_tokens() const {
  return parts_->max_tokens;
}

std::vector<std::int64_t> Encoder::tokens(const std::string& text) const {
  return parts_->tokenizer.encode(text, static_cast<std::size_t>(parts_->max_tokens));
}

heed::Tensor<float, 2> Encoder::embed(std::span<const std::string> texts, common::Threads& threads,
                                      const std::function<void(std::int64_t)>& progress) const {
  const std::size_t count = texts.size();
  heed::Tensor<float, 2> embeddings({static_cast<Index>(count), hidden_size()});
  std::vector<std::vector<std::int64_t>> ids(count);
  threads.parallel_for(static_cast<Index>(count), [&](Index i, int) {
    const auto at = static_cast<std::size_t>(i);
    ids[at] = tokens(texts[at]);
  });

  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return ids[i].size(); });
  std::vector<std::size_t> lengths(count);
  for (std::size_t i = 0; i < count; ++i) lengths[i] = ids[order[i]].size();
  const std::vector<Batch> batches = batches_of(lengths);

  std::mutex mutex;
  std::int64_t done = 0;
  const auto run = [&](const heed::Cpu& cpu, const Batch& batch, heed::Workspace& workspace) {
    const auto rows = static_cast<Index>(batch.end - batch.begin);
    const auto longest = static_cast<Index>(lengths[batch.end - 1]);
    heed::Tensor<std::int64_t, 2> tokens({rows, longest});  // zeros
    heed::Tensor<bool, 2> valid({rows, longest});
    for (Index row = 0; row < rows; ++row) {
      const auto& from = ids[order[batch.begin + static_cast<std::size_t>(row)]];
      std::ranges::copy(from, tokens.view()[row].span().begin());
      std::fill_n(valid.view()[row].span().begin(), from.size(), true);
    }
    if (const std::size_t needed = parts_->model.workspace_size(cpu, rows, longest); needed > workspace.size()) {
      workspace = heed::Workspace(needed);
    }
    heed::Tensor<float, 2> out({rows, hidden_size()});
    parts_->model.embed(cpu, tokens, out, workspace, {.valid = valid});
    for (Index row = 0; row < rows; ++row) {
      const auto to = static_cast<Index>(order[batch.begin + static_cast<std::size_t>(row)]);
      std::ranges::copy(out.view()[row].span(), embeddings.view()[to].span().begin());
    }
    const std::lock_guard lock(mutex);
    done += rows;
    if (progress) progress(done);
  };

  if (static_cast<int>(batches.size()) < threads.concurrency()) {  // all threads at one batch
    const heed::Cpu cpu(threads);
    heed::Workspace workspace;
    for (const Batch& batch : batches) run(cpu, batch, workspace);
  } else {  // one thread a batch: they need not wait for each other; the longest ones first
    const heed::Cpu cpu;
    std::vector<heed::Workspace> workspaces(static_cast<std::size_t>(threads.concurrency()));
    threads.parallel_for(static_cast<Index>(batches.size()), [&](Index i, int worker) {
      run(cpu, batches[batches.size() - 1 - static_cast<std::size_t>(i)], workspaces[static_cast<std::size_t>(worker)]);
    });
  }
  return embeddings;
}

std::vector<float> cosines(heed::View<const float, 2> query, heed::View<const float, 2> embeddings,
                           common::Threads& threads) {
  std::vector<float> cosines(static_cast<std::size_t>(embeddings.extent(0)));
  // Embeddings have length 1, so the products are the cosines.
  heed::ops::linear(heed::Cpu(threads), query, embeddings, {},
                    heed::View<float, 2>(cosines.data(), {Index{1}, embeddings.extent(0)}));
  return cosines;
}

}  // namespace embed
