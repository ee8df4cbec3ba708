// Layers on a device, from the same source as on the CPU, against the layer on Reference in double.
#include <doctest/doctest.h>

#include "cuda/test_device.hpp"
#include "cuda/weights.hpp"
#include "heed/layers/multi_head_self_attention.hpp"

namespace {

using heed::bfloat16;
using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::on_device;
using test::TestDevice;

}  // namespace

TEST_CASE_TEMPLATE("device: the layer Linear", T, float, bfloat16) {
  const TestDevice device = test::make_device();
  const auto weights = heed::LinearWeights<T>::random(1, 24, 40);
  const auto x = test::random_tensor<T>({2, 9, 40}, 2);
  const heed::Linear<T, TestDevice> linear(weights, device);
  const auto out = linear.forward(device, on_device(device, x));
  const heed::Linear<double, heed::Reference> reference(test::as_double(weights));
  CHECK(test::max_scaled_error(device.to_host(out), reference.forward(heed::Reference(), test::as_double(x))) <=
        test::tolerance<T>(2e-6));
  CHECK(linear.describe().find("backend device_host") != std::string::npos);
}

TEST_CASE_TEMPLATE("device: the layer MultiHeadSelfAttention", T, float, bfloat16) {
  constexpr heed::HeadLayout heads{.num_heads = 3};
  const TestDevice device = test::make_device();
  const auto weights = heed::ProjectionWeights<T>::random(1, 24, {.num_heads = 3, .head_dim = 8}, true);
  const auto x = test::random_tensor<T>({2, 7, 24}, 2);
  Tensor<bool, 4> mask({2, 1, 1, 7});
  for (Index s = 0; s < 14; ++s) mask.data()[s] = s != 5 && s != 6;
  const heed::MultiHeadSelfAttention<T, heads, TestDevice> attention(weights, {}, heads, device);
  const auto device_mask = on_device(device, mask);
  const auto out = attention.forward(device, on_device(device, x), {.mask = device_mask});

  const heed::MultiHeadSelfAttention<double, heads, heed::Reference> reference(test::as_double(weights));
  const auto want = reference.forward(heed::Reference(), test::as_double(x), {.mask = mask});
  CHECK(test::max_scaled_error(device.to_host(out), want) <= test::tolerance<T>(5e-6) * (sizeof(T) == 2 ? 2 : 1));
}
