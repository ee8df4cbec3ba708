// ops::attention by tensor cores, against the textbook's formula in double on the same rounded inputs.
#include <doctest/doctest.h>

#include "cuda/attention_on_device.hpp"
#include "cuda/warp_orders.hpp"
#include "heed/cuda/kernels/attention_mma.hpp"
#include "ops/random_attention.hpp"

namespace {

using heed::bfloat16;
using heed::float16;
using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::DeviceView;
using test::on_device;
using test::TestDevice;
namespace ops = heed::ops;

using Space = TestDevice::space_type;
template <class T>
using Options = heed::AttentionOptions<T, Space>;

// By this kernel, however few the rows. False if it is not for it.
template <class T, class Modifier = heed::NoModifier>
bool by_tensor_cores(const TestDevice& device, DeviceView<const T, 4> query, const heed::KeyValues<T, Space>& keys,
                     DeviceView<T, 4> out, const Options<T>& options, Index most_keys, const Modifier& modifier = {}) {
  heed::AttentionArguments<T, Space> arguments;
  arguments.query = query;
  arguments.keys = keys;
  arguments.out = out;
  arguments.options = options;
  arguments.extents = {query.extent(0),    query.extent(1), most_keys,           query.extent(2),
                       keys.key.extent(2), query.extent(3), keys.value.extent(3)};
  return heed::impl::launch_attention_mma(device, heed::impl::arguments_in_kernel(arguments), modifier,
                                          options.scale.value(query.extent(3)));
}
template <class T, class Modifier = heed::NoModifier>
bool by_tensor_cores(const TestDevice& device, DeviceView<const T, 4> query, DeviceView<const T, 4> key,
                     DeviceView<const T, 4> value, DeviceView<T, 4> out, const Options<T>& options,
                     const Modifier& modifier = {}) {
  heed::KeyValues<T, Space> keys;
  keys.key.elements = key;
  keys.value.elements = value;
  keys.lengths = options.key_lengths;
  return by_tensor_cores(device, query, keys, out, options, key.extent(1), modifier);
}

// A call's tensors, and the same on the device.
template <class T>
struct Inputs {
  Tensor<T, 4> query, key, value;
  DeviceTensor<T, 4> device_query, device_key, device_value, device_out;

  Inputs(const TestDevice& device, Index queries, Index keys, Index heads, Index kv_heads, Index dim, Index value_dim)
      : query(test::random_tensor<T>({Index{1}, queries, heads, dim}, 1, -2, 2)),
        key(test::random_tensor<T>({Index{1}, keys, kv_heads, dim}, 2, -2, 2)),
        value(test::random_tensor<T>({Index{1}, keys, kv_heads, value_dim}, 3)),
        device_query(on_device(device, query)),
        device_key(on_device(device, key)),
        device_value(on_device(device, value)),
        device_out(device, {Index{1}, queries, heads, value_dim}) {}

  bool run(const TestDevice& device, const Options<T>& options) {
    return by_tensor_cores<T>(device, device_query, device_key, device_value, device_out, options);
  }
};

DeviceTensor<std::int64_t, 1> one_number(const TestDevice& device, std::int64_t number) {
  return DeviceTensor<std::int64_t, 1>(device, heed::View<const std::int64_t, 1>(&number, {1}));
}

// One random call. Values and keys that nobody attends are NaN, now and then others too.
template <class T>
void check_random_call(const TestDevice& device, std::uint64_t seed) {
  CAPTURE(seed);
  const test::RandomAttention<T> call(seed);
  const Index batch = call.query.extent(0);
  const Index queries = call.query.extent(1);
  const Index heads = call.query.extent(2);
  const auto query = on_device(device, call.query);
  const auto key = on_device(device, call.key);
  const auto value = on_device(device, call.value);
  DeviceTensor<T, 4> out(device, {batch, queries, heads, call.value.extent(3)});
  DeviceTensor<float, 3> log_sum_exp(device, {batch, heads, queries});
  test::OptionsOnDevice<T> options(device, call.options);
  options->log_sum_exp = log_sum_exp;
  CHECK(by_tensor_cores<T>(device, query, key, value, out, *options));
  const test::FormulaResult want = test::attention_formula<T>(call.query, call.key, call.value, call.options);
  CHECK(test::max_scaled_error(device.to_host(out), want.out) <= test::tolerance<T>(0));
  CHECK(test::max_scaled_error(device.to_host(log_sum_exp), want.log_sum_exp) <= 5e-6);
}

// Scores of the even keys grow; the far ones are not attended.
struct EvenAndNear {
  template <class A>
  HEED_ANYWHERE void operator()(heed::ScoreTile<A>& tile) const noexcept {
    for (Index row = 0; row < tile.rows; ++row) {
      for (Index column = 0; column < tile.columns; ++column) {
        if ((tile.key + column) % 2 == 0) tile(row, column) += 1 + static_cast<A>(tile.head);
      }
    }
  }
  HEED_ANYWHERE heed::KeyRange keys(Index, Index, Index query) const noexcept { return {query - 40, query + 3}; }
};

}  // namespace

