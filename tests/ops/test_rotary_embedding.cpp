// rotary_tables, rotary_embedding and rotate_half against long double formulas and the properties of rotations.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <complex>
#include <initializer_list>

#include "heed/ops/rotary_embedding.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

namespace {

using heed::accumulator_t;
using heed::Index;
using heed::RopeLayout;
using heed::Tensor;
using heed::View;
using test::error_text;

constexpr RopeLayout layouts[] = {RopeLayout::half, RopeLayout::interleaved};

// theta^(−2i / dim).
Tensor<double, 1> plain_frequencies(Index dim, long double theta = 10000) {
  Tensor<double, 1> frequencies({dim / 2});
  for (Index i = 0; i < dim / 2; ++i) {
    frequencies(i) = static_cast<double>(
        std::exp(-2 * static_cast<long double>(i) / static_cast<long double>(dim) * std::log(theta)));
  }
  return frequencies;
}

// Cosines and sines by heed, for turning with.
template <class A>
struct Tables {
  Tensor<A, 3> cos;
  Tensor<A, 3> sin;

  Tables(View<const std::int64_t, 2> positions, View<const double, 1> frequencies, double factor = 1)
      : cos({positions.extent(0), positions.extent(1), frequencies.extent(0)}), sin(cos) {
    heed::ops::rotary_tables(heed::Reference(), positions, frequencies, factor, cos, sin);
  }
};

Tensor<std::int64_t, 2> positions_of(std::initializer_list<std::int64_t> list) {
  Tensor<std::int64_t, 2> positions({Index{1}, static_cast<Index>(list.size())});
  Index t = 0;
  for (const std::int64_t position : list) positions(0, t++) = position;
  return positions;
}

// x turned as complex numbers: (x1 + i x2) · (cos + i sin).
template <class T>
Tensor<double, 4> rotation_formula(View<const T, 4> x, View<const accumulator_t<T>, 3> cos,
                                   View<const accumulator_t<T>, 3> sin, RopeLayout layout) {
  Tensor<double, 4> y = test::as_double(x);
  const Index pairs = cos.extent(2);
  for (Index b = 0; b < x.extent(0); ++b) {
    for (Index t = 0; t < x.extent(1); ++t) {
      for (Index h = 0; h < x.extent(2); ++h) {
        for (Index i = 0; i < pairs; ++i) {
          const Index first = layout == RopeLayout::half ? i : 2 * i;
          const Index second = layout == RopeLayout::half ? i + pairs : 2 * i + 1;
          const std::complex<double> turned =
              std::complex<double>(y(b, t, h, first), y(b, t, h, second)) *
              std::complex<double>(test::to_double(cos(b, t, i)), test::to_double(sin(b, t, i)));
          y(b, t, h, first) = turned.real();
          y(b, t, h, second) = turned.imag();
        }
      }
    }
  }
  return y;
}

template <class T, class B>
Tensor<T, 4> rotated(const B& backend, const Tensor<T, 4>& x, const Tables<accumulator_t<T>>& tables,
                     RopeLayout layout) {
  Tensor<T, 4> y({x.extent(0), x.extent(1), x.extent(2), x.extent(3)});
  y.fill(test::from_double<T>(99));
  heed::ops::rotary_embedding(backend, x, tables.cos, tables.sin, layout, y);
  return y;
}

template <class T>
void check_against_formula() {
  // Two products in [−1, 1] and their sum; then the rounding to T.
  const double tolerance = 4 * test::unit_roundoff<accumulator_t<T>> + 2 * test::unit_roundoff<T>;
  const struct {
    Index batch, tokens, heads, head_dim, rotary_dim;
  } shapes[] = {{1, 1, 1, 2, 2},    {2, 3, 1, 4, 4},    {1, 5, 3, 6, 4},   {2, 2, 2, 7, 6},
                {3, 1, 2, 34, 34},  {1, 2, 5, 66, 64},  {2, 3, 4, 80, 32}, {1, 2, 1, 128, 128},
                {2, 17, 1, 50, 46}, {1, 40, 8, 64, 64}, {1, 1, 2, 5, 0}};
  for (const auto& shape : shapes) {
    const Index batch = shape.batch;
    const Index tokens = shape.tokens;
    const Index heads = shape.heads;
    const Index head_dim = shape.head_dim;
    const Index rotary_dim = shape.rotary_dim;
    CAPTURE(head_dim);
    CAPTURE(rotary_dim);
    const auto x = test::random_tensor<T>({batch, tokens, heads, head_dim}, 1);
    const auto positions = test::random_ids({batch, tokens}, 2, 200000);
    const Tables<accumulator_t<T>> tables(positions, plain_frequencies(rotary_dim));
    for (const RopeLayout layout : layouts) {
      const Tensor<double, 4> want = rotation_formula<T>(x, tables.cos, tables.sin, layout);
      test::for_each_backend([&](const auto& backend) {
        const Tensor<T, 4> y = rotated(backend, x, tables, layout);
        CHECK(test::max_error(y, want) <= tolerance);
        for (Index d = rotary_dim; d < head_dim; ++d) {  // untouched, to the bit
          CHECK(test::same_bits_of(y(batch - 1, tokens - 1, heads - 1, d), x(batch - 1, tokens - 1, heads - 1, d)));
        }
      });
    }
  }
}

}  // namespace

