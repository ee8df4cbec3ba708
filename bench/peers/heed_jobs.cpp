// heed's side of the comparison, through its public doors and layers. Pointers are to contiguous tensors, axes in heed's
// order; they must live as long as the job.
#include <string>
#include <string_view>

#include "../limits.hpp"
#include "heed/core/openmp_executor.hpp"
#include "heed/heed.hpp"
#include "job.hpp"

namespace peers {
namespace {

using heed::bfloat16;
using heed::Index;
using heed::Tensor;
using heed::View;

class HeedJob : public Job {
 protected:
  explicit HeedJob(int threads) : pool_(threads), cpu_(pool_) {}
  heed::OpenMpExecutor pool_;
  heed::Cpu cpu_;
};

template <class T, int Rank>
View<const T, Rank> input(const void* data, const Index (&extents)[Rank]) {
  return {static_cast<const T*>(data), extents};
}
template <class T, int Rank>
View<T, Rank> output(void* data, const Index (&extents)[Rank]) {
  return {static_cast<T*>(data), extents};
}

template <class T>
class Attention final : public HeedJob {
 public:
  Attention(int threads, Index batch, Index tokens, Index heads, Index head_dim, bool causal, const void* query,
            const void* key, const void* value, void* out)
      : HeedJob(threads),
        query_(input<T, 4>(query, {batch, tokens, heads, head_dim})),
        key_(input<T, 4>(key, {batch, tokens, heads, head_dim})),
        value_(input<T, 4>(value, {batch, tokens, heads, head_dim})),
        out_(output<T, 4>(out, {batch, tokens, heads, head_dim})),
        workspace_(
            heed::ops::attention_workspace_size<T>(cpu_, {batch, tokens, tokens, heads, heads, head_dim, head_dim})) {
    if (causal) options_.causal = heed::Causal::top_left;
  }
  void run() override { heed::ops::attention(cpu_, query_, key_, value_, out_, options_, workspace_); }

 private:
  View<const T, 4> query_, key_, value_;
  View<T, 4> out_;
  heed::AttentionOptions<T> options_;
  heed::Workspace workspace_;
};

// A token's queries over a cache.
template <class T, class Element>
class Decode final : public HeedJob {
 public:
  Decode(int threads, Index keys, Index heads, Index kv_heads, Index head_dim, const void* query, const void* key,
         const void* value, void* out)
      : HeedJob(threads),
        cache_({kv_heads, head_dim, head_dim}, 1, keys),
        query_(input<T, 4>(query, {1, 1, heads, head_dim})),
        out_(output<T, 4>(out, {1, 1, heads, head_dim})),
        workspace_(heed::ops::attention_workspace_size<T>(cpu_, {1, 1, keys, heads, kv_heads, head_dim, head_dim})) {
    cache_.append(input<T, 4>(key, {1, keys, kv_heads, head_dim}), input<T, 4>(value, {1, keys, kv_heads, head_dim}));
  }
  void run() override { heed::ops::attention(cpu_, query_, cache_.key_values(), out_, {}, workspace_); }
  std::int64_t bytes() const override { return cache_.size_bytes(); }

 private:
  heed::StaticKvCache<T, Element> cache_;
  View<const T, 4> query_;
  View<T, 4> out_;
  heed::Workspace workspace_;
};

template <class T>
class Linear final : public HeedJob {
 public:
  Linear(int threads, Index m, Index n, Index k, const void* x, const void* weight, const void* bias, void* out)
      : HeedJob(threads),
        layer_(heed::LinearWeightsView<T>{input<T, 2>(weight, {n, k}), input<T, 1>(bias, {n})}),
        x_(input<T, 2>(x, {m, k})),
        out_(output<T, 2>(out, {m, n})) {}
  void run() override { layer_.forward(cpu_, x_, out_); }

