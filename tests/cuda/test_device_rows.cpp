// Norms, activations, softmax, rotary embedding, embedding and repeat_kv on a device, against Reference in double.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/warp_orders.hpp"
#include "heed/ops/activations.hpp"
#include "heed/ops/embedding.hpp"
#include "heed/ops/layer_norm.hpp"
#include "heed/ops/repeat_kv.hpp"
#include "heed/ops/rms_norm.hpp"
#include "heed/ops/rotary_embedding.hpp"
#include "heed/ops/softmax.hpp"

namespace {

using heed::bfloat16;
using heed::float16;
using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::on_device;
using test::TestDevice;
namespace ops = heed::ops;

// The same door on the device and, in double, on Reference: run(backend, inputs…, out).
template <class T, class Run, int Rank, class... Inputs>
void check_like_reference(const Index (&extents)[Rank], double of_float, Run&& run, const Inputs&... inputs) {
  test::for_each_warp_order([&](const TestDevice& device) {
    DeviceTensor<T, Rank> out(device, extents);
    run(device, on_device(device, inputs)..., out);
    Tensor<double, Rank> want(extents);
    run(heed::Reference(), test::as_double(inputs)..., want);
    CHECK(test::max_scaled_error(device.to_host(out), want) <= test::tolerance<T>(of_float));
  });
}

}  // namespace

TEST_CASE_TEMPLATE("device: norms", T, float, double, bfloat16, float16) {
  const auto x = test::random_tensor<T>({3, 5, 77}, 1);
  const auto weight = test::random_tensor<T>({77}, 2);
  const auto bias = test::random_tensor<T>({77}, 3);
  check_like_reference<T>(
      {3, 5, 77}, 2e-6,
      [](const auto& backend, const auto& in, const auto& w, auto& out) {
        ops::rms_norm(backend, in, w, out, {.eps = 1e-3, .weight_offset = 1});
      },
      x, weight);
  check_like_reference<T>(
      {3, 5, 77}, 2e-6, [](const auto& backend, const auto& in, auto& out) { ops::rms_norm(backend, in, {}, out); }, x);
  check_like_reference<T>(
      {3, 5, 77}, 2e-6,
      [](const auto& backend, const auto& in, const auto& w, const auto& b, auto& out) {
        ops::layer_norm(backend, in, w, b, out);
      },
      x, weight, bias);
  check_like_reference<T>(
      {3, 5, 77}, 2e-6,
      [](const auto& backend, const auto& in, auto& out) { ops::layer_norm(backend, in, {}, {}, out); }, x);
}

TEST_CASE_TEMPLATE("device: activations", T, float, double, bfloat16, float16) {
  const auto x = test::random_tensor<T>({7, 45}, 1, -6, 6);
  check_like_reference<T>(
      {7, 45}, 1e-6, [](const auto& backend, const auto& in, auto& out) { ops::silu(backend, in, out); }, x);
  for (const auto form : {heed::GeluForm::erf, heed::GeluForm::tanh}) {
    check_like_reference<T>(
        {7, 45}, 1e-6, [form](const auto& backend, const auto& in, auto& out) { ops::gelu(backend, in, out, form); },
        x);
  }
}

TEST_CASE_TEMPLATE("device: softmax and log_sum_exp along every axis", T, float, double, bfloat16) {
  auto x = test::random_tensor<T>({3, 34, 5}, 1, -4, 4);
  const auto infinite = static_cast<heed::accumulator_t<T>>(-std::numeric_limits<double>::infinity());
  for (Index j = 0; j < 5; ++j) x(1, 2, j) = heed::narrow<T>(infinite);  // a row of nothing
  for (const int axis : {0, 1, 2}) {
    CAPTURE(axis);
    check_like_reference<T>(
        {3, 34, 5}, 1e-6,
        [axis](const auto& backend, const auto& in, auto& out) { ops::softmax(backend, in, out, axis); }, x);
    const Index extents[][2] = {{34, 5}, {3, 5}, {3, 34}};
    check_like_reference<T>(
        extents[axis], 1e-6,
        [axis](const auto& backend, const auto& in, auto& out) { ops::log_sum_exp(backend, in, out, axis); }, x);
  }
}

TEST_CASE_TEMPLATE("device: rotary embedding", T, float, double, bfloat16) {
  using A = heed::accumulator_t<T>;
  const TestDevice device = test::make_device();
  const auto x = test::random_tensor<T>({2, 3, 4, 11}, 1);
  const auto positions = test::random_ids({2, 3}, 2, 100000);
  Tensor<double, 1> frequencies({4});
  heed::inverse_frequencies({.rotary_dim = 8}, 11, 0, frequencies);
  DeviceTensor<A, 3> cos(device, {2, 3, 4});
  DeviceTensor<A, 3> sin(device, {2, 3, 4});
  ops::rotary_tables(device, on_device(device, positions), on_device(device, frequencies), 1.5, cos, sin);
  Tensor<double, 3> want_cos({2, 3, 4});
  Tensor<double, 3> want_sin({2, 3, 4});
  ops::rotary_tables(heed::Reference(), positions, frequencies, 1.5, want_cos, want_sin);
  CHECK(test::max_scaled_error(device.to_host(cos), want_cos) <= (sizeof(A) == 8 ? 1e-15 : 1e-7));
  CHECK(test::max_scaled_error(device.to_host(sin), want_sin) <= (sizeof(A) == 8 ? 1e-15 : 1e-7));
  for (const auto layout : {heed::RopeLayout::half, heed::RopeLayout::interleaved}) {
    auto turned = on_device(device, x);
    ops::rotary_embedding(device, turned, cos, sin, layout, turned);  // in place
    Tensor<double, 4> want({2, 3, 4, 11});
    ops::rotary_embedding(heed::Reference(), test::as_double(x), want_cos, want_sin, layout, want);
    CHECK(test::max_scaled_error(device.to_host(turned), want) <= test::tolerance<T>(1e-6));
  }
  const auto even = test::random_tensor<T>({3, 10}, 3);
  check_like_reference<T>(
      {3, 10}, 0, [](const auto& backend, const auto& in, auto& out) { ops::rotate_half(backend, in, out); }, even);
}

TEST_CASE("device: embedding, where an id that is no row's gives NaN, and repeat_kv") {
  const TestDevice device = test::make_device();
  const auto table = test::random_tensor<bfloat16>({7, 5}, 1);
  auto ids = test::random_ids({2, 3}, 2, 7);
  ids(1, 1) = std::int64_t{1} << 40;  // so far off that reading there ends the program
  ids(0, 2) = -(std::int64_t{1} << 40);
  DeviceTensor<bfloat16, 3> out(device, {2, 3, 5});
  ops::embedding(device, on_device(device, ids), on_device(device, table), out);
  const auto rows = device.to_host(out);
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 3; ++t) {
      for (Index d = 0; d < 5; ++d) {
        const bool exists = ids(b, t) >= 0 && ids(b, t) < 7;
        const float got = heed::widen(rows(b, t, d));
        CHECK((exists ? got == heed::widen(table(static_cast<Index>(ids(b, t)), d)) : std::isnan(got)));
      }
    }
  }

  const auto x = test::random_tensor<float>({2, 3, 2, 4}, 3);
  check_like_reference<float>(
      {2, 3, 6, 4}, 0, [](const auto& backend, const auto& in, auto& to) { ops::repeat_kv(backend, in, to); }, x);
}
