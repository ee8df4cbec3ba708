// What the tokenizers need of Unicode, by ICU.
#pragma once

#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace text {

// A file that is not what it should be, or asks for something that is not here; what() names the file and the place.
struct BadFile : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes that are not UTF-8 become U+FFFD.
icu::UnicodeString from_utf8(std::string_view bytes);
std::string to_utf8(const icu::UnicodeString& string);
void append_utf8(std::string& bytes, UChar32 letter);

// The UTF-8 sequence that `bytes` begin with: its length if it is whole and right; 0 if it is cut short, so that more
// bytes could make it right; −n if the first n bytes can never be part of one.
int sequence_length(std::string_view bytes);

// A copy in which every byte that is no part of UTF-8 is replaced; what is right already is not converted.
std::string clean_utf8(std::string_view bytes);

// Decomposed and composed forms. Errors: std::runtime_error with ICU's reason.
enum class Form { nfc, nfd, nfkc, nfkd };
icu::UnicodeString normalized(const icu::UnicodeString& string, Form form);

// A whole file. Errors: BadFile with the path and the reason.
std::string read_file(const std::string& path);

}  // namespace text
