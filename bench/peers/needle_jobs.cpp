// examples/needle for the comparison with the same model in PyTorch.
#include <cstdlib>
#include <string>
#include <vector>

#include "heed/core/openmp_executor.hpp"
#include "job.hpp"
#include "search.hpp"

namespace {

using heed::Index;

// The whole search, as the program does it: `batch` texts of word salad of `length` bytes, and the answers.
class Search final : public peers::Job {
 public:
  Search(const char* path, int threads, Index batch, std::int64_t length)
      : model_(heed::SafetensorsReader::open(path), needle::Memory::open), pool_(threads), cpu_(pool_), batch_(batch) {
    hidden_ = needle::needle_with(model_.text().needle, key);
    const std::string problem = needle::make_plan(length, 0.5, static_cast<std::int64_t>(hidden_.size()),
                                                  static_cast<std::int64_t>(model_.text().question.size()),
                                                  needle::answer_size, model_.segment_length(), plan_);
    if (!problem.empty()) throw std::runtime_error(problem);
  }
  void run() override {
    std::vector<needle::Haystack> haystacks;
    for (Index row = 0; row < batch_; ++row) {
      haystacks.emplace_back(plan_, needle::Text::word_salad(static_cast<std::uint64_t>(row)), hidden_,
                             model_.text().question);
    }
    const needle::Found found = needle::search(model_, cpu_, haystacks, [](std::int64_t) {});
    bytes_ = found.bytes;
    for (const std::string& answer : found.answers) {
      if (answer == key) continue;
      std::fprintf(stderr, "bench/peers: needle answered \"%s\"; it is \"%s\"\n", answer.c_str(), key);
      std::_Exit(1);
    }
  }
  // Bytes read by a run.
  std::int64_t bytes() const override { return bytes_; }

 private:
  static constexpr const char* key = "70318";
  needle::Model model_;
  heed::OpenMpExecutor pool_;
  heed::Cpu cpu_;
  Index batch_;
  std::string hidden_;
  needle::Plan plan_;
  std::int64_t bytes_ = 0;
};

// One text with the logits [size, 256] after each of its bytes.
class Logits final : public peers::Job {
 public:
  Logits(const char* path, const std::uint8_t* bytes, Index size, float* logits)
      : model_(heed::SafetensorsReader::open(path), needle::Memory::open),
        bytes_(bytes, {1, size}),
        logits_(logits, {1, size, model_.vocabulary()}) {}
  void run() override {
    const heed::Cpu cpu;
    needle::Stream stream(model_, cpu, 1, bytes_.extent(1));
    stream.read(bytes_, logits_);
  }

 private:
  needle::Model model_;
  heed::View<const std::uint8_t, 2> bytes_;
  heed::View<float, 3> logits_;
};

}  // namespace

HEED_PEERS_EXPORT peers::Job* heed_needle_search(const char* path, int threads, std::int64_t batch,
                                                 std::int64_t length) {
  return peers::guarded([&]() -> peers::Job* { return new Search(path, threads, batch, length); });
}
HEED_PEERS_EXPORT peers::Job* heed_needle_logits(const char* path, const std::uint8_t* bytes, std::int64_t size,
                                                 float* logits) {
  return peers::guarded([&]() -> peers::Job* { return new Logits(path, bytes, size, logits); });
}
