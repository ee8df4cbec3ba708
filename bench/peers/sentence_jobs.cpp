// heed's BertEncoder for the comparison with the same model in PyTorch and onnxruntime.
#include "heed/core/openmp_executor.hpp"
#include "heed/models/bert_encoder.hpp"
#include "job.hpp"

namespace {

using heed::Index;

class Sentences final : public peers::Job {
 public:
  Sentences(const char* folder, int threads, Index batch, Index tokens, const std::int64_t* ids, const bool* valid,
            float* out)
      : pool_(threads),
        cpu_(pool_),
        encoder_(heed::BertEncoder<float>::from_folder(folder)),
        ids_(ids, {batch, tokens}),
        valid_(valid, {batch, tokens}),
        out_(out, {batch, encoder_.hidden_size()}),
        workspace_(encoder_.workspace_size(cpu_, batch, tokens)) {}
  void run() override { encoder_.embed(cpu_, ids_, out_, workspace_, {.valid = valid_, .token_types = {}}); }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(workspace_.size()); }

 private:
  heed::OpenMpExecutor pool_;
  heed::Cpu cpu_;
  heed::BertEncoder<float> encoder_;
  heed::View<const std::int64_t, 2> ids_;
  heed::View<const bool, 2> valid_;
  heed::View<float, 2> out_;
  heed::Workspace workspace_;
};

}  // namespace

// valid: false is padding.
HEED_PEERS_EXPORT peers::Job* heed_sentences(const char* folder, int threads, std::int64_t batch, std::int64_t tokens,
                                             const std::int64_t* ids, const bool* valid, float* out) {
  return peers::guarded(
      [&]() -> peers::Job* { return new Sentences(folder, threads, batch, tokens, ids, valid, out); });
}
