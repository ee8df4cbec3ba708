// InfiniAttentionCore against the formula in double, and the cases by their values.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "layers/infini_streams.hpp"

using heed::HeadLayout;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::InfiniFormula;
using test::InfiniSettings;
using test::Rule;
using test::Streams;

namespace {

template <class T>
constexpr double output_tolerance = 2e-5;  // float: sums over some 40 tokens; delta amplifies
template <>
constexpr double output_tolerance<double> = 1e-12;
template <>
constexpr double output_tolerance<heed::bfloat16> = 0.04;  // turned keys, both parts and their mix are each rounded
template <>
constexpr double output_tolerance<heed::float16> = 0.005;

// Outputs, memory, pending and position of heed and the formula after all tokens, and after a flush.
template <class T>
void check_against_formula(const test::AnyBackend& backend, const HeadLayout& heads, const InfiniSettings& settings,
                           const Streams<T>& streams) {
  const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(settings));
  auto state = core->make_state(streams.batch());
  InfiniFormula formula(settings, streams.batch(), heads.num_kv_heads, heads.head_dim, heads.value_head_dim,
                        streams.betas());
  const auto got = test::run(*core, streams, state, {streams.seq()});
  const auto want =
      formula.read(test::as_double(streams.query), test::as_double(streams.key), test::as_double(streams.value),
                   streams.valid.empty() ? View<const bool, 2>() : streams.valid,
                   streams.reset.empty() ? View<const bool, 2>() : streams.reset);
  CHECK(test::max_scaled_error(got, want) <= output_tolerance<T>);
  const auto check_memory = [&] {
    double worst = 0;
    for (Index b = 0; b < streams.batch(); ++b) {
      CHECK(state.pending()(b) == formula.pending(b));
      CHECK(state.position()(b) == formula.position(b));
      for (Index k = 0; k < heads.num_kv_heads; ++k) {
        for (Index d = 0; d < heads.head_dim; ++d) {
          const auto error = [](double a, double x) { return test::difference(a, x) / (1 + std::fabs(x)); };
          worst = std::fmax(worst, error(test::to_double(state.normalizer()(b, k, d)), formula.memory(b, k).z(d)));
          for (Index j = 0; j < heads.value_head_dim; ++j) {
            worst = std::fmax(worst, error(test::to_double(state.memory()(b, k, d, j)), formula.memory(b, k).m(d, j)));
          }
        }
      }
    }
    CHECK(worst <= output_tolerance<T>);
  };
  check_memory();
  heed::Workspace workspace(core->workspace_size(streams.batch(), 1));
  core->flush(state, workspace);
  for (Index b = 0; b < streams.batch(); ++b) formula.flush(b);
  check_memory();
}

}  // namespace

TEST_CASE_TEMPLATE("infini: heads, rules and empty memories against the formula", T, float, double, heed::bfloat16,
                   heed::float16) {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    for (const HeadLayout heads : {HeadLayout{.num_heads = 1, .head_dim = 2},
                                   HeadLayout{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5},
                                   HeadLayout{.num_heads = 3, .num_kv_heads = 1, .head_dim = 16}}) {
      for (const Rule rule : {Rule::linear, Rule::delta, Rule::safe_delta}) {
        for (const bool apply_gate : {false, true}) {
          CAPTURE(heads.head_dim);
          CAPTURE(static_cast<int>(rule));
          CAPTURE(apply_gate);
          check_against_formula(backend, heads, {.segment_length = 5, .rule = rule, .apply_gate = apply_gate},
                                Streams<T>(heads, 2, 18));
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("infini: positions, scale, softcap, window against the formula", T, float, double) {
  constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .value_head_dim = 3};
  const InfiniSettings all[] = {
      {.segment_length = 6, .rotary = false},
      {.segment_length = 6, .rotary_memory = true},
      {.segment_length = 6, .rule = Rule::delta, .rotary_memory = true, .interleaved = true, .rotary_dim = 4},
      {.segment_length = 6, .interleaved = true, .theta = 50},
      {.segment_length = 6, .rotary_dim = 2, .theta = 1e6},
      {.segment_length = 6, .theta = 100, .stretch = 4},
      {.segment_length = 6, .rotary_memory = true, .theta = 100, .stretch = 4},
      {.segment_length = 6, .scale = 0.9},
      {.segment_length = 6, .scale = -0.3},
      {.segment_length = 6, .softcap = 1.5},
      {.segment_length = 6, .window = 3},
      {.segment_length = 1},
      {.segment_length = 40},
  };
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    int number = 0;
    for (const InfiniSettings& settings : all) {
      CAPTURE(number++);
      check_against_formula(backend, heads, settings, Streams<T>(heads, 2, 33));
    }
  });
}

TEST_CASE_TEMPLATE("infini: padding and documents against the formula", T, float, double) {
  constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5};
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    for (const bool rotary_memory : {false, true}) {
      for (const int what : {1, 2, 3}) {
        Streams<T> streams(heads, 4, 45);
        if ((what & 1) != 0) streams.add_padding();
        if ((what & 2) != 0) streams.add_documents();
        for (Index t = 0; t < 45 && (what & 1) != 0; ++t) streams.valid(3, t) = false;  // a row without tokens
        CAPTURE(what);
        CAPTURE(rotary_memory);
        check_against_formula(backend, heads,
                              {.segment_length = 4, .rule = Rule::delta, .rotary_memory = rotary_memory}, streams);
      }
    }
  });
}

