#include "byte_pair.hpp"

#include <algorithm>
#include <cstdio>
#include <queue>

namespace text {

namespace {

// Ids are below 2^31, which the reader of the file checks.
std::uint64_t pair_key(std::int64_t left, std::int64_t right) {
  return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint64_t>(right);
}

// A token of the piece, in a list from which merged ones are taken out.
struct Symbol {
  std::int64_t id = 0;
  std::ptrdiff_t before = -1;
  std::ptrdiff_t after = -1;  // −1: none
  bool gone = false;
};

// Two neighbours that may be merged; out of date if one of them has changed since.
struct Candidate {
  std::int64_t rank = 0;
  std::ptrdiff_t at = 0;
  std::int64_t left = 0, right = 0, whole = 0;

  // Of the same merge, the one further left comes first.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

std::int64_t BytePair::id(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? -1 : found->second;
}

bool BytePair::add_merge(std::string_view left, std::string_view right) {
  const std::int64_t first = id(left);
  const std::int64_t second = id(right);
  const std::int64_t whole = id(std::string(left).append(right));
  if (first < 0 || second < 0 || whole < 0) return false;
  merges_.insert_or_assign(pair_key(first, second), Merge{next_rank_++, whole});
  return true;
}

const BytePair::Merge* BytePair::find(std::int64_t left, std::int64_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePair::letters(std::string_view piece, std::vector<std::int64_t>& ids) const {
  const std::int64_t unknown = options_.unknown.empty() ? -1 : id(options_.unknown);
  bool unknown_before = false;
  for (std::size_t at = 0; at < piece.size();) {
    std::size_t end = at + 1;
    while (end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xC0U) == 0x80U) ++end;
    const std::string_view letter = piece.substr(at, end - at);
    at = end;
    const std::int64_t known = id(letter);
    if (known >= 0) {
      ids.push_back(known);
      unknown_before = false;
      continue;
    }
    if (options_.byte_fallback) {
      std::int64_t bytes[4];
      std::size_t count = 0;
      for (const char byte : letter) {
        char token[8];
        std::snprintf(token, sizeof token, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
        bytes[count++] = id(token);
      }
      if (std::ranges::all_of(bytes, bytes + count, [](std::int64_t byte) { return byte >= 0; })) {
        ids.insert(ids.end(), bytes, bytes + count);
        unknown_before = false;
        continue;
      }
    }
    if (unknown >= 0 && !(options_.fuse_unknown && unknown_before)) ids.push_back(unknown);
    unknown_before = true;
  }
}

void BytePair::encode(std::string_view piece, std::vector<std::int64_t>& ids) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const std::int64_t whole = id(piece); whole >= 0) {
      ids.push_back(whole);
      return;
    }
  }
  std::vector<std::int64_t> start;
  letters(piece, start);
  std::vector<Symbol> symbols(start.size());
  const auto count = static_cast<std::ptrdiff_t>(start.size());
  const auto symbol = [&](std::ptrdiff_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    symbol(i) = {start[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, false};
  }
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::ptrdiff_t at) {
    if (at < 0 || symbol(at).after < 0) return;
    const std::int64_t left = symbol(at).id;
    const std::int64_t right = symbol(symbol(at).after).id;
    if (const Merge* merge = find(left, right)) queue.push({merge->rank, at, left, right, merge->whole});
  };
  for (std::ptrdiff_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate next = queue.top();
    queue.pop();
    Symbol& left = symbol(next.at);
    if (left.gone || left.id != next.left || left.after < 0 || symbol(left.after).id != next.right) continue;
    Symbol& right = symbol(left.after);
    left.id = next.whole;
    right.gone = true;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = next.at;
    consider(left.before);
    consider(next.at);
  }
  for (std::ptrdiff_t at = 0; at >= 0 && at < count; at = symbol(at).after) ids.push_back(symbol(at).id);
}

}  // namespace text
