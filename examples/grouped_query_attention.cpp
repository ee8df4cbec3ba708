// GroupedQueryAttention: the attention of decoders. A token sees itself and what came before; query heads share keys and
// values.
// expect: token 0: 1 1 10 10
// expect: token 1: 1\.5 1\.5 15 15
// expect: token 2: 3 3 30 30
// expect: token 2, window of two: 4 4 40 40
#include <cstdio>
#include <heed/heed.hpp>

using heed::Index;

// The layout may be part of the type, or be given at construction.
constexpr heed::HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 1};

int main() {
  // Hidden size 4. Queries and keys are 0, so that all scores are equal and a head gives the mean of the values it sees.
  // The value of kv head 0 is a token's first feature, that of kv head 1 its second; the output is the four heads.
  heed::GroupedQueryAttentionWeights<float> weights;
  weights.query.weight = heed::Tensor<float, 2>({4, 4});
  weights.key.weight = heed::Tensor<float, 2>({2, 4});
  weights.value.weight = heed::Tensor<float, 2>({2, 4});
  weights.output.weight = heed::Tensor<float, 2>({4, 4});
  for (Index i = 0; i < 2; ++i) weights.value.weight(i, i) = 1;
  for (Index i = 0; i < 4; ++i) weights.output.weight(i, i) = 1;

  // Rotary positions are the default ({.rope = {.theta = 500000}}); heads of one dim cannot turn.
  heed::GroupedQueryAttentionOptions options{.positions = heed::TokenPositions::none};
  const heed::GroupedQueryAttention<float, heads> attention(weights, options);

  const float tokens[] = {1, 10, 0, 0,                    //
                          2, 20, 0, 0,                    //
                          6, 60, 0, 0};                   //
  const heed::View<const float, 3> x(tokens, {1, 3, 4});  // [batch, tokens, hidden size]

  // Means of 1; of 1, 2; of 1, 2, 6. Query heads 0 and 1 read kv head 0, query heads 2 and 3 read kv head 1.
  const heed::Cpu cpu;
  const auto out = attention.forward(cpu, x);
  for (Index t = 0; t < 3; ++t) {
    std::printf("token %td: %g %g %g %g\n", t, out(0, t, 0), out(0, t, 1), out(0, t, 2), out(0, t, 3));
  }

  // A sliding window of two tokens, itself and one before: the mean of 2 and 6.
  options.window = {.left = 1, .right = 0};
  const heed::GroupedQueryAttention<float, heads> sliding(weights, options);
  const auto y = sliding.forward(cpu, x);
  std::printf("token 2, window of two: %g %g %g %g\n", y(0, 2, 0), y(0, 2, 1), y(0, 2, 2), y(0, 2, 3));
}
