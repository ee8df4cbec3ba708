// core/simd.hpp: the functions kernels are made of, lane by lane.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "heed/core/simd.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/simd/attention_pack.hpp"
#include "heed/kernels/simd/transpose.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"

#if defined(__unix__)
#include <sys/mman.h>
#include <unistd.h>
#endif

using heed::Index;
namespace simd = heed::simd;

namespace {

template <class A>
struct Lanes {
  A lane[simd::width<A>];
};

template <class A>
HEED_NOINLINE Lanes<A> lanes_of(simd::Vec<A> value) {
  Lanes<A> lanes;
  simd::store(lanes.lane, value);
  return lanes;
}

template <class A>
constexpr A infinity = std::numeric_limits<A>::infinity();
template <class A>
constexpr A not_a_number = std::numeric_limits<A>::quiet_NaN();
template <class A>
constexpr A least_normal = std::numeric_limits<A>::min();

// f(x) in one lane, that of all lanes: they are checked to agree.
template <class A, class F>
HEED_NOINLINE A in_every_lane(F&& f, A x) {
  const Lanes<A> lanes = lanes_of<A>(f(simd::broadcast<A>(x)));
  for (const A lane : lanes.lane) REQUIRE(test::same_bits_of(lane, lanes.lane[0]));
  return lanes.lane[0];
}

// Distance in units of the last place of the exact value.
template <class A>
double ulps(A got, long double want) {
  int exponent = 0;
  std::frexp(want, &exponent);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<A>::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / unit);
}

// Bytes that end where the next page may not be touched: reading one too many ends the program.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) {
#if defined(__unix__)
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    size_ = 2 * page;
    void* pages = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    memory_ = static_cast<unsigned char*>(pages);
    REQUIRE(::mprotect(memory_ + page, page, PROT_NONE) == 0);
    REQUIRE(size <= page);
    begin_ = memory_ + page - size;
#else
    memory_ = begin_ = new unsigned char[size];
#endif
  }
  ~GuardedBytes() {
#if defined(__unix__)
    ::munmap(memory_, size_);
#else
    delete[] memory_;
#endif
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  template <class T>
  T* begin() {
    return reinterpret_cast<T*>(begin_);
  }

 private:
  std::size_t size_ = 0;
  unsigned char* memory_ = nullptr;
  unsigned char* begin_ = nullptr;
};

}  // namespace

TEST_CASE_TEMPLATE("exp_nonpositive is within 2 ulp of the exact value over the whole range", A, float, double) {
  const auto exp = [](simd::Vec<A> x) { return simd::exp_nonpositive<A>(x); };
  // Below, e^x is no normal number.
  const auto lowest = static_cast<A>(std::log(static_cast<long double>(least_normal<A>)));
  double worst = 0;
  const auto check = [&](A x) {
    const long double want = std::exp(static_cast<long double>(x));
    const A got = in_every_lane<A>(exp, x);
    if (want >= static_cast<long double>(least_normal<A>)) {
      worst = std::fmax(worst, ulps(got, want));
    } else {
      REQUIRE(got == 0);
    }
  };

  test::Random random(1);
  for (int i = 0; i < 20000; ++i) check(static_cast<A>(random.uniform(1.05 * static_cast<double>(lowest), 0)));
  for (int i = 0; i < 5000; ++i) check(static_cast<A>(-std::exp(random.uniform(-40, 0))));  // towards 0
  for (int n = 0; n <= 1100; ++n) {  // around n/2 · ln 2, where the reduced argument is largest or smallest
    const auto x = static_cast<A>(-0.34657359027997265L * n);
    check(x);
    check(std::nextafter(x, A(0)));
    check(std::nextafter(x, -infinity<A>));
  }
  for (A x = lowest, y = lowest; x > lowest * (1 + 20 * std::numeric_limits<A>::epsilon());) {  // the edge
    check(x);
    check(y);
    x = std::nextafter(x, -infinity<A>);
    y = std::nextafter(y, A(0));
  }
  CHECK(worst <= 2);
  CHECK(worst > 0);
}

