#include "wordpiece.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "unicode.hpp"

namespace text {

namespace {

// "CJK" as BERT means it: ideographs, not kana and not hangul.
bool is_ideograph(UChar32 letter) {
  constexpr UChar32 ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                                   {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(ranges, [&](const auto& range) { return letter >= range[0] && letter <= range[1]; });
}

bool is_space(UChar32 letter) {
  return u_hasBinaryProperty(letter, UCHAR_WHITE_SPACE) != 0;
}

// To be dropped: U+0000, U+FFFD, control and format characters but tab and line breaks.
bool is_noise(UChar32 letter) {
  if (letter == '\t' || letter == '\n' || letter == '\r') return false;
  return letter == 0 || letter == 0xFFFD || (U_GET_GC_MASK(letter) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

// In ASCII every visible character that is neither letter nor digit, among them some that Unicode calls symbols: $ + < ^
bool is_punctuation(UChar32 letter) {
  if (letter < 0x80) return letter > 0x20 && letter < 0x7F && !u_isalnum(letter);
  return u_ispunct(letter) != 0;
}

}  // namespace

WordPiece::WordPiece(std::string_view vocabulary, WordPieceOptions options, const std::string& source)
    : options_(std::move(options)) {
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    std::string_view token = vocabulary.substr(0, end);
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
    if (token.ends_with('\r')) token.remove_suffix(1);
    const auto id = static_cast<std::int64_t>(size_++);
    if (!ids_.emplace(token, id).second) {
      throw BadFile(source + ": line " + std::to_string(size_) + ": the token is there twice: " + std::string(token));
    }
  }
  const auto needed = [&](const char* token) {
    const std::int64_t found = id(token);
    if (found < 0) throw BadFile(source + ": has no token " + token);
    return found;
  };
  unknown_ = needed("[UNK]");
  begin_ = needed("[CLS]");
  end_ = needed("[SEP]");
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (id(token) >= 0) special_.emplace_back(token);
  }
}

WordPiece WordPiece::open(const std::string& folder) {
  WordPieceOptions options;
  const std::string path = folder + "/tokenizer_config.json";
  if (std::filesystem::exists(path)) {
    const auto config = nlohmann::json::parse(read_file(path), nullptr, false);
    if (!config.is_object()) throw BadFile(path + ": is not a JSON object");
    const auto flag = [&](const char* name, bool otherwise) {
      const auto found = config.find(name);
      if (found == config.end() || found->is_null()) return otherwise;
      if (!found->is_boolean()) throw BadFile(path + ": " + name + ": expected true or false");
      return found->get<bool>();
    };
    options.lowercase = flag("do_lower_case", options.lowercase);
    options.strip_accents = flag("strip_accents", options.lowercase);  // null: where letters are lower-cased
    options.split_chinese = flag("tokenize_chinese_chars", options.split_chinese);
  }
  const std::string vocabulary = folder + "/vocab.txt";
  return WordPiece(read_file(vocabulary), options, vocabulary);
}

std::int64_t WordPiece::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

std::vector<std::string> WordPiece::words(std::string_view text) const {
  icu::UnicodeString letters = from_utf8(text);
  if (options_.strip_accents) letters = normalized(letters, Form::nfd);
  std::vector<std::string> words;
  bool inside = false;  // a word
  for (std::int32_t at = 0; at < letters.length();) {
    const UChar32 letter = letters.char32At(at);
    at += U16_LENGTH(letter);
    if (is_noise(letter)) continue;
    if (is_space(letter)) {
      inside = false;
      continue;
    }
    if (options_.strip_accents && u_charType(letter) == U_NON_SPACING_MARK) continue;
    const bool alone = is_punctuation(letter) || (options_.split_chinese && is_ideograph(letter));
    if (!inside || alone) words.emplace_back();
    append_utf8(words.back(), options_.lowercase ? u_tolower(letter) : letter);
    inside = !alone;
  }
  return words;
}

// Greedy: the longest piece of the vocabulary that the rest of the word begins with, until nothing is left. A word with a
// rest that no piece begins is unknown as a whole.
void WordPiece::append_pieces(std::string_view word, std::vector<std::int64_t>& ids) const {
  const auto begins_letter = [&](std::size_t at) {
    return at == word.size() || (static_cast<unsigned char>(word[at]) & 0xC0U) != 0x80U;
  };
  const std::size_t before = ids.size();
  std::size_t count = 0;
  for (std::size_t at = 0; at < word.size(); ++at) count += begins_letter(at) ? 1 : 0;
  std::size_t begin = count > options_.longest_word ? word.size() + 1 : 0;
  std::string piece;
  while (begin < word.size()) {
    piece.assign(begin > 0 ? options_.continuation : "");
    const std::size_t prefix = piece.size();
    piece.append(word.substr(begin));
    std::int64_t found = id(piece);
    while (found < 0 && piece.size() > prefix) {
      do piece.pop_back();
      while (!begins_letter(begin + piece.size() - prefix));
      if (piece.size() > prefix) found = id(piece);
    }
    if (found < 0) break;
    ids.push_back(found);
    begin += piece.size() - prefix;
  }
  if (begin == word.size()) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text, std::size_t longest) const {
  std::vector<std::int64_t> ids = {begin_};
  while (!text.empty() && ids.size() < longest) {
    // Up to the next special token, and that.
    std::size_t at = text.size();
    const std::string* special = nullptr;
    for (const std::string& token : special_) {
      const std::size_t found = text.find(token);
      if (found >= at) continue;
      at = found;
      special = &token;
    }
    for (const std::string& word : words(text.substr(0, at))) append_pieces(word, ids);
    if (special != nullptr) ids.push_back(id(*special));
    text.remove_prefix(at + (special == nullptr ? 0 : special->size()));
  }
  if (ids.size() + 1 > longest) ids.resize(longest - 1);
  ids.push_back(end_);
  return ids;
}

}  // namespace text
