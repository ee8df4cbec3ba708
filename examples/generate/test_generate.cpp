// The sampler against probabilities worked out by hand, and the generator against tokens that Transformers gave.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "generator.hpp"
#include "heed/io/safetensors_reader.hpp"
#include "sampler.hpp"
#include "threads.hpp"

using generate::Cache;
using generate::GenerateOptions;
using generate::Generator;
using generate::Sampler;
using generate::SamplerOptions;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

// How often each token comes, as a share of `count`.
std::map<std::int64_t, double> shares(const SamplerOptions& options, std::vector<float> logits, int count = 40'000) {
  Sampler sampler(options);
  std::map<std::int64_t, double> shares;
  for (int i = 0; i < count; ++i) ++shares[sampler.next(logits)];
  for (auto& [id, share] : shares) share /= count;
  return shares;
}

// Within five standard deviations of what was expected, and nothing else.
void check_shares(const SamplerOptions& options, const std::vector<float>& logits,
                  const std::map<std::int64_t, double>& expected) {
  const int count = 40'000;
  const auto seen = shares(options, logits, count);
  CHECK(seen.size() == expected.size());
  for (const auto& entry : expected) {  // not [id, share]: CAPTURE's lambda may not have those
    const std::int64_t id = entry.first;
    const double share = entry.second;
    CAPTURE(id);
    REQUIRE(seen.contains(id));
    CHECK(std::abs(seen.at(id) - share) < 5 * std::sqrt(share * (1 - share) / count) + 1e-12);
  }
}

float log_of(double probability) {
  return static_cast<float>(std::log(probability));
}

}  // namespace

TEST_CASE("greedy takes the highest logit, and of equal ones the first") {
  Sampler sampler({});
  CHECK(sampler.next(std::vector<float>{1, 3, 2}) == 1);
  CHECK(sampler.next(std::vector<float>{3, 1, 3}) == 0);
  CHECK(sampler.next(std::vector<float>{-infinity, -5}) == 1);
  CHECK(sampler.next(std::vector<float>{no_number, -5, no_number, -4}) == 3);
  CHECK(sampler.next(std::vector<float>{no_number, no_number}) == -1);
  CHECK(sampler.next(std::vector<float>{}) == -1);
}