TEST_CASE("case 22: x = (1, 0, 0, 0) at position 1 in both layouts") {
  const auto positions = positions_of({1});
  const auto check = [&](const auto& backend, auto scalar) {
    using T = decltype(scalar);
    Tensor<T, 4> x({1, 1, 1, 4});
    x(0, 0, 0, 0) = T(1);
    const Tables<accumulator_t<T>> tables(positions, plain_frequencies(4));
    const double tolerance = 1e-9 + test::unit_roundoff<T>;
    const double c = 0.5403023058681398;
    const double s = 0.8414709848078965;
    const auto half = test::as_double(rotated(backend, x, tables, RopeLayout::half));
    const double want_half[] = {c, 0, s, 0};
    const auto interleaved = test::as_double(rotated(backend, x, tables, RopeLayout::interleaved));
    const double want_interleaved[] = {c, s, 0, 0};
    for (Index d = 0; d < 4; ++d) {
      CHECK(std::abs(half(0, 0, 0, d) - want_half[d]) < tolerance);
      CHECK(std::abs(interleaved(0, 0, 0, d) - want_interleaved[d]) < tolerance);
    }
  };
  test::for_each_backend([&](const auto& backend) {
    check(backend, float());
    check(backend, double());
    check(backend, heed::bfloat16());
    check(backend, heed::float16());
  });
}

TEST_CASE("case 23: partial rotation pairs i with i + rotary_dim / 2, its exponent is 2i / rotary_dim") {
  heed::RopeOptions options;
  options.rotary_dim = 2;
  CHECK(heed::inverse_frequency(options, 4, 0) == 1.0);

  // rotary_dim 4 of 8 at position 131: pair 1 is dims 1 and 3 at 131 · 10000^(−2/4) = 1.31.
  options.rotary_dim = 4;
  Tensor<double, 1> frequencies({2});
  heed::inverse_frequencies(options, 8, 0, frequencies);
  CHECK(std::abs(frequencies(1) - 0.01) < 1e-16);
  const Tables<double> tables(positions_of({131}), frequencies);
  Tensor<double, 4> x({1, 1, 1, 8});
  for (Index d = 0; d < 8; ++d) x(0, 0, 0, d) = static_cast<double>(d + 1);
  const double c0 = std::cos(131.0), s0 = std::sin(131.0), c1 = std::cos(1.31), s1 = std::sin(1.31);
  const double want[] = {1 * c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + 1 * s0, 4 * c1 + 2 * s1, 5, 6, 7, 8};
  test::for_each_backend([&](const auto& backend) {
    const auto y = rotated(backend, x, tables, RopeLayout::half);
    for (Index d = 0; d < 8; ++d) CHECK(std::abs(y(0, 0, 0, d) - want[d]) < 1e-14);
  });
}