TEST_CASE_TEMPLATE("device: attention by tensor cores, random calls", T, bfloat16, float16) {
  const TestDevice device = test::make_device();
  for (std::uint64_t seed = 0; seed < 40; ++seed) check_random_call<T>(device, seed);
}

TEST_CASE("device: attention by tensor cores in every order of warps") {
  test::for_each_warp_order([](const TestDevice& device) {
    for (std::uint64_t seed = 40; seed < 60; ++seed) check_random_call<bfloat16>(device, seed);
  });
}

TEST_CASE("device: attention by tensor cores, large blocks of heads of all sizes") {
  test::for_each_warp_order([](const TestDevice& device) {
    const struct { Index dim, value_dim; } sizes[] = {{64, 64}, {128, 128}, {72, 40}, {192, 128}, {256, 256}, {13, 7}};
    for (const auto& size : sizes) {
      CAPTURE(size.dim);
      Inputs<bfloat16> inputs(device, 75, 140, 4, 2, size.dim, size.value_dim);  // 150 rows of a kv head
      heed::AttentionOptions<bfloat16> options{.causal = heed::Causal::bottom_right};
      test::OptionsOnDevice<bfloat16> device_options(device, options);
      CHECK(inputs.run(device, *device_options));
      const auto want = test::attention_formula<bfloat16>(inputs.query, inputs.key, inputs.value, options);
      CHECK(test::max_scaled_error(device.to_host(inputs.device_out), want.out) <= test::tolerance<bfloat16>(0));
    }
#if !defined(__CUDACC__)
    CHECK(device.runtime().counts().executor.bank_conflicts == 0);
#endif
  });
}

TEST_CASE("device: attention by tensor cores has the same bits for a row alone and among others") {
  const TestDevice device = test::make_device();
  Inputs<bfloat16> inputs(device, 70, 150, 4, 2, 64, 64);
  const auto run = [&](DeviceView<const bfloat16, 4> query, Index position) {
    const auto offsets = one_number(device, position);
    DeviceTensor<bfloat16, 4> out(device, {Index{1}, query.extent(1), Index{4}, Index{64}});
    Options<bfloat16> options;
    options.causal = heed::Causal::top_left;
    options.window = {90, -1};
    options.query_offsets = offsets;
    CHECK(by_tensor_cores<bfloat16>(device, query, inputs.device_key, inputs.device_value, out, options));
    return device.to_host(out);
  };
  const DeviceView<const bfloat16, 4> query = inputs.device_query;
  const auto all = run(query, 80);
  for (const Index t : {0, 31, 32, 69}) {
    CHECK(test::same_bits(run(query.slice(1, t, 1), 80 + t), all.view().slice(1, t, 1)));
  }
  CHECK(test::same_bits(run(query.slice(1, 17, 50), 97), all.view().slice(1, 17, 50)));
}

TEST_CASE("device: attention by tensor cores leaves out NaN of masked keys, row by row") {
  const TestDevice device = test::make_device();
  Inputs<float16> inputs(device, 70, 70, 2, 1, 64, 64);
  for (const Index s : {3, 40, 66}) {
    for (Index d = 0; d < 64; d += 9) inputs.value(0, s, 0, d).bits = s == 40 ? 0xfc00 : 0x7e00;  // −∞, NaN
  }
  inputs.device_value = on_device(device, inputs.value);
  for (const heed::Window window : {heed::Window{}, heed::Window{.left = 10}}) {
    const heed::AttentionOptions<float16> options{.causal = heed::Causal::top_left, .window = window};
    test::OptionsOnDevice<float16> device_options(device, options);
    CHECK(inputs.run(device, *device_options));
    const auto out = device.to_host(inputs.device_out);
    const auto want = test::attention_formula<float16>(inputs.query, inputs.key, inputs.value, options);
    CHECK(test::max_scaled_error(out, want.out) <= test::tolerance<float16>(0));
    CHECK(!std::isnan(test::to_double(out(0, 2, 0, 0))));
    CHECK(std::isnan(test::to_double(out(0, 3, 1, 0))));
  }
}

