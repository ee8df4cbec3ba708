// InfiniState by itself: sizes, moves, clones, resets, rollbacks, files and what can be wrong with them.
#include <doctest/doctest.h>

#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "heed/io/safetensors.hpp"
#include "heed/state/infini_state.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"

using heed::Index;
using heed::InfiniState;
using heed::InfiniStateLayout;
using heed::Tensor;
using heed::TokenPositions;
using heed::View;

namespace {

constexpr InfiniStateLayout layout() {
  InfiniStateLayout result{.num_kv_heads = 2, .head_dim = 4, .value_head_dim = 3, .segment_length = 6};
  result.rope.rotary_dim = 4;
  return result;
}

// A state with something in every part: rows of 2, 0 and 5 pending tokens.
template <class T>
InfiniState<T> filled() {
  InfiniState<T> state(3, layout());
  const auto parts = state.parts();
  test::Random random(1);
  const auto fill = [&](const auto& view) {
    using E = typename std::remove_cvref_t<decltype(view)>::value_type;
    for (E& element : view.span()) element = test::from_double<E>(random.uniform(-1, 1));
  };
  fill(parts.memory);
  fill(parts.normalizer);
  fill(parts.segment_keys);
  fill(parts.segment_values);
  const std::int64_t pending[] = {2, 0, 5};
  for (Index b = 0; b < 3; ++b) {
    parts.pending(b) = pending[b];
    parts.position(b) = 6000000000 + pending[b];  // beyond 32 bits
  }
  return state;
}

template <class T>
bool same(InfiniState<T>& a, InfiniState<T>& b) {
  const auto x = a.parts();
  const auto y = b.parts();
  bool equal = test::same_bits(x.memory, y.memory) && test::same_bits(x.normalizer, y.normalizer) &&
               test::same_bits(x.pending, y.pending) && test::same_bits(x.position, y.position);
  for (Index row = 0; row < a.batch(); ++row) {
    const auto n = static_cast<Index>(x.pending(row));
    equal = equal && test::same_bits(x.segment_keys[row].slice(0, 0, n), y.segment_keys[row].slice(0, 0, n)) &&
            test::same_bits(x.segment_values[row].slice(0, 0, n), y.segment_values[row].slice(0, 0, n));
  }
  return equal;
}

// Saves `state` and loads it back under another layout, batch or file; the text of what is wrong.
class File {
 public:
  File() : path_("heed_test_state.safetensors") {}
  ~File() { std::remove(path_.c_str()); }

