// heed/core/random.hpp against the published vectors of Random123 and the moments of the distributions.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "heed/core/random.hpp"

namespace {

void check_words(const heed::RandomWords& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  CHECK(got[0] == a);
  CHECK(got[1] == b);
  CHECK(got[2] == c);
  CHECK(got[3] == d);
}

}  // namespace

TEST_CASE("philox: the known-answer vectors of Random123 (philox 4x32, 10 rounds)") {
  check_words(heed::philox(0, {}), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  check_words(heed::philox(0xffffffffffffffff, {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}), 0x408f276d,
              0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  check_words(heed::philox(0x299f31d0a4093822, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}), 0xd16cfe09,
              0x94fdcceb, 0x5001e420, 0x24126ea1);
  static_assert(heed::philox(0, {})[3] == 0x9b00dbd8, "usable at compile time");
}

TEST_CASE("uniform_float and uniform_double cover [0, 1)") {
  CHECK(heed::uniform_float(0) == 0.0F);
  CHECK(heed::uniform_float(0xff) == 0.0F);  // the low 8 bits do not count
  CHECK(heed::uniform_float(0x80000000) == 0.5F);
  CHECK(heed::uniform_float(0xffffffff) == 1.0F - 0x1p-24F);
  CHECK(heed::uniform_double(0, 0) == 0.0);
  CHECK(heed::uniform_double(0, 0x800) == 0x1p-53);
  CHECK(heed::uniform_double(0x40000000, 0) == 0.25);
  CHECK(heed::uniform_double(0xffffffff, 0xffffffff) == 1.0 - 0x1p-53);
}

TEST_CASE("values are what the documented counters say") {
  const std::uint64_t seed = 0x0123456789abcdef;
  const std::uint64_t stream = 0xfedcba9876543210;
  for (const std::uint64_t i : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, (std::uint64_t{1} << 40) + 3}) {
    CAPTURE(i);
    const std::uint64_t n = i / 2;
    const auto block = heed::philox(
        seed, {{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32), 0x76543210, 0xfedcba98}});
    const double first = std::ldexp(static_cast<double>(block[0]), -32) + std::ldexp(block[1] >> 11, -53);
    const double second = std::ldexp(static_cast<double>(block[2]), -32) + std::ldexp(block[3] >> 11, -53);
    CHECK(heed::random_uniform(seed, stream, i) == (i % 2 == 0 ? first : second));
    const long double radius = std::sqrt(-2 * std::log(1 - static_cast<long double>(first)));
    const long double angle = 2 * std::acos(-1.0L) * static_cast<long double>(second);
    const long double normal = radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    CHECK(std::abs(heed::random_normal(seed, stream, i) - static_cast<double>(normal)) < 1e-14);
  }
}

TEST_CASE("moments of the uniform and normal fill") {
  const heed::Index count = 200000;
  heed::Tensor<double, 1> x({count});
  const auto moment = [&](int power, double mean) {
    double sum = 0;
    for (const double value : x.span()) sum += std::pow(value - mean, power);
    return sum / static_cast<double>(count);
  };
  // Bounds: five standard errors.
  heed::fill_uniform(x, 1, 2, -1.0, 3.0);
  CHECK(std::abs(moment(1, 0) - 1.0) < 5 * std::sqrt(16.0 / 12 / 2e5));
  CHECK(std::abs(moment(2, 1) - 16.0 / 12) < 5 * std::sqrt(256.0 * (1.0 / 80 - 1.0 / 144) / 2e5));
  for (const double value : x.span()) REQUIRE((value >= -1.0 && value < 3.0));

  heed::fill_normal(x, 1, 2, 0.5, 2.0);
  CHECK(std::abs(moment(1, 0) - 0.5) < 5 * 2.0 / std::sqrt(2e5));
  CHECK(std::abs(moment(2, 0.5) - 4.0) < 5 * 4.0 * std::sqrt(2.0 / 2e5));
  CHECK(std::abs(moment(3, 0.5)) < 5 * 8.0 * std::sqrt(15.0 / 2e5));
  CHECK(std::abs(moment(4, 0.5) - 48.0) < 5 * 16.0 * std::sqrt(96.0 / 2e5));
  int within = 0;
  for (const double value : x.span()) within += std::abs(value - 0.5) < 2.0 ? 1 : 0;
  CHECK(std::abs(within / 2e5 - 0.682689492) < 5 * std::sqrt(0.6827 * 0.3173 / 2e5));
}

