#include "tokenizer.hpp"

#include <algorithm>
#include <unordered_map>

#include "byte_pair.hpp"
#include "tokenizer_parts.hpp"

namespace text {

namespace {

// A token that is looked for in the text itself.
struct AddedToken {
  std::string content;
  std::int64_t id = 0;
  bool special = false;
  bool single_word = false;       // not inside of a word
  bool strip_left = false;        // takes the spaces before it along
  bool strip_right = false;       // and those after it
  bool after_normalizer = false;  // looked for in the normalised text
};

// A part of a text: a token that is there already, or what is to be cut up.
struct Section {
  std::string text;
  std::int64_t token = -1;
  bool first = false;  // the beginning of the whole text
};

UChar32 letter_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return from_utf8(text.substr(begin, at - begin)).char32At(0);
}
UChar32 letter_at(std::string_view text, std::size_t at) {
  return from_utf8(text.substr(at, 4)).char32At(0);
}

bool is_word_letter(UChar32 letter) {
  return u_isUAlphabetic(letter) || letter == '_' ||
         (U_GET_GC_MASK(letter) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK));
}

// Cuts sections at the added tokens of one kind, leftmost first and the longest of those.
class Finder {
 public:
  void add(const AddedToken& token) { by_first_[token.content.front()].push_back(token); }
  void ready() {
    for (auto& [first, tokens] : by_first_) {
      std::ranges::stable_sort(tokens,
                               [](const auto& a, const auto& b) { return a.content.size() > b.content.size(); });
    }
  }

  void cut(std::string_view text, bool first, std::vector<Section>& sections) const {
    std::size_t done = 0;
    const auto leave = [&](std::size_t end) {
      if (end > done) sections.push_back({std::string(text.substr(done, end - done)), -1, first && done == 0});
    };
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* token = find(text, at);
      if (token == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at + token->content.size();
      at = end;
      if (token->single_word && ((begin > 0 && is_word_letter(letter_before(text, begin))) ||
                                 (end < text.size() && is_word_letter(letter_at(text, end))))) {
        continue;
      }
      while (token->strip_left && begin > done && u_isUWhiteSpace(letter_before(text, begin))) {
        do --begin;
        while ((static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U);
      }
      while (token->strip_right && end < text.size() && u_isUWhiteSpace(letter_at(text, end))) {
        do ++end;
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
      }
      leave(begin);
      sections.push_back({{}, token->id, false});
      done = at = end;
    }
    leave(text.size());
  }

 private:
  const AddedToken* find(std::string_view text, std::size_t at) const {
    const auto found = by_first_.find(text[at]);
    if (found == by_first_.end()) return nullptr;
    const auto token = std::ranges::find_if(
        found->second, [&](const AddedToken& candidate) { return text.substr(at).starts_with(candidate.content); });
    return token == found->second.end() ? nullptr : &*token;
  }

  std::unordered_map<char, std::vector<AddedToken>> by_first_;
};

}  // namespace

struct Tokenizer::Parts {
  Finder before_normalizer;
  Finder after_normalizer;
  std::vector<NormalizerStep> normalizer;
  std::vector<CutStep> cuts;
  BytePair model;
  std::vector<std::int64_t> begin, end;  // what the post-processor puts around a text
  std::vector<DecoderStep> decoder;
  std::vector<std::string> tokens;  // by id
  std::vector<bool> special;        // by id
  Ids added;

  void set_token(std::int64_t id, const std::string& token) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens.size()) {
      tokens.resize(at + 1);
      special.resize(at + 1);
    }
    tokens[at] = token;
  }
  void read_model(const Node& node);
  void read_added(const Node& node);
  void read_post_processor(const Node& node);
};

void Tokenizer::Parts::read_model(const Node& node) {
  if (const Node type = node["type"]; type.present() && type.string() != "BPE") {
    type.fail("expected BPE, got " + type.string());
  }
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) node.refuse(name);
  BytePair::Options options;
  options.byte_fallback = node["byte_fallback"].flag(false);
  options.fuse_unknown = node["fuse_unk"].flag(false);
  options.ignore_merges = node["ignore_merges"].flag(false);
  options.unknown = node["unk_token"].string("");

  const Node entries = node["vocab"];
  if (!entries.json().is_object()) entries.fail("expected an object of tokens and their ids");
  Ids vocabulary;
  for (const auto& [token, unused] : entries.json().items()) {
    const Node entry = entries[token.c_str()];
    const std::int64_t number = entry.id();
    // Ids are the places in a list, which a single absurd one must not blow up.
    if (number > 16 * static_cast<std::int64_t>(entries.json().size()) + 65536) entry.fail("is too large");
    vocabulary.emplace(token, number);
    set_token(number, token);
  }
  if (!options.unknown.empty() && !vocabulary.contains(options.unknown)) {
    node["unk_token"].fail("is not in the vocabulary: " + options.unknown);
  }
  model = BytePair(std::move(vocabulary), options);
  for (const Node& item : node["merges"].items()) {
    std::string left, right;
    if (item.json().is_array()) {
      const std::vector<Node> pair = item.items();
      if (pair.size() != 2) item.fail("expected two tokens");
      left = pair[0].string();
      right = pair[1].string();
    } else {
      const std::string pair = item.string();
      const std::size_t space = pair.find(' ');
      if (space == pair.npos) item.fail("expected two tokens with a space between them");
      left = pair.substr(0, space);
      right = pair.substr(space + 1);
    }
    if (!model.add_merge(left, right)) item.fail("its tokens are not all in the vocabulary: " + left + ", " + right);
  }
}

