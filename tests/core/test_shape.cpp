// The checks at a door: every text to the letter.
#include <doctest/doctest.h>

#include <string>

#include "heed/core/shape.hpp"
#include "heed/core/tensor.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"

namespace {

using heed::any;
using heed::Index;
using heed::Tensor;
using heed::View;

float memory[1000];

std::string text_of(const heed::Problem& problem) {
  CHECK((problem.kind() == heed::ErrorKind::none || problem.kind() == heed::ErrorKind::shape));
  CHECK(static_cast<bool>(problem) == (problem.kind() != heed::ErrorKind::none));
  return problem.text();
}

template <class T, int Rank>
std::string input_text(const View<T, Rank>& view, std::initializer_list<heed::Axis> axes) {
  return text_of(heed::check_input("Layer::forward", "key", view, axes));
}
template <class T, int Rank>
std::string output_text(const View<T, Rank>& view, std::initializer_list<heed::Axis> axes) {
  return text_of(heed::check_output("Layer::forward", "out", view, axes));
}

}  // namespace

TEST_CASE("check_input: extents") {
  const View<float, 4> key(memory, {2, 128, 2, 1});
  CHECK(input_text(key, {{"batch", 2}, {"seq", 128}, {"kv heads", 2}, {"head dim", 1}}).empty());
  CHECK(input_text(key, {{"batch", any}, {"seq", any}, {"kv heads", 2}, {"head dim", any}}).empty());
  CHECK(input_text(key, {{"batch", 2}, {"seq", 128}, {"kv heads", 2}, {"head dim", 64}}) ==
        "heed: Layer::forward: key: expected [2, 128, 2, 64] (batch, seq, kv heads, head dim), got [2, 128, 2, 1]");
  CHECK(input_text(key, {{"batch", any}, {"seq", any}, {"kv heads", 3}, {"head dim", any}}) ==
        "heed: Layer::forward: key: expected [*, *, 3, *] (batch, seq, kv heads, head dim), got [2, 128, 2, 1]");
  CHECK(input_text(View<float, 1>(memory, {4}), {{"features", 5}}) ==
        "heed: Layer::forward: key: expected [5] (features), got [4]");
  CHECK(input_text(View<float, 2>(memory, {-3, 4}), {{"rows", any}, {"features", 4}}) ==
        "heed: Layer::forward: key: expected [*, 4] (rows, features), got [-3, 4]");
  CHECK(input_text(View<float, 2>(), {{"rows", 2}, {"features", 4}}) ==
        "heed: Layer::forward: key: expected [2, 4] (rows, features), got [0, 0]");
}

TEST_CASE("check_input: strides") {
  const std::initializer_list<heed::Axis> axes = {{"rows", any}, {"features", any}};
  CHECK(input_text(View<float, 2>(memory, {3, 4}, {9, 1}), axes).empty());
  CHECK(input_text(View<float, 2>(memory, {3, 4}, {0, 1}), axes).empty());    // repeated
  CHECK(input_text(View<float, 2>(memory, {3, 4}, {2, 1}), axes).empty());    // overlapping windows, read only
  CHECK(input_text(View<float, 2>(memory, {1, 4}, {-77, 1}), axes).empty());  // any stride where the extent is 1
  CHECK(input_text(View<float, 2>(memory, {3, 1}, {5, 0}), axes).empty());    // case 20
  CHECK(input_text(View<float, 2>(memory, {0, 4}, {-1, 1}), axes).empty());
  CHECK(input_text(View<float, 2>(memory, {3, 4}, {1, 3}), axes) ==
        "heed: Layer::forward: key: the last axis must be contiguous (stride 1), got stride 3 on features");
  CHECK(input_text(View<float, 2>(memory, {3, 4}, {1, 0}), axes) ==
        "heed: Layer::forward: key: the last axis must be contiguous (stride 1), got stride 0 on features");
  CHECK(input_text(View<float, 2>(memory + 500, {3, 4}, {-4, 1}), axes) ==
        "heed: Layer::forward: key: a stride must not be negative, got stride -4 on rows");
  CHECK(input_text(View<float, 2>(memory + 500, {3, 4}, {4, -1}), axes) ==
        "heed: Layer::forward: key: a stride must not be negative, got stride -1 on features");
}

