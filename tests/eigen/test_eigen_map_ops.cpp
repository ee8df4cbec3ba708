// EigenMap's operations against Reference's, over sizes around those of vectors and of the product's blocks. (float16
// differs from bfloat16 in load and store alone; it is in linear here, and in attention.)
#include "eigen/checked_eigen.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "heed/backend/eigen_map.hpp"
#include "heed/ops/activations.hpp"
#include "heed/ops/compressive_memory.hpp"
#include "heed/ops/embedding.hpp"
#include "heed/ops/gated_mix.hpp"
#include "heed/ops/layer_norm.hpp"
#include "heed/ops/linear.hpp"
#include "heed/ops/linear_attention.hpp"
#include "heed/ops/repeat_kv.hpp"
#include "heed/ops/rms_norm.hpp"
#include "heed/ops/rotary_embedding.hpp"
#include "heed/ops/softmax.hpp"
#include "heed/ops/tensor_scatter.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::accumulator_t;
using heed::bfloat16;
using heed::EigenMap;
using heed::float16;
using heed::Index;
using heed::Reference;
using heed::Tensor;
using heed::View;
using test::max_scaled_error;
using test::random_tensor;
using test::Strided;

namespace {

const EigenMap eigen;
const Reference reference;

// What two orders of summation of numbers around 1 may differ by, with the rounding of a 16-bit output.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, double>  ? 1e-13
                                    : std::is_same_v<T, float> ? 4e-6
                                                               : 4e-6 + 2 * test::unit_roundoff<T>;

template <class T, int Rank>
void fill(View<T, Rank> view, double value) {
  test::for_each_element([&](T& element) { element = test::from_double<T>(value); }, view);
}

// Runs f(backend, out) on both, into strided memory, and compares.
template <class T, int Rank, class F>
void check_equal(const Index (&extents)[Rank], F&& f) {
  Strided<T, Rank> got{Tensor<T, Rank>(extents)};
  Tensor<T, Rank> want(extents);
  fill(got.view(), 123);  // everything is written
  f(eigen, got.view());
  f(reference, want.view());
  CHECK(max_scaled_error(got.view(), want) <= tolerance<T>);
  CHECK(got.intact());
}

struct ProductSize {
  Index m, n, k;
};
constexpr ProductSize product_sizes[] = {{0, 3, 4},    {3, 0, 4},      {3, 4, 0},   {1, 1, 1},    {1, 200, 300},
                                         {2, 97, 5},   {7, 1, 100},    {5, 7, 1},   {32, 96, 96}, {33, 97, 97},
                                         {31, 95, 95}, {70, 193, 191}, {100, 5, 3}, {3, 300, 2},  {64, 192, 288}};

}  // namespace

TEST_CASE_TEMPLATE("EigenMap: linear", T, float, double, bfloat16, float16) {
  for (const ProductSize& size : product_sizes) {
    const Index m = size.m, n = size.n, k = size.k;
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    const Strided<T, 2> x(random_tensor<T>({m, k}, 1));
    const Strided<T, 2> weight(random_tensor<T>({n, k}, 2, -0.1, 0.1));
    const auto bias = random_tensor<T>({n}, 3);
    const auto packed = heed::ops::pack_weight<T>(eigen, weight.view());
    check_equal<T, 2>(
        {m, n}, [&](const auto& backend, auto out) { heed::ops::linear(backend, x.view(), weight.view(), bias, out); });
    check_equal<T, 2>(
        {m, n}, [&](const auto& backend, auto out) { heed::ops::linear(backend, x.view(), weight.view(), {}, out); });
    check_equal<T, 2>({m, n}, [&](const auto& backend, auto out) {
      if constexpr (std::is_same_v<decltype(backend), const EigenMap&>) {
        heed::ops::linear(backend, x.view(), packed, bias, out);
      } else {
        heed::ops::linear(backend, x.view(), weight.view(), bias, out);
      }
    });
  }
}

