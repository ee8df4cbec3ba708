// RotaryEmbedding: positions as rotations. Each pair of a head's dims turns by an angle proportional to the position:
// the product of a query and a key then depends on how far apart they are, and on nothing else.
// expect: half: 0\.5403 0 0\.8415 0
// expect: interleaved: 0\.5403 0\.8415 0 0
// expect: query at 7, key at 3: 0\.3456
// expect: query at 1007, key at 1003: 0\.3456
#include <cstdio>
#include <heed/heed.hpp>

using heed::Index;

int main() {
  const heed::Cpu cpu;
  // x [batch, tokens, heads, head dim]: one token, one head, of which only the first dim is not 0.
  heed::Tensor<float, 4> x({1, 1, 1, 4});
  x(0, 0, 0, 0) = 1;

  // At position 1 the first pair turns by one radian: (1, 0) becomes (cos 1, sin 1) = (0.5403, 0.8415). The layout says
  // which dims are pairs: 0 and 2 (Llama and most others), or 0 and 1 (GPT-J).
  const heed::RotaryEmbedding<float> half(4);
  const heed::RotaryEmbedding<float> interleaved(4, {.layout = heed::RopeLayout::interleaved});
  const auto a = half.forward(cpu, x, 1);  // token t of each row is at position 1 + t
  const auto b = interleaved.forward(cpu, x, 1);
  std::printf("half: %.4g %.4g %.4g %.4g\n", a(0, 0, 0, 0), a(0, 0, 0, 1), a(0, 0, 0, 2), a(0, 0, 0, 3));
  std::printf("interleaved: %.4g %.4g %.4g %.4g\n", b(0, 0, 0, 0), b(0, 0, 0, 1), b(0, 0, 0, 2), b(0, 0, 0, 3));

  // Query and key are both (1, 1, 0, 0), 4 tokens apart. Both pairs are (1, 0); the first turns by 1 radian a token,
  // the second by 10000^(-2/4) = 1/100: the product is cos 4 + cos 0.04 = -0.6536 + 0.9992, wherever the two stand.
  x(0, 0, 0, 1) = 1;
  for (const Index start : {3, 1003}) {
    const auto query = half.forward(cpu, x, start + 4);
    const auto key = half.forward(cpu, x, start);
    float product = 0;
    for (Index d = 0; d < 4; ++d) product += query(0, 0, 0, d) * key(0, 0, 0, d);
    std::printf("query at %td, key at %td: %.4f\n", start + 4, start, static_cast<double>(product));
  }
}
