// The search: haystacks through the model, piece by piece, and the answers.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "haystack.hpp"
#include "model.hpp"

namespace needle {

inline constexpr int answer_size = 5;  // digits of a key

struct Found {
  std::vector<std::string> answers;  // one a haystack
  std::int64_t bytes = 0;            // read in all of them
  double seconds = 0;
  std::int64_t state_bytes = 0;  // of one row
};

// Streams all haystacks, whose plans must have the same size, as rows of a batch; then asks. (Where there are many, a few
// rows a core at a time, one batch after the other: a row's bits do not depend on its neighbours.) `progress` is called
// with the bytes read so far; after its first call nothing is allocated until the answers are handed back.
Found search(const Model& model, const heed::Cpu& cpu, std::span<Haystack> haystacks,
             const std::function<void(std::int64_t)>& progress);

}  // namespace needle
