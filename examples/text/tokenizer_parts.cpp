#include "tokenizer_parts.hpp"

#include <unordered_map>

namespace text {

// ---- JSON

Node Node::operator[](const char* name) const {
  static const nlohmann::json null;
  if (!present()) return {null, place_ + "." + name};
  if (!value_->is_object()) fail("expected an object");
  const auto found = value_->find(name);
  return {found == value_->end() ? null : *found, place_ + "." + name};
}

std::vector<Node> Node::items() const {
  std::vector<Node> items;
  if (!present()) return items;
  if (!value_->is_array()) fail("expected an array");
  items.reserve(value_->size());
  for (const nlohmann::json& item : *value_) {
    items.emplace_back(item, place_ + "[" + std::to_string(items.size()) + "]");
  }
  return items;
}

std::string Node::string() const {
  if (!value_->is_string()) fail("expected a text");
  return value_->get<std::string>();
}

bool Node::flag(bool otherwise) const {
  if (!present()) return otherwise;
  if (!value_->is_boolean()) fail("expected true or false");
  return value_->get<bool>();
}

std::int64_t Node::id() const {
  if (!value_->is_number_integer() || *value_ < 0 || *value_ > INT32_MAX) fail("expected a number from 0 to 2^31 - 1");
  return value_->get<std::int64_t>();
}

void Node::refuse(const char* name) const {
  const Node member = (*this)[name];
  const nlohmann::json& value = member.json();
  const bool off = value.is_null() || value == false || value == 0 || (value.is_string() && value == "") ||
                   (value.is_array() && value.empty());
  if (!off) member.fail("is not supported");
}

// ---- patterns

namespace {

// Oniguruma's \s and \S are Unicode's White_Space; ICU's leave out U+000B and U+0085.
std::string as_icu(const std::string& regex) {
  std::string out;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const bool escape = regex[i] == '\\' && i + 1 < regex.size();
    const char letter = escape ? regex[++i] : regex[i];
    if (escape && (letter == 's' || letter == 'S')) {
      out += letter == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else {
      if (escape) out += '\\';
      out += letter;
    }
  }
  return out;
}

}  // namespace

Pattern::Pattern(const Node& node) {
  if (node["String"].present()) {
    fixed_ = node["String"].string();
    if (fixed_.empty()) node["String"].fail("expected a text that is not empty");
    return;
  }
  const Node regex = node["Regex"];
  if (!regex.present()) node.fail("expected a String or a Regex");
  try {
    compile(regex.string());
  } catch (const std::runtime_error& error) {
    regex.fail(error.what());
  }
}

Pattern::Pattern(const std::string& regex) {
  compile(regex);
}

void Pattern::compile(const std::string& regex) {
  UParseError where;
  UErrorCode status = U_ZERO_ERROR;
  regex_.reset(icu::RegexPattern::compile(from_utf8(as_icu(regex)), 0, where, status));
  if (U_FAILURE(status))
    throw std::runtime_error("the regular expression is refused: " + std::string(u_errorName(status)));
}

std::vector<Pattern::Span> Pattern::cut(std::string_view text) const {
  std::vector<Span> spans;
  std::size_t done = 0;
  const auto match = [&](std::size_t begin, std::size_t end) {
    if (begin > done) spans.push_back({done, begin, false});
    if (end > begin) spans.push_back({begin, end, true});
    done = end;
  };
  if (regex_ == nullptr) {
    for (std::size_t at = text.find(fixed_); at != text.npos; at = text.find(fixed_, done)) {
      match(at, at + fixed_.size());
    }
  } else {
    UErrorCode status = U_ZERO_ERROR;
    UText utf8 = UTEXT_INITIALIZER;
    utext_openUTF8(&utf8, text.data(), static_cast<std::int64_t>(text.size()), &status);
    std::unique_ptr<icu::RegexMatcher> matcher(regex_->matcher(status));
    if (U_SUCCESS(status)) {
      matcher->reset(&utf8);
      while (matcher->find(status) && U_SUCCESS(status)) {
        match(static_cast<std::size_t>(matcher->start64(status)), static_cast<std::size_t>(matcher->end64(status)));
      }
    }
    utext_close(&utf8);
    if (U_FAILURE(status)) throw std::runtime_error(std::string("a regular expression: ") + u_errorName(status));
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
  return spans;
}

std::string Pattern::replace(std::string_view text, std::string_view with) const {
  std::string out;
  for (const Span& span : cut(text)) out.append(span.match ? with : text.substr(span.begin, span.end - span.begin));
  return out;
}

// ---- normalizer

std::vector<NormalizerStep> read_normalizer(const Node& node) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  if (!node.present()) return steps;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& item : node["normalizers"].items()) {
      for (NormalizerStep& step : read_normalizer(item)) steps.push_back(std::move(step));
    }
    return steps;
  }
  NormalizerStep step;
  if (type == "Prepend") {
    step.kind = Kind::prepend;
    step.content = node["prepend"].string();
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    step.pattern = std::make_shared<Pattern>(node["pattern"]);
    step.content = node["content"].string();
  } else if (type == "Lowercase") {
    step.kind = Kind::lowercase;
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.form = type == "NFC" ? Form::nfc : type == "NFD" ? Form::nfd : type == "NFKC" ? Form::nfkc : Form::nfkd;
  } else {
    node.fail("the normalizer " + type + " is not supported");
  }
  steps.push_back(std::move(step));
  return steps;
}

