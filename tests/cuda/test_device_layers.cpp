// Layers on a device, from the same source as on the CPU, against the layer on Reference in double.
#include <doctest/doctest.h>

#include "cuda/device_host.hpp"
#include "heed/layers/multi_head_self_attention.hpp"

namespace {

using heed::bfloat16;
using heed::Index;
using heed::Tensor;
using test::DeviceHost;
using test::DeviceTensor;
using test::on_device;

template <class T>
heed::LinearWeights<double> as_double(const heed::LinearWeights<T>& weights) {
  return {test::as_double(weights.weight), test::as_double(weights.bias)};
}
template <class T>
heed::ProjectionWeights<double> as_double(const heed::ProjectionWeights<T>& weights) {
  return {as_double(weights.query), as_double(weights.key), as_double(weights.value), as_double(weights.output)};
}

}  // namespace

TEST_CASE_TEMPLATE("device: the layer Linear", T, float, bfloat16) {
  const DeviceHost device{heed::HostRuntime()};
  const auto weights = heed::LinearWeights<T>::random(1, 24, 40);
  const auto x = test::random_tensor<T>({2, 9, 40}, 2);
  const heed::Linear<T, DeviceHost> linear(weights, device);
  const auto out = linear.forward(device, on_device(device, x));
  const heed::Linear<double, heed::Reference> reference(as_double(weights));
  CHECK(test::max_scaled_error(device.to_host(out), reference.forward(heed::Reference(), test::as_double(x))) <=
        test::tolerance<T>(2e-6));
  CHECK(linear.describe().find("backend device_host") != std::string::npos);
}

TEST_CASE_TEMPLATE("device: the layer MultiHeadSelfAttention", T, float, bfloat16) {
  constexpr heed::HeadLayout heads{.num_heads = 3};
  const DeviceHost device{heed::HostRuntime()};
  const auto weights = heed::ProjectionWeights<T>::random(1, 24, {.num_heads = 3, .head_dim = 8}, true);
  const auto x = test::random_tensor<T>({2, 7, 24}, 2);
  Tensor<bool, 4> mask({2, 1, 1, 7});
  for (Index s = 0; s < 14; ++s) mask.data()[s] = s != 5 && s != 6;
  const heed::MultiHeadSelfAttention<T, heads, DeviceHost> attention(weights, {}, heads, device);
  const auto device_mask = on_device(device, mask);
  const auto out = attention.forward(device, on_device(device, x), {.mask = device_mask});

  const heed::MultiHeadSelfAttention<double, heads, heed::Reference> reference(as_double(weights));
  const auto want = reference.forward(heed::Reference(), test::as_double(x), {.mask = mask});
  CHECK(test::max_scaled_error(device.to_host(out), want) <= test::tolerance<T>(5e-6) * (sizeof(T) == 2 ? 2 : 1));
}

TEST_CASE("device: a layer's forward allocates nothing, is captured as a graph, and replays on new input") {
  constexpr heed::HeadLayout heads{.num_heads = 2};
  const heed::HostRuntime runtime;
  const DeviceHost device{runtime};
  const auto weights = heed::ProjectionWeights<float>::random(1, 16, {.num_heads = 2, .head_dim = 8});
  const heed::MultiHeadSelfAttention<float, heads, DeviceHost> attention(weights, {}, heads, device);
  auto workspace = device.make_workspace(attention.workspace_size(device, 1, 5));
  DeviceTensor<float, 3> x(device, {1, 5, 16});
  DeviceTensor<float, 3> out(device, {1, 5, 16});
  device.sync();

  const long allocations = runtime.counts().allocations;
  const long launches = runtime.counts().launches;
  runtime.begin_capture();
  attention.forward(device, x, out, workspace);
  const auto graph = runtime.end_capture();
  CHECK(runtime.counts().allocations == allocations);
  CHECK(runtime.counts().launches == launches);
  CHECK(graph.size() == 3);  // two products and the attention

  const heed::MultiHeadSelfAttention<double, heads, heed::Reference> reference(as_double(weights));
  for (const std::uint64_t seed : {3, 4}) {
    const auto input = test::random_tensor<float>({1, 5, 16}, seed);
    device.copy(input, x);
    runtime.replay(graph);
    CHECK(test::max_scaled_error(device.to_host(out), reference.forward(heed::Reference(), test::as_double(input))) <=
          5e-6);
  }
}
