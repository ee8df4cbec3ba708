// HostRuntime and its executor: what is wrong with a kernel, or with a program, is found.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "cuda/warp_orders.hpp"
#include "cuda/weights.hpp"
#include "heed/layers/multi_head_self_attention.hpp"
#include "support/error_text.hpp"

namespace {

using heed::Index;
using heed::Tensor;
using test::DeviceTensor;
using test::TestDevice;

// A kernel of two warps that is one faulty line.
template <class Fault>
struct FaultyKernel {
  static constexpr const char* name = "faulty";
  static constexpr int threads = 64;
  int shared_bytes() const { return 512; }

  heed::View<float, 1> out;
  Fault fault;

  template <class Context>
  void operator()(Context& context) const {
    fault(context, out);
  }
};

// What the device says of it.
template <class Fault>
std::string text_of(Fault fault) {
  const TestDevice device = test::make_device();
  DeviceTensor<float, 1> out(device, {64});
  device.launch(FaultyKernel<Fault>{heed::in_kernel(out.view()), fault}, 1);
  return test::error_text([&] { device.sync(); });
}

bool says(const std::string& text, const char* part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the host executor finds what is wrong with a kernel") {
  CHECK(says(text_of([](auto& context, auto) {
               if (context.thread() != 3) context.sync();
             }),
             "heed: HostRuntime: running faulty in 1 blocks: block 0: threads are stuck: thread 0 at sync()"));
  CHECK(says(text_of([](auto& context, auto) {
               if (context.lane() < 16) static_cast<void>(context.shuffle_xor(1.0F, 1));
             }),
             "at a warp's operation"));
  CHECK(says(text_of([](auto& context, auto) { context.template shared<float>(200); }),
             "it takes 800 bytes of shared memory, and was launched with 512"));
  CHECK(says(text_of([](auto& context, auto) { context.template shared<float>(context.lane() + 1); }),
             "threads disagree on the size of shared array 0"));
  CHECK(says(text_of([](auto& context, auto) {
               float* shared = context.template shared<float>(32);
               context.copy_async(shared + 1, shared);
             }),
             "not aligned to 16 bytes"));
  CHECK(says(text_of([](auto& context, auto) { static_cast<void>(context.shuffle(1.0F, 32)); }),
             "a shuffle from a lane that is not there"));
}

TEST_CASE("what is written beside a tensor is found") {
  const TestDevice device = test::make_device();
  DeviceTensor<float, 1> out(device, {3});  // its last 16 bytes are not all its own
  const auto fault = [](auto& context, auto to) {
    if (context.thread() == 0) to.pointer()[-1] = 1;
  };
  device.launch(FaultyKernel<std::remove_const_t<decltype(fault)>>{heed::in_kernel(out.view()), fault}, 1);
  CHECK(says(test::error_text([&] { device.sync(); }), "something was written beside a tensor"));
}

TEST_CASE("copies land when they are waited for, and shared memory begins as NaN") {
  const TestDevice device = test::make_device();
  DeviceTensor<float, 1> out(device, {64});
  const auto early = [](auto& context, auto to) {
    float* shared = context.template shared<float>(64);
    if (context.thread() < 16) context.copy_async(shared + 4 * context.thread(), to.pointer() + 4 * context.thread());
    context.commit_copies();
    context.sync();
    to(context.thread()) = shared[context.thread()];  // without wait_copies()
  };
  device.launch(FaultyKernel<std::remove_const_t<decltype(early)>>{heed::in_kernel(out.view()), early}, 1);
  CHECK(std::isnan(device.to_host(out)(63)));
}

TEST_CASE("a barrier that is missing shows in one of the orders of warps") {
  int wrong = 0;
  test::for_each_warp_order([&](const TestDevice& device) {
    DeviceTensor<float, 1> out(device, {64});
    const auto fault = [](auto& context, auto to) {
      float* shared = context.template shared<float>(64);
      shared[context.thread()] = 1;  // no sync()
      to(context.thread()) = shared[63 - context.thread()];
    };
    device.launch(FaultyKernel<std::remove_const_t<decltype(fault)>>{heed::in_kernel(out.view()), fault}, 1);
    const auto result = device.to_host(out);
    for (const float element : result.span()) wrong += element == 1 ? 0 : 1;
  });
  CHECK(wrong > 0);
}

TEST_CASE("nothing happens before sync(), in the order it was asked for") {
  const TestDevice device = test::make_device();
  Tensor<float, 1> from({4});
  Tensor<float, 1> to({4});
  from.fill(1);
  to.fill(-7);
  DeviceTensor<float, 1> there(device, {4});
  device.copy(from, there);
  device.copy(there, to);
  CHECK(to(0) == -7);
  device.sync();
  CHECK(to(0) == 1);
}

TEST_CASE("device tensors: copies are deep, and outlive what they are used by") {
  const TestDevice device = test::make_device();
  auto first = test::on_device(device, test::random_tensor<float>({2, 3}, 1));
  const DeviceTensor<float, 2> second = first;
  const auto other = test::random_tensor<float>({2, 3}, 2);
  device.copy(other, first);
  device.sync();
  CHECK(test::same_bits(device.to_host(second), test::random_tensor<float>({2, 3}, 1)));
  first = DeviceTensor<float, 2>();
  CHECK(first.empty());
  CHECK(test::error_text([&] { device.copy(second, first); }) ==
        "heed: Device::copy: to: expected contiguous tensors of one shape, got [2, 3] and [0, 0]");
}

TEST_CASE("while a stream is captured it refuses to allocate and to wait") {
  const heed::HostRuntime runtime;
  const TestDevice device{runtime};
  runtime.begin_capture();
  CHECK(test::error_text([&] { device.sync(); }) == "heed: HostRuntime: waiting: a stream is being captured");
  CHECK(test::error_text([&] { DeviceTensor<float, 1>(device, {4}); }) ==
        "heed: HostRuntime: allocating 16 bytes: a stream is being captured");
  CHECK(runtime.end_capture().size() == 0);
}

TEST_CASE("device: a layer's forward allocates nothing, is captured as a graph, and replays on new input") {
  constexpr heed::HeadLayout heads{.num_heads = 2};
  const heed::HostRuntime runtime;
  const TestDevice device{runtime};
  const auto weights = heed::ProjectionWeights<float>::random(1, 16, {.num_heads = 2, .head_dim = 8});
  const heed::MultiHeadSelfAttention<float, heads, TestDevice> attention(weights, {}, heads, device);
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

  const heed::MultiHeadSelfAttention<double, heads, heed::Reference> reference(test::as_double(weights));
  for (const std::uint64_t seed : {std::uint64_t{3}, std::uint64_t{4}}) {
    const auto input = test::random_tensor<float>({1, 5, 16}, seed);
    device.copy(input, x);
    runtime.replay(graph);
    CHECK(test::max_scaled_error(device.to_host(out), reference.forward(heed::Reference(), test::as_double(input))) <=
          5e-6);
  }
}
