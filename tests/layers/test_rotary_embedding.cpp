// RotaryEmbedding: values from its options, positions and offsets, lengths, sharing, errors.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>

#include "heed/layers/rotary_embedding.hpp"
#include "support/allocation_counter.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

namespace {

using heed::Index;
using heed::RopeLayout;
using heed::RopeOptions;
using heed::RopeType;
using heed::RotaryEmbedding;
using heed::Tensor;
using heed::View;
using heed::Workspace;
using test::error_text;

const RopeOptions longrope{.scaling = {.type = RopeType::longrope,
                                       .factor = 8,
                                       .original_max_position_embeddings = 512,
                                       .short_factor = {1, 1.5, 2},
                                       .long_factor = {1, 4, 16}}};
const RopeOptions dynamic_ntk{.scaling = {.type = RopeType::dynamic, .factor = 2, .max_position_embeddings = 2048}};

// x turned in long double by angle(token, pair), times factor; `half` layout.
template <class T, class Angle>
Tensor<double, 4> turned(const Tensor<T, 4>& x, Index pairs, double factor, Angle&& angle) {
  Tensor<double, 4> y = test::as_double(x);
  for (Index b = 0; b < x.extent(0); ++b) {
    for (Index t = 0; t < x.extent(1); ++t) {
      for (Index h = 0; h < x.extent(2); ++h) {
        for (Index i = 0; i < pairs; ++i) {
          const double c = factor * static_cast<double>(std::cos(angle(b, t, i)));
          const double s = factor * static_cast<double>(std::sin(angle(b, t, i)));
          const double x1 = test::to_double(x(b, t, h, i));
          const double x2 = test::to_double(x(b, t, h, i + pairs));
          y(b, t, h, i) = x1 * c - x2 * s;
          y(b, t, h, i + pairs) = x2 * c + x1 * s;
        }
      }
    }
  }
  return y;
}

long double power(long double theta, Index i, Index dim) {
  return std::pow(theta, -2.0L * static_cast<long double>(i) / static_cast<long double>(dim));
}

template <class B>
Workspace workspace_for(const RotaryEmbedding<float, B>& rope, const Tensor<float, 4>& x) {
  return Workspace(rope.workspace_size(x.extent(0), x.extent(1)));
}

}  // namespace

TEST_CASE("case 22: x = (1, 0, 0, 0) at position 1, both layouts, as a layer") {
  test::for_each_backend([]<class B>(const B& backend) {
    Tensor<double, 4> x({1, 1, 1, 4});
    x(0, 0, 0, 0) = 1;
    const auto half = RotaryEmbedding<double, B>(4).forward(backend, x, 1);
    CHECK(std::abs(half(0, 0, 0, 0) - 0.5403023058681398) < 1e-15);
    CHECK(half(0, 0, 0, 1) == 0);
    CHECK(std::abs(half(0, 0, 0, 2) - 0.8414709848078965) < 1e-15);
    CHECK(half(0, 0, 0, 3) == 0);
    const auto pairs = RotaryEmbedding<double, B>(4, {.layout = RopeLayout::interleaved}).forward(backend, x, 1);
    CHECK(std::abs(pairs(0, 0, 0, 0) - 0.5403023058681398) < 1e-15);
    CHECK(std::abs(pairs(0, 0, 0, 1) - 0.8414709848078965) < 1e-15);
    CHECK(pairs(0, 0, 0, 2) == 0);
    CHECK(pairs(0, 0, 0, 3) == 0);
  });
}