TEST_CASE("EigenMap: linear of rows that repeat, that lie unevenly, and of a single row with any stride") {
  const auto weight = random_tensor<float>({70, 40}, 2, -0.1, 0.1);
  const auto row = random_tensor<float>({40}, 1);
  const auto x = test::repeated(50, row.view());
  check_equal<float, 2>({50, 70},
                        [&](const auto& backend, auto out) { heed::ops::linear(backend, x, weight.view(), {}, out); });
  const View<const float, 2> single(row.data(), {1, 40}, {-3, 1});
  check_equal<float, 2>(
      {1, 70}, [&](const auto& backend, auto out) { heed::ops::linear(backend, single, weight.view(), {}, out); });
  const Strided<float, 4> uneven(random_tensor<float>({2, 3, 5, 40}, 3));
  check_equal<float, 4>({2, 3, 5, 70}, [&](const auto& backend, auto out) {
    heed::ops::linear(backend, uneven.view(), weight.view(), {}, out);
  });
}

TEST_CASE_TEMPLATE("EigenMap: rms_norm, layer_norm, silu, gelu, softmax and log_sum_exp", T, float, double, bfloat16) {
  for (const Index n : {1, 2, 3, 7, 8, 15, 16, 17, 100}) {
    CAPTURE(n);
    const Strided<T, 3> x(random_tensor<T>({3, 2, n}, 1, -3, 3));
    const auto weight = random_tensor<T>({n}, 2);
    const auto bias = random_tensor<T>({n}, 3);
    const auto run = [&](auto&& f) { check_equal<T, 3>({3, 2, n}, f); };
    for (const bool with_weight : {false, true}) {
      const View<const T, 1> w = with_weight ? weight.view() : View<const T, 1>();
      run([&](const auto& b, auto out) {
        heed::ops::rms_norm(b, x.view(), w, out, {.eps = 1e-5, .weight_offset = 1});
      });
      for (const bool with_bias : {false, true}) {
        const View<const T, 1> added = with_bias ? bias.view() : View<const T, 1>();
        // The variance of one element, or of two that are nearly equal, is all rounding: eps decides.
        run([&](const auto& b, auto out) { heed::ops::layer_norm(b, x.view(), w, added, out, {.eps = 0.1}); });
      }
    }
    run([&](const auto& b, auto out) { heed::ops::silu(b, x.view(), out); });
    for (const auto form : {heed::GeluForm::erf, heed::GeluForm::tanh})
      run([&](const auto& b, auto out) { heed::ops::gelu(b, x.view(), out, form); });
    for (const int axis : {0, 1, 2}) run([&](const auto& b, auto out) { heed::ops::softmax(b, x.view(), out, axis); });
    check_equal<T, 2>({3, 2}, [&](const auto& b, auto out) { heed::ops::log_sum_exp(b, x.view(), out); });
    check_equal<T, 2>({2, n}, [&](const auto& b, auto out) { heed::ops::log_sum_exp(b, x.view(), out, 0); });
  }
}

TEST_CASE("EigenMap: norms in place") {
  const auto x = random_tensor<float>({5, 33}, 1);
  const auto weight = random_tensor<float>({33}, 2);
  check_equal<float, 2>({5, 33}, [&](const auto& backend, auto out) {
    test::for_each_element([](float from, float& to) { to = from; }, x.view(), out);
    heed::ops::rms_norm(backend, out, weight.view(), out);
  });
  check_equal<float, 2>({5, 33}, [&](const auto& backend, auto out) {
    test::for_each_element([](float from, float& to) { to = from; }, x.view(), out);
    heed::ops::layer_norm(backend, out, weight.view(), weight.view(), out);
  });
}

TEST_CASE_TEMPLATE("EigenMap: softmax of −infinity is 0 exactly, in vectors and in tails", T, float, double) {
  const auto masked = -std::numeric_limits<T>::infinity();
  for (Index n = 1; n <= 40; ++n) {
    CAPTURE(n);
    Tensor<T, 2> x({2, n});
    x.fill(masked);
    x(1, n / 2) = 3;
    heed::ops::softmax(eigen, x, x);
    for (Index j = 0; j < n; ++j) {
      CHECK(x(0, j) == 0);
      CHECK(x(1, j) == (j == n / 2 ? 1 : 0));
    }
  }
}