TEST_CASE("case 24: angles are formed in double, whatever the scalar") {
  // As a bfloat16, 15962 is 15936, whose cosine is −.268.
  const Tables<float> tables(positions_of({15962}), plain_frequencies(2));
  CHECK(heed::widen(heed::bfloat16(15962.0F)) == 15936.0F);
  CHECK(std::abs(tables.cos(0, 0, 0) - -0.9080159) < 1e-7);
  Tensor<heed::bfloat16, 4> x({1, 1, 1, 2});
  x(0, 0, 0, 0) = heed::bfloat16(1.0F);
  test::for_each_backend([&](const auto& backend) {
    const auto y = test::as_double(rotated(backend, x, tables, RopeLayout::half));
    CHECK(std::abs(y(0, 0, 0, 0) - std::cos(15962.0)) < test::unit_roundoff<heed::bfloat16>);
  });

  // At 131071 with theta 5e5 a float product is off by up to 1.9e-3; a table in float by its rounding only.
  const auto frequencies = plain_frequencies(128, 500000);
  test::for_each_backend([&](const auto& backend) {
    Tensor<float, 3> cos({1, 1, 64});
    Tensor<float, 3> sin({1, 1, 64});
    heed::ops::rotary_tables(backend, positions_of({131071}), frequencies, 1, cos, sin);
    for (Index i = 0; i < 64; ++i) {
      const long double exponent = -static_cast<long double>(i) / 64 * std::log(500000.0L);
      const long double angle = 131071 * std::exp(exponent);
      CHECK(std::abs(cos(0, 0, i) - static_cast<double>(std::cos(angle))) < 0x1p-24);
      CHECK(std::abs(sin(0, 0, i) - static_cast<double>(std::sin(angle))) < 0x1p-24);
    }
  });
}

TEST_CASE("rotary_tables: positions to 2^30 and beyond, negative ones, a factor") {
  const std::int64_t far = std::int64_t{1} << 30;
  const auto positions = positions_of({0, 1, 99, 100, 131071, far, far + 1, far * 1024, -1, -100, -far});
  for (const double theta : {10000.0, 500000.0, 8e6}) {
    const auto frequencies = plain_frequencies(32, theta);
    for (const double factor : {1.0, 1.2772588722239782}) {
      test::for_each_backend([&](const auto& backend) {
        Tensor<double, 3> cos({Index{1}, positions.extent(1), Index{16}});
        Tensor<double, 3> sin(cos);
        heed::ops::rotary_tables(backend, positions, frequencies, factor, cos, sin);
        Tensor<float, 3> cos_float({Index{1}, positions.extent(1), Index{16}});
        Tensor<float, 3> sin_float(cos_float);
        heed::ops::rotary_tables(backend, positions, frequencies, factor, cos_float, sin_float);
        for (Index t = 0; t < positions.extent(1); ++t) {
          for (Index i = 0; i < 16; ++i) {
            const long double angle =
                static_cast<long double>(positions(0, t)) * static_cast<long double>(frequencies(i));
            const double c = factor * static_cast<double>(std::cos(angle));
            const double s = factor * static_cast<double>(std::sin(angle));
            // The rounding of the angle, and of cosine and product.
            const double tolerance = factor * (static_cast<double>(std::abs(angle)) * 0x1p-53 + 0x1p-52);
            CHECK(std::abs(cos(0, t, i) - c) <= tolerance);
            CHECK(std::abs(sin(0, t, i) - s) <= tolerance);
            CHECK(std::abs(cos_float(0, t, i) - c) <= tolerance + factor * 0x1p-24);
            CHECK(cos_float(0, t, i) == static_cast<float>(cos(0, t, i)));  // rounded once
            CHECK(sin_float(0, t, i) == static_cast<float>(sin(0, t, i)));
          }
        }
      });
    }
  }
}

TEST_CASE("rotary_embedding: values against complex numbers, every backend and scalar") {
  check_against_formula<double>();
  check_against_formula<float>();
  check_against_formula<heed::bfloat16>();
  check_against_formula<heed::float16>();
}

