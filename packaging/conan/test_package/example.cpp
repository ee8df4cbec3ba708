#include <cstdio>
#include <heed/heed.hpp>
#include <heed/io/safetensors.hpp>

int main() {
  const float weight[] = {1, 2, 3, 4};
  const float x[] = {10, 1};
  float y[2];
  heed::ops::linear(heed::Cpu(), heed::View<const float, 2>(x, {1, 2}), heed::View<const float, 2>(weight, {2, 2}), {},
                    heed::View<float, 2>(y, {1, 2}));
  std::printf("heed %d.%d.%d: %g %g\n", HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH,
              static_cast<double>(y[0]), static_cast<double>(y[1]));
  return y[0] == 12 && y[1] == 34 ? 0 : 1;
}