TEST_CASE("sampling follows the probabilities, as temperature, top-k and top-p leave them") {
  const std::vector<float> logits = {log_of(0.1), log_of(0.4), log_of(0.2), log_of(0.3)};
  check_shares({.temperature = 1}, logits, {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
  // Squares of the probabilities: 1, 16, 4 and 9, of 30.
  check_shares({.temperature = 0.5}, logits, {{0, 1 / 30.0}, {1, 16 / 30.0}, {2, 4 / 30.0}, {3, 9 / 30.0}});
  check_shares({.temperature = 1, .top_k = 2}, logits, {{1, 4 / 7.0}, {3, 3 / 7.0}});
  check_shares({.temperature = 1, .top_k = 9}, logits, {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
  check_shares({.temperature = 1, .top_k = 1}, logits, {{1, 1}});
  // 0.4 is not yet 0.5, 0.4 + 0.3 is.
  check_shares({.temperature = 1, .top_p = 0.5}, logits, {{1, 4 / 7.0}, {3, 3 / 7.0}});
  check_shares({.temperature = 1, .top_p = 0.8}, logits, {{1, 4 / 9.0}, {2, 2 / 9.0}, {3, 3 / 9.0}});
  check_shares({.temperature = 1, .top_p = 1e-9}, logits, {{1, 1}});
  // top-p of what top-k left: 4/7 is 0.57.
  check_shares({.temperature = 1, .top_k = 2, .top_p = 0.55}, logits, {{1, 1}});
  check_shares({.temperature = 1}, {-infinity, 0, no_number, 0}, {{1, 0.5}, {3, 0.5}});
  check_shares({.temperature = 1}, {0, infinity}, {{1, 1}});
  check_shares({.temperature = 1e-30}, logits, {{1, 1}});
  check_shares({.temperature = 1e30}, logits, {{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}});
}

TEST_CASE("a seed says which tokens come") {
  const std::vector<float> logits(1000, 0.0F);
  const auto ten = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 10; ++i) ids.push_back(sampler.next(logits));
    return ids;
  };
  CHECK(ten(1) == ten(1));
  CHECK(ten(1) != ten(2));
}

TEST_CASE("small checkpoints give the tokens that Transformers gave, with every cache and however it stops") {
  for (const std::string name : {"tiny_llama", "tiny_llama3_tied"}) {
    CAPTURE(name);
    const std::string at = HEED_GENERATE_MODELS + ("/" + name);
    const auto file = heed::SafetensorsReader::open(at + ".safetensors");
    const auto prompt = file.read_flat<std::int64_t>("input.input_ids");
    const auto expected = file.read_flat<std::int64_t>("output.generated_ids");
    const std::vector<std::int64_t> want(expected.span().begin(), expected.span().end());
    const Generator generator(at);
    CHECK(generator.vocabulary_size() == 97);
    common::Threads threads(2);
    const heed::Cpu cpu(threads);
    const auto run = [&](GenerateOptions options, std::int64_t ask = 1000) {
      std::vector<std::int64_t> given;
      options.stop = false;
      const auto result = generator.generate(cpu, prompt.span(), options, [&](std::int64_t id) {
        given.push_back(id);
        return static_cast<std::int64_t>(given.size()) < ask;
      });
      CHECK(result.ids == given);
      CHECK_FALSE(result.stopped);
      return given;
    };
    CHECK(run({.max_tokens = 20}) == want);
    CHECK(run({.max_tokens = 20, .cache = Cache::int8}) == want);
    CHECK(run({.max_tokens = 20, .cache = Cache::sliding, .window = 200}) == want);
    CHECK(run({.max_tokens = 20, .cache = Cache::sliding, .window = 4}) != want);
    CHECK(run({.max_tokens = 20, .sampler = {.temperature = 1, .top_k = 1}}) == want);
    CHECK(run({.max_tokens = 7}) == std::vector(want.begin(), want.begin() + 7));
    CHECK(run({.max_tokens = 20}, 3) == std::vector(want.begin(), want.begin() + 3));
    const auto sampled = run({.max_tokens = 20, .sampler = {.temperature = 2, .seed = 5}});
    CHECK(sampled != want);
    CHECK(sampled == run({.max_tokens = 20, .sampler = {.temperature = 2, .seed = 5}}));
  }
}

// In its first segment Infini-attention is plain causal attention, whatever the gates.
TEST_CASE("with Infini-attention the recorded tokens come too, as long as they are in one segment") {
  for (const std::string name : {"tiny_llama", "tiny_llama3_tied"}) {
    CAPTURE(name);
    const std::string at = HEED_GENERATE_MODELS + ("/" + name);
    const auto file = heed::SafetensorsReader::open(at + ".safetensors");
    const auto prompt = file.read_flat<std::int64_t>("input.input_ids");
    const auto expected = file.read_flat<std::int64_t>("output.generated_ids");
    const std::vector<std::int64_t> want(expected.span().begin(), expected.span().end());
    const auto run = [&](const generate::InfiniOptions& infini) {
      const Generator generator(at, infini);
      return generator
          .generate(heed::Cpu(), prompt.span(), {.max_tokens = 20, .stop = false}, [](std::int64_t) { return true; })
          .ids;
    };
    for (const double gate : {0.0, 0.5, 1.0}) {
      CHECK(run({.segment_length = 200, .gate = gate}) == want);
    }
    CHECK(run({.segment_length = 4, .gate = 0.5}) != want);
    CHECK(run({.segment_length = 4, .gate = 0.5}) != run({.segment_length = 4, .gate = 0}));
  }
}

TEST_CASE("a text ends where generation_config.json says so") {
  const std::string at = HEED_GENERATE_MODELS + std::string("/tiny_llama");
  const auto file = heed::SafetensorsReader::open(at + ".safetensors");
  const auto prompt = file.read_flat<std::int64_t>("input.input_ids");
  const auto expected = file.read_flat<std::int64_t>("output.generated_ids");
  const std::filesystem::path folder = std::filesystem::path(HEED_GENERATE_SCRATCH) / "ends";
  std::filesystem::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(at + "/" + name, folder / name, std::filesystem::copy_options::overwrite_existing);
  }
  CHECK(Generator(at).end_tokens().front() == 2);
  const std::string settings = (folder / "generation_config.json").string();
  const auto write = [&](const std::string& text) {
    std::FILE* out = std::fopen(settings.c_str(), "w");
    REQUIRE(out != nullptr);
    std::fputs(text.c_str(), out);
    std::fclose(out);
  };
  write("{\"eos_token_id\": [96, " + std::to_string(expected(5)) + "]}");
  heed::Index first = 0;
  while (expected(first) != expected(5) && expected(first) != 96) ++first;
  const Generator generator(folder.string());
  const auto result =
      generator.generate(heed::Cpu(), prompt.span(), {.max_tokens = 20}, [](std::int64_t) { return true; });
  CHECK(result.stopped);
  CHECK(result.ids == std::vector<std::int64_t>(expected.span().begin(), expected.span().begin() + first));
  write("{\"eos_token_id\": \"two\"}");
  CHECK_THROWS_WITH((void)Generator(folder.string()),
                    (settings + ": eos_token_id: expected a number or a list of numbers").c_str());
}
