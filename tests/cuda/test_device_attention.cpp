// ops::attention on a device, against the textbook's formula in double.
#include <doctest/doctest.h>

#include "cuda/attention_on_device.hpp"
#include "cuda/warp_orders.hpp"
#include "ops/random_attention.hpp"

namespace {

using heed::bfloat16;
using heed::float16;
using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::on_device;
using test::TestDevice;
namespace ops = heed::ops;

// One random call; every third one asks for weights too.
template <class T>
void check_random_call(const TestDevice& device, std::uint64_t seed) {
  using A = heed::accumulator_t<T>;
  CAPTURE(seed);
  const test::RandomAttention<T> call(seed);
  const Index batch = call.query.extent(0);
  const Index queries = call.query.extent(1);
  const Index heads = call.query.extent(2);
  const Index keys = call.key.extent(1);
  const Index dims = call.value.extent(3);
  const auto query = on_device(device, call.query);
  const auto key = on_device(device, call.key);
  const auto value = on_device(device, call.value);
  DeviceTensor<T, 4> out(device, {batch, queries, heads, dims});
  DeviceTensor<A, 3> log_sum_exp(device, {batch, heads, queries});
  DeviceTensor<T, 4> weights;
  test::OptionsOnDevice<T> options(device, call.options);
  options->log_sum_exp = log_sum_exp;
  const bool with_weights = seed % 3 == 0;
  if (with_weights) {
    weights = DeviceTensor<T, 4>(device, {batch, heads, queries, keys});
    options->weights = weights;
  }
  ops::attention(device, query, key, value, out, *options);

  const test::FormulaResult want = test::attention_formula<T>(call.query, call.key, call.value, call.options);
  CHECK(test::max_scaled_error(device.to_host(out), want.out) <= test::tolerance<T>(5e-6));
  CHECK(test::max_scaled_error(device.to_host(log_sum_exp), want.log_sum_exp) <= (sizeof(A) == 8 ? 1e-13 : 5e-6));
  if (with_weights) {
    CHECK(test::max_scaled_error(device.to_host(weights), want.weights) <= test::tolerance<T>(5e-6));
  }
}

}  // namespace

TEST_CASE("device: attention, random calls in float") {
  const TestDevice device = test::make_device();
  for (std::uint64_t seed = 0; seed < 60; ++seed) check_random_call<float>(device, seed);
}

#if defined(__CUDACC__)  // a type is a minute of nvcc's
TEST_CASE_TEMPLATE("device: attention, random calls", T, bfloat16) {
#else
TEST_CASE_TEMPLATE("device: attention, random calls", T, double, bfloat16, float16) {
#endif
  const TestDevice device = test::make_device();
  for (std::uint64_t seed = 100; seed < 108; ++seed) check_random_call<T>(device, seed);
}

TEST_CASE("device: attention in every order of warps") {
  test::for_each_warp_order([](const TestDevice& device) {
    for (std::uint64_t seed = 200; seed < 212; ++seed) check_random_call<float>(device, seed);
  });
}