TEST_CASE("device: attention by tensor cores with a modifier of one's own") {
  const TestDevice device = test::make_device();
  Inputs<bfloat16> inputs(device, 50, 120, 2, 2, 16, 16);
  CHECK(by_tensor_cores<bfloat16>(device, inputs.device_query, inputs.device_key, inputs.device_value,
                                  inputs.device_out, {}, EvenAndNear()));
  Tensor<double, 4> want({1, 50, 2, 16});
  ops::attention(heed::Reference(), test::as_double(inputs.query), test::as_double(inputs.key),
                 test::as_double(inputs.value), want, {}, EvenAndNear());
  CHECK(test::max_scaled_error(device.to_host(inputs.device_out), want) <= test::tolerance<bfloat16>(0));
}

TEST_CASE("device: attention by tensor cores over pages and what a sliding cache keeps") {
  const TestDevice device = test::make_device();
  const Index keys = 130;
  Inputs<bfloat16> inputs(device, 40, keys, 4, 2, 24, 16);
  Options<bfloat16> options;
  options.causal = heed::Causal::bottom_right;
  options.window = {20, -1};
  CHECK(inputs.run(device, options));
  const auto want = device.to_host(inputs.device_out);

  const Index slots = 24;  // of a page; tiles lie across them
  const std::int64_t numbers[] = {4, 0, 6, 2, 1, 5};
  Tensor<bfloat16, 4> key_pages({Index{7}, slots, Index{2}, Index{24}});
  Tensor<bfloat16, 4> value_pages({Index{7}, slots, Index{2}, Index{16}});
  for (Index s = 0; s < keys; ++s) {
    const Index page = static_cast<Index>(numbers[s / slots]);
    for (Index h = 0; h < 2; ++h) {
      for (Index d = 0; d < 24; ++d) key_pages(page, s % slots, h, d) = inputs.key(0, s, h, d);
      for (Index d = 0; d < 16; ++d) value_pages(page, s % slots, h, d) = inputs.value(0, s, h, d);
    }
  }
  const auto device_keys = on_device(device, key_pages);
  const auto device_values = on_device(device, value_pages);
  const DeviceTensor<std::int64_t, 2> pages(device, heed::View<const std::int64_t, 2>(numbers, {1, 6}));
  const auto lengths = one_number(device, keys);
  heed::KeyValues<bfloat16, Space> paged;
  paged.key.elements = device_keys;
  paged.value.elements = device_values;
  paged.pages = pages;
  paged.lengths = lengths;
  DeviceTensor<bfloat16, 4> out(device, {1, 40, 4, 16});
  CHECK(by_tensor_cores<bfloat16>(device, inputs.device_query, paged, out, options, keys));
  CHECK(test::same_bits(device.to_host(out), want));

  const Index first = 70;  // query 0 is at position 90
  const auto first_tokens = one_number(device, first);
  heed::KeyValues<bfloat16, Space> sliding;
  sliding.key.elements = inputs.device_key.view().slice(1, first, keys - first);
  sliding.value.elements = inputs.device_value.view().slice(1, first, keys - first);
  sliding.lengths = lengths;
  sliding.first_tokens = first_tokens;
  CHECK(by_tensor_cores<bfloat16>(device, inputs.device_query, sliding, out, options, keys));
  CHECK(test::same_bits(device.to_host(out), want));
}

