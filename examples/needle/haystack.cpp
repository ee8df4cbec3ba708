#include "haystack.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

namespace needle {

namespace {

// Common words, and nothing that looks like the sentence, the question or a number.
constexpr std::string_view words[] = {
    "the",    "of",      "and",   "a",       "to",     "in",      "is",     "that",  "it",     "was",    "for",
    "on",     "are",     "with",  "as",      "they",   "be",      "at",     "one",   "have",   "this",   "from",
    "or",     "had",     "by",    "but",     "some",   "what",    "there",  "we",    "can",    "out",    "other",
    "were",   "all",     "your",  "when",    "up",     "use",     "word",   "how",   "said",   "an",     "each",
    "she",    "which",   "do",    "their",   "time",   "if",      "will",   "way",   "about",  "many",   "then",
    "them",   "would",   "write", "like",    "so",     "these",   "her",    "long",  "make",   "thing",  "see",
    "him",    "two",     "has",   "look",    "more",   "day",     "could",  "go",    "come",   "did",    "my",
    "sound",  "no",      "most",  "number",  "who",    "over",    "know",   "water", "than",   "call",   "first",
    "people", "may",     "down",  "side",    "been",   "now",     "find",   "any",   "new",    "work",   "part",
    "take",   "get",     "place", "made",    "live",   "where",   "after",  "back",  "little", "only",   "round",
    "man",    "year",    "came",  "show",    "every",  "good",    "me",     "give",  "our",    "under",  "name",
    "very",   "through", "just",  "form",    "much",   "great",   "think",  "say",   "help",   "low",    "line",
    "before", "turn",    "cause", "same",    "mean",   "differ",  "move",   "right", "boy",    "old",    "too",
    "does",   "tell",    "set",   "three",   "want",   "air",     "well",   "also",  "play",   "small",  "end",
    "put",    "home",    "read",  "hand",    "port",   "large",   "spell",  "add",   "even",   "land",   "here",
    "must",   "big",     "high",  "such",    "follow", "act",     "why",    "ask",   "men",    "change", "went",
    "light",  "kind",    "off",   "need",    "house",  "picture", "try",    "us",    "again",  "animal", "point",
    "mother", "world",   "near",  "build",   "self",   "earth",   "father", "head",  "stand",  "own",    "page",
    "should", "country", "found", "answer",  "school", "grow",    "study",  "still", "learn",  "plant",  "cover",
    "food",   "sun",     "four",  "thought", "let",    "keep",    "eye",    "never", "last",   "door",   "between",
    "city",   "tree",    "cross", "since",   "hard",   "start",   "might",  "story", "saw",    "far",    "sea"};

// The word list's own sequence: mt19937_64 is the same everywhere, std::uniform_int_distribution is not.
std::uint64_t below(std::mt19937_64& random, std::uint64_t count) {
  return random() % count;
}

}  // namespace

Text Text::repeated(std::span<const std::byte> source, std::uint64_t offset) {
  Text text;
  text.source_ = source;
  text.at_ = static_cast<std::size_t>(offset % source.size());
  return text;
}

Text Text::word_salad(std::uint64_t seed) {
  Text text;
  text.random_.seed(seed);
  return text;
}

void Text::read(std::span<std::uint8_t> to) {
  while (!to.empty()) {
    if (source_.empty() && at_ == piece_size_) next_word();
    const void* from = source_.empty() ? static_cast<const void*>(piece_ + at_) : source_.data() + at_;
    const std::size_t size = source_.empty() ? piece_size_ : source_.size();
    const std::size_t count = std::min(size - at_, to.size());
    std::memcpy(to.data(), from, count);
    at_ += count;
    if (!source_.empty() && at_ == size) at_ = 0;
    to = to.subspan(count);
  }
}

void Text::next_word() {
  const std::string_view word = words[below(random_, std::size(words))];
  const bool first = words_left_ == 0;
  if (first) words_left_ = 4 + static_cast<int>(below(random_, 12));
  if (sentences_left_ == 0) sentences_left_ = 3 + static_cast<int>(below(random_, 5));

  std::memcpy(piece_, word.data(), word.size());
  piece_size_ = word.size();
  at_ = 0;
  if (first) piece_[0] = static_cast<char>(piece_[0] - 'a' + 'A');
  if (--words_left_ > 0) {
    if (below(random_, 12) == 0) piece_[piece_size_++] = ',';
    piece_[piece_size_++] = ' ';
  } else {
    piece_[piece_size_++] = below(random_, 8) == 0 ? '?' : '.';
    piece_[piece_size_++] = --sentences_left_ > 0 ? ' ' : '\n';
  }
}

std::string make_plan(std::int64_t length, double depth, std::int64_t needle_size, std::int64_t question_size,
                      std::int64_t answer_size, std::int64_t segment, Plan& plan) {
  const std::int64_t closing = question_size + answer_size;
  if (closing > segment) return "question and answer do not fit into one segment of the model";
  std::int64_t question_at = length;
  const std::int64_t over = question_at % segment + closing - segment;
  if (over > 0) question_at -= over;
  if (length < needle_size || question_at < needle_size) {
    return "a length of " + std::to_string(length) + " is too short: the sentence with the key takes " +
           std::to_string(needle_size) + " bytes";
  }
  plan.needle_size = needle_size;
  plan.question_size = question_size;
  plan.question_at = question_at;
  plan.text_size = question_at - needle_size;
  plan.needle_at = std::llround(depth * static_cast<double>(plan.text_size));
  const std::int64_t edge = question_at / segment * segment;
  if (plan.needle_at < edge && plan.needle_at + needle_size > edge) {
    plan.needle_at = std::max<std::int64_t>(0, edge - needle_size);
  }
  return {};
}

std::string needle_with(std::string_view sentence, std::string_view key) {
  std::string result(sentence);
  for (std::size_t at = 0; (at = result.find("{k}", at)) != std::string::npos; at += key.size()) {
    result.replace(at, 3, key);
  }
  return result;
}

Haystack::Haystack(const Plan& plan, Text text, std::string needle, std::string question)
    : plan_(plan), text_(std::move(text)), needle_(std::move(needle)), question_(std::move(question)) {}

void Haystack::read(std::span<std::uint8_t> to) {
  assert(at_ + static_cast<std::int64_t>(to.size()) <= plan_.size());
  // The next bytes are text up to the sentence, the sentence, text up to the question, or the question.
  while (!to.empty()) {
    const std::int64_t needle_end = plan_.needle_at + plan_.needle_size;
    const std::string* from = nullptr;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    if (at_ < plan_.needle_at) {
      end = plan_.needle_at;
    } else if (at_ < needle_end) {
      from = &needle_;
      begin = plan_.needle_at;
      end = needle_end;
    } else if (at_ < plan_.question_at) {
      end = plan_.question_at;
    } else {
      from = &question_;
      begin = plan_.question_at;
      end = plan_.size();
    }
    const auto count = static_cast<std::size_t>(std::min(end - at_, static_cast<std::int64_t>(to.size())));
    if (from == nullptr) {
      text_.read(to.first(count));
    } else {
      std::memcpy(to.data(), from->data() + (at_ - begin), count);
    }
    at_ += static_cast<std::int64_t>(count);
    to = to.subspan(count);
  }
}

}  // namespace needle
