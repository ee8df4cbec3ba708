// Files that are not what they say: each kind refused with its text, and thousands of damaged ones without a crash.
#include <doctest/doctest.h>

#include "heed/io/safetensors_reader.hpp"
#include "io/safetensors_bytes.hpp"

using heed::Index;
using heed::SafetensorsReader;
using namespace heed_test;

namespace {

// What the reader says of these bytes, without "heed: SafetensorsReader: "; "" if it takes them.
std::string verdict(const heed::Tensor<std::byte, 1>& bytes) {
  SafetensorsReader reader;
  const heed::Problem problem = reader.try_from_bytes(bytes.span());
  if (!problem) return "";
  CHECK(problem.kind() == heed::ErrorKind::format);
  CHECK(reader.tensors().empty());  // nothing loaded
  CHECK_THROWS_AS((void)SafetensorsReader::from_bytes(bytes.span()), heed::FormatError);
  const std::string text = problem.text();
  const std::string start = "heed: SafetensorsReader: ";
  CHECK(text.rfind(start, 0) == 0);
  return text.substr(start.size());
}
std::string verdict(std::string_view header, std::size_t data_bytes = 0) {
  return verdict(file_bytes(header, std::string(data_bytes, '\0')));
}

// A tensor's entry with one field replaced.
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

}  // namespace

TEST_CASE("case 43: a good file is taken") {
  CHECK(verdict("{}") == "");
  CHECK(verdict("{}   ") == "");
  CHECK(verdict(R"({"__metadata__":{}})") == "");
  CHECK(verdict(entry(R"("F32")", "[2]", "[0,8]"), 8) == "");
  CHECK(verdict(entry(R"("F32")", "[0]", "[0,0]")) == "");
  CHECK(verdict(entry(R"("F32")", "[]", "[0,4]"), 4) == "");
  CHECK(verdict(entry(R"("U8")", "[1,1,1,1,1,1,1,2]", "[0,2]"), 2) == "");
  CHECK(verdict(R"({"":{"shape":[1],"data_offsets":[0,1],"dtype":"U8"}})", 1) == "");
}

TEST_CASE("case 43: the header's length") {
  CHECK(verdict(heed::Tensor<std::byte, 1>()) == "header: the file ends after 0 bytes");
  CHECK(verdict(heed::Tensor<std::byte, 1>({7})) == "header: the file ends after 7 bytes");
  CHECK(verdict(heed::Tensor<std::byte, 1>({8})) == "header: does not begin with {");
  CHECK(verdict(file_bytes("{}", "", 3)) ==
        "header: says it has 3 bytes, but only 2 follow: the file is cut short or damaged");
  CHECK(verdict(file_bytes("{}", "", 100'000'000)) ==
        "header: says it has 100000000 bytes, but only 2 follow: the file is cut short or damaged");
  CHECK(verdict(file_bytes("{}", "", 100'000'001)) == "header: longer than the limit of 100000000 bytes");
  CHECK(verdict(file_bytes("{}", "", UINT64_MAX)) == "header: longer than the limit of 100000000 bytes");
  CHECK(verdict(file_bytes("{}", "", 1ULL << 63U)) == "header: longer than the limit of 100000000 bytes");
  CHECK(verdict(file_bytes("{}", "", 1)) == "header: not valid JSON at byte 2");
}

TEST_CASE("case 43: the header's JSON") {
  CHECK(verdict(" {}") == "header: does not begin with {");
  CHECK(verdict("[]") == "header: does not begin with {");
  CHECK(verdict("{") == "header: not valid JSON at byte 2");
  CHECK(verdict("{}}") == "header: not valid JSON at byte 3");
  CHECK(verdict("{} x") == "header: not valid JSON at byte 4");
  CHECK(verdict(R"({"a":)") == "header: not valid JSON at byte 6");
  CHECK(verdict(R"({'a':1})") == "header: not valid JSON at byte 2");
  CHECK(verdict("{/**/}") == "header: not valid JSON at byte 2");
  CHECK(verdict("{\"\xff\":{}}") == "header: not valid JSON at byte 3");
  CHECK(verdict(std::string_view("{}\0garbage", 10)) == "header: holds a zero byte");
  CHECK(verdict("{\"a\n\":{}}") == "header: not valid JSON at byte 4");
}

