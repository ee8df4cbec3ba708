// What the conformance runner calls right, and that it passes over no option.
#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "conformance/attributes.hpp"
#include "conformance/comparison.hpp"

using conformance::Attributes;
using conformance::CaseError;
using conformance::compare;
using conformance::error_of;

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
}  // namespace

TEST_CASE("conformance: an error is |got - want| / (1 + |want|)") {
  CHECK(error_of(1.0, 1.0) == 0);
  CHECK(error_of(1.5, 1.0) == 0.25);
  CHECK(error_of(0.5, 0.0) == 0.5);
  CHECK(error_of(-4.0, -3.0) == 0.25);
  CHECK(error_of(-3.0, 3.0) == 1.5);
}

TEST_CASE("conformance: with a floor of 1e-4 a tolerance of 1e-3 is 1e-7 + 1e-3 |want|") {
  const std::vector<double> want = {0, 2};
  CHECK(compare(std::vector<double>{0.99e-7, 2.0019}, want, 1e-3, 1e-4).passed());
  CHECK(compare(std::vector<double>{1.01e-7, 2.0021}, want, 1e-3, 1e-4).wrong == 2);
}

TEST_CASE("conformance: infinities and NaN must be equal, whatever the tolerance") {
  CHECK(error_of(infinity, infinity) == 0);
  CHECK(error_of(-infinity, -infinity) == 0);
  CHECK(error_of(infinity, -infinity) == infinity);
  CHECK(error_of(1e308, infinity) == infinity);
  CHECK(error_of(-infinity, -1e308) == infinity);
  CHECK(error_of(not_a_number, 0.0) == infinity);
  CHECK(error_of(0.0, not_a_number) == infinity);
  CHECK(error_of(not_a_number, infinity) == infinity);
  CHECK(error_of(not_a_number, not_a_number) == 0);
  const std::vector<double> got = {not_a_number};
  const std::vector<double> want = {0.0};
  CHECK_FALSE(compare(got, want, 1e300).passed());
}

TEST_CASE("conformance: the worst element is found, the bound itself passes") {
  const std::vector<double> want = {0, 3, 1, -infinity};
  const std::vector<double> got = {0.125, 4, 1, -infinity};
  auto result = compare(got, want, 0.25);
  CHECK(result.passed());
  CHECK(result.elements == 4);
  CHECK(result.largest == 0.25);
  CHECK(result.where == 1);
  CHECK(result.got == 4);
  CHECK(result.want == 3);
  result = compare(got, want, 0.2);
  CHECK(result.wrong == 1);
  CHECK(compare(got, want, 0.1).wrong == 2);
  CHECK_FALSE(compare(got, want, 0).passed());
  CHECK(compare(want, want, 0).passed());
  CHECK(compare({}, {}, 0).passed());
}

TEST_CASE("conformance: places and shapes as text") {
  const heed::Index shape[] = {2, 3, 4};
  CHECK(conformance::place_text(0, shape) == "[0, 0, 0]");
  CHECK(conformance::place_text(23, shape) == "[1, 2, 3]");
  CHECK(conformance::place_text(17, shape) == "[1, 1, 1]");
  CHECK(conformance::shape_text(shape) == "[2, 3, 4]");
  CHECK(conformance::shape_text({}) == "[]");
}

TEST_CASE("conformance: an option that is not asked for or not known is an error") {
  const auto json =
      nlohmann::json::parse(R"({"causal":"none","window":null,"scale":0.5,"heads":-1,"rope":{"theta":1e4,"x":1}})");
  const Attributes all(json);
  CHECK_THROWS_WITH_AS(all.finish(), R"(attributes: causal = "none" is not known to this runner)", CaseError);
  CHECK(all.one_of<int>("causal", {{"top_left", 1}, {"none", 2}}) == 2);
  CHECK_THROWS_WITH_AS(all.one_of<int>("causal", {{"top_left", 1}}),
                       R"(attributes: causal = "none" is not known to this runner)", CaseError);
  CHECK_FALSE(all.has("window"));
  CHECK_FALSE(all.find<heed::Index>("window").has_value());
  CHECK(all.get<double>("scale") == 0.5);
  CHECK_THROWS_WITH_AS(all.get<heed::Index>("scale"), "attributes: scale = 0.5 is not known to this runner", CaseError);
  CHECK_THROWS_AS(all.get<bool>("scale"), CaseError);
  CHECK_THROWS_AS(all.get<std::vector<double>>("scale"), CaseError);
  CHECK_THROWS_WITH_AS(all.get<double>("absent"), "attributes: absent is missing", CaseError);
  CHECK_THROWS_WITH_AS(all.expect("window", 3), "attributes: window = null, but only 3 is known to this runner",
                       CaseError);
  CHECK_NOTHROW(all.expect("window", nullptr));
  CHECK_NOTHROW(all.expect("absent", nullptr));
  CHECK(all.get<heed::Index>("heads") == -1);
  CHECK_THROWS_WITH_AS(all.size("heads"), "attributes: heads = -1 is not known to this runner", CaseError);

  const Attributes rope = all.object("rope");
  CHECK(rope.get<double>("theta") == 10000);
  CHECK_THROWS_WITH_AS(rope.finish(), "attributes.rope: x = 1 is not known to this runner", CaseError);
  CHECK(rope.get<heed::Index>("x") == 1);
  CHECK_NOTHROW(rope.finish());
  CHECK_NOTHROW(all.finish());
}
