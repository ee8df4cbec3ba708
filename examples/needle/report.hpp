// What the program says: the report and the table for people, JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "terminal.hpp"

namespace needle {

using common::in_bytes;
using common::in_time;
using common::printable;
using common::with_commas;

// One key that was hidden and asked for.
struct Asked {
  std::string key;
  std::string answer;
  double depth = 0;
  std::int64_t needle_at = 0;
  bool near = false;  // the sentence lies in the question's own segment

  bool right() const { return answer == key; }
};

// Everything that is reported.
struct Report {
  std::string text;     // what the text is
  std::string needle;   // the sentence with the first key
  std::string backend;  // who computed
  int threads = 1;
  bool memory = true;
  std::int64_t parameters = 0;
  double verified_to = 0;        // largest difference from the model's own test vector
  std::int64_t length = 0;       // bytes of text with the sentence
  std::int64_t question_at = 0;  // where the question begins
  std::int64_t bytes = 0;        // read in all rows
  double seconds = 0;
  std::int64_t state_bytes = 0;     // of one row, after the last byte
  std::int64_t kv_cache_bytes = 0;  // what keys and values of one row would take
  std::vector<Asked> asked;

  std::int64_t right() const;
  double bytes_a_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// The 95 % interval of a share of which `right` of `asked` were seen (Wilson's score interval): unlike right ± 1.96
// standard errors it is not empty where all were right.
struct Interval {
  double low = 0;
  double high = 1;
};
Interval wilson(std::int64_t right, std::int64_t asked);

std::string as_text(const Report& report, bool table);
std::string as_json(const Report& report, bool table);

}  // namespace needle
