// Score modifiers: your own function of the attention scores, run inside the tiles, so that no matrix of scores is ever
// formed. It may change scores, and it may say which keys a query reads at all.
// expect: plain: 3\.5 3\.5 3\.5 3\.5 3\.5 3\.5 3\.5 3\.5
// expect: own paragraph: 1\.5 1\.5 1\.5 1\.5 5\.5 5\.5 5\.5 5\.5
// expect: weighted: 4\.6667
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>

using heed::Index;

// Every token reads its own paragraph of four tokens.
struct OwnParagraph {
  template <class A>
  void operator()(heed::ScoreTile<A>&) const noexcept {}  // leaves the scores as they are

  heed::KeyRange keys(Index /*batch*/, Index /*head*/, Index query) const noexcept {
    return {query / 4 * 4, query / 4 * 4 + 4};
  }
};

int main() {
  // [batch, tokens, heads, head dim]. Queries and keys are 0, so that all scores are equal and attention is a plain
  // average of the values it reads; token i's value is i.
  const heed::Cpu cpu;
  constexpr Index tokens = 8;
  const heed::Tensor<float, 4> query({Index{1}, tokens, Index{1}, Index{16}});
  heed::Tensor<float, 4> value({Index{1}, tokens, Index{1}, Index{1}});
  for (Index i = 0; i < tokens; ++i) value(0, i, 0, 0) = static_cast<float>(i);

  const auto print = [](const char* name, const heed::Tensor<float, 4>& out) {
    std::printf("%s:", name);
    for (const float x : out.span()) std::printf(" %.5g", x);
    std::printf("\n");
  };
  // (0 + 1 + … + 7) / 8 = 3.5
  print("plain", heed::ops::attention(cpu, query, query, value));

  // (0 + 1 + 2 + 3) / 4 = 1.5, and (4 + 5 + 6 + 7) / 4 = 5.5
  print("own paragraph", heed::ops::attention(cpu, query, query, value, {}, OwnParagraph()));

  // A function of one score and its place. Adding ln(i + 1) multiplies the weight of key i by i + 1:
  // Σ i (i + 1) / Σ (i + 1) = 168 / 36 = 4.6667
  const auto later =
      heed::per_score([](float score, heed::Position p) { return score + std::log(static_cast<float>(p.key + 1)); });
  print("weighted", heed::ops::attention(cpu, query, query, value, {}, later));
}