std::string normalize(const std::vector<NormalizerStep>& steps, std::string text) {
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case NormalizerStep::Kind::prepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
      case NormalizerStep::Kind::replace: text = step.pattern->replace(text, step.content); break;
      case NormalizerStep::Kind::form: text = to_utf8(normalized(from_utf8(text), step.form)); break;
      case NormalizerStep::Kind::lowercase: {  // letter by letter: no final sigma
        const icu::UnicodeString letters = from_utf8(text);
        text.clear();
        for (std::int32_t at = 0; at < letters.length(); at = letters.moveIndex32(at, 1)) {
          const UChar32 letter = letters.char32At(at);
          text += letter == 0x130 ? "i\xCC\x87" : "";
          if (letter != 0x130) append_utf8(text, u_tolower(letter));
        }
        break;
      }
    }
  }
  return text;
}

// ---- pre-tokenizer

namespace {

// What GPT-2 cuts texts by, and ByteLevel where it uses a pattern of its own.
constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

CutStep split_step(std::shared_ptr<const Pattern> pattern, CutStep::Behavior behavior) {
  CutStep step;
  step.pattern = std::move(pattern);
  step.behavior = behavior;
  return step;
}

CutStep::Behavior read_behavior(const Node& node) {
  const std::string name = node.string();
  if (name == "Removed") return CutStep::Behavior::removed;
  if (name == "Isolated") return CutStep::Behavior::isolated;
  if (name == "MergedWithPrevious") return CutStep::Behavior::with_previous;
  if (name == "MergedWithNext") return CutStep::Behavior::with_next;
  if (name == "Contiguous") return CutStep::Behavior::contiguous;
  node.fail("the behavior " + name + " is not supported");
}

CutStep::Prepend read_prepend_scheme(const Node& node) {
  // Older files say add_prefix_space.
  const std::string name = node["prepend_scheme"].string(node["add_prefix_space"].flag(true) ? "always" : "never");
  if (name == "never") return CutStep::Prepend::never;
  if (name == "first") return CutStep::Prepend::first;
  if (name == "always") return CutStep::Prepend::always;
  node["prepend_scheme"].fail("expected never, first or always, got " + name);
}

// Joins spans as the behavior says. Neighbours that both match stay apart, but for contiguous.
std::vector<std::string> join(std::vector<Pattern::Span> spans, std::string_view text, CutStep::Behavior behavior) {
  using Behavior = CutStep::Behavior;
  std::vector<Pattern::Span> joined;
  for (const Pattern::Span& span : spans) {
    if (behavior == Behavior::removed && span.match) continue;
    bool to_last = false;
    if (!joined.empty()) {
      const Pattern::Span& last = joined.back();
      if (behavior == Behavior::with_previous) to_last = span.match && !last.match;
      if (behavior == Behavior::with_next) to_last = !span.match && last.match;
      if (behavior == Behavior::contiguous) to_last = span.match == last.match;
    }
    if (to_last) {
      joined.back().end = span.end;
      joined.back().match = span.match;
    } else {
      joined.push_back(span);
    }
  }
  std::vector<std::string> pieces;
  for (const Pattern::Span& span : joined) pieces.emplace_back(text.substr(span.begin, span.end - span.begin));
  return pieces;
}

std::vector<std::string> split(const CutStep& step, std::string_view text) {
  std::vector<Pattern::Span> spans = step.pattern->cut(text);
  for (Pattern::Span& span : spans) span.match = span.match != step.invert;
  return join(std::move(spans), text, step.behavior);
}

}  // namespace

