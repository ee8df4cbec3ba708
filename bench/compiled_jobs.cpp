// Compiled twice: with the machine's flags, JOBS=native_jobs and BACKEND=Cpu; with none, flagless_jobs and Compiled.
#include "compiled_jobs.hpp"

#include <heed/backend/compiled.hpp>
#include <heed/heed.hpp>

namespace bench {
namespace {

using Backend = heed::BACKEND;
constexpr heed::HeadLayout heads{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};

class Jobs final : public CompiledJobs {
 public:
  void linear(heed::View<const float, 2> x, heed::View<float, 2> out) const override {
    linear_.forward(backend_, x, out);
  }
  void attention(heed::View<const float, 4> x, heed::View<float, 4> out) override {
    const heed::AttentionExtents extents{x.extent(0), x.extent(1), x.extent(1), x.extent(2), x.extent(2), x.extent(3)};
    make_room(heed::ops::attention_workspace_size<float>(backend_, extents));
    heed::ops::attention(backend_, x, x, x, out, {.causal = heed::Causal::top_left}, workspace_);
  }
  void infini(heed::View<const float, 3> x, heed::View<float, 3> out) override {
    make_room(infini_.workspace_size(backend_, x.extent(0), x.extent(1)));
    infini_.forward(backend_, x, state_, out, workspace_);
  }

 private:
  void make_room(std::size_t bytes) {
    if (workspace_.size() < bytes) workspace_ = heed::Workspace(bytes);
  }

  Backend backend_;
  heed::Workspace workspace_;
  heed::Linear<float, Backend> linear_{heed::LinearWeights<float>::random(1, compiled_size, compiled_size), backend_};
  heed::InfiniAttention<float, heads, Backend> infini_{
      heed::InfiniAttentionWeights<float>::random(2, compiled_size, heads), {.segment_length = 512}, heads, backend_};
  heed::InfiniState<float> state_ = infini_.make_state(1);
};

}  // namespace

CompiledJobs& JOBS() {
  static Jobs jobs;
  return jobs;
}

}  // namespace bench