TEST_CASE("rotary_embedding: norms are kept, only distances matter, turns add up") {
  const Index head_dim = 48;
  const auto frequencies = plain_frequencies(head_dim);
  test::for_each_backend([&](const auto& backend) {
    for (const RopeLayout layout : layouts) {
      const auto q = test::random_tensor<double>({Index{1}, Index{1}, Index{1}, head_dim}, 3);
      const auto k = test::random_tensor<double>({Index{1}, Index{1}, Index{1}, head_dim}, 4);
      const auto at = [&](const Tensor<double, 4>& x, std::int64_t position) {
        return rotated(backend, x, Tables<double>(positions_of({position}), frequencies), layout);
      };
      const auto dot = [&](const Tensor<double, 4>& a, const Tensor<double, 4>& b) {
        double sum = 0;
        for (Index d = 0; d < head_dim; ++d) sum += a(0, 0, 0, d) * b(0, 0, 0, d);
        return sum;
      };
      for (const std::int64_t position : {0, 1, 100, 131071}) {
        CHECK(std::abs(dot(at(q, position), at(q, position)) - dot(q, q)) < 1e-13 * dot(q, q));
      }
      const double near = dot(at(q, 17), at(k, 5));
      CHECK(std::abs(dot(at(q, 100017), at(k, 100005)) - near) < 1e-9);
      CHECK(std::abs(dot(at(q, 0), at(k, -12)) - near) < 1e-12);
      CHECK(std::abs(dot(at(q, 18), at(k, 5)) - near) > 1e-3);  // another distance is another product
      CHECK(test::max_error(at(at(q, 300), 41), at(q, 341)) < 1e-12);
      CHECK(test::max_error(at(at(q, 300), -300), q) < 1e-12);
    }
  });
}

TEST_CASE("rotary_embedding: both layouts are one rotation under a permutation of dims, bit for bit") {
  const auto check = [](const auto& backend, auto scalar) {
    using T = decltype(scalar);
    const Index head_dim = 70;
    const Index pairs = 33;
    const auto x = test::random_tensor<T>({Index{2}, Index{3}, Index{2}, head_dim}, 5);
    Tensor<T, 4> shuffled = x;
    const auto for_rows = [&](auto&& row) {
      for (Index b = 0; b < 2; ++b) {
        for (Index t = 0; t < 3; ++t) {
          for (Index h = 0; h < 2; ++h) row(b, t, h);
        }
      }
    };
    for_rows([&](Index b, Index t, Index h) {
      for (Index i = 0; i < pairs; ++i) {
        shuffled(b, t, h, 2 * i) = x(b, t, h, i);
        shuffled(b, t, h, 2 * i + 1) = x(b, t, h, i + pairs);
      }
    });
    const Tables<accumulator_t<T>> tables(test::random_ids({2, 3}, 6, 5000), plain_frequencies(2 * pairs));
    const auto half = rotated(backend, x, tables, RopeLayout::half);
    const auto interleaved = rotated(backend, shuffled, tables, RopeLayout::interleaved);
    bool same = true;
    for_rows([&](Index b, Index t, Index h) {
      for (Index i = 0; i < pairs; ++i) {
        same = same && test::same_bits_of(half(b, t, h, i), interleaved(b, t, h, 2 * i)) &&
               test::same_bits_of(half(b, t, h, i + pairs), interleaved(b, t, h, 2 * i + 1));
      }
    });
    CHECK(same);
  };
  test::for_each_fast_backend([&](const auto& backend) {
    check(backend, float());
    check(backend, double());
    check(backend, heed::bfloat16());
  });
}

TEST_CASE("rotary_embedding: signed zeros are the same in vectors, tails and scalars") {
  // x1 · cos = −0 and x2 · sin = +0 for every pair: −0 − 0 is −0, whatever lane it is computed in.
  const Index pairs = 37;
  Tensor<float, 4> x({Index{1}, Index{1}, Index{1}, 2 * pairs});
  x.fill(-0.0F);
  const Tables<float> tables(positions_of({0}), plain_frequencies(2 * pairs));
  for (Index i = 0; i < pairs; ++i) x(0, 0, 0, pairs + i) = 0.0F;
  test::for_each_fast_backend([&](const auto& backend) {
    const auto y = rotated(backend, x, tables, RopeLayout::half);
    for (Index i = 0; i < pairs; ++i) CHECK(std::signbit(y(0, 0, 0, i)));
  });
}

