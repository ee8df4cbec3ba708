// BERT's tokenizer: basic tokenization and WordPiece, after the rules published with the model
// (github.com/google-research/bert, "Tokenization"), in the order in which Hugging Face's tokenizers apply them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text {

// Finds std::string keys by string_view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Ids = std::unordered_map<std::string, std::int64_t, StringHash, std::equal_to<>>;

struct WordPieceOptions {
  bool lowercase = true;
  bool strip_accents = true;
  bool split_chinese = true;        // a space around each CJK ideograph
  std::size_t longest_word = 100;   // code points; a longer word is [UNK]
  std::string continuation = "##";  // in front of a piece that does not begin a word
};

class WordPiece {
 public:
  // `vocabulary`: one token a line; a line's number is its token's id. `source` names it in errors. Errors: BadFile if
  // [UNK], [CLS] or [SEP] is missing, or a token is there twice.
  explicit WordPiece(std::string_view vocabulary, WordPieceOptions options = {},
                     const std::string& source = "vocab.txt");

  // From a model's folder: vocab.txt, and tokenizer_config.json where there is one. Errors: BadFile.
  static WordPiece open(const std::string& folder);

  // [CLS] pieces... [SEP], of at most `longest` tokens (at least 2) with the two: what is longer loses its end. Bytes
  // that are not UTF-8 become U+FFFD, which is dropped, as BERT does. A special token written in the text is that token.
  std::vector<std::int64_t> encode(std::string_view text, std::size_t longest) const;

  // The words that WordPiece cuts up: cleaned, lower-cased, without accents; punctuation stands alone.
  std::vector<std::string> words(std::string_view text) const;

  std::size_t size() const { return size_; }
  // −1 if there is no such token.
  std::int64_t id(std::string_view token) const;

 private:
  void append_pieces(std::string_view word, std::vector<std::int64_t>& ids) const;

  WordPieceOptions options_;
  Ids ids_;
  std::size_t size_ = 0;
  std::int64_t unknown_ = 0, begin_ = 0, end_ = 0;
  std::vector<std::string> special_;  // those of [PAD], [UNK], [CLS], [SEP], [MASK] that the vocabulary has
};

}  // namespace text