TEST_CASE("EigenMap: what is not finite goes where Reference has it go") {
  const float special[] = {std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           1e30F,
                           -1e30F,
                           -0.0F};
  for (Index place = 0; place < 20; ++place) {
    for (const float value : special) {
      CAPTURE(place);
      CAPTURE(value);
      auto x = random_tensor<float>({2, 20}, 1);
      x(0, place) = value;
      const auto weight = random_tensor<float>({9, 20}, 2);
      const auto run = [&](auto&& f) { check_equal<float, 2>({2, 20}, f); };
      run([&](const auto& b, auto out) { heed::ops::rms_norm(b, x, weight.view()[0], out); });
      run([&](const auto& b, auto out) { heed::ops::layer_norm(b, x, weight.view()[0], {}, out); });
      run([&](const auto& b, auto out) { heed::ops::softmax(b, x, out); });
      if (std::fabs(value) != 1e30F) {  // there a sum's order decides what is left of it
        check_equal<float, 2>({2, 9},
                              [&](const auto& b, auto out) { heed::ops::linear(b, x, weight.view(), {}, out); });
      }
    }
  }
}

TEST_CASE_TEMPLATE("EigenMap: memory_update and memory_retrieve", T, float, double, bfloat16) {
  using A = accumulator_t<T>;
  struct Case {
    Index tokens, kv_heads, group, head_dim, value_head_dim;
  };
  for (const Case& c : {Case{0, 1, 1, 4, 4}, Case{1, 1, 1, 1, 1}, Case{7, 2, 3, 5, 3}, Case{40, 1, 2, 16, 33},
                        Case{130, 2, 1, 100, 97}, Case{33, 1, 7, 64, 64}}) {
    const Index tokens = c.tokens, kv_heads = c.kv_heads, group = c.group;
    const Index head_dim = c.head_dim, value_head_dim = c.value_head_dim;
    CAPTURE(tokens);
    CAPTURE(head_dim);
    const Index batch = 2;
    const Strided<T, 4> query(random_tensor<T>({batch, tokens, kv_heads * group, head_dim}, 1, -2, 2));
    const Strided<T, 4> key(random_tensor<T>({batch, tokens, kv_heads, head_dim}, 2, -2, 2));
    const Strided<T, 4> value(random_tensor<T>({batch, tokens, kv_heads, value_head_dim}, 3));
    Tensor<std::int64_t, 1> lengths({batch});
    lengths(0) = tokens;
    lengths(1) = tokens / 2;
    for (const auto rule : {heed::MemoryUpdate::linear, heed::MemoryUpdate::delta, heed::MemoryUpdate::safe_delta}) {
      const auto run = [&](const auto& backend, auto memory, auto normalizer, auto denominator, auto out) {
        heed::Workspace workspace(heed::ops::memory_update_workspace_size<T>(backend, head_dim, value_head_dim) +
                                  heed::ops::memory_retrieve_workspace_size<T>(backend, head_dim, value_head_dim));
        fill(memory, 0);
        fill(normalizer, 0);
        for (int segment = 0; segment < 2; ++segment) {
          heed::ops::memory_update(backend, key.view(), value.view(), memory, normalizer, workspace,
                                   {.rule = rule, .key_lengths = lengths});
        }
        heed::ops::memory_retrieve(backend, query.view(), memory, normalizer, out, workspace,
                                   {.denominator = denominator});
      };
      const Index memory_extents[] = {batch, kv_heads, head_dim, value_head_dim};
      const Index normalizer_extents[] = {batch, kv_heads, head_dim};
      const Index denominator_extents[] = {batch, tokens, kv_heads * group};
      const Index out_extents[] = {batch, tokens, kv_heads * group, value_head_dim};
      Strided<A, 4> memory{Tensor<A, 4>(memory_extents)};
      Strided<A, 3> normalizer{Tensor<A, 3>(normalizer_extents)}, denominator{Tensor<A, 3>(denominator_extents)};
      Strided<T, 4> out{Tensor<T, 4>(out_extents)};
      run(eigen, memory.view(), normalizer.view(), denominator.view(), out.view());
      Tensor<A, 4> want_memory(memory_extents);
      Tensor<A, 3> want_normalizer(normalizer_extents), want_denominator(denominator_extents);
      Tensor<T, 4> want_out(out_extents);
      run(reference, want_memory.view(), want_normalizer.view(), want_denominator.view(), want_out.view());
      CHECK(max_scaled_error(memory.view(), want_memory) <= 10 * tolerance<A>);
      CHECK(max_scaled_error(normalizer.view(), want_normalizer) <= tolerance<A>);
      CHECK(max_scaled_error(denominator.view(), want_denominator) <= tolerance<A>);
      CHECK(max_scaled_error(out.view(), want_out) <= 10 * tolerance<T>);
      CHECK((memory.intact() && normalizer.intact() && denominator.intact() && out.intact()));
    }
  }
}

