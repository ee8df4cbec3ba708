// ops::attention by tensor cores, against the textbook's formula in double on the same rounded inputs.
#include <doctest/doctest.h>

#include "cuda/attention_on_device.hpp"
#include "heed/cuda/kernels/attention_mma.hpp"
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

// By this kernel, however few the rows.
template <class T, class Modifier = heed::NoModifier>
bool by_tensor_cores(const TestDevice& device, const DeviceTensor<T, 4>& query, const DeviceTensor<T, 4>& key,
                     const DeviceTensor<T, 4>& value, DeviceTensor<T, 4>& out,
                     const typename test::OptionsOnDevice<T>::Options& options, const Modifier& modifier = {}) {
  using Space = TestDevice::space_type;
  heed::AttentionArguments<T, Space> arguments;
  arguments.query = query;
  arguments.keys.key.elements = key;
  arguments.keys.value.elements = value;
  arguments.keys.lengths = options.key_lengths;
  arguments.out = out;
  arguments.options = options;
  arguments.extents = {query.extent(0), query.extent(1), key.extent(1),  query.extent(2),
                       key.extent(2),   query.extent(3), value.extent(3)};
  return heed::impl::launch_attention_mma(device, heed::impl::arguments_in_kernel(arguments), modifier,
                                          options.scale.value(query.extent(3)));
}

// One random call. Values and keys that nobody attends are NaN, now and then others too.
template <class T>
void check_random_call(const TestDevice& device, std::uint64_t seed) {
  CAPTURE(seed);
  const test::RandomAttention<T> call(seed);
  const Index batch = call.query.extent(0);
  const Index queries = call.query.extent(1);
  const Index heads = call.query.extent(2);
  DeviceTensor<T, 4> out(device, {batch, queries, heads, call.value.extent(3)});
  DeviceTensor<float, 3> log_sum_exp(device, {batch, heads, queries});
  test::OptionsOnDevice<T> options(device, call.options);
  options->log_sum_exp = log_sum_exp;
  CHECK(by_tensor_cores(device, on_device(device, call.query), on_device(device, call.key),
                        on_device(device, call.value), out, *options));
  const test::FormulaResult want = test::attention_formula<T>(call.query, call.key, call.value, call.options);
  CHECK(test::max_scaled_error(device.to_host(out), want.out) <= test::tolerance<T>(0));
  CHECK(test::max_scaled_error(device.to_host(log_sum_exp), want.log_sum_exp) <= 5e-6);
}

}  // namespace

TEST_CASE_TEMPLATE("device: attention by tensor cores, random calls", T, bfloat16, float16) {
  const TestDevice device = test::make_device();
  for (std::uint64_t seed = 0; seed < 40; ++seed) check_random_call<T>(device, seed);
}
