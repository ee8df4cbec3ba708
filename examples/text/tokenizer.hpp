// The byte-pair tokenizer of a tokenizer.json, as Hugging Face's tokenizers write it: byte-level BPE (GPT-2, Llama 3,
// Qwen) and BPE over letters with byte fallback (Llama 2, Mistral, Gemma).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace text {

// What is understood:
//   normalizer      Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase
//   pre_tokenizer   Sequence, Split, ByteLevel, Metaspace, Digits
//   model           BPE, with byte_fallback, fuse_unk, ignore_merges, unk_token
//   post_processor  Sequence, ByteLevel, TemplateProcessing
//   decoder         Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip
// Anything else is an error, never ignored; but truncation and padding, which are the caller's.
class Tokenizer {
 public:
  // Errors: BadFile, with the path and the place in the file.
  static Tokenizer open(const std::string& path);
  // The same of a file's text; `source` names it in errors.
  static Tokenizer parse(std::string_view json, const std::string& source = "tokenizer.json");

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // A text's tokens; with `special`, what the file's post-processor adds too (mostly a token that begins the text). A
  // special token written in the text is that token. Bytes that are not UTF-8 become U+FFFD.
  std::vector<std::int64_t> encode(std::string_view text, bool special = true) const;

  // The text of tokens, special ones left out, ids that there are not as well.
  std::string decode(std::span<const std::int64_t> ids) const;

  std::optional<std::int64_t> id(std::string_view token) const;
  // The largest id and one.
  std::int64_t size() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

// decode(), token by token: bytes of a letter that later tokens complete are held back until they do.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What the next token adds; always whole letters.
  std::string push(std::int64_t id);
  // What is held back, its bytes replaced by U+FFFD; the next text may begin.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
  bool begun_ = false;
};

}  // namespace text