 private:
  heed::Linear<T> layer_;
  View<const T, 2> x_;
  View<T, 2> out_;
};

// weights: those of query, key, value and output [hidden, hidden] one after the other; biases likewise.
class SelfAttention final : public HeedJob {
 public:
  SelfAttention(int threads, Index batch, Index tokens, Index hidden, Index heads, const float* x, const float* weights,
                const float* biases, float* out)
      : HeedJob(threads),
        layer_(projections(hidden, weights, biases), {}, {.num_heads = heads}),
        x_(x, {batch, tokens, hidden}),
        out_(out, {batch, tokens, hidden}),
        workspace_(layer_.workspace_size(cpu_, batch, tokens)) {}
  void run() override { layer_.forward(cpu_, x_, out_, workspace_); }

 private:
  static heed::ProjectionWeightsView<float> projections(Index hidden, const float* weights, const float* biases) {
    const auto part = [&](Index i) {
      return heed::LinearWeightsView<float>{View<const float, 2>(weights + i * hidden * hidden, {hidden, hidden}),
                                            View<const float, 1>(biases + i * hidden, {hidden})};
    };
    return {part(0), part(1), part(2), part(3)};
  }

  heed::MultiHeadSelfAttention<float> layer_;
  View<const float, 3> x_;
  View<float, 3> out_;
  heed::Workspace workspace_;
};

// A text of so many tokens through one layer, 2048 at a time.
class Context : public HeedJob {
 protected:
  static constexpr Index piece = 2048;

  Context(int threads, Index tokens, Index hidden)
      : HeedJob(threads), tokens_(tokens), x_({Index{1}, piece, hidden}), out_({Index{1}, piece, hidden}) {
    heed::fill_uniform(x_, 1, 0, -1, 1);
  }
  template <class F>
  void read(F&& forward) {
    for (Index at = 0; at < tokens_; at += piece) {
      const Index count = tokens_ - at < piece ? tokens_ - at : piece;
      forward(x_.view().slice(1, 0, count), out_.view().slice(1, 0, count));
    }
  }

 private:
  Index tokens_;
  Tensor<float, 3> x_, out_;
};

class FullContext final : public Context {
 public:
  FullContext(int threads, Index tokens, const heed::HeadLayout& heads, Index hidden)
      : Context(threads, tokens, hidden),
        layer_(heed::GroupedQueryAttentionWeights<float>::random(1, hidden, heads), {}, heads),
        cache_(layer_.make_cache(Index{1}, tokens)),
        workspace_(layer_.workspace_size(cpu_, cache_, piece)) {}
  void run() override {
    cache_.reset();
    read([&](auto x, auto out) { layer_.forward(cpu_, x, cache_, out, workspace_); });
  }
  std::int64_t bytes() const override { return cache_.size_bytes() + static_cast<std::int64_t>(workspace_.size()); }

 private:
  heed::GroupedQueryAttention<float> layer_;
  heed::StaticKvCache<float> cache_;
  heed::Workspace workspace_;
};

class InfiniContext final : public Context {
 public:
  InfiniContext(int threads, Index tokens, const heed::HeadLayout& heads, Index hidden)
      : Context(threads, tokens, hidden),
        layer_(heed::InfiniAttentionWeights<float>::random(1, hidden, heads), {.segment_length = piece}, heads),
        state_(layer_.make_state(1)),
        workspace_(layer_.workspace_size(cpu_, 1, piece)) {}
  void run() override {
    state_.reset();
    read([&](auto x, auto out) { layer_.forward(cpu_, x, state_, out, workspace_); });
  }
  std::int64_t bytes() const override { return state_.size_bytes() + static_cast<std::int64_t>(workspace_.size()); }

 private:
  heed::InfiniAttention<float> layer_;
  heed::InfiniState<float> state_;
  heed::Workspace workspace_;
};

bool is(const char* name, const char* other) {
  return std::string_view(name) == other;
}

}  // namespace
}  // namespace peers

using peers::Job;

