#include "search.hpp"

#include <algorithm>

namespace needle {

namespace {

// Tokens of all rows in one call: enough to share among cores, few enough that a call's activations stay in the cache.
constexpr heed::Index tokens_a_call = 2048;

// Rows whose states are held at a time; more haystacks than that come one batch after the other.
constexpr std::size_t largest_batch = 256;

std::uint8_t most_likely(heed::View<const float, 1> logits) {
  return static_cast<std::uint8_t>(std::ranges::max_element(logits.span()) - logits.span().begin());
}

}  // namespace

Found search(const Model& model, const heed::Cpu& cpu, std::span<Haystack> haystacks,
             const std::function<void(std::int64_t)>& progress) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Found found;
  found.answers.assign(haystacks.size(), std::string(answer_size, ' '));

  for (std::size_t first = 0; first < haystacks.size(); first += largest_batch) {
    const std::span<Haystack> rows = haystacks.subspan(first, std::min(largest_batch, haystacks.size() - first));
    const auto batch = static_cast<heed::Index>(rows.size());
    const heed::Index segments = std::max<heed::Index>(1, tokens_a_call / (model.segment_length() * batch));
    const heed::Index length = segments * model.segment_length();
    Stream stream(model, cpu, batch, length);
    heed::Tensor<std::uint8_t, 2> bytes({batch, length});
    heed::Tensor<float, 3> logits({batch, heed::Index{1}, model.vocabulary()});

    // All but the last byte of the question is read to be remembered; the last one and the answer's are asked what
    // comes next.
    const std::int64_t size = rows.front().plan().size();
    for (std::int64_t at = 0; at < size - 1;) {
      const heed::Index count = std::min<heed::Index>(length, size - 1 - at);
      const auto piece = bytes.view().slice(1, 0, count);
      for (heed::Index row = 0; row < batch; ++row) rows[static_cast<std::size_t>(row)].read(piece[row].span());
      stream.read(piece);
      at += count;
      found.bytes += batch * count;
      progress(found.bytes);
    }
    const auto last = bytes.view().slice(1, 0, 1);
    for (heed::Index row = 0; row < batch; ++row) rows[static_cast<std::size_t>(row)].read(last[row].span());
    for (int digit = 0; digit < answer_size; ++digit) {
      stream.read(last, logits);
      found.bytes += batch;
      for (heed::Index row = 0; row < batch; ++row) {
        const std::uint8_t next = most_likely(logits.view()[row][0]);
        found.answers[first + static_cast<std::size_t>(row)][static_cast<std::size_t>(digit)] = static_cast<char>(next);
        last(row, 0) = next;
      }
      progress(found.bytes);
    }
    found.state_bytes = stream.state_bytes() / batch;
  }
  found.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return found;
}

}  // namespace needle
