// MultiHeadSelfAttention: attention as BERT has it. Every token sees all tokens, each head in its own way.
// expect: token 0: 3\.0 3\.0 1\.0 0\.0
// expect: token 1: 3\.0 3\.0 0\.0 1\.0
// expect: token 0 without token 2: 1\.5 4\.5 1\.0 0\.0
#include <cstdio>
#include <heed/heed.hpp>

using heed::Index;

int main() {
  // Hidden size 4, two heads of 2. Keys, values and output are what is put in (the weights are the identity); queries
  // are 0 in head 0, and a hundred times the input in head 1.
  heed::ProjectionWeights<float> weights;
  for (auto* projection : {&weights.query, &weights.key, &weights.value, &weights.output}) {
    projection->weight = heed::Tensor<float, 2>({4, 4});
    for (Index i = 0; i < 4; ++i) projection->weight(i, i) = 1;
  }
  for (Index i = 0; i < 4; ++i) weights.query.weight(i, i) = i < 2 ? 0 : 100;
  const heed::MultiHeadSelfAttention<float> attention(weights, {}, {.num_heads = 2});

  // x [batch, tokens, hidden size]
  const float tokens[] = {0, 3, 1, 0,   //
                          3, 6, 0, 1,   //
                          6, 0, 1, 0};  //
  const heed::View<const float, 3> x(tokens, {1, 3, 4});
  const auto print = [](const char* name, heed::View<const float, 1> row) {
    std::printf("%s: %.1f %.1f %.1f %.1f\n", name, row(0), row(1), row(2), row(3));
  };

  // Head 0: all scores are 0, so every token gets the mean of (0, 3), (3, 6), (6, 0), which is (3, 3).
  // Head 1: a token gets the mean of those whose key is like its own: tokens 0 and 2 are (1, 0), token 1 is (0, 1).
  const heed::Cpu cpu;
  const auto out = attention.forward(cpu, x);
  print("token 0", out.view()[0][0]);
  print("token 1", out.view()[0][1]);

  // A mask [batch, heads, tokens, keys], true = attend; axes of 1 repeat. Token 2 is padding: head 0's mean is
  // (1.5, 4.5). Into memory of your own, with scratch memory of your own, a call allocates nothing.
  const bool is_token[] = {true, true, false};
  heed::Tensor<float, 3> result({1, 3, 4});
  heed::Workspace workspace(attention.workspace_size(cpu, 1, 3));
  attention.forward(cpu, x, result, workspace, {.mask = heed::View<const bool, 4>(is_token, {1, 1, 1, 3})});
  print("token 0 without token 2", result.view()[0][0]);
}
