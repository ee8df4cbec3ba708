// Byte-pair encoding: the model of a tokenizer.json without what is around it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wordpiece.hpp"

namespace text {

class BytePair {
 public:
  struct Options {
    bool byte_fallback = false;  // a letter that is no token becomes the tokens <0x..> of its bytes
    bool fuse_unknown = false;   // neighbouring unknown letters become one token
    bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges would make of it
    std::string unknown;         // the token of unknown letters; empty: they are dropped
  };

  BytePair() = default;
  BytePair(Ids vocabulary, Options options) : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

  // The next merge: the earlier one comes first. False if a part or the whole is no token.
  bool add_merge(std::string_view left, std::string_view right);

  // The letters of a piece, merged pair by pair. Appends to ids. O(n log n).
  void encode(std::string_view piece, std::vector<std::int64_t>& ids) const;

  const Ids& vocabulary() const { return vocabulary_; }
  std::int64_t id(std::string_view token) const;  // −1: there is none

 private:
  struct Merge {
    std::int64_t rank = 0;
    std::int64_t whole = 0;
  };
  const Merge* find(std::int64_t left, std::int64_t right) const;
  void letters(std::string_view piece, std::vector<std::int64_t>& ids) const;

  Ids vocabulary_;
  Options options_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::int64_t next_rank_ = 0;
};

}  // namespace text
