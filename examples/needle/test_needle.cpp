// What the program's parts promise: where the sentence stands, the statistics, and that reading a text of any length
// neither allocates nor lets the state grow.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#define HEED_TEST_COUNT_ALLOCATIONS
#include "report.hpp"
#include "search.hpp"
#include "support/allocation_counter.hpp"

namespace {

using needle::Haystack;
using needle::Plan;
using needle::Text;

std::string read_all(Haystack& haystack, std::size_t piece) {
  std::string text(static_cast<std::size_t>(haystack.plan().size()), '\0');
  std::span<std::uint8_t> rest(reinterpret_cast<std::uint8_t*>(text.data()), text.size());
  while (!rest.empty()) {
    const std::size_t count = std::min(piece, rest.size());
    haystack.read(rest.first(count));
    rest = rest.subspan(count);
  }
  return text;
}

const std::string sentence = "<the key is 12345>";
const std::string question = "the key is?";

// Bytes from a tensor's first one to the file's end.
std::size_t bytes_from(const heed::SafetensorsReader& file, const char* name) {
  heed::Index end = 0;
  for (const heed::TensorInfo& tensor : file.tensors()) end = std::max(end, tensor.end);
  return static_cast<std::size_t>(end - file.info(name).begin);
}

Plan plan_for(std::int64_t length, double depth) {
  Plan plan;
  CHECK(needle::make_plan(length, depth, 18, 11, 5, 128, plan) == "");
  return plan;
}

}  // namespace

TEST_CASE("a haystack is text, sentence, text and question, however it is read") {
  for (const double depth : {0.0, 0.3, 1.0}) {
    CAPTURE(depth);
    const Plan plan = plan_for(1000, depth);
    CHECK(plan.size() == 1011);
    const auto make = [&] { return Haystack(plan, Text::word_salad(7), sentence, question); };
    Haystack first = make();
    const std::string text = read_all(first, 1u << 20);
    CHECK(text.find(sentence) == static_cast<std::size_t>(plan.needle_at));
    CHECK(std::abs(static_cast<double>(plan.needle_at) - depth * (1000 - 18)) <= 0.5);
    CHECK(text.find(question) == 1000);

    // Without the sentence and the question it is the text alone.
    std::string around = text;
    around.erase(1000).erase(static_cast<std::size_t>(plan.needle_at), sentence.size());
    std::string plain(around.size(), '\0');
    Text::word_salad(7).read({reinterpret_cast<std::uint8_t*>(plain.data()), plain.size()});
    CHECK(around == plain);

    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{128}}) {
      Haystack again = make();
      CHECK(read_all(again, piece) == text);
    }
  }
}

TEST_CASE("question and answer lie in one segment") {
  for (std::int64_t length = 100; length < 500; ++length) {
    CAPTURE(length);
    const Plan plan = plan_for(length, 0.5);
    CHECK(plan.question_at <= length);
    CHECK(plan.question_at > length - 16);  // never more text lost than question and answer are long
    CHECK(plan.question_at / 128 == (plan.question_at + 15) / 128);
  }
  CHECK(plan_for(112, 0).question_at == 112);  // 112 + 16 fills the segment
  CHECK(plan_for(113, 0).question_at == 112);
  CHECK(plan_for(127, 0).question_at == 112);
  CHECK(plan_for(128, 0).question_at == 128);  // in the next segment
  CHECK(plan_for(1000, 1).near(128));          // the question's segment begins at byte 896
  CHECK_FALSE(plan_for(1000, 0.5).near(128));
  Plan plan;
  CHECK(needle::make_plan(17, 0.5, 18, 11, 5, 128, plan) ==
        "a length of 17 is too short: the sentence with the key takes 18 bytes");
  CHECK(needle::make_plan(18, 0.5, 18, 11, 5, 128, plan) == "");
  CHECK(needle::make_plan(18, 0.5, 18, 11, 5, 15, plan) ==
        "question and answer do not fit into one segment of the model");
}

TEST_CASE("a text is repeated, from any byte on") {
  const std::string_view source = "abcdefg";
  Text text = Text::repeated(std::as_bytes(std::span(source)), 12);  // 12 mod 7 = 5
  std::string read(16, '\0');
  text.read({reinterpret_cast<std::uint8_t*>(read.data()), read.size()});
  CHECK(read == "fgabcdefgabcdefg");
}

