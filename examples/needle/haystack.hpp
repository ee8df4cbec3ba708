// The haystack: a long text with the sentence about the pass key hidden in it and the question after it, made piece by
// piece, so that a text of any length takes no memory.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace needle {

// A text without end, read from front to back.
class Text {
 public:
  // `source` over and over, starting with byte `offset`; it must not be empty and must outlive the text.
  static Text repeated(std::span<const std::byte> source, std::uint64_t offset = 0);
  // Random words in sentences and paragraphs, without digits; the same seed gives the same text everywhere.
  static Text word_salad(std::uint64_t seed);

  void read(std::span<std::uint8_t> to);

 private:
  void next_word();

  std::span<const std::byte> source_;  // empty: word salad
  std::size_t at_ = 0;                 // the next byte of source_, or of piece_
  std::mt19937_64 random_;
  char piece_[32] = {};  // the word being read, with what goes before and after it
  std::size_t piece_size_ = 0;
  int words_left_ = 0;      // in the sentence; 0 begins a new one
  int sentences_left_ = 0;  // in the paragraph
};

// Where things stand. Question and answer must lie in one segment, because that is how the model was trained; where
// they would cross a segment's edge, the text loses its last few bytes.
struct Plan {
  std::int64_t text_size = 0;      // bytes of text around the sentence
  std::int64_t needle_at = 0;      // where the sentence begins
  std::int64_t needle_size = 0;    //
  std::int64_t question_at = 0;    // = text_size + needle_size
  std::int64_t question_size = 0;  //

  // What the model reads before it answers.
  std::int64_t size() const { return question_at + question_size; }
  // True if the question's own segment holds some of the sentence, so that no memory is needed to find it.
  bool near(std::int64_t segment) const { return needle_at + needle_size > question_at / segment * segment; }
};

// The plan for `length` bytes of text with the sentence in it, `depth` (0 to 1) of the way through. Returns an empty
// string, or why there is none.
std::string make_plan(std::int64_t length, double depth, std::int64_t needle_size, std::int64_t question_size,
                      std::int64_t answer_size, std::int64_t segment, Plan& plan);

// The model's sentence with the key in place of every "{k}".
std::string needle_with(std::string_view sentence, std::string_view key);

// Text, sentence, text and question, in this order.
class Haystack {
 public:
  Haystack(const Plan& plan, Text text, std::string needle, std::string question);

  const Plan& plan() const { return plan_; }
  // The next to.size() bytes; there are plan().size() of them. Allocates nothing.
  void read(std::span<std::uint8_t> to);

 private:
  Plan plan_;
  Text text_;
  std::string needle_;
  std::string question_;
  std::int64_t at_ = 0;
};

}  // namespace needle