TEST_CASE("cases 23 and 24: partial rotation at far positions, all scalars") {
  const RopeOptions options{.theta = 500000, .rotary_dim = 20};
  const auto check = [&]<class B>(const B& backend, auto scalar) {
    using T = decltype(scalar);
    const auto x = test::random_tensor<T>({2, 5, 3, 30}, 1);
    Tensor<std::int64_t, 2> positions({2, 5});
    const std::int64_t list[] = {0, 100, 15962, 131071, 1 << 30, 7, 101, 4095, 1048575, (1 << 30) + 1};
    for (Index i = 0; i < 10; ++i) positions.data()[i] = list[i];
    const RotaryEmbedding<T, B> rope(30, options);
    const auto want = turned(x, 10, 1, [&](Index b, Index t, Index i) {
      return static_cast<long double>(positions(b, t)) * power(500000, i, 20);
    });
    // Angles to 2^30: a few 1e-7, from the rounding of the frequency and of the product.
    const double tolerance = 4e-7 + 4 * test::unit_roundoff<heed::accumulator_t<T>> + 2 * test::unit_roundoff<T>;
    CHECK(test::max_error(rope.forward(backend, x, positions), want) < tolerance);
  };
  test::for_each_backend([&](const auto& backend) {
    check(backend, double());
    check(backend, float());
    check(backend, heed::bfloat16());
    check(backend, heed::float16());
  });
}

TEST_CASE("positions, an offset, the layer's own tables and single tokens give the same bits") {
  test::for_each_backend([]<class B>(const B& backend) {
    for (const RopeLayout layout : {RopeLayout::half, RopeLayout::interleaved}) {
      const RotaryEmbedding<float, B> rope(24, {.layout = layout, .rotary_dim = 20});
      const auto x = test::random_tensor<float>({3, 7, 2, 24}, 2);
      Tensor<std::int64_t, 2> positions({3, 7});
      for (Index i = 0; i < 21; ++i) positions.data()[i] = 1000 + i % 7;
      const Tensor<float, 4> want = rope.forward(backend, x, positions);

      CHECK(test::same_bits(rope.forward(backend, x, 1000), want));

      Tensor<float, 4> in_place = x;
      Workspace workspace = workspace_for(rope, x);
      rope.forward(backend, in_place, positions, in_place, workspace);
      CHECK(test::same_bits(in_place, want));
      in_place = x;
      rope.forward(backend, in_place, 1000, in_place, workspace);
      CHECK(test::same_bits(in_place, want));

      const auto [cos, sin] = rope.take(workspace, 3, 7);
      rope.cos_sin(backend, positions, cos, sin);
      Tensor<float, 4> by_hand({3, 7, 2, 24});
      rope.rotate(backend, x, cos, sin, by_hand);
      CHECK(test::same_bits(by_hand, want));

      // One row's tables for all rows with its positions.
      Workspace smaller(rope.workspace_size(1, 7));
      const auto row = rope.take(smaller, 1, 7);
      rope.cos_sin(backend, positions.view().slice(0, 0, 1), row.cos, row.sin);
      const auto rows = row.repeat(3);
      rope.rotate(backend, x, rows.cos, rows.sin, by_hand);
      CHECK(test::same_bits(by_hand, want));

      for (Index t = 0; t < 7; ++t) {
        const auto token = rope.forward(backend, x.view().slice(1, t, 1), 1000 + t);
        CHECK(test::same_bits(token, want.view().slice(1, t, 1)));
      }

      // Heads of a projection's output: strided, and nothing beside them touched.
      test::Strided<float, 4> strided(x);
      Workspace another = workspace_for(rope, x);
      rope.forward(backend, strided.view(), positions, strided.view(), another);
      CHECK(test::same_bits(strided.view(), want));
      CHECK(strided.intact());
    }
  });
}

TEST_CASE("yarn: the attention factor is inside cosine and sine") {
  const RopeOptions options{
      .scaling = {.type = RopeType::yarn, .factor = 16, .original_max_position_embeddings = 4096}};
  const RotaryEmbedding<double> rope(2, options);
  CHECK(rope.attention_factor() == doctest::Approx(1.2772588722239782).epsilon(1e-15));
  const auto x = test::random_tensor<double>({1, 4, 1, 2}, 3);
  // The only pair is the fastest one: kept.
  const auto want = turned(x, 1, 1.2772588722239782, [](Index, Index t, Index) -> long double { return t + 5; });
  CHECK(test::max_error(rope.forward(heed::Cpu(), x, 5), want) < 1e-14);
}

