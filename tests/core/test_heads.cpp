// HeadLayout: equal layouts are one type; sizes given at construction are checked against those in the type.
#include <doctest/doctest.h>

#include <string>
#include <type_traits>

#include "heed/core/heads.hpp"

namespace {

using heed::dynamic;
using heed::ErrorKind;
using heed::HeadLayout;
using heed::Index;

template <HeadLayout Layout>
struct Layer {};

template <HeadLayout A, HeadLayout B>
constexpr bool one_type = std::is_same_v<Layer<A>, Layer<B>>;

std::string layout_text(const HeadLayout& layout, ErrorKind kind) {
  const heed::Problem problem = heed::check_layout("Layer", layout);
  CHECK(problem.kind() == kind);
  return problem.text();
}

}  // namespace

TEST_CASE("HeadLayout: what is left out is filled in, so that equal layouts are one type") {
  static_assert(one_type<HeadLayout{.num_heads = 8, .head_dim = 64},
                         HeadLayout{.num_heads = 8, .num_kv_heads = 8, .head_dim = 64, .value_head_dim = 64}>);
  static_assert(one_type<HeadLayout{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64},
                         HeadLayout{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .value_head_dim = 64}>);
  static_assert(
      one_type<HeadLayout{},
               HeadLayout{
                   .num_heads = dynamic, .num_kv_heads = dynamic, .head_dim = dynamic, .value_head_dim = dynamic}>);
  static_assert(!one_type<HeadLayout{.num_heads = 8, .num_kv_heads = 2}, HeadLayout{.num_heads = 8}>);
  static_assert(!one_type<HeadLayout{.num_heads = 8, .head_dim = 64},
                          HeadLayout{.num_heads = 8, .head_dim = 64, .value_head_dim = 32}>);
  constexpr HeadLayout gqa{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
  static_assert(gqa.group_size() == 4);
  static_assert(gqa.value_head_dim == 64);
  static_assert(gqa == HeadLayout{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .value_head_dim = 64});
}

TEST_CASE("check_layout: error texts") {
  CHECK(!heed::check_layout("Layer", {.num_heads = 6, .num_kv_heads = 3, .head_dim = 1, .value_head_dim = 7}));
  CHECK(layout_text({.num_heads = 8, .num_kv_heads = 3, .head_dim = 4}, ErrorKind::shape) ==
        "heed: Layer: num_heads: 8 is not a multiple of num_kv_heads 3");
  CHECK(layout_text({.num_heads = 2, .num_kv_heads = 4, .head_dim = 4}, ErrorKind::shape) ==
        "heed: Layer: num_heads: 2 is not a multiple of num_kv_heads 4");
  CHECK(layout_text({.num_heads = 8}, ErrorKind::option) ==
        "heed: Layer: head_dim: is dynamic in the layer's type and must be given at construction");
  CHECK(layout_text({.head_dim = 8}, ErrorKind::option) ==
        "heed: Layer: num_heads: is dynamic in the layer's type and must be given at construction");
  CHECK(layout_text({.num_heads = 0, .head_dim = 8}, ErrorKind::option) ==
        "heed: Layer: num_heads: must be at least 1, got 0");
  CHECK(layout_text({.num_heads = 2, .num_kv_heads = -3, .head_dim = 8}, ErrorKind::option) ==
        "heed: Layer: num_kv_heads: must be at least 1, got -3");
  CHECK(layout_text({.num_heads = 2, .head_dim = 8, .value_head_dim = 0}, ErrorKind::option) ==
        "heed: Layer: value_head_dim: must be at least 1, got 0");
}

TEST_CASE("resolve_layout: sizes from the type and from the constructor") {
  HeadLayout resolved;
  constexpr HeadLayout fixed{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
  CHECK(!heed::resolve_layout("Layer", fixed, {}, resolved));
  CHECK(resolved == fixed);
  CHECK(!heed::resolve_layout("Layer", fixed, fixed, resolved));
  CHECK(resolved == fixed);
  CHECK(!heed::resolve_layout("Layer", {}, fixed, resolved));
  CHECK(resolved == fixed);
  CHECK(!heed::resolve_layout("Layer", {.num_heads = 8, .num_kv_heads = dynamic, .head_dim = 64}, {.num_kv_heads = 4},
                              resolved));
  CHECK(resolved == HeadLayout{.num_heads = 8, .num_kv_heads = 4, .head_dim = 64});

  const heed::Problem differs = heed::resolve_layout("Layer", fixed, {.head_dim = 32}, resolved);
  CHECK(differs.kind() == ErrorKind::shape);
  CHECK(differs.text() == std::string("heed: Layer: head_dim: the layer's type says 64, the constructor was given 32"));
  const heed::Problem missing = heed::resolve_layout("Layer", {.num_heads = 8}, {}, resolved);
  CHECK(missing.text() ==
        std::string("heed: Layer: head_dim: is dynamic in the layer's type and must be given at construction"));
  const heed::Problem uneven = heed::resolve_layout("Layer", {.num_heads = 8, .num_kv_heads = dynamic, .head_dim = 4},
                                                    {.num_kv_heads = 3}, resolved);
  CHECK(uneven.text() == std::string("heed: Layer: num_heads: 8 is not a multiple of num_kv_heads 3"));
}

TEST_CASE("case 21: hidden 10, heads 3 is an error that names both, not a silent truncation") {
  Index head_dim = 0;
  CHECK(!heed::head_dim_of("Layer", 12, 3, head_dim));
  CHECK(head_dim == 4);
  const heed::Problem problem = heed::head_dim_of("Layer", 10, 3, head_dim);
  CHECK(problem.kind() == ErrorKind::shape);
  CHECK(problem.text() == std::string("heed: Layer: hidden_size: 10 is not a multiple of num_heads 3"));
  CHECK(head_dim == 4);  // left alone
  CHECK(heed::head_dim_of("Layer", 10, 0, head_dim).text() ==
        std::string("heed: Layer: hidden_size: 10 is not a multiple of num_heads 0"));
}
