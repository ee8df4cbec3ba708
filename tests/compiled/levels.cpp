// heed::Compiled in a program without any -march: every kernel of every instruction set that the processor has, against
// Reference; what is chosen, and what is refused. Also run on emulated processors, with the choice that HEED_EXPECTED_SET
// names.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "heed/backend/compiled.hpp"
#include "heed/heed.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"

namespace {

using heed::accumulator_t;
using heed::Compiled;
using heed::Index;
using heed::InstructionSet;
using heed::Tensor;
namespace ops = heed::ops;

struct Named {
  InstructionSet set;
  const char* name;
};
constexpr Named sets[] = {{InstructionSet::baseline, "baseline"},
                          {InstructionSet::x86_64_v3, "x86_64_v3"},
                          {InstructionSet::x86_64_v4, "x86_64_v4"}};

// Calls check(set) for each instruction set that is here.
template <class F>
void for_each_set(F&& check) {
  for (const Named& each : sets) {
    if (!heed::is_supported(each.set)) continue;
    INFO("instruction set: ", each.name);
    check(each.set);
  }
}

// Every second key; and, on request, of a query's own document alone.
struct EvenKeys {
  template <class A>
  void operator()(heed::ScoreTile<A>& tile) const noexcept {
    for (Index row = 0; row < tile.rows; ++row) {
      for (Index column = (tile.key + 1) % 2; column < tile.columns; column += 2) {
        tile(row, column) = -std::numeric_limits<A>::infinity();
      }
    }
  }
};
struct Documents : EvenKeys {
  heed::KeyRange keys(Index, Index, Index query) const noexcept { return {query / 20 * 20, query / 20 * 20 + 20}; }
};

// The outputs of all kernels on random inputs, one after the other. Sizes are odd: whole panels of every instruction set,
// and tails.
template <class T, class B>
std::vector<double> outputs(const B& backend) {
  using A = accumulator_t<T>;
  std::vector<double> all;
  const auto keep = [&](const auto& tensor) {
    test::for_each_element([&](auto value) { all.push_back(test::to_double(value)); }, test::const_view(tensor));
  };

  const auto x = test::random_tensor<T>({5, 37}, 1);
  const auto weight = test::random_tensor<T>({71, 37}, 2);
  Tensor<T, 2> y({5, 71});
  ops::linear(backend, x, weight, test::random_tensor<T>({71}, 3), y);
  keep(y);
  ops::linear(backend, x, ops::pack_weight<T>(backend, weight), {}, y);
  keep(y);

  Tensor<T, 2> row({5, 37});
  const auto scale = test::random_tensor<T>({37}, 4);
  ops::embedding(backend, test::random_ids({5}, 5, 71), weight, row);
  keep(row);
  ops::rms_norm(backend, x, scale, row);
  keep(row);
  ops::layer_norm(backend, x, scale, scale, row);
  keep(row);
  ops::silu(backend, x, row);
  keep(row);
  ops::gelu(backend, x, row);
  keep(row);
  for (const int axis : {0, 1}) {
    ops::softmax(backend, x, row, axis);
    keep(row);
    Tensor<T, 1> sums({axis == 0 ? 37 : 5});
    ops::log_sum_exp(backend, x, sums, axis);
    keep(sums);
  }

  const auto query = test::random_tensor<T>({2, 70, 4, 18}, 6);
  const auto key = test::random_tensor<T>({2, 70, 2, 18}, 7);
  const auto value = test::random_tensor<T>({2, 70, 2, 21}, 8);
  Tensor<A, 3> cos({2, 70, 9});
  Tensor<A, 3> sin({2, 70, 9});
  Tensor<T, 4> turned({2, 70, 4, 18});
  const double inv_freq[] = {1, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01};
  ops::rotary_tables(backend, test::random_ids({2, 70}, 9, 1000), heed::View<const double, 1>(inv_freq, {9}), 1, cos,
                     sin);
  keep(cos);
  keep(sin);
  ops::rotary_embedding(backend, query, cos, sin, heed::RopeLayout::half, turned);
  keep(turned);
  Tensor<T, 4> repeated({2, 70, 4, 21});
  ops::repeat_kv(backend, value, repeated);
  keep(repeated);

  keep(ops::attention(backend, query, key, value, {.causal = heed::Causal::top_left}));
  keep(ops::attention(backend, query, key, value, {}, EvenKeys()));
  const auto local = ops::attention(backend, query, key, value, {}, Documents());
  keep(local);

  Tensor<A, 4> memory({2, 2, 18, 21});
  Tensor<A, 3> normalizer({2, 2, 18});
  for (const auto rule : {heed::MemoryUpdate::linear, heed::MemoryUpdate::safe_delta}) {
    heed::Workspace workspace(ops::memory_update_workspace_size<T>(backend, 18, 21));
    ops::memory_update(backend, key, value, memory, normalizer, workspace, {.rule = rule});
    keep(memory);
  }
  Tensor<T, 4> answer({2, 70, 4, 21});
  heed::Workspace workspace(ops::memory_retrieve_workspace_size<T>(backend, 18, 21));
  ops::memory_retrieve(backend, query, memory, normalizer, answer, workspace);
  keep(answer);
  ops::gated_mix(backend, answer, local, test::random_tensor<A>({4}, 10), repeated);
  keep(repeated);

  Tensor<A, 4> state({2, 2, 18, 21});
  ops::linear_attention(backend, query, key, value, state, answer);
  keep(answer);
  keep(state);
  return all;
}

// |got − want| / (1 + |want|) at most.
double largest_error(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = test::difference(got[i], want[i]) / (1 + std::fabs(want[i]));
    if (error > largest) largest = error;
  }
  return largest;
}

}  // namespace