TEST_CASE("case 25: dynamic NTK goes by each call's length and keeps no state") {
  const RotaryEmbedding<double> rope(140, dynamic_ntk);  // 70 pairs: more than one block of frequencies
  CHECK(rope.needs_length());
  const auto x = test::random_tensor<double>({2, 3, 2, 140}, 4);
  const heed::Cpu cpu;
  const auto formula = [&](long double theta) {
    return turned(x, 70, 1,
                  [&](Index, Index t, Index i) { return static_cast<long double>(t + 2000) * power(theta, i, 140); });
  };
  const auto plain = formula(10000);
  const auto grown = formula(10000 * std::pow(2 * 8192.0L / 2048 - 1, 140.0L / 138));
  CHECK(test::max_error(rope.forward(cpu, x, 2000, 2003), plain) < 1e-11);
  const auto long_call = rope.forward(cpu, x, 2000, 8192);
  CHECK(test::max_error(long_call, grown) < 1e-11);
  CHECK(test::max_error(grown, plain) > 0.1);
  CHECK(test::max_error(rope.forward(cpu, x, 2000, 2048), plain) < 1e-11);  // not 8192's any more
  CHECK(test::same_bits(rope.forward(cpu, x, 2000, 8192), long_call));

  // The frequencies that can be asked for are those that were used.
  const auto frequencies = rope.inverse_frequencies(8192);
  CHECK(test::max_error(turned(x, 70, 1,
                               [&](Index, Index t, Index i) {
                                 return static_cast<long double>(t + 2000) * static_cast<long double>(frequencies(i));
                               }),
                        long_call) < 1e-12);
}

TEST_CASE("longrope: the list goes by each call's length") {
  const RotaryEmbedding<double> rope(6, longrope);
  const auto x = test::random_tensor<double>({1, 3, 2, 6}, 5);
  const auto formula = [&](const double(&factors)[3]) {
    return turned(x, 3, std::sqrt(1 + 3.0 / 9), [&](Index, Index t, Index i) {
      return static_cast<long double>(t + 509) * power(10000, i, 6) / static_cast<long double>(factors[i]);
    });
  };
  const auto short_form = formula({1, 1.5, 2});
  const auto long_form = formula({1, 4, 16});
  test::for_each_backend([&]<class B>(const B& backend) {
    const RotaryEmbedding<double, B> layer(6, longrope);
    CHECK(test::max_error(layer.forward(backend, x, 509, 512), short_form) < 1e-12);
    CHECK(test::max_error(layer.forward(backend, x, 509, 513), long_form) < 1e-12);
    CHECK(test::max_error(layer.forward(backend, x, 509, 1), short_form) < 1e-12);
  });
  CHECK(rope.inverse_frequencies(513)(2) * 16 == doctest::Approx(rope.inverse_frequencies(512)(2) * 2).epsilon(1e-15));
}