TEST_CASE("case 20 and case 31: strides, batch, neighbours, threads, cuts and place do not change a bit") {
  const auto check = [](const auto& backend, auto scalar) {
    using T = decltype(scalar);
    using A = accumulator_t<T>;
    const Index batch = 3;
    const Index tokens = 41;
    const Index heads = 6;
    const Index head_dim = 72;
    const auto x = test::random_tensor<T>({batch, tokens, heads, head_dim}, 7);
    const auto positions = test::random_ids({batch, tokens}, 8, 1 << 20);
    const auto frequencies = plain_frequencies(70);
    const Tables<A> tables(positions, frequencies);
    for (const RopeLayout layout : layouts) {
      const Tensor<T, 4> whole = rotated(heed::Simd(), x, tables, layout);
      CHECK(test::same_bits(rotated(backend, x, tables, layout), whole));

      // in place, in a strided copy of everything
      test::Strided<T, 4> strided(x);
      const test::Strided<A, 3> cos(tables.cos);
      const test::Strided<A, 3> sin(tables.sin);
      heed::ops::rotary_embedding(backend, strided.view(), cos.view(), sin.view(), layout, strided.view());
      CHECK(test::same_bits(strided.view(), whole));
      CHECK(strided.intact());

      // heads first in memory
      Tensor<T, 4> permuted({batch, heads, tokens, head_dim});
      const View<T, 4> view = permuted.view().permute({0, 2, 1, 3});
      heed::ops::rotary_embedding(backend, x, tables.cos, tables.sin, layout, view);
      CHECK(test::same_bits(view, whole));

      // one token at a time
      for (const Index t : {Index{0}, Index{1}, tokens - 1}) {
        Tensor<T, 4> token({Index{1}, Index{1}, heads, head_dim});
        heed::ops::rotary_embedding(backend, x.view().slice(0, 1, 1).slice(1, t, 1),
                                    tables.cos.view().slice(0, 1, 1).slice(1, t, 1),
                                    tables.sin.view().slice(0, 1, 1).slice(1, t, 1), layout, token);
        CHECK(test::same_bits(token, whole.view().slice(0, 1, 1).slice(1, t, 1)));
      }

      // the same positions for every row: tables of stride 0
      const Tables<A> row(positions.view().slice(0, 0, 1), frequencies);
      const View<const A, 3> cos_row = test::repeated(batch, row.cos.view()[0]);
      const View<const A, 3> sin_row = test::repeated(batch, row.sin.view()[0]);
      Tensor<T, 4> broadcast({batch, tokens, heads, head_dim});
      heed::ops::rotary_embedding(backend, x, cos_row, sin_row, layout, broadcast);
      CHECK(test::same_bits(broadcast.view().slice(0, 0, 1), whole.view().slice(0, 0, 1)));
      const Tables<A> repeated(test::repeated(batch, positions.view()[0]), frequencies);
      CHECK(test::same_bits(broadcast, rotated(heed::Simd(), x, repeated, layout)));
    }

    // tables: strides, one row, one token
    test::Strided<A, 3> cos(Tensor<A, 3>({batch, tokens, Index{35}}));
    test::Strided<A, 3> sin(Tensor<A, 3>({batch, tokens, Index{35}}));
    heed::ops::rotary_tables(backend, test::Strided<std::int64_t, 2>(positions).view(), frequencies, 1, cos.view(),
                             sin.view());
    CHECK(test::same_bits(cos.view(), tables.cos));
    CHECK(test::same_bits(sin.view(), tables.sin));
    CHECK(cos.intact());
    Tensor<A, 3> one({1, 1, 35});
    Tensor<A, 3> other({1, 1, 35});
    heed::ops::rotary_tables(backend, positions.view().slice(0, 2, 1).slice(1, 40, 1), frequencies, 1, one, other);
    CHECK(test::same_bits(one, tables.cos.view().slice(0, 2, 1).slice(1, 40, 1)));
  };
  test::for_each_fast_backend([&](const auto& backend) {
    check(backend, float());
    check(backend, double());
    check(backend, heed::bfloat16());
  });
}

TEST_CASE("rotary_embedding: large enough for threads, work reaches them") {
  test::ReversePool pool;
  const heed::Cpu cpu(pool);
  const auto x = test::random_tensor<float>({2, 300, 4, 64}, 9);
  const Tables<float> tables(test::random_ids({2, 300}, 10, 5000), plain_frequencies(64));
  CHECK(test::same_bits(rotated(cpu, x, tables, RopeLayout::half), rotated(heed::Simd(), x, tables, RopeLayout::half)));
  CHECK(pool.parts_elsewhere() > 0);
  const Index before = pool.parts_elsewhere();
  Tensor<float, 3> cos({2, 300, 32});
  Tensor<float, 3> sin({2, 300, 32});
  heed::ops::rotary_tables(cpu, test::random_ids({2, 300}, 10, 5000), plain_frequencies(64), 1, cos, sin);
  CHECK(pool.parts_elsewhere() > before);
  CHECK(test::same_bits(cos, tables.cos));
  CHECK(test::same_bits(sin, tables.sin));
}