TEST_CASE("case 43: the header's structure") {
  CHECK(verdict(R"({"a":1})") == "a: expected an object with dtype, shape and data_offsets, got a number");
  CHECK(verdict(R"({"a":[]})") == "a: expected an object with dtype, shape and data_offsets, got an array");
  CHECK(verdict(R"({"a":null})") == "a: expected an object with dtype, shape and data_offsets, got null");
  CHECK(verdict(R"({"a":{}})") == "a: dtype is missing");
  CHECK(verdict(R"({"a":{"dtype":"F32"}})") == "a: shape is missing");
  CHECK(verdict(R"({"a":{"dtype":"F32","shape":[]}})") == "a: data_offsets is missing");
  CHECK(verdict(R"({"a":{"dtype":"F32","dtype":"F32"}})") == "a: dtype appears twice");
  CHECK(verdict(R"({"a":{"extra":1}})") == "a: unknown field extra");
  CHECK(verdict(entry("7", "[1]", "[0,4]"), 4) == "a: expected dtype to be a text, got a number");
  CHECK(verdict(entry("{}", "[1]", "[0,4]"), 4) == "a: expected dtype to be a text, got an object");
  CHECK(verdict(entry(R"("F31")", "[1]", "[0,4]"), 4) == "a: unknown dtype F31");
  CHECK(verdict(entry(R"("f32")", "[1]", "[0,4]"), 4) == "a: unknown dtype f32");
  CHECK(verdict(entry(R"("F32")", "4", "[0,4]"), 4) == "a: expected shape to be an array, got a number");
  CHECK(verdict(entry(R"("F32")", R"("4")", "[0,4]"), 4) == "a: expected shape to be an array, got a text");
  CHECK(verdict(entry(R"("F32")", "[-1]", "[0,4]"), 4) ==
        "a: expected shape to hold at most 8 sizes, got a negative number");
  CHECK(verdict(entry(R"("F32")", "[1.0]", "[0,4]"), 4) ==
        "a: expected shape to hold at most 8 sizes, got a number that is not whole or has over 64 bits");
  CHECK(verdict(entry(R"("F32")", "[99999999999999999999]", "[0,4]"), 4) ==
        "a: expected shape to hold at most 8 sizes, got a number that is not whole or has over 64 bits");
  CHECK(verdict(entry(R"("F32")", "[9223372036854775808]", "[0,4]"), 4) ==
        "a: expected shape to hold at most 8 sizes, got a number above 2^63 - 1");
  CHECK(verdict(entry(R"("F32")", "[true]", "[0,4]"), 4) ==
        "a: expected shape to hold at most 8 sizes, got true or false");
  CHECK(verdict(entry(R"("F32")", "[[1]]", "[0,4]"), 4) == "a: expected shape to hold at most 8 sizes, got an array");
  CHECK(verdict(entry(R"("U8")", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1) ==
        "a: expected shape to hold at most 8 sizes, got a ninth one");
  CHECK(verdict(entry(R"("F32")", "[1]", "{}"), 4) == "a: expected data_offsets to be an array, got an object");
  CHECK(verdict(entry(R"("F32")", "[1]", "[]"), 4) == "a: expected data_offsets to hold two byte positions, got none");
  CHECK(verdict(entry(R"("F32")", "[1]", "[4]"), 4) == "a: expected data_offsets to hold two byte positions, got one");
  CHECK(verdict(entry(R"("F32")", "[1]", "[0,4,4]"), 4) ==
        "a: expected data_offsets to hold two byte positions, got a third one");
  CHECK(verdict(entry(R"("F32")", "[1]", "[-4,0]"), 4) ==
        "a: expected data_offsets to hold two byte positions, got a negative number");
  CHECK(verdict(entry(R"("F32")", "[1]", "[0,18446744073709551615]"), 4) ==
        "a: expected data_offsets to hold two byte positions, got a number above 2^63 - 1");
}

TEST_CASE("case 43: nesting of any depth is refused at its first wrong bracket") {
  CHECK(verdict("{\"a\":" + std::string(1'000'000, '[')) ==
        "a: expected an object with dtype, shape and data_offsets, got an array");
  std::string deep = "{\"a\":{\"dtype\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"x\":";
  CHECK(verdict(deep) == "a: expected dtype to be a text, got an object");
}

TEST_CASE("case 43: __metadata__ holds texts, once") {
  CHECK(verdict(R"({"__metadata__":1})") == "__metadata__: expected an object of texts, got a number");
  CHECK(verdict(R"({"__metadata__":null})") == "__metadata__: expected an object of texts, got null");
  CHECK(verdict(R"({"__metadata__":{"k":1}})") == "__metadata__: expected a text, got a number");
  CHECK(verdict(R"({"__metadata__":{"k":{"x":"y"}}})") == "__metadata__: expected a text, got an object");
  CHECK(verdict(R"({"__metadata__":{"k":["y"]}})") == "__metadata__: expected a text, got an array");
  CHECK(verdict(R"({"__metadata__":{"k":"a","j":"b","k":"c"}})") == "__metadata__: k appears twice");
  CHECK(verdict(R"({"__metadata__":{},"__metadata__":{}})") == "header: __metadata__ appears twice");
}

TEST_CASE("case 43: duplicate names") {
  CHECK(verdict(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                3) == "a: there are two tensors of this name");
  // Written differently, the same name.
  CHECK(verdict(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                2) == "a: there are two tensors of this name");
}

TEST_CASE("case 43: offsets out of range, backwards, truncated data, trailing bytes") {
  CHECK(verdict(entry(R"("F32")", "[1]", "[0,4]"), 3) ==
        "a: data_offsets [0, 4] reach beyond the data of 3 bytes: the file is cut short or damaged");
  CHECK(verdict(entry(R"("F32")", "[0]", "[8,8]"), 4) ==
        "a: data_offsets [8, 8] reach beyond the data of 4 bytes: the file is cut short or damaged");
  CHECK(verdict(entry(R"("F32")", "[1]", "[9223372036854775803,9223372036854775807]"), 4) ==
        "a: data_offsets [9223372036854775803, 9223372036854775807] reach beyond the data of 4 bytes: the file is cut "
        "short or damaged");
  CHECK(verdict(entry(R"("F32")", "[1]", "[4,0]"), 4) == "a: data_offsets [4, 0] run backwards");
  CHECK(verdict(entry(R"("F32")", "[1]", "[0,4]"), 6) == "a: 2 bytes follow the data of the last tensor");
  CHECK(verdict("{}", 5) == "header: 5 bytes follow the data of the last tensor");
}

TEST_CASE("case 43: shape times dtype is not the bytes, or overflows") {
  CHECK(verdict(entry(R"("F32")", "[2,2]", "[0,8]"), 8) == "a: [2, 2] (F32) takes 16 bytes, but data_offsets hold 8");
  CHECK(verdict(entry(R"("BF16")", "[1]", "[0,4]"), 4) == "a: [1] (BF16) takes 2 bytes, but data_offsets hold 4");
  CHECK(verdict(entry(R"("F32")", "[0]", "[0,4]"), 4) == "a: [0] (F32) takes 0 bytes, but data_offsets hold 4");
  // Products that wrap to the right number in 64 bits.
  CHECK(verdict(entry(R"("F32")", "[4294967296,4294967296]", "[0,0]")) ==
        "a: [4294967296, 4294967296] (F32) is too large to address");
  CHECK(verdict(entry(R"("F64")", "[2305843009213693953]", "[0,8]"), 8) ==
        "a: [2305843009213693953] (F64) is too large to address");
  // Empty, but its strides would overflow.
  CHECK(verdict(entry(R"("F32")", "[0,9223372036854775807,2]", "[0,0]")) ==
        "a: [0, 9223372036854775807, 2] (F32) is too large to address");
  CHECK(verdict(entry(R"("F32")", "[4294967296,0]", "[0,0]")) == "");
}

TEST_CASE("case 43: overlaps and gaps") {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  CHECK(verdict(two("[0,4]", "[4,8]"), 8) == "");
  CHECK(verdict(two("[4,8]", "[0,4]"), 8) == "");  // the order of the header is not that of the data
  CHECK(verdict(two("[0,4]", "[2,6]"), 6) == "b: data begins at byte 2, but that of a ends at byte 4: an overlap");
  CHECK(verdict(two("[0,4]", "[0,4]"), 4).find("data begins at byte 0, but that of") == 3);
  CHECK(verdict(two("[0,4]", "[5,9]"), 9) == "b: data begins at byte 5, but that of a ends at byte 4: a gap");
  CHECK(verdict(two("[1,5]", "[5,9]"), 9) == "a: data begins at byte 1, but that of header ends at byte 0: a gap");
}

TEST_CASE("case 43: a hostile name neither garbles the text nor hides the fault") {
  CHECK(verdict(R"({"a\u001b[2J\u0000\nb":{}})") == "a?[2J??b: dtype is missing");
  const std::string name(1000, 'n');
  CHECK(verdict("{\"" + name + "\":{}}") == std::string(160, 'n') + "...: dtype is missing");
}

TEST_CASE("case 43: damaged in thousands of ways, never a crash, never a read outside") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w.q":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("w.k":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"n":{"dtype":"I64","shape":[],)"
      R"("data_offsets":[32,40]},"m":{"dtype":"BOOL","shape":[1,2,1],"data_offsets":[40,42]}}  )";
  const auto good = file_bytes(header, std::string(42, '\1'));
  REQUIRE(verdict(good) == "");

  Index taken = 0;
  Index refused = 0;
  // Reads whatever a file that is taken offers; a sanitizer watches.
  const auto use = [&](const heed::Tensor<std::byte, 1>& bytes) {
    SafetensorsReader reader;
    if (reader.try_from_bytes(bytes.span())) {
      ++refused;
      return;
    }
    ++taken;
    std::size_t total = 0;
    for (const heed::TensorInfo& tensor : reader.tensors()) {
      total += reader.bytes(tensor).size();
      if (heed::converts_to<float>(tensor.dtype)) {
        CHECK(reader.read_flat<float>(tensor.name).size() == tensor.size());
      } else if (heed::converts_to<std::int64_t>(tensor.dtype)) {
        CHECK(reader.read_flat<std::int64_t>(tensor.name).size() == tensor.size());
      }
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    CHECK(total + length + 8 == static_cast<std::size_t>(bytes.size()));
  };

  for (Index size = 0; size <= good.size(); ++size) {
    use(heed::Tensor<std::byte, 1>(good.view().slice(0, 0, size)));
  }
  CHECK(taken == 1);
  CHECK(refused == good.size());

  // Every byte of length and header becomes every value.
  for (Index at = 0; at < good.size() - 42; ++at) {
    for (int value = 0; value < 256; ++value) {
      auto bytes = good;
      bytes(at) = static_cast<std::byte>(value);
      use(bytes);
    }
  }

  // Several bytes at once, digits and brackets among them, sometimes cut short.
  std::uint64_t state = 20240731;
  const auto next = [&state](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33U) % below;
  };
  const std::string_view likely = "0123456789[]{},:\"-.e \\";
  for (int trial = 0; trial < 20'000; ++trial) {
    auto bytes = good;
    for (std::uint64_t change = next(6) + 1; change > 0; --change) {
      const auto value = next(2) == 0 ? static_cast<std::byte>(next(256)) : std::byte(likely[next(likely.size())]);
      bytes(static_cast<Index>(next(static_cast<std::uint64_t>(bytes.size())))) = value;
    }
    if (next(4) == 0) {
      bytes = heed::Tensor<std::byte, 1>(
          std::as_const(bytes).view().slice(0, 0, static_cast<Index>(next(static_cast<std::uint64_t>(bytes.size())))));
    }
    use(bytes);
  }
  CHECK(taken > 1000);
  CHECK(refused > 50'000);
}