TEST_CASE_TEMPLATE("compiled: every kernel of every instruction set that is here", T, float, double, heed::bfloat16,
                   heed::float16) {
  // 16-bit results differ by a rounding where those in float do; the others by the order of their sums.
  const double tolerance = test::unit_roundoff<T> * (sizeof(T) == 2 ? 4 : 200);
  const auto want = outputs<T>(heed::Reference());
  REQUIRE(want.size() > 10'000);
  test::ReversePool pool;
  for_each_set([&](InstructionSet set) {
    const auto got = outputs<T>(Compiled({}, set));
    CHECK(largest_error(got, want) < tolerance);
    CHECK(outputs<T>(Compiled(pool, set)) == got);  // bits do not depend on threads
    CHECK(pool.parts_elsewhere() > 0);
  });
}

TEST_CASE("compiled: the widest instruction set that is here is chosen, one that is not is refused") {
  InstructionSet widest = InstructionSet::baseline;
  std::string name;
  for (const Named& each : sets) {
    if (heed::is_supported(each.set)) {
      widest = each.set;
      name = each.name;
      continue;
    }
    CHECK(test::error_text([&] { Compiled({}, each.set); }) ==
          "heed: Compiled: this processor, or this build of the library, does not have the instruction set");
  }
  CHECK(heed::is_supported(InstructionSet::baseline));
  CHECK(Compiled().instruction_set() == widest);
  const char* const expected = std::getenv("HEED_EXPECTED_SET");
  if (expected != nullptr) CHECK(name == expected);

  const heed::Linear<float, Compiled> linear(heed::LinearWeights<float>::random(1, 3, 2));
  const std::string text = linear.describe();
  INFO(text);
  CHECK(text.find("; backend compiled, " + name) != std::string::npos);
}

TEST_CASE("compiled: a weight packed for one instruction set is refused on another") {
  const auto weights = heed::LinearWeights<float>::random(1, 100, 7);
  const auto x = test::random_tensor<float>({2, 7}, 2);
  const Compiled narrow({}, InstructionSet::baseline);
  const heed::Linear<float, Compiled> linear(weights, narrow);
  const auto want = heed::Linear<float, heed::Reference>(weights).forward(heed::Reference(), x);
  CHECK(test::max_error(linear.forward(narrow, x), want) < 1e-6);
  for_each_set([&](InstructionSet set) {
    if (set == InstructionSet::baseline) return;
    const Index panel = heed::weight_panel_kernel<float>(Compiled({}, set), 100);
    CHECK(test::error_text([&] { linear.forward(Compiled({}, set), x); }) ==
          "heed: linear: weight: packed in panels of 8 output features, but this backend reads panels of " +
              std::to_string(panel));
  });
}

// The layers stay templates; what they take from the backend is all of the library's instruction set.
TEST_CASE("compiled: Infini-attention reads in pieces as at once, and as Reference does") {
  constexpr heed::HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
  const heed::InfiniAttentionOptions options{.segment_length = 24, .update = heed::MemoryUpdate::delta};
  const auto weights = heed::InfiniAttentionWeights<float>::random(1, 64, heads);
  const auto x = test::random_tensor<float>({2, 100, 64}, 2);
  const heed::InfiniAttention<float, heads, heed::Reference> reference(weights, options);
  auto state = reference.make_state(2);
  const auto want = reference.forward(heed::Reference(), x, state);
  test::ReversePool pool;
  for_each_set([&](InstructionSet set) {
    const Compiled backend(pool, set);
    const heed::InfiniAttention<float, heads, Compiled> layer(weights, options, heads, backend);
    auto whole = layer.make_state(2);
    const auto got = layer.forward(backend, x, whole);
    CHECK(test::max_scaled_error(got, want) < 1e-5);
    auto pieces = layer.make_state(2);
    Tensor<float, 3> piecewise({2, 100, 64});
    for (Index first = 0; first < 100; first += 33) {
      const Index count = 100 - first < 33 ? 100 - first : 33;
      heed::Workspace workspace(layer.workspace_size(backend, 2, count));
      layer.forward(backend, x.view().slice(1, first, count), pieces, piecewise.view().slice(1, first, count),
                    workspace);
    }
    CHECK(test::same_bits(piecewise, got));
  });
}
