#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace needle {

namespace {

using common::format;

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

}  // namespace needle