TEST_CASE("case 27: threads share a layer, whatever the lengths and positions they ask for") {
  const RotaryEmbedding<float, heed::Simd> rope(64, dynamic_ntk);
  const auto x = test::random_tensor<float>({1, 16, 2, 64}, 6);
  const heed::Simd simd;
  const Index lengths[] = {100, 4096, 8192, 100000};
  Tensor<float, 4> alone[4];
  for (int i = 0; i < 4; ++i) alone[i] = rope.forward(simd, x, lengths[i] - 16, lengths[i]);
  bool same[4] = {true, true, true, true};
  std::thread threads[4];
  for (int i = 0; i < 4; ++i) {
    threads[i] = std::thread([&, i] {
      Workspace workspace = workspace_for(rope, x);
      Tensor<float, 4> y({1, 16, 2, 64});
      for (int repeat = 0; repeat < 20; ++repeat) {
        rope.forward(simd, x, lengths[i] - 16, y, workspace, lengths[i]);
        same[i] = same[i] && test::same_bits(y, alone[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool each : same) CHECK(each);
}

TEST_CASE("a copy is independent of the original, and so are the options it was made from") {
  const auto x = test::random_tensor<float>({1, 4, 2, 6}, 7);
  auto options = longrope;
  auto original = std::make_unique<RotaryEmbedding<float>>(6, options);
  const auto want = original->forward(heed::Cpu(), x, 3, 600);
  const RotaryEmbedding<float> copy = *original;
  original.reset();
  options.scaling.long_factor = {9, 9, 9};
  CHECK(test::same_bits(copy.forward(heed::Cpu(), x, 3, 600), want));
  CHECK(copy.options() == longrope);
}

TEST_CASE("forward past the door allocates nothing, and the measured workspace is what it takes") {
  const auto x = test::random_tensor<float>({2, 9, 3, 20}, 8);
  const auto positions = test::random_ids({2, 9}, 9, 5000);
  test::for_each_backend([&]<class B>(const B& backend) {
    for (const RopeOptions& options : {RopeOptions{.rotary_dim = 6}, longrope, dynamic_ntk}) {
      RopeOptions fitting = options;
      fitting.rotary_dim = 6;
      const RotaryEmbedding<float, B> rope(20, fitting);
      Workspace workspace(rope.workspace_size(2, 9));
      Tensor<float, 4> y({2, 9, 3, 20});
      CHECK(test::allocations_in([&] {
              rope.forward(backend, x, positions, y, workspace, 5000);
              rope.forward(backend, x, 17, y, workspace, 5000);
            }) == 0);
      CHECK(workspace.size_needed() <= rope.workspace_size(2, 9));
      CHECK(workspace.size_left() == workspace.size());  // all given back
    }
  });
  const RotaryEmbedding<double> rope(64);
  CHECK(rope.workspace_size(2, 100) >= 2 * 2 * 100 * 32 * sizeof(double));
  CHECK(rope.workspace_size(2, 101) >= rope.workspace_size(2, 100));
  CHECK(rope.workspace_size(3, 100) >= rope.workspace_size(2, 100));
  Workspace measuring = Workspace::measuring();
  const auto tables = rope.take(measuring, 2, 100);
  CHECK(!tables.cos.present());
  CHECK(measuring.size_needed() == 2 * 2 * 100 * 32 * sizeof(double));
}

TEST_CASE("empty calls do nothing") {
  test::for_each_backend([]<class B>(const B& backend) {
    const RotaryEmbedding<float, B> rope(8);
    Workspace none;
    Tensor<float, 4> no_tokens({2, 0, 3, 8});
    rope.forward(backend, no_tokens, Tensor<std::int64_t, 2>({2, 0}), no_tokens, none);
    rope.forward(backend, no_tokens, 5, no_tokens, none);
    CHECK(rope.forward(backend, Tensor<float, 4>({0, 3, 2, 8}), 5).empty());
    CHECK(rope.forward(backend, Tensor<float, 4>({2, 3, 0, 8}), 5).empty());
  });
}

TEST_CASE("what a layer says of itself") {
  const RotaryEmbedding<float> rope(64, {.theta = 500000, .layout = RopeLayout::interleaved, .rotary_dim = 32});
  CHECK(rope.head_dim() == 64);
  CHECK(rope.rotary_dim() == 32);
  CHECK(rope.pairs() == 16);
  CHECK(rope.layout() == RopeLayout::interleaved);
  CHECK(rope.options().theta == 500000);
  CHECK(!rope.needs_length());
  CHECK(rope.attention_factor() == 1);
  CHECK(RotaryEmbedding<float>(64).rotary_dim() == 64);
  const std::string text = rope.describe();
  const std::string want =
      "RotaryEmbedding<float>: head_dim 64, rotary_dim 32, interleaved, no scaling; 128 bytes of weights; backend cpu";
  CHECK(text.substr(0, want.size()) == want);
  CHECK(RotaryEmbedding<double, heed::Simd>(6, longrope).describe().find("half, longrope scaling; 48 bytes") !=
        std::string::npos);
}

TEST_CASE("error texts") {
  using heed::OptionError;
  using heed::ShapeError;
  using heed::WorkspaceError;
  const heed::Cpu cpu;
  CHECK(error_text<ShapeError>([] { RotaryEmbedding<float>(8, {.rotary_dim = 3}); }) ==
        "heed: RotaryEmbedding: rotary_dim: must be even to be turned in pairs, got 3");
  CHECK(error_text<ShapeError>([] { RotaryEmbedding<float>(8, {.rotary_dim = 10}); }) ==
        "heed: RotaryEmbedding: rotary_dim: must be at most head_dim 8 (and not negative), got 10");
  CHECK(error_text<ShapeError>([] { RotaryEmbedding<float>(7); }) ==
        "heed: RotaryEmbedding: head_dim: must be even to be turned in pairs, got 7");
  CHECK(error_text<OptionError>([] { RotaryEmbedding<float>(8, {.theta = -1}); }) ==
        "heed: RotaryEmbedding: theta: must be positive, got -1");

  const RotaryEmbedding<float> rope(8);
  const Tensor<float, 4> x({2, 3, 4, 8});
  Tensor<float, 4> y({2, 3, 4, 8});
  const Tensor<std::int64_t, 2> positions({2, 3});
  Workspace workspace(rope.workspace_size(2, 3));
  CHECK(error_text<ShapeError>([&] {
          rope.forward(cpu, Tensor<float, 4>({2, 3, 4, 6}), positions, y, workspace);
        }) ==
        "heed: RotaryEmbedding::forward: x: expected [*, *, *, 8] (batch, seq, heads, head dim), got [2, 3, 4, 6]");
  CHECK(error_text<ShapeError>([&] {
          rope.forward(cpu, Tensor<float, 4>({2, 3, 4, 6}), positions);
        }) ==
        "heed: RotaryEmbedding::forward: x: expected [*, *, *, 8] (batch, seq, heads, head dim), got [2, 3, 4, 6]");
  Tensor<float, 4> small({2, 3, 3, 8});
  CHECK(error_text<ShapeError>([&] { rope.forward(cpu, x, positions, small, workspace); }) ==
        "heed: RotaryEmbedding::forward: out: expected [2, 3, 4, 8] (batch, seq, heads, head dim), got [2, 3, 3, 8]");
  CHECK(error_text<ShapeError>([&] {
          rope.forward(cpu, x, Tensor<std::int64_t, 2>({1, 3}), y, workspace);
        }) == "heed: RotaryEmbedding::forward: positions: expected [2, 3] (batch, seq), got [1, 3]");
  Tensor<float, 1> memory({250});
  CHECK(error_text<ShapeError>([&] {
          rope.forward(cpu, View<float, 4>(memory.data(), {2, 3, 4, 8}), 0,
                       View<float, 4>(memory.data() + 8, {2, 3, 4, 8}), workspace);
        }) == "heed: RotaryEmbedding::forward: out: must not overlap x");
  Workspace none;
  const std::string needed = std::to_string(rope.workspace_size(2, 3));
  CHECK(error_text<WorkspaceError>([&] { rope.forward(cpu, x, positions, y, none); }) ==
        "heed: RotaryEmbedding::forward: workspace: needs " + needed + " bytes, has 0");
  CHECK(error_text<WorkspaceError>([&] { rope.forward(cpu, x, 0, y, none); }) ==
        "heed: RotaryEmbedding::forward: workspace: needs " + needed + " bytes, has 0");

  const RotaryEmbedding<float> grows(8, dynamic_ntk);
  const std::string length_text = "length: dynamic and longrope scaling need the length of the whole sequence, got 0";
  CHECK(error_text<OptionError>([&] { grows.forward(cpu, x, positions, y, workspace); }) ==
        "heed: RotaryEmbedding::forward: " + length_text);
  CHECK(error_text<OptionError>([&] { grows.forward(cpu, x, 0, y, workspace); }) ==
        "heed: RotaryEmbedding::forward: " + length_text);
  Tensor<float, 3> cos({2, 3, 4});
  Tensor<float, 3> sin({2, 3, 4});
  CHECK(error_text<OptionError>([&] { grows.cos_sin(cpu, positions, cos, sin); }) ==
        "heed: RotaryEmbedding::cos_sin: " + length_text);
  CHECK(error_text<ShapeError>([&] {
          rope.cos_sin(cpu, positions, cos, Tensor<float, 3>({2, 3, 3}));
        }) == "heed: RotaryEmbedding::cos_sin: sin: expected [2, 3, 4] (batch, seq, pairs), got [2, 3, 3]");
}
