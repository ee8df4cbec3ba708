// The parts of a tokenizer.json but the model: what is done to a text before it is cut into pieces, how it is cut, and
// how tokens become text again. Inside of tokenizer.cpp.
#pragma once

#include <unicode/regex.h>

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "unicode.hpp"

namespace text {

// A value of a JSON document and where it stands there, so that every error can say so: "tokenizer.json: model.merges".
class Node {
 public:
  Node(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  [[noreturn]] void fail(const std::string& reason) const { throw BadFile(place_ + ": " + reason); }

  bool present() const { return !value_->is_null(); }
  const nlohmann::json& json() const { return *value_; }

  // Members; a missing one is null.
  Node operator[](const char* name) const;
  // An array's items, or a null's: none.
  std::vector<Node> items() const;

  std::string string() const;
  std::string string(const char* otherwise) const { return present() ? string() : std::string(otherwise); }
  bool flag(bool otherwise) const;
  std::int64_t id() const;  // 0 ... 2^31 - 1
  // The member "type", which says what kind of a part an object is.
  std::string type() const { return (*this)["type"].string(); }
  // An error unless the member is left out, null, false, 0, "" or []: what this program does not do.
  void refuse(const char* name) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

// A regular expression, or a fixed string, looked for in UTF-8.
class Pattern {
 public:
  struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool match = false;
  };

  // {"Regex": "..."} or {"String": "..."}
  explicit Pattern(const Node& node);
  // A regular expression, as Oniguruma reads it.
  explicit Pattern(const std::string& regex);

  // The matches and what is between them, in order, without empty ones.
  std::vector<Span> cut(std::string_view text) const;
  std::string replace(std::string_view text, std::string_view with) const;

 private:
  void compile(const std::string& regex);

  std::string fixed_;
  std::unique_ptr<const icu::RegexPattern> regex_;
};

// One step of the normalizer.
struct NormalizerStep {
  enum class Kind { prepend, replace, form, lowercase } kind = Kind::form;
  Form form = Form::nfc;
  std::string content;
  std::shared_ptr<const Pattern> pattern;
};
std::vector<NormalizerStep> read_normalizer(const Node& node);
std::string normalize(const std::vector<NormalizerStep>& steps, std::string text);

// One step of the pre-tokenizer: cuts every piece into smaller ones.
struct CutStep {
  enum class Kind { split, bytes, metaspace } kind = Kind::split;
  enum class Behavior { removed, isolated, with_previous, with_next, contiguous } behavior = Behavior::isolated;
  bool invert = false;
  std::shared_ptr<const Pattern> pattern;
  bool prefix_space = false;  // bytes: a space in front of every piece that has none
  std::string replacement;    // metaspace: what stands for a space
  enum class Prepend { never, first, always } prepend = Prepend::never;
};
std::vector<CutStep> read_pre_tokenizer(const Node& node);
// `first`: the text is the beginning of what the user gave.
std::vector<std::string> cut(const std::vector<CutStep>& steps, std::string text, bool first);

// What a token becomes; steps work on tokens one by one.
struct DecoderStep {
  enum class Kind { bytes, replace, fallback, strip_start } kind = Kind::bytes;
  std::shared_ptr<const Pattern> pattern;
  std::string content;
  std::size_t count = 0;
};
std::vector<DecoderStep> read_decoder(const Node& node);
// The bytes of one token; `first`: no text stands before it.
std::string decode(const std::vector<DecoderStep>& steps, std::string token, bool first);

// GPT-2's letters for bytes: visible ones for themselves, the other 68 for U+0100 and on.
std::string letters_of_bytes(std::string_view bytes);

}  // namespace text