TEST_CASE("check_output: nothing is written twice") {
  const std::initializer_list<heed::Axis> axes = {{"rows", any}, {"features", any}};
  CHECK(output_text(View<float, 2>(memory, {3, 4}, {9, 1}), axes).empty());
  CHECK(output_text(View<float, 2>(memory, {1, 4}, {0, 1}), axes).empty());
  CHECK(output_text(View<float, 2>(memory, {3, 4}, {0, 1}), axes) ==
        "heed: Layer::forward: out: an output must not repeat elements (stride 0), got stride 0 on rows");
  CHECK(output_text(View<float, 2>(memory, {3, 4}), {{"rows", 2}, {"features", 4}}) ==
        "heed: Layer::forward: out: expected [2, 4] (rows, features), got [3, 4]");
}

TEST_CASE("overlap: address ranges that meet") {
  const View<float, 2> a(memory, {3, 4});  // 0 … 11
  CHECK(heed::overlap(a, a));
  CHECK(heed::overlap(a, View<float, 2>(memory + 11, {1, 1})));
  CHECK(!heed::overlap(a, View<float, 2>(memory + 12, {1, 1})));
  CHECK(!heed::overlap(View<float, 2>(memory + 12, {5, 5}), a));
  CHECK(heed::overlap(View<float, 2>(memory, {2, 4}, {100, 1}), View<const float, 1>(memory + 103, {5})));
  CHECK(!heed::overlap(View<float, 2>(memory, {2, 4}, {100, 1}), View<const float, 1>(memory + 104, {5})));
  CHECK(!heed::overlap(View<float, 2>(memory, {3, 0}), a));
  CHECK(!heed::overlap(a, View<float, 2>()));
  CHECK(heed::overlap(a, View<const char, 1>(reinterpret_cast<const char*>(memory) + 47, {1})));
  CHECK(!heed::overlap(a, View<const char, 1>(reinterpret_cast<const char*>(memory) + 48, {1})));
}

TEST_CASE("overlap: views side by side in the rows of one buffer share nothing") {
  const View<float, 2> rows(memory, {5, 12});
  CHECK(!heed::overlap(rows.slice(1, 0, 4), rows.slice(1, 4, 8)));
  CHECK(!heed::overlap(rows.slice(1, 4, 8), rows.slice(1, 0, 4)));
  CHECK(heed::overlap(rows.slice(1, 0, 5), rows.slice(1, 4, 8)));
  CHECK(heed::overlap(rows.slice(1, 4, 8), rows.slice(1, 0, 5)));
  CHECK(!heed::overlap(rows.slice(1, 0, 4).slice(0, 1, 3), rows.slice(1, 4, 8).slice(0, 0, 2)));  // other rows too
  CHECK(!heed::overlap(rows.slice(1, 3, 3), View<const float, 2>(memory + 6, {2, 6}, {24, 1})));  // every second row
  CHECK(heed::overlap(rows.slice(1, 3, 3), View<const float, 2>(memory + 6, {2, 10}, {24, 1})));
  CHECK(!heed::overlap(View<float, 2>(memory, {3, 12}, {24, 1}), View<float, 2>(memory + 12, {2, 12}, {24, 1})));
  CHECK(heed::overlap(View<float, 2>(memory, {3, 12}, {24, 1}), View<float, 2>(memory + 11, {2, 12}, {24, 1})));

  // Queries, keys and values as one projection leaves them: [batch, seq, heads, head dim] with the rows of 8 heads.
  const auto heads = [](Index first, Index count) {
    return View<float, 4>(memory + 3 * first, {Index{2}, Index{4}, count, Index{3}},
                          {Index{4 * 24}, Index{24}, Index{3}, Index{1}});
  };
  CHECK(!heed::overlap(heads(0, 4), heads(4, 2)));
  CHECK(!heed::overlap(heads(6, 2), heads(4, 2)));
  CHECK(heed::overlap(heads(0, 5), heads(4, 2)));
  CHECK(!heed::overlap(heads(0, 4), View<const char, 2>(reinterpret_cast<const char*>(memory + 12), {8, 48}, {96, 1})));
  CHECK(heed::overlap(heads(0, 4),
                      View<const char, 2>(reinterpret_cast<const char*>(memory + 12) - 1, {8, 48}, {96, 1})));
}

