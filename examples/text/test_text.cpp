// The tokenizers against what Hugging Face's recorded in data/ (data/record.py), and what no record can show.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer.hpp"
#include "unicode.hpp"
#include "wordpiece.hpp"

using nlohmann::json;
using text::Tokenizer;
using text::WordPiece;

namespace {

const std::string data = HEED_TEXT_DATA;

json read_json(const std::string& name) {
  return json::parse(text::read_file(data + "/" + name));
}

Tokenizer open(const std::string& name) {
  return Tokenizer::open(data + "/" + name + ".tokenizer.json");
}

// Of a vocabulary only the tokens are recorded that the texts need; the other lines are filled up.
std::string vocabulary_text(const json& record) {
  std::string lines;
  for (int id = 0; id < record["size"].get<int>(); ++id) {
    const auto token = record["tokens"].find(std::to_string(id));
    lines += (token == record["tokens"].end() ? "[left out " + std::to_string(id) + "]" : token->get<std::string>());
    lines += '\n';
  }
  return lines;
}

// A tokenizer.json of the fewest parts, with one member put in another's place.
std::string with(const std::string& pointer, const json& value) {
  json file = json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
                              "added_tokens": [], "decoder": {"type": "ByteLevel"}})");
  file[json::json_pointer(pointer)] = value;
  return file.dump();
}

std::string refusal(const std::string& file) {
  try {
    (void)Tokenizer::parse(file);
  } catch (const text::BadFile& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("WordPiece gives the ids that all-MiniLM-L6-v2's own tokenizer gave") {
  const json record = read_json("recorded.json")["wordpiece"];
  const json texts = read_json("texts.json");
  const WordPiece tokenizer(vocabulary_text(record));
  REQUIRE(record["ids"].size() == texts.size());
  REQUIRE(texts.size() > 30);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i].get<std::string>());
    CHECK(tokenizer.encode(texts[i].get<std::string>(), 256) == record["ids"][i].get<std::vector<std::int64_t>>());
  }
}

TEST_CASE("byte-pair tokenizers give the ids and texts that Hugging Face's gave") {
  const json texts = read_json("texts.json");
  const json recorded = read_json("recorded.json");
  REQUIRE(recorded["byte_pair"].size() == 7);
  for (const auto& entry : recorded["byte_pair"].items()) {  // not [name, record]: CAPTURE's lambda may not have those
    const std::string& name = entry.key();
    const json& record = entry.value();
    CAPTURE(name);
    const Tokenizer tokenizer = open(name);
    REQUIRE(record["ids"].size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(texts[i].get<std::string>());
      const auto ids = record["ids"][i].get<std::vector<std::int64_t>>();
      CHECK(tokenizer.encode(texts[i].get<std::string>()) == ids);
      CHECK(tokenizer.decode(ids) == record["text"][i].get<std::string>());
    }
  }
}

TEST_CASE("token by token, the same text comes out, in whole letters") {
  const json texts = read_json("texts.json");
  for (const std::string name : {"llama3", "llama2", "gemma"}) {
    CAPTURE(name);
    const Tokenizer tokenizer = open(name);
    for (const json& item : texts) {
      const std::vector<std::int64_t> ids = tokenizer.encode(item.get<std::string>());
      text::StreamDecoder stream(tokenizer);
      std::string all;
      for (const std::int64_t id : ids) {
        const std::string part = stream.push(id);
        CHECK(part == text::clean_utf8(part));
        all += part;
      }
      CHECK(stream.finish() == "");  // encoded texts are whole
      CHECK(all == tokenizer.decode(ids));
    }
  }
}

TEST_CASE("a letter that ends too early becomes U+FFFD, once, and the next text begins anew") {
  const Tokenizer tokenizer = open("llama3");
  const std::vector<std::int64_t> rocket = tokenizer.encode("\xF0\x9F\x9A\x80", false);
  REQUIRE(rocket.size() == 4);  // not learnt: byte by byte
  text::StreamDecoder stream(tokenizer);
  CHECK(stream.push(rocket[0]) == "");
  CHECK(stream.push(rocket[1]) == "");
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.push(rocket[0]) == "");
  CHECK(stream.push(tokenizer.encode("a", false)[0]) ==
        "\xEF\xBF\xBD"
        "a");
  CHECK(stream.push(-1) == "");
  CHECK(stream.push(1'000'000) == "");
}

