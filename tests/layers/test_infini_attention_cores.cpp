// The cores that the tests of Infini-attention run on; see AnyCore.
#include <doctest/doctest.h>

#include "heed/layers/rotary_embedding.hpp"
#include "layers/infini_streams.hpp"

namespace test {

namespace {

template <class T, class B>
class CoreOn final : public AnyCore<T> {
 public:
  CoreOn(const B& backend, const heed::HeadLayout& heads, heed::View<const heed::accumulator_t<T>, 1> beta,
         const heed::InfiniAttentionOptions& options)
      : backend_(backend), core_(heads, beta, options, backend) {}

  const heed::HeadLayout& heads() const override { return core_.heads(); }
  const heed::InfiniStateLayout& state_layout() const override { return core_.state_layout(); }
  heed::InfiniState<T> make_state(Index batch) const override { return core_.make_state(batch); }
  std::size_t workspace_size(Index batch, Index tokens) const override {
    return core_.workspace_size(backend_, batch, tokens);
  }
  Index forward(heed::View<const T, 4> query, heed::View<const T, 4> key, heed::View<const T, 4> value,
                heed::InfiniState<T>& state, heed::View<T, 4> out, heed::Workspace& workspace,
                const heed::InfiniAttentionCall& call) const override {
    return core_.forward(backend_, query, key, value, state, out, workspace, call);
  }
  void flush(heed::InfiniState<T>& state, heed::Workspace& workspace) const override {
    core_.flush(backend_, state, workspace);
  }

 private:
  B backend_;
  heed::InfiniAttentionCore<T, B> core_;
};

}  // namespace

template <class T>
std::unique_ptr<AnyCore<T>> make_core(const AnyBackend& backend, const heed::HeadLayout& heads,
                                      heed::View<const heed::accumulator_t<T>, 1> beta,
                                      const heed::InfiniAttentionOptions& options) {
  std::unique_ptr<AnyCore<T>> core;
  backend.visit([&]<class B>(const B& actual) { core = std::make_unique<CoreOn<T, B>>(actual, heads, beta, options); });
  return core;
}

#define HEED_TEST_MAKE_CORE(T)                                                                   \
  template std::unique_ptr<AnyCore<T>> make_core<T>(const AnyBackend&, const heed::HeadLayout&,  \
                                                    heed::View<const heed::accumulator_t<T>, 1>, \
                                                    const heed::InfiniAttentionOptions&)
HEED_TEST_MAKE_CORE(float);
HEED_TEST_MAKE_CORE(double);
HEED_TEST_MAKE_CORE(heed::bfloat16);
HEED_TEST_MAKE_CORE(heed::float16);
#undef HEED_TEST_MAKE_CORE

heed::Tensor<float, 4> local_attention(const AnyBackend& backend, const Streams<float>& streams, Index first, Index n,
                                       bool rotary) {
  using heed::Tensor;
  using heed::View;
  const View<const float, 4> value = streams.value.view().slice(1, first, n);
  Tensor<float, 4> out({streams.batch(), n, streams.query.extent(2), value.extent(3)});
  backend.visit([&]<class B>(const B& actual) {
    auto query = Tensor<float, 4>(View<const float, 4>(streams.query).slice(1, first, n));
    auto key = Tensor<float, 4>(View<const float, 4>(streams.key).slice(1, first, n));
    if (rotary) {
      const heed::RotaryEmbedding<float, B> rope(query.extent(3));
      query = rope.forward(actual, query, 0);
      key = rope.forward(actual, key, 0);
    }
    heed::ops::attention(actual, query, key, value, out, {.causal = heed::Causal::top_left});
  });
  return out;
}

}  // namespace test

TEST_CASE("AnyCore: is the core of the backend it is given") {
  const heed::Tensor<float, 1> beta({2});
  int number = 0;
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    const auto core = test::make_core<float>(backend, {.num_heads = 2, .head_dim = 4}, beta, {.segment_length = 3});
    CHECK(core->heads().num_kv_heads == 2);
    CHECK(core->state_layout().segment_length == 3);
    CHECK(core->make_state(5).batch() == 5);
    ++number;
  });
#if HEED_TEST_COMPILED
  CHECK(number == 5);
#else
  CHECK(number == 4);
#endif
}
