// ops::linear by tensor cores, against Reference in double on the same rounded inputs.
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

struct Sizes {
  Index rows;
  Index out_features;
  Index in_features;
};

template <class T>
Tensor<double, 2> product_in_double(const Tensor<T, 2>& x, const Tensor<T, 2>& weight, const Tensor<T, 1>& bias) {
  Tensor<double, 2> want({x.extent(0), weight.extent(0)});
  const Tensor<double, 1> bias_as_double = test::as_double(bias);
  ops::linear(heed::Reference(), test::as_double(x), test::as_double(weight), test::list_or_absent(bias_as_double),
              want);
  return want;
}

// By this kernel, whatever the sizes.
template <class Kernel, class T>
void check_kernel(const test::TestDevice& device, Sizes sizes, bool with_bias) {
  CAPTURE(sizes.rows);
  CAPTURE(sizes.out_features);
  CAPTURE(sizes.in_features);
  const auto x = test::random_tensor<T>({sizes.rows, sizes.in_features}, 1);
  const auto weight = test::random_tensor<T>({sizes.out_features, sizes.in_features}, 2);
  const auto bias = test::random_tensor<T>({with_bias ? sizes.out_features : 0}, 3);
  const DeviceTensor<T, 2> device_x = on_device(device, x);
  const DeviceTensor<T, 2> device_weight = on_device(device, weight);
  const DeviceTensor<T, 1> device_bias = on_device(device, bias);
  DeviceTensor<T, 2> device_out(device, {sizes.rows, sizes.out_features});
  const Kernel kernel{heed::in_kernel(device_x.view()), heed::in_kernel(device_weight.view()),
                      heed::in_kernel(device_bias.view()), heed::in_kernel(device_out.view())};
  device.launch(kernel, kernel.blocks());
  const auto out = device.to_host(device_out);
  CHECK(test::max_scaled_error(out, product_in_double(x, weight, bias)) <= test::tolerance<T>(0));
#if !defined(__CUDACC__)
  CHECK(device.runtime().counts().executor.bank_conflicts == 0);
#endif
}

template <class T>
DeviceTensor<T, 2> product(const test::TestDevice& device, const DeviceTensor<T, 2>& x,
                           const DeviceTensor<T, 2>& weight) {
  DeviceTensor<T, 2> out(device, {x.extent(0), weight.extent(0)});
  ops::linear(device, x, weight, {}, out);
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("device: linear by tensor cores with tails in every direction", T, bfloat16, float16) {
  test::for_each_warp_order([](const test::TestDevice& device) {
    check_kernel<heed::impl::LinearMmaFew<T>, T>(device, {5, 37, 8}, true);
    check_kernel<heed::impl::LinearMmaFew<T>, T>(device, {17, 32, 360}, false);  // more tiles than stages
    check_kernel<heed::impl::LinearMmaSome<T>, T>(device, {65, 70, 168}, true);
    check_kernel<heed::impl::LinearMmaSome<T>, T>(device, {1, 1, 24}, true);
  });
}

TEST_CASE("device: linear by tensor cores in large tiles") {
  test::for_each_warp_order([](const test::TestDevice& device) {
    check_kernel<heed::impl::LinearMmaMany<bfloat16>, bfloat16>(device, {131, 130, 168}, true);
  });
}

TEST_CASE("device: linear by tensor cores has every tile of a large product") {
  const test::TestDevice device = test::make_device();
  check_kernel<heed::impl::LinearMmaFew<bfloat16>, bfloat16>(device, {16 * 9 + 3, 3 * 32, 8}, false);
}

TEST_CASE("device: linear takes tensor cores where rows are aligned") {
  const test::TestDevice device = test::make_device();
  const auto uses_tensor_cores = [&](Index in_features, Index row, Index first) {
    const DeviceTensor<float16, 2> x(device, {Index{2}, row});
    const DeviceTensor<float16, 2> weight(device, {Index{16}, row});
    DeviceTensor<float16, 2> out(device, {2, 16});
    const auto cut = x.view().slice(1, first, in_features);
    const bool taken = heed::impl::launch_linear_mma<float16>(device, heed::in_kernel(cut),
                                                              heed::in_kernel(weight.view().slice(1, 0, in_features)),
                                                              {}, heed::in_kernel(out.view()));
    device.sync();
    return taken;
  };
  CHECK(uses_tensor_cores(16, 16, 0));
  CHECK(uses_tensor_cores(16, 24, 8));
  CHECK(!uses_tensor_cores(12, 16, 0));  // in_features
  CHECK(!uses_tensor_cores(16, 20, 0));  // the second row
  CHECK(!uses_tensor_cores(16, 24, 4));  // the first element
}

TEST_CASE("device: a row of linear by tensor cores has the same bits in all tiles") {
  const test::TestDevice device = test::make_device();
  const auto x = test::random_tensor<bfloat16>({40, 88}, 1);
  const auto weight = test::random_tensor<bfloat16>({34, 88}, 2);
  const auto device_x = on_device(device, x);
  const auto device_weight = on_device(device, weight);
  const auto of_all = device.to_host(product(device, device_x, device_weight));
  const DeviceTensor<bfloat16, 2> last(device, x.view().slice(0, 38, 2));
  CHECK(test::same_bits(device.to_host(product(device, last, device_weight)), of_all.view().slice(0, 38, 2)));
  DeviceTensor<bfloat16, 2> large(device, {40, 34});
  const heed::impl::LinearMmaMany<bfloat16> kernel{
      heed::in_kernel(device_x.view()), heed::in_kernel(device_weight.view()), {}, heed::in_kernel(large.view())};
  device.launch(kernel, kernel.blocks());
  CHECK(test::same_bits(device.to_host(large), of_all));
}

TEST_CASE("device: linear by tensor cores into strided and odd rows") {
  const test::TestDevice device = test::make_device();
  const auto x = test::random_tensor<bfloat16>({3, 16}, 1);
  const auto weight = test::random_tensor<bfloat16>({6, 16}, 2);
  const auto want = product_in_double(x, weight, Tensor<bfloat16, 1>());
  DeviceTensor<bfloat16, 2> device_out(device, {3, 9});
  for (const Index first : {1, 2}) {
    ops::linear(device, on_device(device, x), on_device(device, weight), {}, device_out.view().slice(1, first, 6));
    const auto out = device.to_host(device_out);
    CHECK(test::max_scaled_error(out.view().slice(1, first, 6), want) <= test::tolerance<bfloat16>(0));
    for (Index row = 0; row < 3; ++row) CHECK(test::to_double(out(row, 8)) == 0);
  }
}

TEST_CASE("device: linear by tensor cores reads no feature beyond the last") {
  const test::TestDevice device = test::make_device();
  auto x = test::random_tensor<bfloat16>({3, 32}, 1);
  for (Index row = 0; row < 3; ++row) {
    for (Index i = 16; i < 32; ++i) x(row, i).bits = 0x7fff;  // NaN
  }
  const auto weight = test::random_tensor<bfloat16>({6, 16}, 2);
  const auto device_x = on_device(device, x);
  DeviceTensor<bfloat16, 2> device_out(device, {3, 6});
  ops::linear(device, device_x.view().slice(1, 0, 16), on_device(device, weight), {}, device_out);
  const Tensor<bfloat16, 2> cut(x.view().slice(1, 0, 16));
  CHECK(test::max_scaled_error(device.to_host(device_out), product_in_double(cut, weight, Tensor<bfloat16, 1>())) <=
        test::tolerance<bfloat16>(0));
}
