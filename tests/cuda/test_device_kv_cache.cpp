// DeviceKvCache and attention over it, against attention over all tokens at once.
#include <doctest/doctest.h>

#include "cuda/attention_on_device.hpp"
#include "heed/cuda/kv_cache.hpp"

namespace {

using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::on_device;
using test::TestDevice;
namespace ops = heed::ops;

constexpr heed::KvCacheLayout layout{.num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5};

}  // namespace

TEST_CASE("device: tokens appended one by one are attended like all at once, lengths known to the device alone") {
  const TestDevice device = test::make_device();
  const Index batch = 2, tokens = 7, heads = 4;
  const auto query = test::random_tensor<float>({batch, tokens, heads, 6}, 1);
  const auto key = test::random_tensor<float>({batch, tokens, 2, 6}, 2);
  const auto value = test::random_tensor<float>({batch, tokens, 2, 5}, 3);
  Tensor<double, 4> want({batch, tokens, heads, 5});
  ops::attention(heed::Reference(), test::as_double(query), test::as_double(key), test::as_double(value), want,
                 {.causal = heed::Causal::top_left});

  // 600 slots: room enough for the keys to be cut into parts, of which the lengths leave most without any.
  heed::DeviceKvCache<float, TestDevice> cache(device, layout, batch, 600);
  auto workspace = device.make_workspace(ops::attention_workspace_size<float>(device, {.batch = batch,
                                                                                       .queries = 1,
                                                                                       .keys = 600,
                                                                                       .num_heads = heads,
                                                                                       .num_kv_heads = 2,
                                                                                       .head_dim = 6,
                                                                                       .value_head_dim = 5}));
  DeviceTensor<float, 4> out(device, {batch, 1, heads, 5});
  DeviceTensor<std::int64_t, 2> positions(device, {batch, 1});
  for (Index t = 0; t < tokens; ++t) {
    CAPTURE(t);
    const auto at = [t](const auto& tensor) { return Tensor<float, 4>(tensor.view().slice(1, t, 1)); };
    cache.next_positions(device, positions);
    cache.append(device, on_device(device, at(key)), on_device(device, at(value)));
    ops::attention(device, on_device(device, at(query)), cache.key_values(), out,
                   {.causal = heed::Causal::bottom_right}, workspace);
    CHECK(device.to_host(positions)(1, 0) == t);
    CHECK(test::max_scaled_error(device.to_host(out), want.view().slice(1, t, 1)) <= 5e-6);
  }
  cache.truncate(device, 3);
  CHECK(device.to_host(cache.lengths())(0) == 3);
}

TEST_CASE("device: rows take tokens of their own number, and what there is no room for is dropped") {
  const TestDevice device = test::make_device();
  heed::DeviceKvCache<float, TestDevice> cache(device, layout, 2, 4);
  Tensor<std::int64_t, 1> counts({2});
  counts(0) = 1;
  counts(1) = 3;
  const auto key = on_device(device, test::random_tensor<float>({2, 3, 2, 6}, 1));
  const auto value = on_device(device, test::random_tensor<float>({2, 3, 2, 5}, 2));
  const auto device_counts = on_device(device, counts);
  for (int i = 0; i < 2; ++i) cache.append(device, key, value, device_counts);
  const auto lengths = device.to_host(cache.lengths());
  CHECK(lengths(0) == 2);
  CHECK(lengths(1) == 4);
}

#if !defined(__CUDACC__)
TEST_CASE("device: one captured graph serves every step of decoding, and allocates nothing") {
  const heed::HostRuntime runtime;
  const TestDevice device{runtime};
  heed::DeviceKvCache<float, TestDevice> cache(device, layout, 1, 520);
  auto workspace = device.make_workspace(ops::attention_workspace_size<float>(
      device, {.queries = 1, .keys = 520, .num_heads = 2, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5}));
  DeviceTensor<float, 4> query(device, {1, 1, 2, 6});
  DeviceTensor<float, 4> key(device, {1, 1, 2, 6});
  DeviceTensor<float, 4> value(device, {1, 1, 2, 5});
  DeviceTensor<float, 4> out(device, {1, 1, 2, 5});
  const long allocations = runtime.counts().allocations;
  runtime.begin_capture();
  cache.append(device, key, value);
  ops::attention(device, query, cache.key_values(), out, {.causal = heed::Causal::bottom_right}, workspace);
  const auto step = runtime.end_capture();
  CHECK(runtime.counts().allocations == allocations);

  const auto queries = test::random_tensor<float>({1, 5, 2, 6}, 1);
  const auto keys = test::random_tensor<float>({1, 5, 2, 6}, 2);
  const auto values = test::random_tensor<float>({1, 5, 2, 5}, 3);
  Tensor<double, 4> want({1, 5, 2, 5});
  ops::attention(heed::Reference(), test::as_double(queries), test::as_double(keys), test::as_double(values), want,
                 {.causal = heed::Causal::top_left});
  for (Index t = 0; t < 5; ++t) {
    CAPTURE(t);
    device.copy(queries.view().slice(1, t, 1), query);
    device.copy(keys.view().slice(1, t, 1), key);
    device.copy(values.view().slice(1, t, 1), value);
    runtime.replay(step);
    CHECK(test::max_scaled_error(device.to_host(out), want.view().slice(1, t, 1)) <= 5e-6);
  }
}
#endif
