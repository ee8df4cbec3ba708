// To build something of your own on heed::CausalLM, read this file first.
#include "generator.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "heed/models/causal_lm.hpp"
#include "infini_model.hpp"
#include "unicode.hpp"

namespace generate {

namespace {

using heed::Index;

// A prompt is read in pieces, which bounds the scratch memory; the cut changes no bit.
constexpr Index most_tokens = 512;

nlohmann::json read_object(const std::string& path) {
  auto json = nlohmann::json::parse(text::read_file(path), nullptr, false);
  if (!json.is_object()) throw text::BadFile(path + ": is not a JSON object");
  return json;
}

// eos_token_id: a number, a list of them, or nothing.
std::vector<std::int64_t> read_end_tokens(const nlohmann::json& config, const std::string& path) {
  std::vector<std::int64_t> ids;
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return ids;
  for (const nlohmann::json& id : found->is_array() ? *found : nlohmann::json::array({*found})) {
    if (!id.is_number_integer()) throw text::BadFile(path + ": eos_token_id: expected a number or a list of numbers");
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

// One of the two.
struct Generator::Model {
  std::optional<heed::CausalLM<float>> lm;
  std::optional<InfiniModel> infini;
};

Generator::Generator(const std::string& folder, const std::optional<InfiniOptions>& infini) {
  auto model = std::make_unique<Model>();
  if (infini) {
    model->infini.emplace(folder, *infini);
  } else {
    model->lm.emplace(heed::CausalLM<float>::from_folder(folder));
  }
  model_ = std::move(model);
  const std::string path = folder + "/config.json";
  const nlohmann::json config = read_object(path);
  if (const auto found = config.find("max_position_embeddings"); found != config.end() && found->is_number_integer()) {
    max_positions_ = found->get<std::int64_t>();
  }
  end_tokens_ = read_end_tokens(config, path);
  // The settings of generation go first, where a checkpoint has them: Llama 3's chat models end texts by other tokens.
  const std::string settings = folder + "/generation_config.json";
  if (std::filesystem::exists(settings)) {
    if (const auto ids = read_end_tokens(read_object(settings), settings); !ids.empty()) end_tokens_ = ids;
  }
}

Generator::~Generator() = default;

std::int64_t Generator::vocabulary_size() const {
  return model_->infini ? model_->infini->vocabulary_size() : model_->lm->vocabulary_size();
}

template <class NextLogits>
Generated Generator::run(std::span<const std::int64_t> prompt, const GenerateOptions& options,
                         const std::function<bool(std::int64_t)>& on_token, const NextLogits& next_logits) const {
  heed::Tensor<float, 2> logits({Index{1}, vocabulary_size()});
  Sampler sampler(options.sampler);
  Generated result;

  auto start = std::chrono::steady_clock::now();
  const auto prompt_size = static_cast<Index>(prompt.size());
  const heed::View<const std::int64_t, 2> ids(prompt.data(), {Index{1}, prompt_size});
  for (Index at = 0; at < prompt_size; at += most_tokens) {
    next_logits(ids.slice(1, at, std::min(most_tokens, prompt_size - at)), logits);
  }
  result.prompt_seconds = seconds_since(start);

  start = std::chrono::steady_clock::now();
  while (static_cast<std::int64_t>(result.ids.size()) < options.max_tokens) {
    const std::int64_t token = sampler.next(logits.span());
    if (token < 0) throw std::runtime_error("the model's logits are not numbers");
    result.stopped = options.stop && std::ranges::find(end_tokens_, token) != end_tokens_.end();
    if (result.stopped) break;
    result.ids.push_back(token);
    if (!on_token(token)) break;
    if (static_cast<std::int64_t>(result.ids.size()) == options.max_tokens) break;
    next_logits(heed::View<const std::int64_t, 2>(&token, {Index{1}, Index{1}}), logits);
  }
  result.seconds = seconds_since(start);
  return result;
}

Generated Generator::generate(const heed::Cpu& cpu, std::span<const std::int64_t> prompt,
                              const GenerateOptions& options, const std::function<bool(std::int64_t)>& on_token) const {
  const Index at_once = std::min(most_tokens, static_cast<Index>(prompt.size()));
  if (model_->infini) {
    InfiniModel::Stream stream(*model_->infini, cpu, at_once);
    return run(prompt, options, on_token,
               [&](const auto& ids, heed::View<float, 2> logits) { stream.next_logits(ids, logits); });
  }
  const heed::CausalLM<float>& lm = *model_->lm;
  const auto with = [&](auto caches) {
    heed::Workspace workspace(lm.workspace_size(cpu, caches, at_once));
    return run(prompt, options, on_token, [&](const auto& ids, heed::View<float, 2> logits) {
      lm.next_logits(cpu, ids, caches, logits, workspace);
    });
  };
  const auto capacity = static_cast<Index>(prompt.size()) + static_cast<Index>(options.max_tokens);
  switch (options.cache) {
    case Cache::sliding:
      return with(lm.make_caches<heed::SlidingKvCache<float>>(Index{1}, static_cast<Index>(options.window)));
    case Cache::int8: return with(lm.make_caches<heed::Int8KvCache<float>>(Index{1}, capacity));
    case Cache::full: break;
  }
  return with(lm.make_caches<heed::StaticKvCache<float>>(Index{1}, capacity));
}

}  // namespace generate