  void write(const heed::SafetensorsWriter& writer) const { writer.write(path_); }
  heed::SafetensorsReader open() const { return heed::SafetensorsReader::open(path_); }
  std::string refusal(const InfiniStateLayout& wanted, const char* prefix = "") const {
    const auto reader = open();
    return test::error_text<heed::FormatError>([&] { (void)InfiniState<float>::load(reader, wanted, prefix); });
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("InfiniState: empty at first; sizes and types") {
  const InfiniState<heed::bfloat16> state(3, layout());
  CHECK(state.batch() == 3);
  CHECK(state.layout().segment_length == 6);
  CHECK(state.memory().extent(0) == 3);
  CHECK(state.memory().extent(1) == 2);
  CHECK(state.memory().extent(2) == 4);
  CHECK(state.memory().extent(3) == 3);
  static_assert(std::is_same_v<decltype(state.memory()), View<const float, 4>>);
  CHECK(test::max_error(state.normalizer(), Tensor<float, 3>({3, 2, 4})) == 0);
  CHECK(state.pending()(2) == 0);
  CHECK(state.position()(2) == 0);
  // M, z in float; keys twice (turned, too) and values in bfloat16; two counters a row.
  CHECK(state.size_bytes() == 3 * (2 * 4 * (3 + 1) * 4 + 6 * 2 * (4 + 4 + 3) * 2 + 16));
  InfiniStateLayout plain = layout();
  plain.local_positions = TokenPositions::none;
  CHECK(InfiniState<double>(1, plain).size_bytes() == 2 * 4 * (3 + 1) * 8 + 6 * 2 * (4 + 3) * 8 + 16);
  CHECK(InfiniState<float>().batch() == 0);
  CHECK(InfiniState<float>().size_bytes() == 0);
}

TEST_CASE("InfiniState: moves, and copies only by clone()") {
  static_assert(!std::is_copy_constructible_v<InfiniState<float>>);
  static_assert(!std::is_copy_assignable_v<InfiniState<float>>);
  static_assert(std::is_nothrow_move_constructible_v<InfiniState<float>>);
  static_assert(std::is_nothrow_move_assignable_v<InfiniState<float>>);
  auto state = filled<float>();
  auto clone = state.clone();
  CHECK(same(state, clone));
  clone.memory()(0, 0, 0, 0) += 1;
  CHECK_FALSE(same(state, clone));
  auto reference = filled<float>();
  InfiniState<float> moved(std::move(state));
  CHECK(same(moved, reference));
  CHECK(moved.layout().head_dim == 4);
  InfiniState<float> assigned(1, layout());
  assigned = std::move(moved);
  CHECK(same(assigned, reference));
  CHECK(assigned.batch() == 3);
}

TEST_CASE("InfiniState: reset of a row leaves the others") {
  auto state = filled<float>();
  const auto before = filled<float>();
  state.reset(2);
  CHECK(state.pending()(2) == 0);
  CHECK(state.position()(2) == 0);
  CHECK(test::max_error(std::as_const(state).memory()[2], Tensor<float, 3>({2, 4, 3})) == 0);
  CHECK(test::max_error(std::as_const(state).normalizer()[2], Tensor<float, 2>({2, 4})) == 0);
  CHECK(test::same_bits(std::as_const(state).memory()[1], before.memory()[1]));
  CHECK(state.pending()(0) == 2);
  state.reset();
  CHECK(state.pending()(0) == 0);
  CHECK(test::max_error(std::as_const(state).memory(), Tensor<float, 4>({3, 2, 4, 3})) == 0);
}

TEST_CASE("InfiniState: rollback takes back pending tokens only, all rows or none") {
  auto state = filled<float>();
  state.rollback(2, 3);
  CHECK(state.pending()(2) == 2);
  CHECK(state.position()(2) == 6000000002);
  CHECK(test::error_text<heed::OptionError>([&] { state.rollback(1); }) ==
        "heed: InfiniState::rollback: tokens: row 1 has 0 tokens in its open segment, got 1");
  CHECK(state.pending()(0) == 2);  // row 0, which could, has not either
  CHECK(test::error_text<heed::OptionError>([&] { state.rollback(2, 3); }) ==
        "heed: InfiniState::rollback: tokens: row 2 has 2 tokens in its open segment, got 3");
  CHECK(test::error_text<heed::OptionError>([&] { state.rollback(0, -1); }) ==
        "heed: InfiniState::rollback: tokens: row 0 has 2 tokens in its open segment, got -1");
  CHECK(test::error_text<heed::OptionError>([&] { state.rollback(3, 0); }) ==
        "heed: InfiniState::rollback: row: must be in 0 to 2, got 3");
  CHECK(state.check_rollback(-1, 0));
  CHECK_FALSE(state.check_rollback(2, 2));
  state.rollback(0);
  CHECK(state.pending()(2) == 2);
}

TEST_CASE_TEMPLATE("InfiniState: what was saved is loaded, bit for bit", T, float, double, heed::bfloat16,
                   heed::float16) {
  const File file;
  auto state = filled<T>();
  heed::SafetensorsWriter writer;
  state.save(writer);
  file.write(writer);
  const auto reader = file.open();
  CHECK(reader.metadata("heed.state") == "1");
  CHECK(reader.metadata("segment_length") == "6");
  CHECK(reader.metadata("update") == "linear");
  CHECK(reader.metadata("rope") == "theta 10000, half, rotary_dim 4, scaling none");
  CHECK(reader.info("memory").dtype == heed::dtype_of<heed::accumulator_t<T>>());
  CHECK(reader.info("segment_keys").dtype == heed::dtype_of<T>());
  CHECK(reader.info("segment_keys").extents[1] == 5);  // as many as the fullest row has
  auto loaded = InfiniState<T>::load(reader, layout());
  CHECK(same(state, loaded));
  CHECK(loaded.position()(2) == 6000000005);
}

TEST_CASE("InfiniState: many in one file, by prefix; an empty batch") {
  const File file;
  auto state = filled<float>();
  InfiniState<float> fresh(2, layout());
  InfiniState<float> nobody(0, layout());
  heed::SafetensorsWriter writer;
  state.save(writer, "layers.0");
  fresh.save(writer, "layers.1.");
  nobody.save(writer, "layers.2");
  file.write(writer);
  const auto reader = file.open();
  auto zero = InfiniState<float>::load(reader, layout(), "layers.0.");
  auto one = InfiniState<float>::load(reader, layout(), "layers.1");
  CHECK(same(zero, state));
  CHECK(same(one, fresh));
  CHECK(InfiniState<float>::load(reader, layout(), "layers.2").batch() == 0);
  CHECK(file.refusal(layout(), "layers.3") == "heed: InfiniState: heed.state: expected 1, got nothing");
  const std::string endless(600, 'x');
  CHECK(file.refusal(layout(), endless.c_str()) == "heed: InfiniState: heed.state: the prefix is too long");
  CHECK(test::error_text<heed::FormatError>([&] { state.save(writer, endless); }) ==
        "heed: InfiniState: heed.state: the prefix is too long");
}

TEST_CASE("InfiniState: a state of another layout is refused by the field's name") {
  const File file;
  heed::SafetensorsWriter writer;
  auto state = filled<float>();
  state.save(writer);
  file.write(writer);
  const auto refusal = [&](auto&& change) {
    InfiniStateLayout other = layout();
    change(other);
    return file.refusal(other);
  };
  CHECK(refusal([](InfiniStateLayout&) {}) == "(no error)");
  CHECK(refusal([](InfiniStateLayout& l) { l.num_kv_heads = 1; }) ==
        "heed: InfiniState: num_kv_heads: expected 1, got 2");
  CHECK(refusal([](InfiniStateLayout& l) { l.head_dim = 8; }) == "heed: InfiniState: head_dim: expected 8, got 4");
  CHECK(refusal([](InfiniStateLayout& l) { l.value_head_dim = 4; }) ==
        "heed: InfiniState: value_head_dim: expected 4, got 3");
  CHECK(refusal([](InfiniStateLayout& l) { l.segment_length = 7; }) ==
        "heed: InfiniState: segment_length: expected 7, got 6");
  CHECK(refusal([](InfiniStateLayout& l) { l.update = heed::MemoryUpdate::safe_delta; }) ==
        "heed: InfiniState: update: expected safe_delta, got linear");
  CHECK(refusal([](InfiniStateLayout& l) { l.memory_positions = TokenPositions::rotary; }) ==
        "heed: InfiniState: memory_positions: expected rotary, got none");
  CHECK(refusal([](InfiniStateLayout& l) { l.local_positions = TokenPositions::none; }) ==
        "heed: InfiniState: local_positions: expected none, got rotary");
  CHECK(refusal([](InfiniStateLayout& l) { l.rope.theta = 500000.5; }) ==
        "heed: InfiniState: rope: expected theta 500000.5, half, rotary_dim 4, scaling none, got theta 10000, half, "
        "rotary_dim 4, scaling none");
  CHECK(
      refusal([](InfiniStateLayout& l) {
        l.rope.layout = heed::RopeLayout::interleaved;
        l.rope.scaling = {.type = heed::RopeType::linear, .factor = 4};
      }).find("heed: InfiniState: rope: expected theta 10000, interleaved, rotary_dim 4, scaling linear (factor 4, ") ==
      0);
}

TEST_CASE("InfiniState: every scaling's parameters are part of the layout") {
  using heed::RopeType;
  InfiniStateLayout one = layout();
  one.rope.scaling = {.type = RopeType::longrope, .factor = 4, .original_max_position_embeddings = 64};
  one.rope.scaling.short_factor = {1.0, 1.5};
  one.rope.scaling.long_factor = {2.0, 2.5};
  one.rope_length = 100;
  const auto differs = [&](auto&& change) {
    InfiniStateLayout other = one;
    change(other);
    const bool in_layer = static_cast<bool>(heed::check_infini_state("x", other, 1, one, 1));
    const File file;
    heed::SafetensorsWriter writer;
    InfiniState<float> state(1, other);
    state.save(writer);
    file.write(writer);
    CHECK((file.refusal(one) != "(no error)") == in_layer);
    return in_layer;
  };
  CHECK_FALSE(differs([](InfiniStateLayout&) {}));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.long_factor = {2.0, 2.5000001}; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.short_factor = {1.0, 1.25}; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.factor = 5; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.attention_factor = 0.5; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.original_max_position_embeddings = 65; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.max_position_embeddings = 65; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.type = RopeType::yarn; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.beta_fast = 31; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.beta_slow = 2; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.mscale = 1; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.mscale_all_dim = 1; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.truncate = false; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.low_freq_factor = 2; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.high_freq_factor = 5; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope.scaling.partial_rotary_factor = 0.5; }));
  CHECK(differs([](InfiniStateLayout& l) { l.rope_length = 101; }));
}

