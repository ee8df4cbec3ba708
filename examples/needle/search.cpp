#include "search.hpp"

#include <algorithm>

namespace needle {

namespace {

// What a call does for each core: enough tokens that waking threads does not matter, few enough that activations (256
// bytes a token) stay in the core's cache; and at most so many rows, of which each has a state of 300 KB.
constexpr heed::Index tokens_a_core = 1024;
constexpr heed::Index rows_a_core = 2;

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

  const auto total = static_cast<heed::Index>(haystacks.size());
  const heed::Index cores = cpu.concurrency();
  const heed::Index most = std::min(total, rows_a_core * cores);
  const heed::Index segments = std::max<heed::Index>(1, tokens_a_core * cores / (model.segment_length() * most));
  const heed::Index length = segments * model.segment_length();
  heed::Tensor<std::uint8_t, 2> bytes({most, length});
  heed::Tensor<float, 3> logits({most, heed::Index{1}, model.vocabulary()});
  Stream full(model, cpu, most, length);
  Stream rest(model, cpu, total % most, length);

  for (heed::Index first = 0; first < total; first += most) {
    const heed::Index batch = std::min(most, total - first);
    const auto rows = haystacks.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(batch));
    Stream& stream = batch == most ? full : rest;
    stream.reset();

    // All but the last byte of the question is read to be remembered; the last one and the answer's are asked what
    // comes next.
    const std::int64_t size = rows.front().plan().size();
    for (std::int64_t at = 0; at < size - 1;) {
      const heed::Index count = std::min<heed::Index>(length, size - 1 - at);
      const auto piece = bytes.view().slice(0, 0, batch).slice(1, 0, count);
      for (heed::Index row = 0; row < batch; ++row) rows[static_cast<std::size_t>(row)].read(piece[row].span());
      stream.read(piece);
      at += count;
      found.bytes += batch * count;
      progress(found.bytes);
    }
    const auto last = bytes.view().slice(0, 0, batch).slice(1, 0, 1);
    for (heed::Index row = 0; row < batch; ++row) rows[static_cast<std::size_t>(row)].read(last[row].span());
    for (int digit = 0; digit < answer_size; ++digit) {
      stream.read(last, logits.view().slice(0, 0, batch));
      found.bytes += batch;
      for (heed::Index row = 0; row < batch; ++row) {
        const std::uint8_t next = most_likely(logits.view()[row][0]);
        found.answers[static_cast<std::size_t>(first + row)][static_cast<std::size_t>(digit)] = static_cast<char>(next);
        last(row, 0) = next;
      }
      progress(found.bytes);
    }
  }
  found.state_bytes = full.state_bytes() / most;
  found.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return found;
}

}  // namespace needle