HEED_PEERS_EXPORT double peers_peak(int threads) {
  return bench::peak_gflops<float>({threads});
}
HEED_PEERS_EXPORT double peers_read(int threads, double bytes) {
  return bench::read_gbytes({threads}, bytes);
}
HEED_PEERS_EXPORT void peers_run(Job* job) {
  job->run();
}
HEED_PEERS_EXPORT std::int64_t peers_bytes(const Job* job) {
  return job->bytes();
}
HEED_PEERS_EXPORT void peers_free(Job* job) {
  delete job;
}

// scalar: "float", "bfloat16".
HEED_PEERS_EXPORT Job* heed_attention(const char* scalar, int threads, std::int64_t batch, std::int64_t tokens,
                                      std::int64_t heads, std::int64_t head_dim, int causal, const void* query,
                                      const void* key, const void* value, void* out) {
  return peers::guarded([&]() -> Job* {
    if (peers::is(scalar, "bfloat16")) {
      return new peers::Attention<heed::bfloat16>(threads, batch, tokens, heads, head_dim, causal != 0, query, key,
                                                  value, out);
    }
    return new peers::Attention<float>(threads, batch, tokens, heads, head_dim, causal != 0, query, key, value, out);
  });
}

// cache: "float", "bfloat16" (query and out, too), or "int8".
HEED_PEERS_EXPORT Job* heed_decode(const char* cache, int threads, std::int64_t keys, std::int64_t heads,
                                   std::int64_t kv_heads, std::int64_t head_dim, const void* query, const void* key,
                                   const void* value, void* out) {
  return peers::guarded([&]() -> Job* {
    const auto make = [&]<class T, class Element>(T, Element) -> Job* {
      return new peers::Decode<T, Element>(threads, keys, heads, kv_heads, head_dim, query, key, value, out);
    };
    if (peers::is(cache, "bfloat16")) return make(heed::bfloat16(), heed::bfloat16());
    if (peers::is(cache, "int8")) return make(0.0F, std::int8_t());
    return make(0.0F, 0.0F);
  });
}

HEED_PEERS_EXPORT Job* heed_linear(const char* scalar, int threads, std::int64_t m, std::int64_t n, std::int64_t k,
                                   const void* x, const void* weight, const void* bias, void* out) {
  return peers::guarded([&]() -> Job* {
    if (peers::is(scalar, "bfloat16")) {
      return new peers::Linear<heed::bfloat16>(threads, m, n, k, x, weight, bias, out);
    }
    return new peers::Linear<float>(threads, m, n, k, x, weight, bias, out);
  });
}

HEED_PEERS_EXPORT Job* heed_self_attention(int threads, std::int64_t batch, std::int64_t tokens, std::int64_t hidden,
                                           std::int64_t heads, const float* x, const float* weights,
                                           const float* biases, float* out) {
  return peers::guarded([&]() -> Job* {
    return new peers::SelfAttention(threads, batch, tokens, hidden, heads, x, weights, biases, out);
  });
}

// kind: "full" (causal attention with a KV cache), "infini".
HEED_PEERS_EXPORT Job* heed_context(const char* kind, int threads, std::int64_t tokens, std::int64_t heads,
                                    std::int64_t kv_heads, std::int64_t head_dim) {
  return peers::guarded([&]() -> Job* {
    const heed::HeadLayout layout{
        .num_heads = heads, .num_kv_heads = kv_heads, .head_dim = head_dim, .value_head_dim = head_dim};
    const std::int64_t hidden = heads * head_dim;
    if (peers::is(kind, "infini")) return new peers::InfiniContext(threads, tokens, layout, hidden);
    return new peers::FullContext(threads, tokens, layout, hidden);
  });
}

// "heed 0.1.0, avx512 with fma"
HEED_PEERS_EXPORT const char* heed_about() {
  static const std::string about = "heed " + std::to_string(HEED_VERSION_MAJOR) + "." +
                                   std::to_string(HEED_VERSION_MINOR) + "." + std::to_string(HEED_VERSION_PATCH) +
                                   ", " + heed::instruction_set();
  return about.c_str();
}