TEST_CASE("InfiniState: files that contradict themselves") {
  const File file;
  auto state = filled<float>();
  const auto parts = state.parts();
  // Everything as saved but for one tensor, put in its place.
  const auto refusal = [&](const std::string& name, const auto& tensor) {
    heed::SafetensorsWriter writer;
    writer.metadata("heed.state", "1").metadata("num_kv_heads", "2").metadata("head_dim", "4");
    writer.metadata("value_head_dim", "3").metadata("segment_length", "6").metadata("update", "linear");
    writer.metadata("local_positions", "rotary").metadata("memory_positions", "none");
    writer.metadata("rope", "theta 10000, half, rotary_dim 4, scaling none");
    const auto add = [&](const char* own, const auto& view) {
      if (name == own) {
        writer.add(own, tensor);
      } else {
        writer.add(own, view);
      }
    };
    add("memory", parts.memory);
    add("normalizer", parts.normalizer);
    add("segment_keys", parts.segment_keys.slice(1, 0, 5));
    add("segment_values", parts.segment_values.slice(1, 0, 5));
    add("pending", parts.pending);
    add("position", parts.position);
    file.write(writer);
    return file.refusal(layout());
  };
  CHECK(refusal("nothing", parts.memory) == "(no error)");
  CHECK(
      refusal("memory", Tensor<float, 4>({3, 2, 4, 4}).view()) ==
      "heed: InfiniState: memory: expected [3, 2, 4, 3] (batch, kv heads, head dim, value head dim), got [3, 2, 4, 4]");
  CHECK(refusal("normalizer", Tensor<float, 3>({2, 2, 4}).view()) ==
        "heed: InfiniState: normalizer: expected [3, 2, 4] (batch, kv heads, head dim), got [2, 2, 4]");
  CHECK(
      refusal("segment_keys", Tensor<float, 4>({3, 5, 2, 3}).view()) ==
      "heed: InfiniState: segment_keys: expected [3, 5, 2, 4] (batch, pending, kv heads, head dim), got [3, 5, 2, 3]");
  CHECK(refusal("segment_values", Tensor<float, 4>({3, 4, 2, 3}).view()) ==
        "heed: InfiniState: segment_values: expected [3, 5, 2, 3] (batch, pending, kv heads, value head dim), got "
        "[3, 4, 2, 3]");
  CHECK(refusal("position", Tensor<std::int64_t, 1>({2}).view()) ==
        "heed: InfiniState: position: expected [3] (batch), got [2]");
  Tensor<std::int64_t, 1> counts({3});
  CHECK(refusal("position", counts.view()) ==
        "heed: InfiniState: position: row 0 is at 0, before its open segment's 2 tokens");
  counts(1) = 6;
  CHECK(refusal("pending", counts.view()) ==
        "heed: InfiniState: pending: row 1 has 6 tokens, the file holds 5 of a segment of 6");
  counts(1) = -1;
  CHECK(refusal("pending", counts.view()) ==
        "heed: InfiniState: pending: row 1 has -1 tokens, the file holds 5 of a segment of 6");
  counts(1) = std::numeric_limits<std::int64_t>::max();
  CHECK(refusal("pending", counts.view()) ==
        "heed: InfiniState: pending: row 1 has 9223372036854775807 tokens, the file holds 5 of a segment of 6");
  CHECK(refusal("pending", Tensor<float, 1>({3}).view()).find("heed: SafetensorsReader: pending: ") == 0);
  CHECK(
      refusal("segment_keys", Tensor<std::int64_t, 4>({3, 5, 2, 4}).view()).find("SafetensorsReader: segment_keys: ") !=
      std::string::npos);
}