// Unicode 15, table 3-7, and section 3.9, "U+FFFD substitution of maximal subparts".
TEST_CASE("what is UTF-8") {
  CHECK(text::sequence_length("a") == 1);
  CHECK(text::sequence_length("\xC3\xA9") == 2);
  CHECK(text::sequence_length("\xE2\x82\xAC-") == 3);
  CHECK(text::sequence_length("\xF4\x8F\xBF\xBF") == 4);
  CHECK(text::sequence_length("\xF0\x9F\x9A") == 0);
  CHECK(text::sequence_length("\xE2") == 0);
  CHECK(text::sequence_length("\x80") == -1);
  CHECK(text::sequence_length("\xC0\x80") == -1);          // overlong
  CHECK(text::sequence_length("\xED\xA0\x80") == -1);      // a surrogate
  CHECK(text::sequence_length("\xF4\x90\x80\x80") == -1);  // beyond U+10FFFF
  CHECK(text::sequence_length("\xF0\x9F\x9A"
                              "a") == -3);
  const std::string fffd = "\xEF\xBF\xBD";
  CHECK(text::clean_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                         "b\x80"
                         "c\x80\xBF"
                         "d") == "a" + fffd + fffd + fffd + "b" + fffd + "c" + fffd + fffd + "d");
  CHECK(text::clean_utf8("ab\xE2\x82") == "ab" + fffd);
}

TEST_CASE("texts that are not UTF-8 are read, and long ones in time") {
  const WordPiece wordpiece("[UNK]\n[CLS]\n[SEP]\na\n##b\n");
  CHECK(wordpiece.encode("a\xFF"
                         "b",
                         9) == std::vector<std::int64_t>{1, 3, 4, 2});
  CHECK(wordpiece.encode(std::string(1'000'000, 'a'), 9) == std::vector<std::int64_t>{1, 0, 2});
  CHECK(wordpiece.encode("a a a a", 4) == std::vector<std::int64_t>{1, 3, 3, 2});
  CHECK(wordpiece.encode("a", 2) == std::vector<std::int64_t>{1, 2});
  for (const std::string name : {"llama3", "llama2"}) {
    const Tokenizer tokenizer = open(name);
    CHECK(tokenizer.decode(tokenizer.encode("a\xFF"
                                            "b")) ==
          "a\xEF\xBF\xBD"
          "b");
    for (const char letter : {'a', ' ', '\n', '\x01'}) {
      const std::string text(300'000, letter);
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("vocabularies that are none") {
  const auto refused = [](const char* lines) {
    try {
      const WordPiece tokenizer{std::string_view(lines)};
    } catch (const text::BadFile& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("[UNK]\n[SEP]\n") == "vocab.txt: has no token [CLS]");
  CHECK(refused("[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\na") == "vocab.txt: line 5: the token is there twice: a");
  CHECK(refused("[UNK]\r\n[CLS]\r\n[SEP]") == "");
}

TEST_CASE("what a tokenizer.json asks for and this one does not do is refused, with its place") {
  CHECK(refusal(with("/version", "1.0")) == "");
  CHECK(refusal("{") == "tokenizer.json: is not JSON");
  CHECK(refusal("[]") == "tokenizer.json: is not a JSON object");
  CHECK(refusal(with("/model/type", "Unigram")) == "tokenizer.json: model.type: expected BPE, got Unigram");
  CHECK(refusal(with("/model/dropout", 0.5)) == "tokenizer.json: model.dropout: is not supported");
  CHECK(refusal(with("/model/continuing_subword_prefix", "##")) ==
        "tokenizer.json: model.continuing_subword_prefix: is not supported");
  CHECK(refusal(with("/model/merges/0", "ab")) ==
        "tokenizer.json: model.merges[0]: expected two tokens with a space between them");
  CHECK(refusal(with("/model/merges/0", "b a")) ==
        "tokenizer.json: model.merges[0]: its tokens are not all in the vocabulary: b, a");
  CHECK(refusal(with("/model/vocab/a", -1)) == "tokenizer.json: model.vocab.a: expected a number from 0 to 2^31 - 1");
  CHECK(refusal(with("/model/vocab/a", 1'000'000'000)) == "tokenizer.json: model.vocab.a: is too large");
  CHECK(refusal(with("/model/vocab", json::array())) ==
        "tokenizer.json: model.vocab: expected an object of tokens and their ids");
  CHECK(refusal(with("/model/unk_token", "?")) == "tokenizer.json: model.unk_token: is not in the vocabulary: ?");
  CHECK(refusal(with("/normalizer", {{"type", "StripAccents"}})) ==
        "tokenizer.json: normalizer: the normalizer StripAccents is not supported");
  CHECK(refusal(with("/pre_tokenizer", {{"type", "Whitespace"}})) ==
        "tokenizer.json: pre_tokenizer: the pre-tokenizer Whitespace is not supported");
  CHECK(refusal(with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}})) ==
        "tokenizer.json: pre_tokenizer.pattern.Regex: the regular expression is refused: U_REGEX_MISMATCHED_PAREN");
  CHECK(refusal(with("/decoder", nullptr)) == "tokenizer.json: decoder.type: expected a text");
  CHECK(refusal(with("/added_tokens", json::array({{{"id", 3}, {"content", ""}}}))) ==
        "tokenizer.json: added_tokens[0].content: expected a text that is not empty");
  CHECK(refusal(with("/post_processor", {{"type", "BertProcessing"}})) ==
        "tokenizer.json: post_processor: the post-processor BertProcessing is not supported");
  CHECK_THROWS_WITH_AS(Tokenizer::open("nowhere.json"), "heed: file: nowhere.json: No such file or directory",
                       text::BadFile);
}