TEST_CASE("infini: segments and calls longer than what is worked on at a time") {
  constexpr HeadLayout heads{.num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    for (const Index segment_length : {7, 600, 2000}) {
      CAPTURE(segment_length);
      check_against_formula(backend, heads, {.segment_length = segment_length}, Streams<double>(heads, 1, 1300));
      check_against_formula(backend, heads, {.segment_length = segment_length}, Streams<double>(heads, 5, 300));
    }
  });
}

TEST_CASE("case 38: 16 tokens of a prompt and 16 decoded ones: each enters z exactly once") {
  constexpr HeadLayout heads{.num_heads = 1, .head_dim = 2};
  Streams<float> streams(heads, 1, 32);
  streams.key.fill(1);  // φ = 2, sums are exact
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    for (const Index segment_length : {1, 4, 8, 16, 32}) {
      CAPTURE(segment_length);
      const auto core = test::make_core<float>(backend, heads, streams.beta, {.segment_length = segment_length});
      auto state = core->make_state(1);
      test::run(*core, streams, state, {16});
      test::run(*core, streams, state, std::vector<Index>(16, 1), 16);
      CHECK(state.normalizer()(0, 0, 0) == 64);
      CHECK(state.normalizer()(0, 0, 1) == 64);
      CHECK(state.pending()(0) == 0);
      CHECK(state.position()(0) == 32);
    }
  });
}

TEST_CASE("case 39: 28 pads beside 100 tokens change nothing, not one bit, wherever they are") {
  constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 8};
  const Streams<float> tokens(heads, 1, 100);
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    const auto core = test::make_core<float>(backend, heads, tokens.beta, {.segment_length = 16});
    auto alone = core->make_state(1);
    const auto want = test::run(*core, tokens, alone, {100});
    // Left, right, and in between; what is in the padding is NaN.
    for (const int place : {0, 1, 2}) {
      Streams<float> padded(heads, 1, 128);
      padded.beta = tokens.beta;
      padded.valid = Tensor<bool, 2>({1, 128});
      const float nan = std::numeric_limits<float>::quiet_NaN();
      padded.query.fill(nan);
      padded.key.fill(nan);
      padded.value.fill(nan);
      std::vector<Index> where;
      for (Index t = 0; t < 100; ++t)
        where.push_back(place == 0 ? t + 28 : place == 1 ? t : t + t / 4 + (t < 60 ? 0 : 3));
      for (Index t = 0; t < 100; ++t) {
        const Index to = where[static_cast<std::size_t>(t)];
        padded.valid(0, to) = true;
        test::for_each_element([](float from, float& out) { out = from; }, tokens.query.view()[0][t],
                               padded.query.view()[0][to]);
        test::for_each_element([](float from, float& out) { out = from; }, tokens.key.view()[0][t],
                               padded.key.view()[0][to]);
        test::for_each_element([](float from, float& out) { out = from; }, tokens.value.view()[0][t],
                               padded.value.view()[0][to]);
      }
      auto state = core->make_state(1);
      const auto got = test::run(*core, padded, state, {128});
      CAPTURE(place);
      CHECK(test::same_state(state, alone));
      bool same = true;
      for (Index t = 0; t < 100; ++t) {
        same = same && test::same_bits(got.view()[0][where[static_cast<std::size_t>(t)]], want.view()[0][t]);
      }
      CHECK(same);
      for (Index t = 0; t < 128; ++t) {
        if (!padded.valid(0, t)) {
          for (const float element : got.view()[0][t].span()) same = same && element == 0;
        }
      }
      CHECK(same);
    }
  });
}