TEST_CASE_TEMPLATE("case 29: exp_nonpositive: exp(-inf) is 0, exp(NaN) is NaN, results are normal or 0", A, float,
                   double) {
  const auto exp = [](simd::Vec<A> x) { return simd::exp_nonpositive<A>(x); };
  const A zero = 0;
  CHECK(test::same_bits_of(in_every_lane<A>(exp, -infinity<A>), zero));
  CHECK(test::same_bits_of(in_every_lane<A>(exp, std::numeric_limits<A>::lowest()), zero));
  CHECK(test::same_bits_of(in_every_lane<A>(exp, A(-1000)), zero));
  CHECK(std::isnan(in_every_lane<A>(exp, not_a_number<A>)));
  CHECK(in_every_lane<A>(exp, A(0)) == 1);
  CHECK(in_every_lane<A>(exp, A(-0.0)) == 1);
  const A edge = std::is_same_v<A, float> ? A(-87.3) : A(-708.3);
  for (A x = edge; x > edge - A(0.5); x -= A(0x1p-10)) {
    const A y = in_every_lane<A>(exp, x);
    CHECK((y == 0 || y >= least_normal<A>));
  }
}

TEST_CASE_TEMPLATE("exp_difference is within 1 + |x| / 2 ulp of the exact value, 1 + 1.5 |x| without fma", A, float,
                   double) {
  const auto exp = [](simd::Vec<A> x) { return simd::exp_difference<A>(x); };
  const auto lowest = static_cast<A>(std::log(static_cast<long double>(least_normal<A>)));
  double worst = 0;  // as a share of what is allowed
  const auto check = [&](A x) {
    const double off = ulps(in_every_lane<A>(exp, x), std::exp(static_cast<long double>(x)));
    worst = std::fmax(worst, off / (1 + (HEED_FMA ? 0.5 : 1.5) * std::fabs(static_cast<double>(x))));
  };
  test::Random random(1);
  for (int i = 0; i < 20000; ++i) check(static_cast<A>(random.uniform(0.999 * static_cast<double>(lowest), 0)));
  for (int i = 0; i < 5000; ++i) check(static_cast<A>(-std::exp(random.uniform(-40, 0))));
  for (int n = 0; n <= 240; ++n) check(static_cast<A>(-0.34657359027997265L * n));
  CHECK(worst <= 1);
  CHECK(worst > 0);

  CHECK(test::same_bits_of(in_every_lane<A>(exp, -infinity<A>), A(0)));
  CHECK(test::same_bits_of(in_every_lane<A>(exp, std::numeric_limits<A>::lowest()), A(0)));
  CHECK(test::same_bits_of(in_every_lane<A>(exp, lowest * A(1.01)), A(0)));
  CHECK(std::isnan(in_every_lane<A>(exp, not_a_number<A>)));
  CHECK(std::isnan(in_every_lane<A>(exp, -not_a_number<A>)));
  CHECK(in_every_lane<A>(exp, A(0)) == 1);
  CHECK(in_every_lane<A>(exp, A(-0.0)) == 1);
}

TEST_CASE_TEMPLATE("transpose moves element j of row i to element i of row j", A, float, double) {
  constexpr Index w = simd::width<A>;
  simd::Vec<A> rows[w];
  for (Index i = 0; i < w; ++i) {
    Lanes<A> lanes;
    for (Index j = 0; j < w; ++j) lanes.lane[j] = static_cast<A>(100 * i + j);
    rows[i] = simd::load(lanes.lane);
  }
  simd::transpose<A>(rows);
  for (Index i = 0; i < w; ++i) {
    for (Index j = 0; j < w; ++j) CHECK(lanes_of<A>(rows[i]).lane[j] == static_cast<A>(100 * j + i));
  }
}

TEST_CASE_TEMPLATE("load_codes: all 256 codes, whole vectors and tails of them", A, float, double) {
  constexpr Index w = simd::width<A>;
  std::int8_t codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<std::int8_t>(i - 128);
  for (Index first = 0; first < 256; ++first) {
    const Index count = 256 - first < w ? 256 - first : w;  // nothing behind the last code is read
    const auto numbers = lanes_of<A>(heed::impl::load_codes<A>(codes + first, count));
    for (Index i = 0; i < w; ++i) CHECK(numbers.lane[i] == (i < count ? static_cast<A>(first + i - 128) : A(0)));
  }
}