TEST_CASE("rotary_embedding: empty axes do nothing") {
  test::for_each_backend([](const auto& backend) {
    for (const auto& [batch, tokens, heads, head_dim, pairs] :
         {std::array<Index, 5>{0, 3, 2, 4, 2}, {2, 0, 2, 4, 2}, {2, 3, 0, 4, 2}, {2, 3, 2, 0, 0}}) {
      const Tensor<float, 4> x({batch, tokens, heads, head_dim});
      Tensor<float, 4> y = x;
      y.fill(7);
      const Tensor<float, 3> table({batch, tokens, pairs});
      heed::ops::rotary_embedding(backend, x, table, table, RopeLayout::half, y);
      CHECK(test::max_error(y, x) == (y.empty() ? 0 : 7));
    }
    Tensor<float, 3> none({2, 0, 4});
    heed::ops::rotary_tables(backend, Tensor<std::int64_t, 2>({2, 0}), plain_frequencies(8), 1, none, none);
    Tensor<float, 3> no_pairs({2, 3, 0});
    heed::ops::rotary_tables(backend, Tensor<std::int64_t, 2>({2, 3}), Tensor<double, 1>({0}), 1, no_pairs, no_pairs);
  });
}

TEST_CASE("rotary_embedding and rotary_tables: error texts") {
  const heed::Simd simd;
  Tensor<float, 4> x({2, 3, 4, 8});
  Tensor<float, 4> y({2, 3, 4, 8});
  const Tensor<float, 3> cos({2, 3, 4});
  const auto turn = [&](const auto& from, const auto& c, const auto& s, auto&& to) {
    return error_text<heed::ShapeError>([&] { heed::ops::rotary_embedding(simd, from, c, s, RopeLayout::half, to); });
  };
  CHECK(turn(x, Tensor<float, 3>({2, 4, 4}), cos, y) ==
        "heed: rotary_embedding: cos: expected [2, 3, *] (batch, seq, pairs), got [2, 4, 4]");
  CHECK(turn(x, cos, Tensor<float, 3>({2, 3, 3}), y) ==
        "heed: rotary_embedding: sin: expected [2, 3, 4] (batch, seq, pairs), got [2, 3, 3]");
  CHECK(turn(x, cos, cos, Tensor<float, 4>({2, 3, 4, 9})) ==
        "heed: rotary_embedding: out: expected [2, 3, 4, 8] (batch, seq, heads, head dim), got [2, 3, 4, 9]");
  CHECK(turn(x, Tensor<float, 3>({2, 3, 5}), Tensor<float, 3>({2, 3, 5}), y) ==
        "heed: rotary_embedding: cos: 5 pairs do not fit into head dim 8");
  Tensor<float, 1> memory({500});
  CHECK(turn(View<float, 4>(memory.data(), {2, 3, 4, 8}), cos, cos, View<float, 4>(memory.data() + 8, {2, 3, 4, 8})) ==
        "heed: rotary_embedding: out: must not overlap x");
  CHECK(turn(View<float, 4>(memory.data(), {2, 3, 4, 8}), cos, cos,
             View<float, 4>(memory.data(), {2, 3, 4, 8}, {96, 8, 24, 1})) ==
        "heed: rotary_embedding: out: must not overlap x");
  CHECK(turn(x, View<float, 3>(memory.data(), {2, 3, 4}), cos, View<float, 4>(memory.data(), {2, 3, 4, 8})) ==
        "heed: rotary_embedding: out: must not overlap cos");
  CHECK(turn(x, cos, View<float, 3>(memory.data(), {2, 3, 4}), View<float, 4>(memory.data(), {2, 3, 4, 8})) ==
        "heed: rotary_embedding: out: must not overlap sin");
  CHECK(turn(x, cos, cos, View<float, 4>(memory.data(), {2, 3, 4, 8}, {0, 32, 8, 1})) ==
        "heed: rotary_embedding: out: an output must not repeat elements (stride 0), got stride 0 on batch");

  const Tensor<std::int64_t, 2> positions({2, 3});
  Tensor<float, 3> c({2, 3, 4});
  Tensor<float, 3> s({2, 3, 4});
  const auto tabulate = [&](auto&& to_cos, auto&& to_sin) {
    return error_text<heed::ShapeError>(
        [&] { heed::ops::rotary_tables(simd, positions, plain_frequencies(8), 1, to_cos, to_sin); });
  };
  CHECK(tabulate(Tensor<float, 3>({2, 3, 3}), s) ==
        "heed: rotary_tables: cos: expected [2, 3, 4] (batch, seq, pairs), got [2, 3, 3]");
  CHECK(tabulate(c, Tensor<float, 3>({1, 3, 4})) ==
        "heed: rotary_tables: sin: expected [2, 3, 4] (batch, seq, pairs), got [1, 3, 4]");
  CHECK(tabulate(c, c) == "heed: rotary_tables: sin: must not overlap cos");
  CHECK(tabulate(c, s) == "(no error)");
}