TEST_CASE("overlap: never says that views which share an element do not") {
  test::Random random(20);
  int apart = 0;
  for (int time = 0; time < 20000; ++time) {
    const auto view = [&] {
      const Index extents[] = {1 + random.below(3), 1 + random.below(3), 1 + random.below(4)};
      const Index strides[] = {random.below(30), random.below(13), Index{1}};
      return View<const float, 3>(memory + random.below(30), extents, strides);
    };
    const View<const float, 3> a = view();
    const View<const float, 3> b = view();
    bool taken[200] = {};
    bool shared = false;
    test::for_each_element([&](const float& element) { taken[&element - memory] = true; }, a);
    test::for_each_element([&](const float& element) { shared = shared || taken[&element - memory]; }, b);
    if (shared) CHECK(heed::overlap(a, b));
    CHECK(heed::overlap(a, b) == heed::overlap(b, a));
    if (!heed::overlap(a, b)) ++apart;
  }
  CHECK(apart > 1000);
}

TEST_CASE("check_disjoint and check_in_place") {
  const View<float, 2> out(memory, {3, 4});
  CHECK(text_of(heed::check_disjoint("Layer::forward", out, View<const float, 2>(memory + 12, {3, 4}), "x")).empty());
  CHECK(text_of(heed::check_disjoint("Layer::forward", out, View<const float, 2>(memory + 8, {3, 4}), "x")) ==
        "heed: Layer::forward: out: must not overlap x");
  CHECK(text_of(heed::check_disjoint("Layer::forward", View<float, 2>(memory, {3, 4}, {8, 1}),
                                     View<const float, 2>(memory + 4, {3, 4}, {8, 1}), "x"))
            .empty());
  CHECK(text_of(heed::check_disjoint("Layer::forward", out, View<const float, 1>(memory, {1}), "bias")) ==
        "heed: Layer::forward: out: must not overlap bias");

  const auto in_place = [](const View<float, 2>& to, const View<const float, 2>& from) {
    return text_of(heed::check_in_place("Layer::forward", to, from, "x"));
  };
  CHECK(in_place(out, out).empty());
  CHECK(in_place(out, View<const float, 2>(memory + 12, {3, 4})).empty());
  CHECK(in_place(View<float, 2>(memory, {1, 4}, {4, 1}), View<const float, 2>(memory, {1, 4}, {9, 1})).empty());
  const std::string refused = "heed: Layer::forward: out: must not overlap x";
  CHECK(in_place(out, View<const float, 2>(memory, {3, 4}, {8, 1})) == refused);
  CHECK(in_place(out, View<const float, 2>(memory + 1, {3, 4})) == refused);
  CHECK(in_place(View<float, 2>(memory, {3, 4}, {4, 1}), View<const float, 2>(memory, {3, 4}, {0, 1})) == refused);
}

TEST_CASE("first_problem: the first of several") {
  const heed::Problem none;
  const heed::Problem first(heed::ErrorKind::shape, "first");
  const heed::Problem second(heed::ErrorKind::option, "second");
  CHECK(!heed::first_problem(none));
  CHECK(!heed::first_problem(none, none, none));
  CHECK(heed::first_problem(none, first, second).text() == std::string("first"));
  CHECK(heed::first_problem(second, none, first).text() == std::string("second"));
  CHECK(heed::first_problem(none, none, second).kind() == heed::ErrorKind::option);
}

TEST_CASE("problem_at: the beginning of every text") {
  CHECK(heed::problem_at(heed::ErrorKind::option, "Layer", "scale").append("is ").append_number(0.5).text() ==
        std::string("heed: Layer: scale: is 0.5"));
}