TEST_CASE_TEMPLATE("EigenMap: linear_attention", T, float, double, bfloat16) {
  using A = accumulator_t<T>;
  struct Case {
    Index tokens, kv_heads, group, head_dim, value_head_dim, chunk;
  };
  for (const Case& c : {Case{0, 1, 1, 4, 4, 8}, Case{1, 1, 1, 1, 1, 1}, Case{9, 2, 3, 5, 3, 4},
                        Case{70, 1, 2, 16, 33, 32}, Case{40, 2, 1, 100, 97, 64}}) {
    const Index tokens = c.tokens, kv_heads = c.kv_heads, group = c.group;
    const Index head_dim = c.head_dim, value_head_dim = c.value_head_dim;
    CAPTURE(tokens);
    CAPTURE(head_dim);
    const Index batch = 2;
    const Strided<T, 4> query(random_tensor<T>({batch, tokens, kv_heads * group, head_dim}, 1));
    const double length = 1 / std::sqrt(static_cast<double>(head_dim));
    const Strided<T, 4> key(random_tensor<T>({batch, tokens, kv_heads, head_dim}, 2, -length, length));
    const Strided<T, 4> value(random_tensor<T>({batch, tokens, kv_heads, value_head_dim}, 3));
    const auto decays = random_tensor<A>({batch, tokens, kv_heads, head_dim}, 4, -0.5, 0);
    const auto decay = random_tensor<A>({batch, tokens, kv_heads, 1}, 5, -0.5, 0);
    const auto beta = random_tensor<A>({batch, tokens, kv_heads}, 6, 0, 1);
    Tensor<std::int64_t, 1> lengths({batch});
    lengths(0) = tokens;
    lengths(1) = tokens / 2;
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      CAPTURE(kind);
      heed::LinearAttentionOptions<T> options{.key_lengths = lengths, .chunk_size = c.chunk};
      if (kind % 3 == 1) options.decay = decay;
      if (kind % 3 == 2) options.decay = decays;
      if (kind >= 3) options.beta = beta;
      const Index state_extents[] = {batch, kv_heads, head_dim, value_head_dim};
      Strided<A, 4> state(random_tensor<A>(state_extents, 7));
      auto want_state = random_tensor<A>(state_extents, 7);
      check_equal<T, 4>({batch, tokens, kv_heads * group, value_head_dim}, [&](const auto& backend, auto out) {
        const bool is_eigen = std::is_same_v<decltype(backend), const EigenMap&>;
        const View<A, 4> own = is_eigen ? state.view() : want_state.view();
        heed::ops::linear_attention(backend, query.view(), key.view(), value.view(), own, out, options);
      });
      CHECK(max_scaled_error(state.view(), want_state) <= tolerance<A>);
      CHECK(state.intact());
    }
  }
}

TEST_CASE_TEMPLATE("EigenMap: gated_mix reads no part whose factor is 0", T, float, double, bfloat16) {
  using A = accumulator_t<T>;
  auto memory = random_tensor<T>({2, 3, 4, 17}, 1);
  auto local = random_tensor<T>({2, 3, 4, 17}, 2);
  auto beta = random_tensor<A>({4}, 3);
  beta(1) = std::numeric_limits<A>::infinity();
  beta(2) = -beta(1);
  const T nan = test::from_double<T>(std::numeric_limits<double>::quiet_NaN());
  local(1, 2, 1, 5) = nan;
  memory(1, 2, 2, 5) = nan;
  auto denominator = random_tensor<A>({2, 3, 4}, 4, 1, 2);
  denominator(0, 1, 3) = 0;
  for (const auto rule : {heed::EmptyMemory::bypass_gate, heed::EmptyMemory::apply_gate}) {
    check_equal<T, 4>({2, 3, 4, 17}, [&](const auto& backend, auto out) {
      heed::ops::gated_mix(backend, memory, local, beta, out, {.empty_memory = rule, .denominator = denominator});
    });
  }
}