TEST_CASE("rotate_half: [x1, x2] -> [-x2, x1] for any rank") {
  test::for_each_backend([](const auto& backend) {
    const auto check = [&](auto scalar) {
      using T = decltype(scalar);
      const auto x = test::random_tensor<T>({2, 3, 2, 2, 6}, 11);
      Tensor<T, 5> y({2, 3, 2, 2, 6});
      heed::ops::rotate_half(backend, x, y);
      for (Index i = 0; i < x.size(); ++i) {
        const Index d = i % 6;
        const double want = d < 3 ? -test::to_double(x.data()[i + 3]) : test::to_double(x.data()[i - 3]);
        CHECK(test::to_double(y.data()[i]) == want);
      }
      const test::Strided<T, 5> strided(x);
      test::Strided<T, 5> to(Tensor<T, 5>({2, 3, 2, 2, 6}));
      heed::ops::rotate_half(backend, strided.view(), to.view());
      CHECK(test::same_bits(to.view(), y));
      CHECK(to.intact());
      Tensor<T, 1> row({6});
      heed::ops::rotate_half(backend, View<const T, 1>(x.data(), {6}), row);
      CHECK(test::same_bits(row, View<const T, 1>(y.data(), {6})));
    };
    check(float());
    check(double());
    check(heed::bfloat16());
    check(heed::float16());
    Tensor<float, 2> none({0, 4});
    Tensor<float, 2> no_dims({3, 0});
    heed::ops::rotate_half(backend, Tensor<float, 2>({0, 4}), none);
    heed::ops::rotate_half(backend, Tensor<float, 2>({3, 0}), no_dims);
  });
}

TEST_CASE("rotate_half: x · cos + rotate_half(x) · sin is the half layout's rotation") {
  const auto x = test::random_tensor<double>({2, 3, 2, 10}, 12);
  const Tables<double> tables(test::random_ids({2, 3}, 13, 1000), plain_frequencies(10));
  Tensor<double, 4> half({2, 3, 2, 10});
  heed::ops::rotate_half(heed::Reference(), x, half);
  Tensor<double, 4> want = x;
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 3; ++t) {
      for (Index h = 0; h < 2; ++h) {
        for (Index d = 0; d < 10; ++d) {
          want(b, t, h, d) = x(b, t, h, d) * tables.cos(b, t, d % 5) + half(b, t, h, d) * tables.sin(b, t, d % 5);
        }
      }
    }
  }
  test::for_each_backend([&](const auto& backend) {
    CHECK(test::max_error(rotated(backend, x, tables, RopeLayout::half), want) < 1e-15);
  });
}

TEST_CASE("rotate_half: error texts") {
  const heed::Simd simd;
  Tensor<float, 2> x({2, 5});
  Tensor<float, 2> y({2, 4});
  const auto refuse = [&](auto&& from, auto&& to) {
    return error_text<heed::ShapeError>([&] { heed::ops::rotate_half(simd, from, to); });
  };
  CHECK(refuse(x, x) == "heed: rotate_half: x: head dim must be even, got 5");
  CHECK(refuse(Tensor<float, 2>({3, 4}), y) ==
        "heed: rotate_half: out: expected [3, 4] (axis 0, head dim), got [2, 4]");
  CHECK(refuse(y, y) == "heed: rotate_half: out: must not overlap x");
}
