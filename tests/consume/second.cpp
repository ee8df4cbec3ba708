#include <heed/heed.hpp>

float product();

float product() {
  const float weight[] = {1, 2};
  const float x[] = {10, 1};
  float y = 0;
  heed::ops::linear(heed::Simd(), heed::View<const float, 2>(x, {1, 2}), heed::View<const float, 2>(weight, {1, 2}), {},
                    heed::View<float, 2>(&y, {1, 1}));
  return y;
}