TEST_CASE_TEMPLATE("EigenMap: operations that copy and turn", T, float, double, bfloat16) {
  using A = accumulator_t<T>;
  const auto x = random_tensor<T>({2, 5, 3, 18}, 1);
  const auto positions = test::random_ids<2>({2, 5}, 2, 1000);
  const auto frequencies = random_tensor<double>({7}, 3, 0, 1);
  check_equal<A, 3>({2, 5, 7}, [&](const auto& backend, auto cos) {
    Tensor<A, 3> sin({2, 5, 7});
    heed::ops::rotary_tables(backend, positions, frequencies, 1.5, cos, sin);
    for (const auto layout : {heed::RopeLayout::half, heed::RopeLayout::interleaved}) {
      Tensor<T, 4> got({2, 5, 3, 18}), want({2, 5, 3, 18});
      heed::ops::rotary_embedding(backend, x, View<const A, 3>(cos), sin, layout, got);
      heed::ops::rotary_embedding(reference, x, View<const A, 3>(cos), sin, layout, want);
      CHECK(max_scaled_error(got, want) <= tolerance<T>);
    }
  });
  check_equal<T, 4>({2, 5, 3, 18}, [&](const auto& backend, auto out) { heed::ops::rotate_half(backend, x, out); });
  check_equal<T, 4>({2, 5, 6, 18}, [&](const auto& backend, auto out) { heed::ops::repeat_kv(backend, x, out); });
  const auto table = random_tensor<T>({11, 9}, 4);
  const auto ids = test::random_ids<2>({3, 4}, 5, 11);
  check_equal<T, 3>({3, 4, 9}, [&](const auto& backend, auto out) { heed::ops::embedding(backend, ids, table, out); });
  check_equal<T, 4>({2, 9, 3, 18}, [&](const auto& backend, auto out) {
    fill(out, 7);
    heed::ops::tensor_scatter(backend, x, out, {.axis = 1});
  });
}

TEST_CASE("EigenMap: products allocate nothing, however large") {
  const auto x = random_tensor<double>({300, 500}, 1);
  const auto weight = random_tensor<double>({400, 500}, 2);
  const auto half_x = random_tensor<float16>({300, 500}, 1);
  const auto half_weight = random_tensor<float16>({400, 500}, 2);
  Tensor<double, 2> out({300, 400});
  Tensor<float16, 2> half_out({300, 400});
  CHECK(test::eigen_allocations_in([&] {
          heed::ops::linear(eigen, x, weight.view(), {}, out);
          heed::ops::linear(eigen, x.view().slice(0, 0, 1), weight.view(), {}, out.view().slice(0, 0, 1));
          heed::ops::linear(eigen, x, weight.view().slice(0, 0, 1), {}, out.view().slice(1, 0, 1));
          heed::ops::linear(eigen, half_x, half_weight.view(), {}, half_out);
        }) == 0);

  const Index head_dim = 200, value_head_dim = 300;
  const auto key = random_tensor<double>({1, 400, 2, head_dim}, 3);
  const auto value = random_tensor<double>({1, 400, 2, value_head_dim}, 4);
  Tensor<double, 4> memory({Index{1}, Index{2}, head_dim, value_head_dim});
  Tensor<double, 3> normalizer({Index{1}, Index{2}, head_dim});
  Tensor<double, 4> answer({Index{1}, Index{400}, Index{2}, value_head_dim});
  heed::Workspace workspace(
      heed::ops::memory_update_workspace_size<double>(eigen, head_dim, value_head_dim) +
      heed::ops::memory_retrieve_workspace_size<double>(eigen, head_dim, value_head_dim) +
      heed::ops::linear_attention_workspace_size<double>(eigen, {2, 2, head_dim, value_head_dim, 128}));
  CHECK(test::eigen_allocations_in([&] {
          for (int segment = 0; segment < 2; ++segment) {
            heed::ops::memory_update(eigen, key, value.view(), memory, normalizer, workspace,
                                     {.rule = heed::MemoryUpdate::delta});
          }
          heed::ops::memory_retrieve(eigen, key, memory, normalizer, answer, workspace);
          heed::ops::linear_attention(eigen, key, key, value, memory, answer, {.chunk_size = 128}, workspace);
        }) == 0);
}
