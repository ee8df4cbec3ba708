#include "terminal.hpp"

#include <algorithm>
#include <cmath>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace common {

namespace {

bool stderr_is_a_terminal() {
#if defined(__unix__) || defined(__APPLE__)
  return ::isatty(STDERR_FILENO) != 0;
#else
  return false;
#endif
}

}  // namespace

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string in_bytes(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return format(unit == 0 || bytes >= 99.95 ? "%.0f %s" : bytes >= 9.995 ? "%.1f %s" : "%.2f %s", bytes, units[unit]);
}

std::string in_time(double seconds) {
  const auto whole = std::llround(std::min(seconds, 1e9));
  if (whole < 3600) return format("%lld:%02lld", whole / 60, whole % 60);
  return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    result += byte >= 0x20 && byte < 0x7f ? std::string(1, letter) : format("\\x%02x", static_cast<unsigned>(byte));
  }
  return result;
}

ProgressBar::ProgressBar(std::int64_t total, std::string unit)
    : total_(total), unit_(std::move(unit)), on_(stderr_is_a_terminal()) {}

ProgressBar::~ProgressBar() {
  if (on_) std::fputs("\r\x1b[K", stderr);  // the report takes its place
}

std::string ProgressBar::amount(double count) const {
  return unit_.empty() ? in_bytes(count) : with_commas(std::llround(count)) + " " + unit_;
}

void ProgressBar::show(std::int64_t done) {
  if (!on_) return;
  const Clock::time_point now = Clock::now();
  if (now - shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double share = static_cast<double>(done) / static_cast<double>(total_);
  const double rate = static_cast<double>(done) / seconds;

  constexpr int width = 30;
  char bar[width + 1];
  for (int i = 0; i < width; ++i) bar[i] = i < static_cast<int>(share * width) ? '=' : ' ';
  bar[width] = '\0';
  std::fprintf(stderr, "\r[%s] %3.0f %%  %s  %s/s  %s left \x1b[K", bar, 100 * share,
               amount(static_cast<double>(done)).c_str(), amount(rate).c_str(),
               in_time(rate > 0 ? static_cast<double>(total_ - done) / rate : 0).c_str());
  std::fflush(stderr);
}

}  // namespace common
