// What programs say to people: numbers, and a progress bar.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace common {

// printf's, for what fits into 255 letters.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// 1234567 as "1,234,567"; 1.5e9 bytes as "1.50 GB"; 75 s as "1:15".
std::string with_commas(std::int64_t number);
std::string in_bytes(double bytes);
std::string in_time(double seconds);
// Text from outside for the terminal: line breaks, control characters and bytes beyond ASCII as escapes.
std::string printable(std::string_view text);

// "[=====>    ] 45 %  450 KB  163 KB/s  0:03 left" on the terminal behind stderr; silent if there is none.
class ProgressBar {
 public:
  // Of so many bytes; or of so many of what `unit` says: "1,234 lines  567 lines/s".
  explicit ProgressBar(std::int64_t total, std::string unit = {});
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string amount(double count) const;

  std::int64_t total_;
  std::string unit_;
  bool on_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
};

}  // namespace common
