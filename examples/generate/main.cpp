// heed_generate: continues a text with a checkpoint of the Llama family, token by token.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "generator.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tokenizer.hpp"
#include "unicode.hpp"

namespace generate {

namespace {

enum Exit { done = 0, bad_input = 2 };

struct Options {
  std::string folder;
  std::string prompt;
  std::string file;
  std::string cache = "static";
  std::int64_t seed = 1;
  std::int64_t threads = 0;
  bool ids = false;
  bool json = false;
  bool quiet = false;
  bool no_stop = false;
  bool infini = false;
  InfiniOptions infini_options;
  GenerateOptions generate;

  bool prompt_given = false;
  bool cache_given = false;
  bool window_given = false;
  bool segment_given = false;  // or the gate
};

// Something the user can mend; ends the program with a message and exit code 2.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(const Options& options) {
  const SamplerOptions& sampler = options.generate.sampler;
  if (options.prompt_given == !options.file.empty()) throw BadInput("give a prompt or --file FILE, one of them");
  if (options.generate.max_tokens < 1) throw BadInput("--max-tokens must be at least 1");
  if (options.generate.max_tokens > 1'000'000'000) throw BadInput("--max-tokens must be at most 1,000,000,000");
  if (!(sampler.temperature >= 0 && std::isfinite(sampler.temperature))) {
    throw BadInput("--temperature must be 0 or more");
  }
  if (sampler.top_k < 0) throw BadInput("--top-k must be 0 or more");
  if (!(sampler.top_p > 0 && sampler.top_p <= 1)) throw BadInput("--top-p must be above 0 and at most 1");
  if (sampler.temperature == 0 && (sampler.top_k != 0 || sampler.top_p != 1)) {
    throw BadInput("--top-k and --top-p need a --temperature above 0");
  }
  if (options.generate.window < 1) throw BadInput("--window must be at least 1");
  if (options.window_given && options.generate.cache != Cache::sliding)
    throw BadInput("--window needs --cache sliding");
  if (options.infini && options.cache_given) throw BadInput("--infini has no --cache: its state is of fixed size");
  if (!options.infini && options.segment_given) throw BadInput("--segment and --gate need --infini");
  if (options.infini_options.segment_length < 1) throw BadInput("--segment must be at least 1");
  if (!(options.infini_options.gate >= 0 && options.infini_options.gate <= 1)) {
    throw BadInput("--gate must be between 0 and 1");
  }
  if (options.seed < 0) throw BadInput("--seed must not be negative");
  if (options.threads < 0 || options.threads > 1024) throw BadInput("--threads must be 1 to 1024, or 0 for all cores");
}

// "1 2 3", with whatever is no digit between the numbers.
std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = text.find_first_not_of(" ,\n\t[]"); at < text.size();
       at = text.find_first_not_of(" ,\n\t[]", at)) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    if (end == at || end - at > 9) throw BadInput("--ids: expected token ids, got \"" + common::printable(text) + "\"");
    ids.push_back(std::stoll(text.substr(at, end - at)));
    at = end;
  }
  return ids;
}

std::string amount(std::size_t count, const char* what) {
  return common::with_commas(static_cast<std::int64_t>(count)) + " " + what + (count == 1 ? "" : "s");
}

std::string speed(std::size_t tokens, double seconds) {
  const double rate = static_cast<double>(tokens) / std::max(seconds, 1e-9);
  return common::format("%.2f s", seconds) + (tokens == 0 ? "" : common::format(" (%.1f tokens a second)", rate));
}