std::vector<CutStep> read_pre_tokenizer(const Node& node) {
  using Behavior = CutStep::Behavior;
  std::vector<CutStep> steps;
  if (!node.present()) return steps;
  const std::string type = node.type();
  if (type == "Sequence") {
    for (const Node& item : node["pretokenizers"].items()) {
      for (CutStep& step : read_pre_tokenizer(item)) steps.push_back(std::move(step));
    }
  } else if (type == "Split") {
    steps.push_back(split_step(std::make_shared<Pattern>(node["pattern"]), read_behavior(node["behavior"])));
    steps.back().invert = node["invert"].flag(false);
  } else if (type == "Digits") {
    const bool alone = node["individual_digits"].flag(false);
    steps.push_back(split_step(std::make_shared<Pattern>(std::string("\\p{N}")),
                               alone ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "ByteLevel") {
    CutStep step;
    step.kind = CutStep::Kind::bytes;
    step.prefix_space = node["add_prefix_space"].flag(true);
    if (node["use_regex"].flag(true)) step.pattern = std::make_shared<Pattern>(std::string(gpt2_pattern));
    steps.push_back(std::move(step));
  } else if (type == "Metaspace") {
    CutStep step;
    step.kind = CutStep::Kind::metaspace;
    step.replacement = node["replacement"].string();
    step.prepend = read_prepend_scheme(node);
    if (node["split"].flag(true)) {
      nlohmann::json pattern;
      pattern["String"] = step.replacement;
      step.pattern = std::make_shared<Pattern>(Node(pattern, "replacement"));
      step.behavior = Behavior::with_next;
    }
    steps.push_back(std::move(step));
  } else {
    node.fail("the pre-tokenizer " + type + " is not supported");
  }
  return steps;
}

std::vector<std::string> cut(const std::vector<CutStep>& steps, std::string text, bool first) {
  std::vector<std::string> pieces;
  if (!text.empty()) pieces.push_back(std::move(text));
  for (const CutStep& step : steps) {
    std::vector<std::string> smaller;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (step.kind == CutStep::Kind::bytes && step.prefix_space && !piece.starts_with(' ')) piece.insert(0, 1, ' ');
      if (step.kind == CutStep::Kind::metaspace) {
        std::string marked;
        for (const char letter : piece) letter == ' ' ? marked += step.replacement : marked += letter;
        const bool wanted =
            step.prepend == CutStep::Prepend::always || (step.prepend == CutStep::Prepend::first && first && i == 0);
        piece = (wanted && !marked.starts_with(step.replacement) ? step.replacement : "") + marked;
      }
      if (step.pattern == nullptr) {
        smaller.push_back(std::move(piece));
      } else {
        for (std::string& part : split(step, piece)) smaller.push_back(std::move(part));
      }
    }
    if (step.kind == CutStep::Kind::bytes) {
      for (std::string& piece : smaller) piece = letters_of_bytes(piece);
    }
    pieces = std::move(smaller);
  }
  return pieces;
}

// ---- bytes as letters

namespace {

struct ByteLetters {
  std::array<UChar32, 256> letter{};
  std::unordered_map<UChar32, char> byte;

  ByteLetters() {
    UChar32 next = 0x100;
    for (int value = 0; value < 256; ++value) {
      const bool visible = (value >= '!' && value <= '~') || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
      const UChar32 stands = visible ? value : next++;
      letter[static_cast<std::size_t>(value)] = stands;
      byte.emplace(stands, static_cast<char>(value));
    }
  }
};

const ByteLetters& byte_letters() {
  static const ByteLetters table;
  return table;
}

// The way back; a token with a letter that stands for no byte (a special one) is meant literally.
std::string bytes_of_letters(std::string token) {
  const icu::UnicodeString letters = from_utf8(token);
  std::string bytes;
  for (std::int32_t at = 0; at < letters.length(); at = letters.moveIndex32(at, 1)) {
    const auto found = byte_letters().byte.find(letters.char32At(at));
    if (found == byte_letters().byte.end()) return token;
    bytes += found->second;
  }
  return bytes;
}

}  // namespace

std::string letters_of_bytes(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(letters, byte_letters().letter[static_cast<unsigned char>(byte)]);
  return letters;
}

// ---- decoder

std::vector<DecoderStep> read_decoder(const Node& node) {
  using Kind = DecoderStep::Kind;
  std::vector<DecoderStep> steps;
  const std::string type = node.type();
  DecoderStep step;
  if (type == "Sequence") {
    bool fused = false;
    for (const Node& item : node["decoders"].items()) {
      const std::string inner = item.type();
      if (inner == "Strip" && !fused) item.fail("Strip is supported after Fuse only");
      if (fused && inner != "Strip") item.fail("nothing but Strip is supported after Fuse");
      fused = fused || inner == "Fuse";
      for (DecoderStep& part : read_decoder(item)) steps.push_back(std::move(part));
    }
    return steps;
  }
  if (type == "Fuse") return steps;  // tokens are joined in any case
  if (type == "ByteLevel") {
    step.kind = Kind::bytes;
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    step.pattern = std::make_shared<Pattern>(node["pattern"]);
    step.content = node["content"].string();
  } else if (type == "ByteFallback") {
    step.kind = Kind::fallback;
  } else if (type == "Strip") {
    step.kind = Kind::strip_start;
    step.content = node["content"].string();
    step.count = static_cast<std::size_t>(node["start"].id());
    if (node["stop"].present() && node["stop"].id() != 0) node["stop"].fail("only 0 is supported");
  } else if (type == "Metaspace") {
    step.kind = Kind::replace;
    nlohmann::json pattern;
    pattern["String"] = node["replacement"].string();
    step.pattern = std::make_shared<Pattern>(Node(pattern, "replacement"));
    step.content = " ";
    if (read_prepend_scheme(node) != CutStep::Prepend::never) {
      steps.push_back(step);
      step = {};
      step.kind = Kind::strip_start;
      step.content = " ";
      step.count = 1;
    }
  } else {
    node.fail("the decoder " + type + " is not supported");
  }
  steps.push_back(std::move(step));
  return steps;
}

std::string decode(const std::vector<DecoderStep>& steps, std::string token, bool first) {
  for (const DecoderStep& step : steps) {
    switch (step.kind) {
      case DecoderStep::Kind::bytes: token = bytes_of_letters(std::move(token)); break;
      case DecoderStep::Kind::replace: token = step.pattern->replace(token, step.content); break;
      case DecoderStep::Kind::fallback:
        if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
          const std::size_t digits = token.find_first_not_of("0123456789abcdefABCDEF", 3);
          if (digits == 5) token = std::string(1, static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16)));
        }
        break;
      case DecoderStep::Kind::strip_start:
        for (std::size_t i = 0; first && i < step.count && token.starts_with(step.content); ++i) {
          token.erase(0, step.content.size());
        }
        break;
    }
  }
  return token;
}

}  // namespace text
