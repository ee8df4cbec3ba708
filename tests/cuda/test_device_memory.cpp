// ops::memory_retrieve, ops::memory_update and ops::gated_mix on a device, against Reference in double.
#include <doctest/doctest.h>

#include "cuda/warp_orders.hpp"
#include "heed/cuda/kernels/compressive_memory.hpp"
#include "heed/ops/compressive_memory.hpp"
#include "heed/ops/gated_mix.hpp"

namespace {

using heed::bfloat16;
using heed::Index;
using heed::MemoryUpdate;
using heed::Tensor;
using test::DeviceTensor;
using test::on_device;
using test::TestDevice;
namespace ops = heed::ops;

struct Sizes {
  Index batch, tokens, heads, kv_heads, head_dim, value_head_dim;
};

// Two segments enter an empty memory, of which the second has rows of their own lengths; then queries read it.
template <class T>
void check_two_segments(const TestDevice& device, MemoryUpdate rule, const Sizes& n) {
  using A = heed::accumulator_t<T>;
  CAPTURE(static_cast<int>(rule));
  CAPTURE(n.head_dim);
  const auto query = test::random_tensor<T>({n.batch, n.tokens, n.heads, n.head_dim}, 1, -2, 2);
  Tensor<T, 4> keys[2], values[2];
  Tensor<std::int64_t, 1> lengths({n.batch});
  for (Index b = 0; b < n.batch; ++b) lengths(b) = b == 1 ? 0 : n.tokens - b;
  for (int s = 0; s < 2; ++s) {
    keys[s] = test::random_tensor<T>({n.batch, n.tokens, n.kv_heads, n.head_dim}, static_cast<unsigned>(2 + s), -2, 2);
    values[s] = test::random_tensor<T>({n.batch, n.tokens, n.kv_heads, n.value_head_dim}, static_cast<unsigned>(4 + s));
  }

  DeviceTensor<A, 4> memory(device, {n.batch, n.kv_heads, n.head_dim, n.value_head_dim});
  DeviceTensor<A, 3> normalizer(device, {n.batch, n.kv_heads, n.head_dim});
  DeviceTensor<T, 4> out(device, {n.batch, n.tokens, n.heads, n.value_head_dim});
  DeviceTensor<A, 3> denominator(device, {n.batch, n.tokens, n.heads});
  auto workspace = device.make_workspace(0);
  const auto device_lengths = on_device(device, lengths);
  ops::memory_update(device, on_device(device, keys[0]), on_device(device, values[0]), memory, normalizer, workspace,
                     {.rule = rule});
  ops::memory_update(device, on_device(device, keys[1]), on_device(device, values[1]), memory, normalizer, workspace,
                     {.rule = rule, .key_lengths = device_lengths});
  ops::memory_retrieve(device, on_device(device, query), memory, normalizer, out, workspace,
                       {.denominator = denominator});

  const heed::Reference reference;
  Tensor<double, 4> want_memory({n.batch, n.kv_heads, n.head_dim, n.value_head_dim});
  Tensor<double, 3> want_normalizer({n.batch, n.kv_heads, n.head_dim});
  Tensor<double, 4> want({n.batch, n.tokens, n.heads, n.value_head_dim});
  Tensor<double, 3> want_denominator({n.batch, n.tokens, n.heads});
  heed::Workspace scratch(ops::memory_update_workspace_size<double>(reference, n.head_dim, n.value_head_dim));
  ops::memory_update(reference, test::as_double(keys[0]), test::as_double(values[0]), want_memory, want_normalizer,
                     scratch, {.rule = rule});
  ops::memory_update(reference, test::as_double(keys[1]), test::as_double(values[1]), want_memory, want_normalizer,
                     scratch, {.rule = rule, .key_lengths = lengths});
  ops::memory_retrieve(reference, test::as_double(query), want_memory, want_normalizer, want, scratch,
                       {.denominator = want_denominator});
  const double accuracy = sizeof(A) == 8 ? 1e-13 : 2e-5;
  CHECK(test::max_scaled_error(device.to_host(memory), want_memory) <= accuracy);
  CHECK(test::max_scaled_error(device.to_host(normalizer), want_normalizer) <= accuracy);
  CHECK(test::max_scaled_error(device.to_host(denominator), want_denominator) <= accuracy);
  CHECK(test::max_scaled_error(device.to_host(out), want) <= test::tolerance<T>(2e-5));
}

}  // namespace

TEST_CASE_TEMPLATE("device: memory, the three rules", T, float, double, bfloat16) {
  test::for_each_warp_order([](const TestDevice& device) {
    for (const auto rule : {MemoryUpdate::linear, MemoryUpdate::delta, MemoryUpdate::safe_delta}) {
      check_two_segments<T>(device, rule, {2, 37, 4, 2, 5, 35});
    }
    check_two_segments<T>(device, MemoryUpdate::safe_delta, {1, 9, 3, 1, 40, 7});
  });
}

TEST_CASE("device: memory of heads with more dims than a block has threads") {
  check_two_segments<float>(test::make_device(), MemoryUpdate::delta, {1, 3, 1, 1, 300, 2});
}

TEST_CASE("device: an empty memory answers 0, and is told from a full one") {
  const TestDevice device = test::make_device();
  const auto query = test::random_tensor<float>({1, 3, 2, 4}, 1);
  DeviceTensor<float, 4> memory(device, {1, 1, 4, 5});
  DeviceTensor<float, 3> normalizer(device, {1, 1, 4});
  DeviceTensor<float, 4> out(device, {1, 3, 2, 5});
  const auto ones = test::random_tensor<float>({1, 3, 2}, 2, 1, 2);
  auto denominator = on_device(device, ones);
  auto workspace = device.make_workspace(0);
  ops::memory_retrieve(device, on_device(device, query), memory, normalizer, out, workspace,
                       {.denominator_epsilon = 1, .denominator = denominator});
  CHECK(test::max_error(device.to_host(out), Tensor<float, 4>({1, 3, 2, 5})) == 0);
  CHECK(test::max_error(device.to_host(denominator), Tensor<float, 3>({1, 3, 2})) == 0);

  // The gate goes by the denominator.
  const auto local = test::random_tensor<float>({1, 3, 2, 5}, 3);
  const auto from_memory = test::random_tensor<float>({1, 3, 2, 5}, 4);
  Tensor<float, 1> beta({2});
  beta(0) = 0.5F;
  beta(1) = -100;
  Tensor<float, 3> mass({1, 3, 2});
  mass.fill(1);
  mass(0, 1, 0) = 0;
  for (const auto empty : {heed::EmptyMemory::bypass_gate, heed::EmptyMemory::apply_gate}) {
    const auto device_mass = on_device(device, mass);
    ops::gated_mix(device, on_device(device, from_memory), on_device(device, local), on_device(device, beta), out,
                   {.empty_memory = empty, .denominator = device_mass});
    Tensor<double, 4> want({1, 3, 2, 5});
    const auto mass_as_double = test::as_double(mass);
    ops::gated_mix(heed::Reference(), test::as_double(from_memory), test::as_double(local), test::as_double(beta), want,
                   {.empty_memory = empty, .denominator = mass_as_double});
    CHECK(test::max_scaled_error(device.to_host(out), want) <= 1e-6);
  }
}