TEST_CASE_TEMPLATE("case 29: a value has the same bits in every lane, beside any neighbours, and in a padded tail", A,
                   float, double) {
  constexpr Index w = simd::width<A>;
  const A neighbours[] = {-infinity<A>, not_a_number<A>, A(0), A(-1e30), A(-3.25), A(-50)};
  const auto functions = [](auto&& check) {
    check([](simd::Vec<A> x) { return simd::exp_nonpositive<A>(x); });
    check([](simd::Vec<A> x) { return simd::exp_difference<A>(x); });
    check([](simd::Vec<A> x) { return simd::sigmoid<A>(x); });
    check([](simd::Vec<A> x) { return simd::erf<A>(x); });
  };
  functions([&](auto f) {
    for (const A x : {A(-0.1), A(-0.7), A(-3), A(-20.5), A(-80.0625), A(-0.0)}) {
      const A want = in_every_lane<A>(f, x);
      for (Index at = 0; at < w; ++at) {
        for (const A neighbour : neighbours) {
          Lanes<A> lanes;
          for (A& lane : lanes.lane) lane = neighbour;
          lanes.lane[at] = x;
          CHECK(test::same_bits_of(lanes_of<A>(f(simd::load(lanes.lane))).lane[at], want));
          // As the last element of a row: the lanes behind are filled.
          const auto tail = lanes_of<A>(f(simd::load_partial(lanes.lane, at + 1, neighbour)));
          CHECK(test::same_bits_of(tail.lane[at], want));
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("sigmoid keeps its relative accuracy and does not overflow", A, float, double) {
  const auto sigmoid = [](simd::Vec<A> x) { return simd::sigmoid<A>(x); };
  test::Random random(2);
  double worst = 0;
  for (int i = 0; i < 10000; ++i) {
    const auto x = static_cast<A>(random.uniform(-85, 85));
    worst = std::fmax(worst, ulps(in_every_lane<A>(sigmoid, x), 1 / (1 + std::exp(-static_cast<long double>(x)))));
  }
  CHECK(worst <= 4);
  CHECK(in_every_lane<A>(sigmoid, A(0)) == A(0.5));
  CHECK(in_every_lane<A>(sigmoid, std::numeric_limits<A>::max()) == 1);
  CHECK(in_every_lane<A>(sigmoid, std::numeric_limits<A>::lowest()) == 0);
  CHECK(in_every_lane<A>(sigmoid, infinity<A>) == 1);
  CHECK(in_every_lane<A>(sigmoid, -infinity<A>) == 0);
  CHECK(std::isnan(in_every_lane<A>(sigmoid, not_a_number<A>)));
}

TEST_CASE_TEMPLATE("erf is within 3 ulp of the exact value", A, float, double) {
  const auto erf = [](simd::Vec<A> x) { return simd::erf<A>(x); };
  test::Random random(3);
  double worst = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto x = static_cast<A>(i % 2 == 0 ? random.uniform(-7, 7) : random.uniform(-1, 1));
    worst = std::fmax(worst, ulps(in_every_lane<A>(erf, x), std::erf(static_cast<long double>(x))));
  }
  CHECK(worst <= 3);
  CHECK(in_every_lane<A>(erf, A(0)) == 0);
  CHECK(in_every_lane<A>(erf, infinity<A>) == 1);
  CHECK(in_every_lane<A>(erf, -infinity<A>) == -1);
  CHECK(in_every_lane<A>(erf, A(1e30)) == 1);
  CHECK(std::isnan(in_every_lane<A>(erf, not_a_number<A>)));
}

TEST_CASE_TEMPLATE("fma rounds once where the machine can, in vectors and scalars alike", A, float, double) {
  // (1 + e)² − (1 + 2e) is e² with one rounding; rounding the product first loses it.
  volatile A e = std::is_same_v<A, float> ? A(0x1p-13) : A(0x1p-30);
  const A a = 1 + e;
  const A c = -(1 + 2 * e);
  const A want = HEED_FMA ? e * e : A(0);
  CHECK(simd::fma(a, a, c) == want);
  const Lanes<A> lanes = lanes_of<A>(simd::fma<A>(simd::broadcast<A>(a), simd::broadcast<A>(a), simd::broadcast<A>(c)));
  for (const A lane : lanes.lane) CHECK(lane == want);

  // Not only for chosen values.
  test::Random random(4);
  for (int i = 0; i < 1000; ++i) {
    const auto x = static_cast<A>(random.uniform(-1, 1));
    const auto y = static_cast<A>(random.uniform(-1, 1));
    const auto z = static_cast<A>(random.uniform(-1, 1));
    const Lanes<A> got = lanes_of<A>(simd::fma<A>(simd::broadcast<A>(x), simd::broadcast<A>(y), simd::broadcast<A>(z)));
    CHECK(test::same_bits_of(got.lane[0], simd::fma(x, y, z)));
#if HEED_FMA
    CHECK(test::same_bits_of(got.lane[0], std::fma(x, y, z)));
#endif
  }
}

TEST_CASE_TEMPLATE("divide and sqrt round correctly, over the whole range", A, float, double) {
  constexpr Index w = simd::width<A>;
  test::Random random(8);
  int wrong = 0;
  const auto check = [&](const Lanes<A>& a, const Lanes<A>& b) {
    const Lanes<A> quotient = lanes_of<A>(simd::divide<A>(simd::load(a.lane), simd::load(b.lane)));
    const Lanes<A> root = lanes_of<A>(simd::sqrt<A>(simd::abs<A>(simd::load(a.lane))));
    for (Index i = 0; i < w; ++i) {
      const A want = a.lane[i] / b.lane[i];
      if (std::isnan(want) ? !std::isnan(quotient.lane[i]) : !test::same_bits_of(quotient.lane[i], want)) ++wrong;
      if (!test::same_bits_of(root.lane[i], std::sqrt(std::fabs(a.lane[i])))) ++wrong;
    }
  };
  Lanes<A> a;
  Lanes<A> b;
  for (int trial = 0; trial < 20000; ++trial) {
    for (A* lane : {a.lane, b.lane}) {
      for (Index i = 0; i < w; ++i) {
        const int exponent =
            std::numeric_limits<A>::min_exponent + 1 +
            static_cast<int>(random.below(static_cast<unsigned>(2 * std::numeric_limits<A>::max_exponent)));
        lane[i] = std::ldexp(static_cast<A>(random.uniform(-1, 1)), exponent);
      }
    }
    check(a, b);
  }
  const A specials[] = {A(0),
                        A(-0.0),
                        A(1),
                        least_normal<A>,
                        std::numeric_limits<A>::denorm_min(),
                        infinity<A>,
                        -infinity<A>,
                        std::numeric_limits<A>::max()};
  for (const A x : specials) {
    for (const A y : specials) {
      for (A& lane : a.lane) lane = x;
      for (A& lane : b.lane) lane = y;
      check(a, b);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("reduce combines lane i with lane i + width / 2, and so on", A, float, double) {
  constexpr Index w = simd::width<A>;
  Lanes<A> lanes;
  test::Random random(5);
  bool order_matters = false;
  for (int trial = 0; trial < 100; ++trial) {
    for (A& lane : lanes.lane)
      lane = static_cast<A>(random.uniform(-1, 1) * std::ldexp(1.0, static_cast<int>(random.below(20))));
    Lanes<A> tree = lanes;
    for (Index half = w / 2; half > 0; half /= 2) {
      for (Index i = 0; i < half; ++i) tree.lane[i] = tree.lane[i] + tree.lane[i + half];
    }
    A in_turn = 0;
    for (const A lane : lanes.lane) in_turn += lane;
    order_matters = order_matters || in_turn != tree.lane[0];
    CHECK(test::same_bits_of(simd::reduce_add<A>(simd::load(lanes.lane)), tree.lane[0]));
  }
  CHECK(order_matters == (w > 2));  // else the check above could not fail

  for (Index at = 0; at < w; ++at) {
    for (Index i = 0; i < w; ++i) lanes.lane[i] = static_cast<A>(-i);
    lanes.lane[at] = 7;
    CHECK(simd::reduce_max<A>(simd::load(lanes.lane)) == 7);
  }
  CHECK(simd::reduce_max<A>(simd::broadcast<A>(-infinity<A>)) == -infinity<A>);
}

TEST_CASE_TEMPLATE("max, min, abs, sqrt, select and is_nan work lane by lane", A, float, double) {
  constexpr Index w = simd::width<A>;
  Lanes<A> a;
  Lanes<A> b;
  for (Index i = 0; i < w; ++i) {
    a.lane[i] = static_cast<A>(i % 2 == 0 ? i + 1 : -i - 1);
    b.lane[i] = static_cast<A>(w - 2 * i) + A(0.5);
  }
  const auto x = simd::load(a.lane);
  const auto y = simd::load(b.lane);
  const auto larger = lanes_of<A>(simd::max<A>(x, y));
  const auto smaller = lanes_of<A>(simd::min<A>(x, y));
  const auto magnitude = lanes_of<A>(simd::abs<A>(x));
  const auto root = lanes_of<A>(simd::sqrt<A>(simd::abs<A>(y)));
  const auto chosen = lanes_of<A>(simd::select<A>(x < y, x, simd::broadcast<A>(99)));
  for (Index i = 0; i < w; ++i) {
    CAPTURE(i);
    CHECK(larger.lane[i] == std::fmax(a.lane[i], b.lane[i]));
    CHECK(smaller.lane[i] == std::fmin(a.lane[i], b.lane[i]));
    CHECK(magnitude.lane[i] == std::fabs(a.lane[i]));
    CHECK(root.lane[i] == std::sqrt(std::fabs(b.lane[i])));
    CHECK(chosen.lane[i] == (a.lane[i] < b.lane[i] ? a.lane[i] : A(99)));
  }
  for (Index at = 0; at < w; ++at) {
    Lanes<A> mixed = a;
    mixed.lane[at] = not_a_number<A>;
    mixed.lane[(at + 1) % w] = infinity<A>;
    const auto nan = lanes_of<A>(
        simd::select<A>(simd::is_nan<A>(simd::load(mixed.lane)), simd::broadcast<A>(1), simd::broadcast<A>(0)));
    for (Index i = 0; i < w; ++i) CHECK(nan.lane[i] == (i == at ? A(1) : A(0)));
  }
}

TEST_CASE_TEMPLATE("load_partial and store_partial never touch memory past the end", T, float, double, heed::bfloat16,
                   heed::float16) {
  using A = heed::accumulator_t<T>;
  constexpr Index w = simd::width<A>;
  const auto values = test::random_tensor<T>({2 * w}, 6);
  for (Index count = 0; count <= w; ++count) {
    CAPTURE(count);
    // The last element is the last of a page: one more would end the program.
    GuardedBytes memory(static_cast<std::size_t>(count) * sizeof(T));
    T* data = memory.begin<T>();
    for (Index i = 0; i < count; ++i) data[i] = values(i);

    const Lanes<A> lanes = lanes_of<A>(simd::load_partial(data, count, A(-7)));
    for (Index i = 0; i < w; ++i) CHECK(lanes.lane[i] == (i < count ? heed::widen(values(i)) : A(-7)));
    const Lanes<A> zeros = lanes_of<A>(simd::load_partial(data, count));
    for (Index i = count; i < w; ++i) CHECK(test::same_bits_of(zeros.lane[i], A(0)));

    simd::store_partial(data, count, simd::broadcast<A>(A(0.5)));
    for (Index i = 0; i < count; ++i) CHECK(heed::widen(data[i]) == A(0.5));

    // Nor does a store change what lies behind, where that may be touched.
    heed::Tensor<T, 1> line({2 * w});
    line.fill(test::from_double<T>(3));
    simd::store_partial(line.data(), count, simd::broadcast<A>(A(0.5)));
    for (Index i = 0; i < 2 * w; ++i) CHECK(heed::widen(line(i)) == (i < count ? A(0.5) : A(3)));
  }
  // Nor is anything touched where a row ended before: the kernels then ask for a negative number of lanes.
  GuardedBytes nothing(0);
  for (Index count = -w; count < 0; ++count) {
    const Lanes<A> lanes = lanes_of<A>(simd::load_partial(nothing.begin<T>(), count, A(-7)));
    for (Index i = 0; i < w; ++i) CHECK(lanes.lane[i] == A(-7));
    simd::store_partial(nothing.begin<T>(), count, simd::broadcast<A>(A(0.5)));
  }
  // More than a vector is a whole vector.
  const Lanes<A> lanes = lanes_of<A>(simd::load_partial(values.data(), 2 * w, A(-7)));
  for (Index i = 0; i < w; ++i) CHECK(lanes.lane[i] == heed::widen(values(i)));
}

// core/scalar.hpp's conversions, tested against their definition, are the oracle here.
TEST_CASE_TEMPLATE("load gives the scalar conversion's bits for all patterns", T, heed::bfloat16, heed::float16) {
  constexpr Index w = simd::width<float>;
  int wrong = 0;
  for (std::uint32_t first = 0; first < 0x10000; ++first) {  // every pattern in every lane
    T from[w];
    for (Index i = 0; i < w; ++i) from[i].bits = static_cast<std::uint16_t>(first + static_cast<std::uint32_t>(i));
    const Lanes<float> got = lanes_of<float>(simd::load(from));
    const Lanes<float> part = lanes_of<float>(simd::load_partial(from, w - 1, -0.0F));
    for (Index i = 0; i < w; ++i) {
      const float want = heed::widen(from[i]);
      if (!test::same_bits_of(got.lane[i], want)) ++wrong;
      if (!test::same_bits_of(part.lane[i], i < w - 1 ? want : -0.0F)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("store gives the scalar conversion's bits at all borders of rounding", T, heed::bfloat16,
                   heed::float16) {
  constexpr Index w = simd::width<float>;
  int wrong = 0;
  std::uint32_t words[w] = {};
  Index next = 0;
  const auto check = [&](std::uint32_t word) {  // in turn in each lane, beside those before
    words[next] = word;
    next = (next + 1) % w;
    Lanes<float> from;
    for (Index i = 0; i < w; ++i) from.lane[i] = std::bit_cast<float>(words[i]);
    T to[w];
    T part[w] = {};
    simd::store(to, simd::load(from.lane));
    simd::store_partial(part, w - 1, simd::load(from.lane));
    for (Index i = 0; i < w; ++i) {
      const T want = heed::narrow<T>(from.lane[i]);
      if (to[i].bits != want.bits || part[i].bits != (i < w - 1 ? want.bits : 0)) ++wrong;
    }
  };
  // The dropped bits at, just below and just above zero and one half, for all upper halves (subnormals, infinities and NaN
  // among them): 16 are dropped of a bfloat16, 13 of a float16 and more of a subnormal one.
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low :
         {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      check(high << 16 | low);
  }
  test::Random random(9);
  for (int i = 0; i < 100000; ++i) {  // float16's subnormal numbers
    const auto value =
        static_cast<float>(random.uniform(-1, 1) * std::ldexp(1.0, -static_cast<int>(13 + random.below(14))));
    check(std::bit_cast<std::uint32_t>(value));
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("load widens exactly, store rounds once, at any alignment", T, float, double, heed::bfloat16,
                   heed::float16) {
  using A = heed::accumulator_t<T>;
  constexpr Index w = simd::width<A>;
  const auto values = test::random_tensor<T>({w + 4}, 7);
  for (Index first = 0; first < 4; ++first) {
    const Lanes<A> lanes = lanes_of<A>(simd::load(values.data() + first));
    for (Index i = 0; i < w; ++i) CHECK(lanes.lane[i] == heed::widen(values(first + i)));
    heed::Tensor<T, 1> out({w + 5});
    simd::store(out.data() + first, simd::load(values.data() + first) * simd::broadcast<A>(A(1.0) / 3));
    for (Index i = 0; i < w; ++i) {
      CHECK(test::same_bits_of(out(first + i), heed::narrow<T>(heed::widen(values(first + i)) * (A(1.0) / 3))));
    }
    CHECK(heed::widen(out(first + w)) == 0);
  }
}
