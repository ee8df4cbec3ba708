// Your own memory: a View is a pointer, extents and strides over memory that stays yours. Nothing is copied or owned.
// expect: columns 1 and 2 of 4, times 10: 20 30 60 70
// expect: the rest of the image is untouched: 1 4 5 8
// expect: refused: heed: Linear::forward: x: the last axis must be contiguous
#include <cstdio>
#include <heed/heed.hpp>
#include <span>
#include <vector>

int main() {
  // Weights and activations in containers of the program.
  std::vector<float> weight = {10, 0, 0, 10};                 // [2, 2], ten times the identity
  std::vector<float> image = {1, 2, 3, 4, 5, 6, 7, 8};        // 2 rows of 4 floats
  const heed::View<const float, 2> w(weight.data(), {2, 2});  // row-major and contiguous

  // A layer keeps a packed copy of its weights: the source may go.
  const heed::Linear<float> linear({.weight = w});
  weight.clear();

  // Columns 1 and 2 of the image: two rows, 4 floats apart. slice(axis, begin, count) would cut the same view.
  const heed::View<float, 2> middle(image.data() + 1, {2, 2}, {4, 1});

  // The result goes into another buffer of the program, here one whose rows are 3 apart.
  std::vector<float> result(6);
  const heed::View<float, 2> out(result.data(), {2, 2}, {3, 1});
  const heed::Cpu cpu;
  linear.forward(cpu, middle, out);
  std::printf("columns 1 and 2 of 4, times 10: %g %g %g %g\n", result[0], result[1], result[3], result[4]);
  std::printf("the rest of the image is untouched: %g %g %g %g\n", image[0], image[3], image[4], image[7]);

  // A span is a view of one axis, and a contiguous view is a span.
  const heed::View<float, 1> flat(std::span<float>(image.data(), image.size()));
  for (float& pixel : flat.span()) pixel = 0;

  // What a view may look like is checked at the door: the last axis must be contiguous, so a transposed one is refused.
  try {
    linear.forward(cpu, middle.permute({1, 0}), out);
  } catch (const heed::ShapeError& error) {
    std::printf("refused: %s\n", error.what());
  }
}