int run(const Options& options) {
  const Generator generator(options.folder, options.infini ? std::optional(options.infini_options) : std::nullopt);
  std::optional<text::Tokenizer> tokenizer;
  const std::string tokenizer_file = options.folder + "/tokenizer.json";
  if (!options.ids && !std::filesystem::exists(tokenizer_file)) {
    throw BadInput(tokenizer_file + ": no such file; without it, give the prompt as token ids with --ids");
  }
  if (!options.ids) tokenizer = text::Tokenizer::open(tokenizer_file);

  const std::string text = options.file.empty() ? options.prompt : text::read_file(options.file);
  const std::vector<std::int64_t> prompt = options.ids ? numbers(text) : tokenizer->encode(text);
  if (prompt.empty()) throw BadInput("the prompt has no tokens");
  for (const std::int64_t id : prompt) {
    if (id >= generator.vocabulary_size()) {
      throw BadInput("the prompt's token " + std::to_string(id) + " is not one of the model's " +
                     std::to_string(generator.vocabulary_size()));
    }
  }
  const std::int64_t total = static_cast<std::int64_t>(prompt.size()) + options.generate.max_tokens;
  if (!options.infini && generator.max_positions() > 0 && total > generator.max_positions()) {
    throw BadInput("the prompt's " + std::to_string(prompt.size()) + " tokens and --max-tokens " +
                   std::to_string(options.generate.max_tokens) + " are more than the " +
                   std::to_string(generator.max_positions()) + " positions that the model was made for");
  }

  common::Threads threads(static_cast<int>(options.threads));
  const heed::Cpu cpu(threads);
  std::optional<text::StreamDecoder> stream;
  if (tokenizer) {  // what the prompt ends with decides how the first token is written
    stream.emplace(*tokenizer);
    for (const std::int64_t id : prompt) stream->push(id);
  }
  std::string written;
  bool first = true;
  const auto write = [&](const std::string& part) {
    written += part;
    if (options.json) return;
    std::fputs(part.c_str(), stdout);
    std::fflush(stdout);
  };
  const Generated result = generator.generate(cpu, prompt, options.generate, [&](std::int64_t id) {
    write(stream ? stream->push(id) : (first ? "" : " ") + std::to_string(id));
    first = false;
    return std::ferror(stdout) == 0;
  });
  if (stream) write(stream->finish());

  const std::size_t count = result.ids.size();
  const std::size_t later = count == 0 ? 0 : count - 1;  // the first one comes with the prompt
  if (options.json) {
    nlohmann::ordered_json report;
    report["prompt_ids"] = prompt;
    report["ids"] = result.ids;
    if (tokenizer) report["text"] = written;
    report["stopped"] = result.stopped;
    report["prompt_seconds"] = result.prompt_seconds;
    report["seconds"] = result.seconds;
    report["tokens_per_second"] = static_cast<double>(later) / std::max(result.seconds, 1e-9);
    std::puts(report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::puts("");
    if (!options.quiet) {
      std::fflush(stdout);
      std::fprintf(stderr, "prompt: %s in %s\ntext: %s in %s%s\n", amount(prompt.size(), "token").c_str(),
                   speed(prompt.size(), result.prompt_seconds).c_str(), amount(count, "token").c_str(),
                   speed(later, result.seconds).c_str(), result.stopped ? ", ended by the model" : "");
    }
  }
  return done;
}

}  // namespace

}  // namespace generate

int main(int argc, char** argv) {
  using generate::Cache;
  generate::Options options;
  generate::GenerateOptions& how = options.generate;
  CLI::App app("Continues a text with a checkpoint of the Llama family, token by token.", "heed_generate");
  app.add_option("DIR", options.folder, "Folder of the checkpoint: config.json, model.safetensors, tokenizer.json")
      ->required();
  auto* prompt = app.add_option("PROMPT", options.prompt, "The text to continue");
  app.add_option("--file", options.file, "Continue the text in this file");
  app.add_option("--max-tokens", how.max_tokens, "How many tokens at most")->capture_default_str();
  app.add_option("--temperature", how.sampler.temperature,
                 "0: always the likeliest token; 1: by the model's probabilities")
      ->capture_default_str();
  app.add_option("--top-k", how.sampler.top_k, "Only so many of the likeliest tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", how.sampler.top_p, "Only the likeliest tokens that together have this probability")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of the choices")->capture_default_str();
  const std::map<std::string, Cache> caches = {
      {"static", Cache::full}, {"sliding", Cache::sliding}, {"int8", Cache::int8}};
  auto* cache =
      app.add_option("--cache", options.cache,
                     "What is kept of the tokens so far: static all, sliding the last ones, int8 all as 8-bit codes")
          ->check(CLI::IsMember({"static", "sliding", "int8"}))
          ->capture_default_str();
  auto* window = app.add_option("--window", how.window, "Tokens that a sliding cache keeps")->capture_default_str();
  app.add_flag(
      "--infini", options.infini,
      "Infini-attention instead of a cache: any length in constant memory. Without gates in the checkpoint the "
      "memory counts nothing, and attention ends at segments");
  auto* segment = app.add_option("--segment", options.infini_options.segment_length, "Tokens of a segment of --infini")
                      ->capture_default_str();
  auto* gate = app.add_option("--gate", options.infini_options.gate,
                              "The memory's share where the checkpoint does not say, 0 to 1")
                   ->capture_default_str();
  app.add_flag("--ids", options.ids, "The prompt is token ids, and token ids are printed");
  app.add_flag("--no-stop", options.no_stop, "Go on after tokens that end a text");
  app.add_option("--threads", options.threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON, at the end");
  app.add_flag("--quiet", options.quiet, "Do not report the speed");
  app.footer("Exit code: 0 done, 2 bad input.");

  try {
    app.parse(argc, argv);
    how.cache = caches.at(options.cache);
    how.stop = !options.no_stop;
    how.sampler.seed = static_cast<std::uint64_t>(options.seed);
    options.prompt_given = prompt->count() > 0;
    options.cache_given = cache->count() > 0;
    options.window_given = window->count() > 0;
    options.segment_given = segment->count() + gate->count() > 0;
    generate::check(options);
    return generate::run(options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "heed_generate: %s\n", error.what());
  } catch (const std::exception& error) {  // what the user gave, or what is wrong with a file
    std::fprintf(stderr, "heed_generate: %s\n", error.what());
  }
  return generate::bad_input;
}