TEST_CASE("neighbours, streams and seeds are uncorrelated") {
  const heed::Index count = 100000;
  heed::Tensor<double, 1> x({count});
  heed::Tensor<double, 1> y({count});
  const auto correlation = [&](heed::Index lag) {
    double sum = 0;
    for (heed::Index i = 0; i + lag < count; ++i) sum += x(i) * y(i + lag);
    return sum / static_cast<double>(count - lag);
  };
  const double bound = 5 / std::sqrt(1e5);
  heed::fill_normal(x, 3, 0, 0, 1);
  heed::fill_normal(y, 3, 0, 0, 1);
  CHECK(std::abs(correlation(0) - 1) < 5 * std::sqrt(2e-5));
  CHECK(std::abs(correlation(1)) < bound);
  CHECK(std::abs(correlation(2)) < bound);
  heed::fill_normal(y, 3, 1, 0, 1);
  CHECK(std::abs(correlation(0)) < bound);
  heed::fill_normal(y, 4, 0, 0, 1);
  CHECK(std::abs(correlation(0)) < bound);
}

TEST_CASE("a filled element depends on seed, stream and its row-major number only") {
  heed::Tensor<double, 2> whole({5, 7});
  heed::fill_normal(whole, 42, 3, 0.25, 0.02);

  SUBCASE("not on the shape") {
    heed::Tensor<double, 1> flat({35});
    heed::fill_normal(flat, 42, 3, 0.25, 0.02);
    for (heed::Index i = 0; i < 35; ++i) CHECK(flat(i) == whole.data()[i]);
  }
  SUBCASE("not on the strides") {
    std::vector<double> memory(5 * 9, -7.0);
    const heed::View<double, 2> strided(memory.data(), {5, 7}, {9, 1});
    heed::fill_normal(strided, 42, 3, 0.25, 0.02);
    const heed::View<double, 2> transposed(memory.data(), {7, 5}, {1, 9});
    for (heed::Index i = 0; i < 5; ++i) {
      for (heed::Index j = 0; j < 7; ++j) CHECK(transposed(j, i) == whole(i, j));
      CHECK(strided.data_handle()[i * 9 + 8] == -7.0);  // the gap is left alone
    }
  }
  SUBCASE("and narrower types are the rounded double") {
    heed::Tensor<float, 2> narrow({5, 7});
    heed::fill_normal(narrow, 42, 3, 0.25, 0.02);
    heed::Tensor<heed::bfloat16, 2> half({5, 7});
    heed::fill_normal(half, 42, 3, 0.25, 0.02);
    for (heed::Index i = 0; i < 35; ++i) {
      CHECK(narrow.data()[i] == static_cast<float>(whole.data()[i]));
      CHECK(half.data()[i].bits == heed::bfloat16(static_cast<float>(whole.data()[i])).bits);
    }
  }
  SUBCASE("an empty tensor is left alone") {
    heed::Tensor<double, 2> none({0, 7});
    heed::fill_uniform(none, 42, 3, 0, 1);
    CHECK(none.empty());
  }
}

TEST_CASE("random weights are the same in every version") {
  // Worked out by hand from the first known-answer vector: seed 0, stream 0, block 0.
  CHECK(heed::random_uniform(0, 0, 0) == static_cast<double>(0x6627e8d5e169c58dULL >> 11) / 9007199254740992.0);
  CHECK(heed::random_uniform(0, 0, 1) == static_cast<double>(0xbc57ac4c9b00dbd8ULL >> 11) / 9007199254740992.0);
}