TEST_CASE("case 40: bfloat16 layers have float memories, which keep growing") {
  constexpr HeadLayout heads{.num_heads = 1, .head_dim = 1};
  static_assert(std::is_same_v<decltype(heed::InfiniState<heed::bfloat16>().memory()), View<float, 4>>);
  static_assert(std::is_same_v<decltype(heed::InfiniState<heed::float16>().normalizer()), View<float, 3>>);
  static_assert(std::is_same_v<decltype(heed::InfiniState<double>().memory()), View<double, 4>>);
  Streams<heed::bfloat16> streams(heads, 1, 512);
  streams.key.fill(heed::bfloat16(1.0F));
  streams.value.fill(heed::bfloat16(1.0F));
  const heed::Cpu cpu;
  const auto core = test::make_core<heed::bfloat16>(
      cpu, heads, streams.beta, {.segment_length = 512, .local_positions = heed::TokenPositions::none});
  auto state = core->make_state(1);
  heed::Workspace workspace(core->workspace_size(1, 512));
  Tensor<heed::bfloat16, 4> out({1, 512, 1, 1});
  for (int segment = 0; segment < 400; ++segment) {
    core->forward(streams.query, streams.key, streams.value, state, out, workspace);
  }
  CHECK(state.normalizer()(0, 0, 0) == 2.0F * 512 * 400);
  CHECK(state.memory()(0, 0, 0, 0) == 2.0F * 512 * 400);
}

TEST_CASE("case 41: a changed token changes nothing before it, and every later position of its segment and beyond") {
  constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 8};
  const Streams<float> streams(heads, 2, 24);
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    for (const Rule rule : {Rule::linear, Rule::delta, Rule::safe_delta}) {
      const auto core =
          test::make_core<float>(backend, heads, streams.beta, test::options_of({.segment_length = 8, .rule = rule}));
      auto state = core->make_state(2);
      const auto before = test::run(*core, streams, state, {24});
      for (const Index changed : {0, 3, 7, 8, 12, 23}) {
        // Key and value of row 1, kv head 0: query heads 0 and 1 see it, 2 and 3 and row 0 do not.
        Streams<float> other = streams;
        other.key(1, changed, 0, 2) += 0.5F;
        other.value(1, changed, 0, 5) += 0.5F;
        auto fresh = core->make_state(2);
        const auto after = test::run(*core, other, fresh, {24});
        CAPTURE(changed);
        bool right = test::same_bits(after.view()[0], before.view()[0]);
        for (Index t = 0; t < 24; ++t) {
          for (Index h = 0; h < 4; ++h) {
            const bool same = test::same_bits(after.view()[1][t][h], before.view()[1][t][h]);
            right = right && same == (t < changed || h >= 2);
          }
        }
        CHECK(right);
      }
    }
  });
}

TEST_CASE("case 42: the second segment of a delta memory is the linear rule's, for the first found it empty") {
  constexpr HeadLayout heads{.num_heads = 2, .head_dim = 4};
  const Streams<float> streams(heads, 1, 10);
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    const auto memory_after = [&](Rule rule, Index tokens) {
      const auto core =
          test::make_core<float>(backend, heads, streams.beta, test::options_of({.segment_length = 5, .rule = rule}));
      auto state = core->make_state(1);
      const auto out = test::run(*core, streams, state, {tokens});
      return std::pair(Tensor<float, 4>(state.memory()), Tensor<float, 4>(out));
    };
    const auto [linear, linear_out] = memory_after(Rule::linear, 9);
    for (const Rule rule : {Rule::delta, Rule::safe_delta}) {
      const auto [memory, out] = memory_after(rule, 9);
      CHECK(test::same_bits(memory, linear));
      CHECK(test::same_bits(out, linear_out));
      CHECK(test::max_error(memory_after(rule, 10).first, memory_after(Rule::linear, 10).first) > 0.01);
    }
  });
}

TEST_CASE("infini: keys far below zero keep a memory that is tiny but not empty") {
  constexpr HeadLayout heads{.num_heads = 1, .head_dim = 2};
  Streams<float> streams(heads, 1, 8);
  for (float& element : streams.key.span()) element -= 20;
  for (float& element : streams.query.span()) element -= 18;
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    check_against_formula(backend, heads, {.segment_length = 4, .rotary = false}, streams);
  });
}