void Tokenizer::Parts::read_added(const Node& node) {
  for (const Node& item : node.items()) {
    AddedToken token;
    token.content = item["content"].string();
    if (token.content.empty()) item["content"].fail("expected a text that is not empty");
    token.id = item["id"].id();
    if (token.id > 16 * static_cast<std::int64_t>(tokens.size()) + 65536) item["id"].fail("is too large");
    token.special = item["special"].flag(false);
    token.single_word = item["single_word"].flag(false);
    token.strip_left = item["lstrip"].flag(false);
    token.strip_right = item["rstrip"].flag(false);
    token.after_normalizer = item["normalized"].flag(!token.special);
    set_token(token.id, token.content);
    special[static_cast<std::size_t>(token.id)] = token.special;
    added.insert_or_assign(token.content, token.id);
    if (token.after_normalizer) token.content = normalize(normalizer, token.content);
    (token.after_normalizer ? after_normalizer : before_normalizer).add(token);
  }
  before_normalizer.ready();
  after_normalizer.ready();
}

void Tokenizer::Parts::read_post_processor(const Node& node) {
  if (!node.present()) return;
  const std::string type = node.type();
  if (type == "ByteLevel") return;  // trims offsets, which nobody asks for here
  if (type == "Sequence") {
    for (const Node& item : node["processors"].items()) read_post_processor(item);
    return;
  }
  if (type != "TemplateProcessing") node.fail("the post-processor " + type + " is not supported");
  bool text_seen = false;
  std::vector<std::int64_t> before, after;
  for (const Node& item : node["single"].items()) {
    if (item["Sequence"].present()) {
      if (text_seen) item.fail("the text is there twice");
      text_seen = true;
      continue;
    }
    const std::string name = item["SpecialToken"]["id"].string();
    for (const Node& id : node["special_tokens"][name.c_str()]["ids"].items()) {
      (text_seen ? after : before).push_back(id.id());
    }
  }
  if (!text_seen) node["single"].fail("the text is not in it");
  begin.insert(begin.begin(), before.begin(), before.end());
  end.insert(end.end(), after.begin(), after.end());
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::open(const std::string& path) {
  return parse(read_file(path), path);
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source) {
  const auto document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_discarded()) throw BadFile(source + ": is not JSON");
  if (!document.is_object()) throw BadFile(source + ": is not a JSON object");
  const auto place = [&](const char* name) {
    static const nlohmann::json null;
    const auto found = document.find(name);
    return Node(found == document.end() ? null : *found, source + ": " + name);
  };
  auto parts = std::make_unique<Parts>();
  parts->normalizer = read_normalizer(place("normalizer"));
  parts->cuts = read_pre_tokenizer(place("pre_tokenizer"));
  parts->read_model(place("model"));
  parts->read_added(place("added_tokens"));
  parts->read_post_processor(place("post_processor"));
  parts->decoder = read_decoder(place("decoder"));
  return Tokenizer(std::move(parts));
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool special) const {
  const Parts& parts = *parts_;
  std::vector<std::int64_t> ids;
  if (special) ids = parts.begin;
  std::vector<Section> sections;
  parts.before_normalizer.cut(clean_utf8(text), true, sections);
  std::vector<Section> normalized;
  for (Section& section : sections) {
    if (section.token >= 0) {
      normalized.push_back(std::move(section));
    } else {
      parts.after_normalizer.cut(normalize(parts.normalizer, std::move(section.text)), section.first, normalized);
    }
  }
  for (Section& section : normalized) {
    if (section.token >= 0) {
      ids.push_back(section.token);
    } else {
      for (const std::string& piece : cut(parts.cuts, std::move(section.text), section.first)) {
        parts.model.encode(piece, ids);
      }
    }
  }
  if (special) ids.insert(ids.end(), parts.end.begin(), parts.end.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  StreamDecoder decoder(*this);
  std::string text;
  for (const std::int64_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::optional<std::int64_t> Tokenizer::id(std::string_view token) const {
  if (const auto found = parts_->added.find(token); found != parts_->added.end()) return found->second;
  const std::int64_t found = parts_->model.id(token);
  return found < 0 ? std::nullopt : std::optional(found);
}

std::int64_t Tokenizer::size() const {
  return static_cast<std::int64_t>(parts_->tokens.size());
}

std::string StreamDecoder::push(std::int64_t id) {
  const Tokenizer::Parts& parts = *tokenizer_.parts_;
  if (id < 0 || id >= tokenizer_.size() || parts.special[static_cast<std::size_t>(id)]) return {};
  held_ += text::decode(parts.decoder, parts.tokens[static_cast<std::size_t>(id)], !begun_);
  begun_ = true;
  std::size_t whole = 0;  // up to here letters are complete, or can never be
  while (whole < held_.size()) {
    const int length = sequence_length(std::string_view(held_).substr(whole));
    if (length == 0) break;
    whole += static_cast<std::size_t>(length < 0 ? -length : length);
  }
  std::string text = clean_utf8(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = clean_utf8(held_);
  held_.clear();
  begun_ = false;
  return text;
}

}  // namespace text