TEST_CASE("word salad is the same for the same seed, and has neither digits nor the sentence's words in a row") {
  const auto salad = [](std::uint64_t seed) {
    std::string read(200'000, '\0');
    Text text = Text::word_salad(seed);
    text.read({reinterpret_cast<std::uint8_t*>(read.data()), read.size()});
    return read;
  };
  CHECK(salad(1) == salad(1));
  CHECK(salad(1) != salad(2));
  CHECK(salad(1).find_first_of("0123456789") == std::string::npos);
  CHECK(salad(1).find("key") == std::string::npos);
}

TEST_CASE("the key stands in every place of the sentence") {
  CHECK(needle::needle_with("a {k} b {k}", "01234") == "a 01234 b 01234");
  CHECK(needle::needle_with("no key", "01234") == "no key");
}

// R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998),
// table I, method 3: the score interval, to four digits.
TEST_CASE("Wilson's interval") {
  const auto check = [](std::int64_t right, std::int64_t asked, double low, double high) {
    const needle::Interval interval = needle::wilson(right, asked);
    CHECK(std::abs(interval.low - low) < 5e-5);
    CHECK(std::abs(interval.high - high) < 5e-5);
  };
  check(81, 263, 0.2553, 0.3662);
  check(15, 148, 0.0624, 0.1605);
  check(0, 20, 0.0000, 0.1611);
  check(1, 29, 0.0061, 0.1718);
  const needle::Interval none = needle::wilson(0, 0);
  CHECK(none.low == 0);
  CHECK(none.high == 1);
  CHECK(needle::wilson(100, 100).high == doctest::Approx(1));
  CHECK(needle::wilson(100, 100).low == doctest::Approx(1 - needle::wilson(0, 100).high));
}

TEST_CASE("numbers for people") {
  CHECK(needle::with_commas(0) == "0");
  CHECK(needle::with_commas(999) == "999");
  CHECK(needle::with_commas(1000) == "1,000");
  CHECK(needle::with_commas(12345678) == "12,345,678");
  CHECK(needle::in_bytes(12) == "12 B");
  CHECK(needle::in_bytes(1234) == "1.23 KB");
  CHECK(needle::in_bytes(153.6e6) == "154 MB");
  CHECK(needle::in_bytes(1.536e9) == "1.54 GB");
  CHECK(needle::in_time(75) == "1:15");
  CHECK(needle::in_time(3675.4) == "1:01:15");
  CHECK(needle::printable("a\n\xff") == "a\\x0a\\xff");
}

TEST_CASE("a model that does not reproduce its test vector is refused") {
  const auto file = heed::SafetensorsReader::open(HEED_NEEDLE_MODEL);
  CHECK(needle::verify(needle::Model(file, needle::Memory::open), file) < 1e-4);
  CHECK_THROWS_WITH_AS(needle::verify(needle::Model(file, needle::Memory::closed), file),
                       doctest::Contains("the model file: its test vector is missed by "), std::runtime_error);

  // One of 132,492 weights, a tenth off.
  heed::MappedFile mapped;
  REQUIRE_FALSE(mapped.open("test", HEED_NEEDLE_MODEL));
  std::vector<std::byte> bytes(mapped.bytes().begin(), mapped.bytes().end());
  std::byte* weight = bytes.data() + bytes.size() - bytes_from(file, "layers.1.mlp.down.weight");
  float value = 0;
  std::memcpy(&value, weight, sizeof value);
  value += 0.1F;
  std::memcpy(weight, &value, sizeof value);
  const auto damaged = heed::SafetensorsReader::from_bytes(bytes);
  CHECK_THROWS_AS(needle::verify(needle::Model(damaged, needle::Memory::open), damaged), std::runtime_error);
}

TEST_CASE("after the first piece nothing is allocated, and the state does not grow") {
  const auto file = heed::SafetensorsReader::open(HEED_NEEDLE_MODEL);
  const needle::Model model(file, needle::Memory::open);
  std::int64_t state_bytes[2] = {};
  for (const int batch : {1, 3, 6}) {  // 3, 6: more than the 2 rows of a batch on one core
    for (const std::int64_t length : {10'000, 40'000}) {
      CAPTURE(batch);
      CAPTURE(length);
      const std::string key = "70318";
      const std::string hidden = needle::needle_with(model.text().needle, key);
      Plan plan;
      REQUIRE(needle::make_plan(length, 0.3, static_cast<std::int64_t>(hidden.size()),
                                static_cast<std::int64_t>(model.text().question.size()), needle::answer_size,
                                model.segment_length(), plan) == "");
      std::vector<Haystack> haystacks;
      for (int row = 0; row < batch; ++row) {
        haystacks.emplace_back(plan, Text::word_salad(static_cast<std::uint64_t>(row)), hidden, model.text().question);
      }
      long at_first = -1;
      long at_last = 0;
      int calls = 0;
      const heed::Cpu cpu;
      const needle::Found found = needle::search(model, cpu, haystacks, [&](std::int64_t) {
        ++calls;
        if (at_first < 0) at_first = test::allocations();
        at_last = test::allocations();
      });
      CHECK(calls > 2);
      CHECK(at_last == at_first);
      for (const std::string& answer : found.answers) CHECK(answer == key);
      state_bytes[length > 10'000 ? 1 : 0] = found.state_bytes;
    }
    CHECK(state_bytes[0] == state_bytes[1]);
  }
}

TEST_CASE("how a text is cut into pieces, and what it is read beside, changes no bit") {
  const auto file = heed::SafetensorsReader::open(HEED_NEEDLE_MODEL);
  const needle::Model model(file, needle::Memory::open);
  constexpr heed::Index size = 700;
  heed::Tensor<std::uint8_t, 2> bytes({heed::Index{3}, size});
  for (heed::Index row = 0; row < 3; ++row)
    Text::word_salad(static_cast<std::uint64_t>(row)).read(bytes.view()[row].span());
  const heed::Cpu cpu;

  heed::Tensor<float, 3> together({heed::Index{3}, heed::Index{1}, model.vocabulary()});
  needle::Stream batch(model, cpu, 3, size);
  batch.read(bytes.view().slice(1, 0, size - 1));
  batch.read(bytes.view().slice(1, size - 1, 1), together);
  for (const heed::Index piece : {1, 50, 128, 300}) {
    CAPTURE(piece);
    heed::Tensor<float, 3> alone({heed::Index{1}, heed::Index{1}, model.vocabulary()});
    needle::Stream stream(model, cpu, 1, piece);
    const auto row = bytes.view().slice(0, 1, 1);
    for (heed::Index at = 0; at < size - 1; at += piece) {
      stream.read(row.slice(1, at, std::min(piece, size - 1 - at)));
    }
    stream.read(row.slice(1, size - 1, 1), alone);
    CHECK(std::ranges::equal(alone.span(), together.view()[1].span()));
  }
}
