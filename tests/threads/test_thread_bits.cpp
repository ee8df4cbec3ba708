// One attention, one linear layer and one Infini-attention on 1, 2, 3 and 8 threads of every pool: the same bits. One
// compiled body, since a Cpu is a Cpu whatever pool it refers to.
#include <doctest/doctest.h>

#include "heed/layers/infini_attention.hpp"
#include "heed/layers/linear.hpp"
#include "heed/ops/attention.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#if defined(HEED_TEST_OPENMP)
#include "heed/core/openmp_executor.hpp"
#endif
#if defined(HEED_TEST_TBB)
#include <tbb/global_control.h>

#include "heed/core/tbb_executor.hpp"
#endif

namespace {

using heed::Index;
using heed::Tensor;
using test::random_tensor;

// Passes parts on, and notes whether a call had more than one: else the threads were never asked.
template <class Pool>
class Counted {
 public:
  explicit Counted(int threads) : pool_(threads) {}
  int concurrency() const noexcept { return pool_.concurrency(); }
  void parallel_for(Index count, heed::PartFunction part) noexcept {
    if (count > 1) ++calls_;
    pool_.parallel_for(count, part);
  }
  int calls() const { return calls_; }

 private:
  Pool pool_;
  int calls_ = 0;
};

class Answers {
 public:
  Answers() { weights_.beta = random_tensor<float>({heads.num_heads}, 3); }

  // Changes no state: each call is the first one.
  void compute(const heed::Cpu& cpu) {
    heed::ops::attention(cpu, query_, key_, value_, attention, {.causal = heed::Causal::bottom_right});
    linear = heed::Linear<float>({.weight = matrix_, .bias = bias_}).forward(cpu, x_);
    const heed::InfiniAttention<float> layer(weights_, {.segment_length = 48, .update = heed::MemoryUpdate::delta},
                                             heads);
    auto state = layer.make_state(2);
    infini = layer.forward(cpu, stream_, state);
    memory = Tensor<float, 4>(heed::View<const float, 4>(state.memory()));
  }

  Tensor<float, 4> attention{{2, 100, 4, 32}};
  Tensor<float, 2> linear;
  Tensor<float, 3> infini;
  Tensor<float, 4> memory;

 private:
  static constexpr heed::HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
  Tensor<float, 4> query_ = random_tensor<float>({2, 100, 4, 32}, 4);
  Tensor<float, 4> key_ = random_tensor<float>({2, 150, 2, 32}, 5);
  Tensor<float, 4> value_ = random_tensor<float>({2, 150, 2, 32}, 6);
  Tensor<float, 2> matrix_ = random_tensor<float>({150, 130}, 7);
  Tensor<float, 1> bias_ = random_tensor<float>({150}, 8);
  Tensor<float, 2> x_ = random_tensor<float>({333, 130}, 9);
  Tensor<float, 3> stream_ = random_tensor<float>({2, 250, 64}, 10);
  heed::InfiniAttentionWeights<float> weights_ = heed::InfiniAttentionWeights<float>::random(11, 64, heads);
};

template <class Pool>
void check_bits(Answers& answers, const Answers& one_thread) {
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    Counted<Pool> pool(threads);
    const heed::Cpu cpu(pool);
    CHECK(cpu.concurrency() == threads);
    answers.compute(cpu);
    if (threads > 1) CHECK(pool.calls() > 2);
    CHECK(test::same_bits(answers.attention, one_thread.attention));
    CHECK(test::same_bits(answers.linear, one_thread.linear));
    CHECK(test::same_bits(answers.infini, one_thread.infini));
    CHECK(test::same_bits(answers.memory, one_thread.memory));
  }
}

}  // namespace

TEST_CASE("bits are equal for 1, 2, 3 and 8 threads of any pool") {
  Answers one_thread;
  one_thread.compute(heed::Cpu());
  Answers answers;
  {
    INFO("the tests' own pool");
    check_bits<test::ReversePool>(answers, one_thread);
  }
#if defined(HEED_TEST_OPENMP)
  {
    INFO("OpenMP");
    check_bits<heed::OpenMpExecutor>(answers, one_thread);
  }
#endif
#if defined(HEED_TEST_TBB)
  {
    INFO("TBB");
    const tbb::global_control eight_threads(tbb::global_control::max_allowed_parallelism, 8);
    check_bits<heed::TbbExecutor>(answers, one_thread);
  }
#endif
}
