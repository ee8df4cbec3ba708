// ops::linear on a device, against Reference in double.
#include <doctest/doctest.h>

#include "cuda/warp_orders.hpp"
#include "heed/ops/linear.hpp"

namespace {

using heed::bfloat16;
using heed::float16;
using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::on_device;
namespace ops = heed::ops;

template <class T>
void check_product(const test::TestDevice& device, Index rows, Index out_features, Index in_features, bool with_bias) {
  CAPTURE(rows);
  CAPTURE(out_features);
  CAPTURE(in_features);
  const auto x = test::random_tensor<T>({rows, in_features}, 1);
  const auto weight = test::random_tensor<T>({out_features, in_features}, 2);
  const auto bias = test::random_tensor<T>({with_bias ? out_features : 0}, 3);

  const DeviceTensor<T, 2> device_x = on_device(device, x);
  const DeviceTensor<T, 2> device_weight = on_device(device, weight);
  const DeviceTensor<T, 1> device_bias = on_device(device, bias);
  DeviceTensor<T, 2> device_out(device, {rows, out_features});
  ops::linear(device, device_x, device_weight, device_bias, device_out);
  const Tensor<T, 2> out = device.to_host(device_out);

  Tensor<double, 2> want({rows, out_features});
  const Tensor<double, 1> bias_as_double = test::as_double(bias);
  ops::linear(heed::Reference(), test::as_double(x), test::as_double(weight), test::list_or_absent(bias_as_double),
              want);
  CHECK(test::max_scaled_error(out, want) <= test::tolerance<T>(2e-6));
}

}  // namespace

TEST_CASE_TEMPLATE("device: linear with tails in every direction", T, float, double, bfloat16, float16) {
  test::for_each_warp_order([](const test::TestDevice& device) {
    check_product<T>(device, 5, 37, 19, true);    // a few rows
    check_product<T>(device, 70, 67, 33, false);  // more tiles than one
    check_product<T>(device, 17, 1, 1, true);
  });
}

TEST_CASE("device: linear in large tiles") {
  const test::TestDevice device = test::make_device();
  const auto x = test::random_tensor<float>({131, 21}, 1);
  const auto weight = test::random_tensor<float>({130, 21}, 2);
  const auto device_x = on_device(device, x);
  const auto device_weight = on_device(device, weight);
  DeviceTensor<float, 2> device_out(device, {131, 130});
  heed::impl::launch_linear_tile<float, 128, 128, 8, 8>(device, heed::in_kernel(device_x.view()),
                                                        heed::in_kernel(device_weight.view()), {},
                                                        heed::in_kernel(device_out.view()));
  Tensor<double, 2> want({131, 130});
  ops::linear(heed::Reference(), test::as_double(x), test::as_double(weight), {}, want);
  CHECK(test::max_scaled_error(device.to_host(device_out), want) <= 2e-6);
}

TEST_CASE("device: a row of linear has the same bits alone and among others") {
  const test::TestDevice device = test::make_device();
  const auto x = test::random_tensor<float>({40, 50}, 1);
  const auto weight = test::random_tensor<float>({33, 50}, 2);
  const auto device_x = on_device(device, x);
  const auto device_weight = on_device(device, weight);
  DeviceTensor<float, 2> together(device, {40, 33});
  DeviceTensor<float, 2> alone(device, {1, 33});
  ops::linear(device, device_x, device_weight, {}, together);
  ops::linear(device, device_x.view().slice(0, 38, 1), device_weight, {}, alone);
  const auto of_all = device.to_host(together);
  CHECK(test::same_bits(device.to_host(alone), of_all.view().slice(0, 38, 1)));
}

TEST_CASE("device: linear of strided views, packed weights, and nothing") {
  const test::TestDevice device = test::make_device();
  const auto x = test::random_tensor<float>({4, 3, 12}, 1);
  const auto weight = test::random_tensor<float>({8, 10}, 2);
  const auto device_x = on_device(device, x);
  const auto packed = ops::pack_weight<float>(device, weight);
  DeviceTensor<float, 3> device_out(device, {4, 3, 9});
  ops::linear(device, device_x.view().slice(2, 1, 10), packed, {}, device_out.view().slice(2, 1, 8));
  const auto out = device.to_host(device_out);
  Tensor<double, 3> want({4, 3, 8});
  const Tensor<double, 3> x_as_double = test::as_double(x);
  ops::linear(heed::Reference(), x_as_double.view().slice(2, 1, 10), test::as_double(weight), {}, want);
  CHECK(test::max_scaled_error(out.view().slice(2, 1, 8), want) <= 2e-6);
  for (Index b = 0; b < 4; ++b) CHECK(out(b, 1, 0) == 0);

  DeviceTensor<float, 2> empty(device, {0, 8});
  ops::linear(device, DeviceTensor<float, 2>(device, {0, 10}), packed, {}, empty);
  DeviceTensor<float, 2> of_nothing(device, {2, 8});
  ops::linear(device, DeviceTensor<float, 2>(device, {2, 0}), DeviceTensor<float, 2>(device, {8, 0}), {}, of_nothing);
  CHECK(device.to_host(of_nothing)(1, 7) == 0);
}
