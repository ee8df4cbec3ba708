// The encoder against embeddings that other programs gave, and that a row does not depend on its neighbours.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "encoder.hpp"
#include "heed/io/safetensors_reader.hpp"
#include "unicode.hpp"

using embed::Encoder;
using heed::Index;

namespace {

const std::string tiny = HEED_EMBED_TINY;

std::vector<std::string> sentences_of(const heed::SafetensorsReader& file) {
  return nlohmann::json::parse(file.metadata("sentences")).get<std::vector<std::string>>();
}

// Embeddings have length 1, but for float's rounding.
double least_cosine(heed::View<const float, 2> a, heed::View<const double, 2> b) {
  REQUIRE(a.extent(0) == b.extent(0));
  REQUIRE(a.extent(1) == b.extent(1));
  double least = 1;
  for (Index row = 0; row < a.extent(0); ++row) {
    double ab = 0, aa = 0, bb = 0;
    for (Index i = 0; i < a.extent(1); ++i) {
      const auto x = static_cast<double>(a(row, i));
      ab += x * b(row, i);
      aa += x * x;
      bb += b(row, i) * b(row, i);
    }
    CHECK(std::abs(aa - 1) < 1e-5);
    least = std::min(least, ab / std::sqrt(aa * bb));
  }
  return least;
}

}  // namespace

TEST_CASE("a small model gives the embeddings of a float64 formula") {
  const auto expected = heed::SafetensorsReader::open(tiny + "/expected.safetensors");
  const Encoder encoder(tiny);
  CHECK(encoder.max_tokens() == 20);
  common::Threads threads(2);
  const auto embeddings = encoder.embed(sentences_of(expected), threads);
  const auto want = expected.read<double, 2>("embeddings");
  CHECK(least_cosine(embeddings, want) > 1 - 1e-9);
  for (Index i = 0; i < want.extent(0); ++i) {
    for (Index j = 0; j < want.extent(1); ++j) {
      CHECK(std::abs(static_cast<double>(embeddings(i, j)) - want(i, j)) < 1e-5);
    }
  }
}

// With HEED_MINILM=folder: the real model, against what sentence-transformers gave.
TEST_CASE("all-MiniLM-L6-v2 gives the recorded embeddings") {
  const char* folder = std::getenv("HEED_MINILM");
  const std::string recorded = HEED_EMBED_RECORDED;
  if (folder == nullptr || !std::filesystem::exists(recorded)) {
    MESSAGE("not run: HEED_MINILM names no folder of the model");
    return;
  }
  const auto file = heed::SafetensorsReader::open(recorded);
  const Encoder encoder(folder);
  const std::vector<std::string> sentences = sentences_of(file);
  const auto ids = file.read<std::int64_t, 2>("input.input_ids");
  const auto mask = file.read<std::int64_t, 2>("input.attention_mask");
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const auto row = static_cast<Index>(i);
    std::vector<std::int64_t> want;
    for (Index t = 0; t < ids.extent(1); ++t) {
      if (mask(row, t) != 0) want.push_back(ids(row, t));
    }
    CHECK(encoder.tokens(sentences[i]) == want);
  }
  common::Threads threads(0);
  const auto embeddings = encoder.embed(sentences, threads);
  CHECK(least_cosine(embeddings, file.read<double, 2>("output.sentence_embedding")) > 0.999999);
}

TEST_CASE("an embedding has the same bits alone, among others, and with any number of threads") {
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) texts.push_back(std::string(static_cast<std::size_t>(i % 37), 'q') + " the memory");
  const Encoder encoder(tiny);
  common::Threads one(1);
  common::Threads three(3);
  std::int64_t seen = 0;
  std::int64_t calls = 0;
  const auto many = encoder.embed(texts, three, [&](std::int64_t done) {
    CHECK(done > seen);
    seen = done;
    ++calls;
  });
  CHECK(seen == 300);
  CHECK(calls > 3);
  const auto serial = encoder.embed(texts, one);
  CHECK(std::memcmp(many.data(), serial.data(), sizeof(float) * static_cast<std::size_t>(many.size())) == 0);
  for (const std::size_t i : {std::size_t{0}, std::size_t{36}, std::size_t{299}}) {
    const auto alone = encoder.embed(std::span(&texts[i], 1), three);
    CHECK(std::memcmp(alone.data(), many.view()[static_cast<Index>(i)].span().data(),
                      sizeof(float) * static_cast<std::size_t>(alone.size())) == 0);
  }
  CHECK(encoder.embed({}, three).extent(0) == 0);
}

TEST_CASE("models of another pooling are refused") {
  const std::filesystem::path folder = std::filesystem::path(HEED_EMBED_SCRATCH) / "cls_pooling";
  std::filesystem::create_directories(folder / "1_Pooling");
  for (const char* file : {"config.json", "model.safetensors", "vocab.txt"}) {
    std::filesystem::copy_file(tiny + "/" + file, folder / file, std::filesystem::copy_options::overwrite_existing);
  }
  const std::string path = (folder / "1_Pooling" / "config.json").string();
  const auto refusal = [&](const char* config) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    REQUIRE(file != nullptr);
    std::fputs(config, file);
    std::fclose(file);
    try {
      const Encoder encoder(folder.string());
      return std::string();
    } catch (const text::BadFile& error) {
      return std::string(error.what());
    }
  };
  CHECK(refusal(R"({"word_embedding_dimension": 16, "pooling_mode_mean_tokens": true})") == "");
  CHECK(refusal(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})") ==
        path + ": pooling_mode_cls_token: only the mean over tokens is supported");
  CHECK(refusal("[1]") == path + ": is not a JSON object");
}
