#include "unicode.hpp"

#include <unicode/normalizer2.h>
#include <unicode/utf8.h>

#include <cstdint>

#include "heed/io/mapped_file.hpp"

namespace text {

icu::UnicodeString from_utf8(std::string_view bytes) {
  if (bytes.size() > INT32_MAX / 2) throw std::runtime_error("a text of over a gigabyte");
  return icu::UnicodeString::fromUTF8(icu::StringPiece(bytes.data(), static_cast<std::int32_t>(bytes.size())));
}

std::string to_utf8(const icu::UnicodeString& string) {
  std::string bytes;
  return string.toUTF8String(bytes);
}

void append_utf8(std::string& bytes, UChar32 letter) {
  char units[U8_MAX_LENGTH];
  std::int32_t length = 0;
  UBool failed = false;
  U8_APPEND(units, length, U8_MAX_LENGTH, letter, failed);
  bytes.append(failed ? "\xEF\xBF\xBD" : std::string_view(units, static_cast<std::size_t>(length)));
}

int sequence_length(std::string_view bytes) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (!U8_IS_LEAD(first)) return -1;
  const int count = 1 + U8_COUNT_TRAIL_BYTES(first);
  // The second byte has a range of its own after some first ones (no overlong forms, no surrogates).
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (int at = 1; at < count; ++at) {
    if (static_cast<std::size_t>(at) >= bytes.size()) return 0;
    const unsigned next = byte(static_cast<std::size_t>(at));
    if (next < (at == 1 ? low : 0x80) || next > (at == 1 ? high : 0xBF)) return -at;
  }
  return count;
}

std::string clean_utf8(std::string_view bytes) {
  std::string clean;
  clean.reserve(bytes.size());
  while (!bytes.empty()) {
    const int length = sequence_length(bytes);
    const std::size_t count = length == 0 ? bytes.size() : static_cast<std::size_t>(length < 0 ? -length : length);
    clean.append(length > 0 ? bytes.substr(0, count) : "\xEF\xBF\xBD");
    bytes.remove_prefix(count);
  }
  return clean;
}

icu::UnicodeString normalized(const icu::UnicodeString& string, Form form) {
  const bool compatible = form == Form::nfkc || form == Form::nfkd;
  const bool composed = form == Form::nfc || form == Form::nfkc;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getInstance(
      nullptr, compatible ? "nfkc" : "nfc", composed ? UNORM2_COMPOSE : UNORM2_DECOMPOSE, status);
  icu::UnicodeString result;
  if (U_SUCCESS(status)) result = normalizer->normalize(string, status);
  if (U_FAILURE(status)) throw std::runtime_error(std::string("Unicode normalisation: ") + u_errorName(status));
  return result;
}

std::string read_file(const std::string& path) {
  heed::MappedFile file;
  if (const heed::Problem problem = file.open("file", path)) throw BadFile(problem.text());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace text
