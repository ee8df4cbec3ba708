#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace needle {

namespace {

bool stderr_is_a_terminal() {
#if defined(__unix__) || defined(__APPLE__)
  return ::isatty(STDERR_FILENO) != 0;
#else
  return false;
#endif
}

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// The keys of one depth.
struct Group {
  std::int64_t right = 0;
  std::int64_t asked = 0;
  bool near = false;
};

std::map<double, Group> by_depth(const Report& report) {
  std::map<double, Group> groups;
  for (const Asked& one : report.asked) {
    Group& group = groups[one.depth];
    group.right += one.right() ? 1 : 0;
    group.asked += 1;
    group.near = one.near;
  }
  return groups;
}

std::string table_line(const std::string& name, std::int64_t right, std::int64_t asked) {
  const Interval interval = wilson(right, asked);
  return format("%8s  %9s  %6.1f %% - %5.1f %%", name.c_str(),
                (std::to_string(right) + " / " + std::to_string(asked)).c_str(), 100 * interval.low,
                100 * interval.high);
}

}  // namespace

std::int64_t Report::right() const {
  return std::count_if(asked.begin(), asked.end(), [](const Asked& one) { return one.right(); });
}

Interval wilson(std::int64_t right, std::int64_t asked) {
  if (asked == 0) return {};
  const double z = 1.959963984540054;  // 97.5 % of the normal distribution lie below
  const auto n = static_cast<double>(asked);
  const double share = static_cast<double>(right) / n;
  const double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

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

std::string as_text(const Report& report, bool table) {
  std::string out;
  const auto line = [&out](const char* name, const std::string& value) { out += format("%-10s", name) + value + "\n"; };
  line("model", with_commas(report.parameters) + " parameters, its test vector reproduced to " +
                    format("%.1e", report.verified_to) + (report.memory ? "" : "; memory closed"));
  line("text", with_commas(report.length) + " bytes of " + report.text);
  if (table) {
    line("hidden", std::to_string(report.asked.size()) + " keys, one in a text of its own");
    out += "\n   depth  right / of     95 % interval\n";
    for (const auto& [depth, group] : by_depth(report)) {
      out += table_line(format("%.2f", depth), group.right, group.asked);
      out += group.near ? "   (in the question's own segment)\n" : "\n";
    }
    out += table_line("all", report.right(), static_cast<std::int64_t>(report.asked.size())) + "\n\n";
  } else {
    const Asked& one = report.asked.front();
    line("hidden",
         "\"" + report.needle + "\" at byte " + with_commas(one.needle_at) + format(" (depth %g)", one.depth));
    line("asked", "at byte " + with_commas(report.question_at) +
                      (one.near ? ", in the same segment: the memory is not needed" : ""));
    line("answer", printable(one.answer) + (one.right() ? ", right" : ", wrong: it is " + one.key));
  }
  line("speed", with_commas(report.bytes) + " bytes in " + format("%.2f s: ", report.seconds) +
                    with_commas(std::llround(report.bytes_a_second())) + " bytes a second (" + report.backend + ", " +
                    std::to_string(report.threads) + (report.threads == 1 ? " thread)" : " threads)"));
  line("state", in_bytes(static_cast<double>(report.state_bytes)) + (table ? " for each text" : "") +
                    ", whatever the length; a KV cache would take " +
                    in_bytes(static_cast<double>(report.kv_cache_bytes)));
  return out;
}

std::string as_json(const Report& report, bool table) {
  using Json = nlohmann::ordered_json;
  const auto interval = [](std::int64_t right, std::int64_t asked) {
    const Interval found = wilson(right, asked);
    return Json::array({found.low, found.high});
  };
  const auto asked = static_cast<std::int64_t>(report.asked.size());
  Json json;
  json["parameters"] = report.parameters;
  json["verified_to"] = report.verified_to;
  json["memory"] = report.memory;
  json["text"] = report.text;
  json["length"] = report.length;
  json["question_at"] = report.question_at;
  if (!table) json["needle"] = report.needle;
  json["keys"] = Json::array();
  for (const Asked& one : report.asked) {
    json["keys"].push_back({{"depth", one.depth},
                            {"needle_at", one.needle_at},
                            {"key", one.key},
                            {"answer", printable(one.answer)},
                            {"right", one.right()}});
  }
  if (table) {
    json["depths"] = Json::array();
    for (const auto& [depth, group] : by_depth(report)) {
      json["depths"].push_back({{"depth", depth},
                                {"right", group.right},
                                {"asked", group.asked},
                                {"interval", interval(group.right, group.asked)}});
    }
  }
  json["right"] = report.right();
  json["asked"] = asked;
  json["interval"] = interval(report.right(), asked);
  json["backend"] = report.backend;
  json["threads"] = report.threads;
  json["bytes"] = report.bytes;
  json["seconds"] = report.seconds;
  json["bytes_per_second"] = report.bytes_a_second();
  json["state_bytes"] = report.state_bytes;
  json["kv_cache_bytes"] = report.kv_cache_bytes;
  // A file's name may hold bytes that are not UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ProgressBar::ProgressBar(std::int64_t total) : total_(total), on_(stderr_is_a_terminal()) {}

ProgressBar::~ProgressBar() {
  if (on_) std::fputs("\r\x1b[K", stderr);  // the report takes its place
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
               in_bytes(static_cast<double>(done)).c_str(), in_bytes(rate).c_str(),
               in_time(rate > 0 ? static_cast<double>(total_ - done) / rate : 0).c_str());
  std::fflush(stderr);
}

}  // namespace needle