TEST_CASE("device: attention_varlen of 16-bit elements is one call for each sequence") {
  const TestDevice device = test::make_device();
  Inputs<float16> inputs(device, 90, 110, 2, 1, 64, 32);
  const std::int64_t begins_q[] = {0, 25, 25, 90};
  const std::int64_t begins_k[] = {0, 70, 80, 110};
  const DeviceTensor<std::int64_t, 1> cu_seqlens_q(device, heed::View<const std::int64_t, 1>(begins_q, {4}));
  const DeviceTensor<std::int64_t, 1> cu_seqlens_k(device, heed::View<const std::int64_t, 1>(begins_k, {4}));
  DeviceTensor<float, 2> log_sum_exp(device, {2, 90});
  const heed::AttentionOptions<float16> options{.causal = heed::Causal::bottom_right};
  test::OptionsOnDevice<float16> device_options(device, options);
  ops::attention_varlen(device, inputs.device_query.view()[0], inputs.device_key.view()[0],
                        inputs.device_value.view()[0], cu_seqlens_q, cu_seqlens_k, inputs.device_out.view()[0],
                        log_sum_exp, *device_options);
  const auto out = device.to_host(inputs.device_out);
  const auto lse = device.to_host(log_sum_exp);
  for (int i = 0; i < 3; ++i) {
    const auto first = static_cast<Index>(begins_q[i]);
    const auto queries = static_cast<Index>(begins_q[i + 1]) - first;
    const auto cut = [&](const Tensor<float16, 4>& of) {
      return of.view().slice(1, static_cast<Index>(begins_k[i]), static_cast<Index>(begins_k[i + 1] - begins_k[i]));
    };
    const auto want = test::attention_formula<float16>(inputs.query.view().slice(1, first, queries), cut(inputs.key),
                                                       cut(inputs.value), options);
    CHECK(test::max_scaled_error(out.view().slice(1, first, queries), want.out) <= test::tolerance<float16>(0));
    CHECK(test::max_scaled_error(lse.view().slice(1, first, queries), want.log_sum_exp.view()[0]) <= 5e-6);
  }
}

TEST_CASE("device: attention by tensor cores of rows that are unevenly apart") {
  const TestDevice device = test::make_device();
  const auto all = test::random_tensor<bfloat16>({2, 40, 60}, 1, -2, 2);  // [B, T, q | k | v]
  const auto on = on_device(device, all);
  const auto heads = [&](auto view, Index first, Index count, Index dim) {
    return view.slice(2, first, count * dim).split_last(count, dim);
  };
  DeviceTensor<bfloat16, 4> out(device, {2, 40, 4, 8});
  // Of 8 dims, but no row begins at a multiple of 16 bytes.
  const DeviceView<const bfloat16, 3> from = on;
  CHECK(by_tensor_cores<bfloat16>(device, heads(from, 0, 4, 8), heads(from, 33, 1, 8), heads(from, 51, 1, 8), out, {}));
  const heed::View<const bfloat16, 3> host = all;
  const auto want =
      test::attention_formula<bfloat16>(heads(host, 0, 4, 8), heads(host, 33, 1, 8), heads(host, 51, 1, 8), {});
  CHECK(test::max_scaled_error(device.to_host(out), want.out) <= test::tolerance<bfloat16>(0));
  // Into rows that pairs do not fit.
  DeviceTensor<bfloat16, 3> wide(device, {2, 40, 37});
  const auto cut = heads(wide.view(), 3, 4, 8);
  CHECK(by_tensor_cores<bfloat16>(device, heads(from, 0, 4, 8), heads(from, 33, 1, 8), heads(from, 51, 1, 8), cut, {}));
  const auto host_wide = device.to_host(wide);
  CHECK(test::same_bits(heads(host_wide.view(), 3, 4, 8), device.to_host(out)));
  CHECK(test::to_double(host_wide(1, 39, 2)) == 0);
  CHECK(test::to_double(host_wide(1, 39, 35)) == 0);
}

TEST_CASE("device: attention by tensor cores refuses what is not for it") {
  const TestDevice device = test::make_device();
  Inputs<bfloat16> inputs(device, 2, 3, 1, 1, 8, 8);
  DeviceTensor<bfloat16, 4> weights(device, {1, 1, 2, 3});
  Options<bfloat16> options;
  options.weights = weights;
  CHECK(!inputs.run(device, options));
  Inputs<bfloat16> large(device, 2, 3, 1, 1, 8, 264);
  CHECK(!large.run(device, {}));
  const DeviceTensor<std::int8_t, 4> codes(device, {1, 3, 1, 8});
  heed::KeyValues<bfloat16, Space> coded;
  coded.key.elements = inputs.device_key;
  coded.value.codes = codes;
  CHECK(!by_tensor_cores<bfloat16>(device, inputs.device_query, coded, inputs.device_out, {}, 3));
}
