// ops::memory_retrieve and ops::memory_update against their formulae in double.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "heed/ops/compressive_memory.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/memory_formula.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::Index;
using heed::MemoryUpdate;
using heed::Tensor;
using heed::View;
using test::AnyBackend;
namespace ops = heed::ops;

namespace {

constexpr MemoryUpdate rules[] = {MemoryUpdate::linear, MemoryUpdate::delta, MemoryUpdate::safe_delta};

// The doors on a backend known at run time, with workspaces of just the right size.
template <class T>
void update(const AnyBackend& backend, View<const T, 4> key, View<const T, 4> value, View<heed::accumulator_t<T>, 4> m,
            View<heed::accumulator_t<T>, 3> z, const heed::MemoryUpdateOptions& options) {
  backend.visit([&](const auto& actual) {
    heed::Workspace workspace(ops::memory_update_workspace_size<T>(actual, m.extent(2), m.extent(3)));
    ops::memory_update(actual, key, value, m, z, workspace, options);
  });
}
template <class T>
void retrieve(const AnyBackend& backend, View<const T, 4> query, View<const heed::accumulator_t<T>, 4> m,
              View<const heed::accumulator_t<T>, 3> z, View<T, 4> out,
              const heed::MemoryRetrieveOptions<T>& options = {}) {
  backend.visit([&](const auto& actual) {
    heed::Workspace workspace(ops::memory_retrieve_workspace_size<T>(actual, m.extent(2), m.extent(3)));
    ops::memory_retrieve(actual, query, m, z, out, workspace, options);
  });
}

template <class T>
struct Memory {
  using A = heed::accumulator_t<T>;

  Tensor<A, 4> m;
  Tensor<A, 3> z;

  Memory(Index batch, Index kv_heads, Index head_dim, Index value_head_dim)
      : m({batch, kv_heads, head_dim, value_head_dim}), z({batch, kv_heads, head_dim}) {}

  void update(const AnyBackend& backend, View<const T, 4> key, View<const T, 4> value, MemoryUpdate rule,
              View<const std::int64_t, 1> key_lengths = {}) {
    ::update<T>(backend, key, value, m, z, {.rule = rule, .key_lengths = key_lengths});
  }

  Tensor<T, 4> retrieve(const AnyBackend& backend, View<const T, 4> query, View<A, 3> denominator = {},
                        A epsilon = 0) const {
    Tensor<T, 4> out({query.extent(0), query.extent(1), query.extent(2), m.extent(3)});
    ::retrieve<T>(backend, query, m, z, out, {.denominator_epsilon = epsilon, .denominator = denominator});
    return out;
  }
};

template <class T>
Tensor<T, 4> tensor(const Index (&extents)[4], std::initializer_list<double> values) {
  Tensor<T, 4> result(extents);
  REQUIRE(result.size() == static_cast<Index>(values.size()));
  Index i = 0;
  for (const double value : values) result.data()[i++] = test::from_double<T>(value);
  return result;
}

// What the formula makes of one segment for every row and kv head, from the memory as it is.
template <class T>
struct Expected {
  Tensor<double, 4> m;
  Tensor<double, 3> z;

  Expected(const Memory<T>& before, View<const T, 4> key, View<const T, 4> value, MemoryUpdate rule,
           View<const std::int64_t, 1> lengths = {})
      : m(test::as_double(before.m)), z(test::as_double(before.z)) {
    for (Index b = 0; b < m.extent(0); ++b) {
      for (Index k = 0; k < m.extent(1); ++k) {
        test::MemoryFormula formula = at(b, k);
        const Index tokens = lengths.present() ? static_cast<Index>(lengths(b)) : key.extent(1);
        formula.update(test::tokens_of(key, b, k, 0, tokens), test::tokens_of(value, b, k, 0, tokens),
                       static_cast<test::Rule>(rule));
        for (Index d = 0; d < m.extent(2); ++d) {
          z(b, k, d) = formula.z(d);
          for (Index j = 0; j < m.extent(3); ++j) m(b, k, d, j) = formula.m(d, j);
        }
      }
    }
  }

  test::MemoryFormula at(Index b, Index k) const {
    test::MemoryFormula formula(m.extent(2), m.extent(3));
    for (Index d = 0; d < m.extent(2); ++d) {
      formula.z(d) = z(b, k, d);
      for (Index j = 0; j < m.extent(3); ++j) formula.m(d, j) = m(b, k, d, j);
    }
    return formula;
  }
};

// Rounding of a memory of S tokens and of what is read from it.
template <class T>
double tolerance(Index tokens) {
  return 16 * test::unit_roundoff<heed::accumulator_t<T>> * static_cast<double>(tokens + 16);
}

}  // namespace

TEST_CASE("case 35: d 1, the same segment twice") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const MemoryUpdate rule : rules) {
      CAPTURE(static_cast<int>(rule));
      const auto key = tensor<float>({1, 2, 1, 1}, {1, -1});
      const auto value = tensor<float>({1, 2, 1, 1}, {3, 5});
      Memory<float> memory(1, 1, 1, 1);
      memory.update(backend, key, value, rule);
      CHECK(memory.m(0, 0, 0, 0) == doctest::Approx(7.839397).epsilon(1e-6));
      CHECK(memory.z(0, 0, 0) == doctest::Approx(2.367879).epsilon(1e-6));
      for (const double q : {-3.0, 0.0, 2.5}) {
        const auto query = tensor<float>({1, 1, 1, 1}, {q});
        CHECK(memory.retrieve(backend, query)(0, 0, 0, 0) == doctest::Approx(3.310725).epsilon(1e-6));
      }
      memory.update(backend, key, value, rule);
      const auto query = tensor<float>({1, 1, 1, 1}, {0.3});
      const float read = memory.retrieve(backend, query)(0, 0, 0, 0);
      if (rule == MemoryUpdate::linear) {
        CHECK(read == doctest::Approx(3.310725).epsilon(1e-6));
      } else {  // z holds exactly the segment's mass: safe delta takes away all of it, too
        CHECK(memory.m(0, 0, 0, 0) == doctest::Approx(7.839397).epsilon(1e-6));
        CHECK(memory.z(0, 0, 0) == doctest::Approx(2 * 2.367879).epsilon(1e-6));
        CHECK(read == doctest::Approx(1.655362).epsilon(1e-6));
      }
    }
  });
}

TEST_CASE("case 36: d 2") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto key = tensor<float>({1, 2, 1, 2}, {1, 0, 0, -1});
    const auto value = tensor<float>({1, 2, 1, 1}, {3, 5});
    Memory<float> memory(1, 1, 2, 1);
    memory.update(backend, key, value, MemoryUpdate::linear);
    CHECK(memory.m(0, 0, 0, 0) == doctest::Approx(11).epsilon(1e-6));
    CHECK(memory.m(0, 0, 1, 0) == doctest::Approx(4.839397).epsilon(1e-6));
    CHECK(memory.z(0, 0, 0) == doctest::Approx(3).epsilon(1e-6));
    CHECK(memory.z(0, 0, 1) == doctest::Approx(1.367879).epsilon(1e-6));
    const auto query = tensor<float>({1, 1, 1, 2}, {1, -1});
    CHECK(memory.retrieve(backend, query)(0, 0, 0, 0) == doctest::Approx(3.656701).epsilon(1e-6));
  });
}

TEST_CASE("case 37: phi far below zero is small, not 0; NaN and infinity stay what they are") {
  const auto phi_of = [](const AnyBackend& backend, auto x) {
    using T = decltype(x);
    Memory<T> memory(1, 1, 1, 1);
    memory.update(backend, tensor<T>({1, 1, 1, 1}, {x}), tensor<T>({1, 1, 1, 1}, {0}), MemoryUpdate::linear);
    return memory.z(0, 0, 0);
  };
  test::for_each_any_backend([&](const AnyBackend& backend) {
    CHECK(phi_of(backend, -18.0F) == doctest::Approx(1.5229979e-8).epsilon(1e-6));
    CHECK(phi_of(backend, -40.0F) == doctest::Approx(4.2483543e-18).epsilon(1e-6));
    CHECK(phi_of(backend, -40.0F) > 0);
    CHECK(phi_of(backend, -700.0) == doctest::Approx(9.859676543759770e-305).epsilon(1e-14));
    CHECK(phi_of(backend, 0.0F) == 1);
    CHECK(phi_of(backend, 2.5F) == 3.5F);
    CHECK(phi_of(backend, 1e30F) == 1e30F);
    CHECK(phi_of(backend, -1e30F) == 0);
    CHECK(phi_of(backend, -std::numeric_limits<double>::infinity()) == 0);
    CHECK(phi_of(backend, std::numeric_limits<double>::infinity()) == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(phi_of(backend, std::numeric_limits<float>::quiet_NaN())));
  });
}

TEST_CASE_TEMPLATE("memory: ragged sizes against the formula", T, float, double, heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index head_dim : {1, 3, 16, 33}) {
      for (const Index value_head_dim : {1, 7, 16, 32, 70}) {
        for (const Index tokens : {1, 2, 5, 131}) {
          const Index batch = tokens < 5 ? 3 : 1;
          const Index kv_heads = head_dim % 2 + 1;
          const Index heads = kv_heads * (head_dim == 3 ? 3 : 1);
          CAPTURE(head_dim);
          CAPTURE(value_head_dim);
          CAPTURE(tokens);
          const auto key = test::random_tensor<T>({batch, tokens, kv_heads, head_dim}, 1, -2, 2);
          const auto value = test::random_tensor<T>({batch, tokens, kv_heads, value_head_dim}, 2);
          const auto next_key = test::random_tensor<T>({batch, tokens, kv_heads, head_dim}, 3, -2, 2);
          const auto next_value = test::random_tensor<T>({batch, tokens, kv_heads, value_head_dim}, 4);
          const auto query = test::random_tensor<T>({batch, tokens, heads, head_dim}, 5, -2, 2);
          for (const MemoryUpdate rule : rules) {
            CAPTURE(static_cast<int>(rule));
            Memory<T> memory(batch, kv_heads, head_dim, value_head_dim);
            memory.update(backend, key, value, rule);
            // The second segment's formula begins with heed's memory: an error of the first does not count twice.
            const Expected<T> expected(memory, next_key, next_value, rule);
            memory.update(backend, next_key, next_value, rule);
            const double scale = static_cast<double>(tokens + 1);  // elements of M are sums over tokens
            CHECK(test::max_error(memory.m, expected.m) <= tolerance<T>(tokens) * scale);
            CHECK(test::max_error(memory.z, expected.z) <= tolerance<T>(tokens) * scale);

            Tensor<heed::accumulator_t<T>, 3> denominator({batch, tokens, heads});
            const auto out = memory.retrieve(backend, query, denominator);
            double worst = 0;
            double worst_denominator = 0;
            for (Index b = 0; b < batch; ++b) {
              for (Index h = 0; h < heads; ++h) {
                const Expected<T> now(memory, {}, {}, rule, Tensor<std::int64_t, 1>({batch}).view());
                test::MemoryFormula formula = now.at(b, h / (heads / kv_heads));
                for (Index t = 0; t < tokens; ++t) {
                  const auto q = test::row_of(query.view().pointer(b, t, h), head_dim);
                  const double divisor = formula.denominator(q);
                  worst_denominator = std::fmax(
                      worst_denominator, test::difference(test::to_double(denominator(b, t, h)), divisor) / divisor);
                  const auto want = formula.retrieve(q);
                  for (Index j = 0; j < value_head_dim; ++j) {
                    const double exact = want[static_cast<std::size_t>(j)];
                    const double allowed = tolerance<T>(head_dim) * 4 + test::unit_roundoff<T> * std::fabs(exact);
                    worst = std::fmax(worst, test::difference(test::to_double(out(b, t, h, j)), exact) / allowed);
                  }
                }
              }
            }
            CHECK(worst <= 1);
            CHECK(worst_denominator <= tolerance<T>(head_dim));
          }
        }
      }
    }
  });
}

TEST_CASE("memory_retrieve: query head h reads kv head h / (H / K)") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Memory<float> memory(1, 2, 1, 1);
    memory.update(backend, tensor<float>({1, 1, 2, 1}, {0, 0}), tensor<float>({1, 1, 2, 1}, {5, 7}),
                  MemoryUpdate::linear);
    const auto out = memory.retrieve(backend, tensor<float>({1, 1, 4, 1}, {0, 0, 0, 0}));
    CHECK(out(0, 0, 0, 0) == 5);
    CHECK(out(0, 0, 1, 0) == 5);
    CHECK(out(0, 0, 2, 0) == 7);
    CHECK(out(0, 0, 3, 0) == 7);
  });
}

TEST_CASE("memory_retrieve: an empty memory answers 0 and is not read, whatever the query") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  test::for_each_any_backend([&](const AnyBackend& backend) {
    Memory<float> memory(2, 1, 3, 20);
    memory.m.fill(nan);
    memory.z(1, 0, 2) = 1;  // row 1 is not empty
    Tensor<float, 3> denominator({2, 4, 2});
    denominator.fill(nan);
    auto query = test::random_tensor<float>({2, 4, 2, 3}, 1);
    query(0, 0, 0, 1) = infinity;
    query(0, 1, 1, 2) = nan;
    const auto out = memory.retrieve(backend, query, denominator, 1e-8F);
    bool zero = true;
    for (Index t = 0; t < 4; ++t) {
      for (Index h = 0; h < 2; ++h) {
        zero = zero && denominator(0, t, h) == 0;
        for (Index j = 0; j < 20; ++j) zero = zero && out(0, t, h, j) == 0;
        CHECK(denominator(1, t, h) > 0);
        CHECK(std::isnan(out(1, t, h, 0)));
      }
    }
    CHECK(zero);
  });
}

TEST_CASE("memory_retrieve: a query whose denominator underflows to 0 gets 0, its neighbours their answers") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Memory<float> memory(1, 1, 1, 3);
    memory.z(0, 0, 0) = 1e-30F;
    for (Index j = 0; j < 3; ++j) memory.m(0, 0, 0, j) = 3e-30F;
    Tensor<float, 3> denominator({1, 2, 1});
    const auto out = memory.retrieve(backend, tensor<float>({1, 2, 1, 1}, {-50, 0}), denominator);
    CHECK(denominator(0, 0, 0) == 0);
    CHECK(out(0, 0, 0, 0) == 0);
    CHECK(out(0, 0, 0, 2) == 0);
    CHECK(denominator(0, 1, 0) == 1e-30F);
    CHECK(out(0, 1, 0, 2) == doctest::Approx(3).epsilon(1e-6));
  });
}

TEST_CASE("memory_retrieve: a subnormal denominator still divides") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Memory<double> memory(1, 1, 1, 2);
    memory.z(0, 0, 0) = 0x1p-1060;  // its reciprocal is infinite
    memory.m(0, 0, 0, 0) = 0x1p-1059;
    memory.m(0, 0, 0, 1) = 0;
    const auto out = memory.retrieve(backend, tensor<double>({1, 1, 1, 1}, {0}));
    CHECK(out(0, 0, 0, 0) == 2);
    CHECK(out(0, 0, 0, 1) == 0);
  });
}

TEST_CASE("memory_retrieve: an epsilon joins the denominator of a memory that is not empty") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Memory<double> memory(1, 1, 1, 1);
    memory.z(0, 0, 0) = 2;
    memory.m(0, 0, 0, 0) = 6;
    Tensor<double, 3> denominator({1, 1, 1});
    CHECK(memory.retrieve(backend, tensor<double>({1, 1, 1, 1}, {0}), denominator, 1)(0, 0, 0, 0) == 2);
    CHECK(denominator(0, 0, 0) == 3);
  });
}

TEST_CASE("case 42: from an empty memory every rule is the linear one, bit for bit, and keeps what M held") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto key = test::random_tensor<float>({1, 40, 1, 5}, 1, -3, 3);
    const auto value = test::random_tensor<float>({1, 40, 1, 20}, 2);
    Memory<float> linear(1, 1, 5, 20);
    linear.m.fill(0.25F);  // A = I: an M without z is passed on as it is
    linear.update(backend, key, value, MemoryUpdate::linear);
    for (const MemoryUpdate rule : rules) {
      Memory<float> memory(1, 1, 5, 20);
      memory.m.fill(0.25F);
      memory.update(backend, key, value, rule);
      CHECK(test::same_bits(memory.m, linear.m));
      CHECK(test::same_bits(memory.z, linear.z));
    }
  });
}

TEST_CASE(
    "memory_update: safe delta is delta where the memory holds the segment's mass, linear where a dim holds none") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto long_key = test::random_tensor<float>({1, 60, 1, 4}, 1, -1, 1);
    const auto long_value = test::random_tensor<float>({1, 60, 1, 9}, 2);
    const auto key = test::random_tensor<float>({1, 6, 1, 4}, 3, -1, 1);
    const auto value = test::random_tensor<float>({1, 6, 1, 9}, 4);
    Memory<float> safe(1, 1, 4, 9);
    safe.update(backend, long_key, long_value, MemoryUpdate::linear);
    Memory<float> delta = safe;
    safe.update(backend, key, value, MemoryUpdate::safe_delta);
    delta.update(backend, key, value, MemoryUpdate::delta);
    CHECK(test::same_bits(safe.m, delta.m));
    CHECK(test::same_bits(safe.z, delta.z));

    Memory<float> emptied = safe;
    emptied.z(0, 0, 2) = 0;
    Memory<float> linear = emptied;
    emptied.update(backend, key, value, MemoryUpdate::safe_delta);
    linear.update(backend, key, value, MemoryUpdate::linear);
    CHECK(test::same_bits(emptied.m, linear.m));
    CHECK(test::same_bits(emptied.z, linear.z));
  });
}

TEST_CASE("memory_update: a token whose denominator underflows to 0 enters by the linear rule") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Memory<float> memory(1, 1, 1, 1);
    memory.z(0, 0, 0) = 1e-30F;
    memory.m(0, 0, 0, 0) = 5e-30F;
    const float before = memory.m(0, 0, 0, 0);
    memory.update(backend, tensor<float>({1, 1, 1, 1}, {-50}), tensor<float>({1, 1, 1, 1}, {4}), MemoryUpdate::delta);
    const double feature = std::exp(-50.0);
    CHECK(test::to_double(memory.m(0, 0, 0, 0)) ==
          doctest::Approx(test::to_double(before) + 4 * feature).epsilon(1e-6));
    CHECK(test::to_double(memory.z(0, 0, 0)) == doctest::Approx(feature).epsilon(1e-6));
  });
}

// ---- the rules as maps of M

namespace {

// M after a segment that begins with M = start, z = z.
Tensor<double, 4> moved(const AnyBackend& backend, const Tensor<double, 4>& start, const Tensor<double, 3>& z,
                        View<const double, 4> key, View<const double, 4> value, MemoryUpdate rule) {
  Memory<double> memory(1, 1, start.extent(2), start.extent(3));
  memory.m = start;
  memory.z = z;
  memory.update(backend, key, value, rule);
  return memory.m;
}

Tensor<double, 4> identity(Index n) {
  Tensor<double, 4> result({Index{1}, Index{1}, n, n});
  for (Index i = 0; i < n; ++i) result(0, 0, i, i) = 1;
  return result;
}

// A · M + B for [1, 1, n, n] tensors.
Tensor<double, 4> affine(const Tensor<double, 4>& a, const Tensor<double, 4>& m, const Tensor<double, 4>& b) {
  Tensor<double, 4> result = b;
  const Index n = m.extent(2);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < m.extent(3); ++j) {
      for (Index p = 0; p < n; ++p) result(0, 0, i, j) += a(0, 0, i, p) * m(0, 0, p, j);
    }
  }
  return result;
}

// The eigenvalues of a symmetric matrix, by Jacobi's rotations.
std::vector<double> eigenvalues(Tensor<double, 4> a) {
  const Index n = a.extent(2);
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (Index p = 0; p < n; ++p) {
      for (Index q = p + 1; q < n; ++q) {
        if (a(0, 0, p, q) == 0) continue;
        const double theta = (a(0, 0, q, q) - a(0, 0, p, p)) / (2 * a(0, 0, p, q));
        const double t = (theta >= 0 ? 1 : -1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1);
        const double s = t * c;
        for (Index i = 0; i < n; ++i) {
          const double x = a(0, 0, i, p);
          const double y = a(0, 0, i, q);
          a(0, 0, i, p) = c * x - s * y;
          a(0, 0, i, q) = s * x + c * y;
        }
        for (Index i = 0; i < n; ++i) {
          const double x = a(0, 0, p, i);
          const double y = a(0, 0, q, i);
          a(0, 0, p, i) = c * x - s * y;
          a(0, 0, q, i) = s * x + c * y;
        }
      }
    }
  }
  std::vector<double> values;
  for (Index i = 0; i < n; ++i) values.push_back(a(0, 0, i, i));
  return values;
}

}  // namespace

TEST_CASE("memory_update: linear memory is the sum over all tokens, however they are cut into segments") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto key = test::random_tensor<double>({2, 60, 2, 5}, 1, -2, 2);
    const auto value = test::random_tensor<double>({2, 60, 2, 6}, 2);
    Memory<double> memory(2, 2, 5, 6);
    Index first = 0;
    for (const Index n : {1, 19, 7, 33}) {
      memory.update(backend, key.view().slice(1, first, n), value.view().slice(1, first, n), MemoryUpdate::linear);
      first += n;
    }
    const Expected<double> expected(Memory<double>(2, 2, 5, 6), key, value, MemoryUpdate::linear);
    CHECK(test::max_scaled_error(memory.m, expected.m) <= 1e-14);
    CHECK(test::max_scaled_error(memory.z, expected.z) <= 1e-14);
  });
}

TEST_CASE("memory_update: every rule is affine in M, so segments compose as a scan") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    constexpr Index n = 6;
    const Tensor<double, 4> zero({1, 1, n, n});
    const auto start = test::random_tensor<double>({1, 1, n, n}, 1);
    const auto first_z = test::random_tensor<double>({1, 1, n}, 2, 3, 9);
    for (const MemoryUpdate rule : rules) {
      CAPTURE(static_cast<int>(rule));
      // Three segments of different lengths, each as A and B of its own, found by what it does to I and 0.
      Tensor<double, 4> a = identity(n);
      Tensor<double, 4> b = zero;
      Memory<double> memory(1, 1, n, n);
      memory.m = start;
      memory.z = first_z;
      for (const Index tokens : {4, 9, 2}) {
        const auto key = test::random_tensor<double>({1, tokens, 1, n}, static_cast<std::uint64_t>(tokens), -2, 2);
        const auto value = test::random_tensor<double>({1, tokens, 1, n}, static_cast<std::uint64_t>(tokens + 100));
        const Tensor<double, 4> no_values({Index{1}, tokens, Index{1}, n});
        const auto own_a = moved(backend, identity(n), memory.z, key, no_values, rule);
        const auto own_b = moved(backend, zero, memory.z, key, value, rule);
        a = affine(own_a, a, zero);
        b = affine(own_a, b, own_b);
        memory.update(backend, key, value, rule);
      }
      CHECK(test::max_scaled_error(memory.m, affine(a, start, b)) <= 1e-13);
      if (rule == MemoryUpdate::linear) {
        CHECK(test::max_error(a, identity(n)) == 0);
      } else {
        CHECK(test::max_error(a, identity(n)) > 0.01);
      }
    }
  });
}

TEST_CASE("memory_update: safe delta's A is symmetric with eigenvalues in [0, 1] where delta's is far outside") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    constexpr Index n = 8;
    double lowest_of_delta = 0;
    double lowest = 1;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(seed);
      // 2 tokens are stored, 64 come.
      Memory<double> memory(1, 1, n, n);
      memory.update(backend, test::random_tensor<double>({1, 2, 1, n}, seed, -4, 4), Tensor<double, 4>({1, 2, 1, n}),
                    MemoryUpdate::linear);
      const auto key = test::random_tensor<double>({1, 64, 1, n}, seed + 100, -4, 4);
      const Tensor<double, 4> no_values({1, 64, 1, n});
      const auto a = moved(backend, identity(n), memory.z, key, no_values, MemoryUpdate::safe_delta);
      for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) CHECK(a(0, 0, i, j) == doctest::Approx(a(0, 0, j, i)).epsilon(1e-12));
      }
      for (const double value : eigenvalues(a)) {
        CHECK(value >= -1e-12);
        CHECK(value <= 1 + 1e-12);
        lowest = std::fmin(lowest, value);
      }
      const auto plain = moved(backend, identity(n), memory.z, key, no_values, MemoryUpdate::delta);
      for (const double value : eigenvalues(plain)) lowest_of_delta = std::fmin(lowest_of_delta, value);
    }
    CHECK(lowest < 0.9);           // it does take something away
    CHECK(lowest_of_delta < -10);  // about 1 − 64 / 2
  });
}

TEST_CASE("memory_update: z depends on keys only") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto key = test::random_tensor<float>({1, 30, 1, 7}, 1);
    Memory<float> one(1, 1, 7, 4);
    Memory<float> other(1, 1, 7, 9);
    for (int segment = 0; segment < 3; ++segment) {
      one.update(backend, key, test::random_tensor<float>({1, 30, 1, 4}, 2), MemoryUpdate::linear);
      other.update(backend, key, test::random_tensor<float>({1, 30, 1, 9}, 3), MemoryUpdate::delta);
    }
    CHECK(test::same_bits(one.z, other.z));
  });
}

TEST_CASE("case 40: memories of bfloat16 layers are float and keep growing") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<heed::bfloat16, 4> ones({1, 2048, 1, 1});
    ones.fill(heed::bfloat16(1.0F));
    Memory<heed::bfloat16> memory(1, 1, 1, 1);
    static_assert(std::is_same_v<Memory<heed::bfloat16>::A, float>);
    for (int segment = 0; segment < 400; ++segment) memory.update(backend, ones, ones, MemoryUpdate::linear);
    CHECK(memory.z(0, 0, 0) == 2.0F * 2048 * 400);
    CHECK(memory.m(0, 0, 0, 0) == 2.0F * 2048 * 400);
  });
}

TEST_CASE("memory_update: a segment is summed before it joins, so a float memory grows beyond 2^24 tokens") {
  const heed::Simd backend;
  Memory<float> memory(1, 1, 1, 1);
  memory.z(0, 0, 0) = 0x1p25F;  // where adding 1 changes nothing
  memory.m(0, 0, 0, 0) = 0x1p25F;
  Tensor<float, 4> zeros({1, 256, 1, 1});
  Tensor<float, 4> ones({1, 256, 1, 1});
  ones.fill(1);
  for (int segment = 0; segment < 4; ++segment) memory.update(backend, zeros, ones, MemoryUpdate::linear);
  CHECK(memory.z(0, 0, 0) == 0x1p25F + 1024);
  CHECK(memory.m(0, 0, 0, 0) == 0x1p25F + 1024);
}

// ---- lengths, sizes, bits, views

TEST_CASE_TEMPLATE("memory_update: key_lengths are the tokens that enter; a row without any is not touched", T, float,
                   heed::bfloat16) {
  using A = heed::accumulator_t<T>;
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const MemoryUpdate rule : rules) {
      CAPTURE(static_cast<int>(rule));
      auto key = test::random_tensor<T>({4, 50, 2, 6}, 1);
      auto value = test::random_tensor<T>({4, 50, 2, 10}, 2);
      Tensor<std::int64_t, 1> lengths({4});
      lengths(0) = 50;
      lengths(1) = 0;
      lengths(2) = 7;
      lengths(3) = 1;
      Memory<T> memory(4, 2, 6, 10);
      memory.m = test::random_tensor<A>({4, 2, 6, 10}, 3);
      memory.z = test::random_tensor<A>({4, 2, 6}, 4, 1, 2);
      memory.m(1, 0, 0, 0) = std::numeric_limits<A>::quiet_NaN();
      memory.m(1, 1, 2, 3) = A(-0.0);
      Memory<T> alone = memory;
      const Memory<T> before = memory;
      for (Index b : {2, 3}) {  // what lies beyond the length must not matter
        for (Index t = static_cast<Index>(lengths(b)); t < 50; ++t) {
          for (Index k = 0; k < 2; ++k) {
            key(b, t, k, 0) = test::from_double<T>(std::numeric_limits<double>::quiet_NaN());
            value(b, t, k, 9) = test::from_double<T>(std::numeric_limits<double>::quiet_NaN());
          }
        }
      }
      memory.update(backend, key, value, rule, lengths);
      CHECK(test::same_bits(memory.m.view()[1], before.m.view()[1]));
      CHECK(test::same_bits(memory.z.view()[1], before.z.view()[1]));
      for (Index b = 0; b < 4; ++b) {
        const Index n = static_cast<Index>(lengths(b));
        ::update<T>(backend, key.view().slice(0, b, 1).slice(1, 0, n), value.view().slice(0, b, 1).slice(1, 0, n),
                    alone.m.view().slice(0, b, 1), alone.z.view().slice(0, b, 1), {.rule = rule});
      }
      CHECK(test::same_bits(memory.m, alone.m));
      CHECK(test::same_bits(memory.z, alone.z));
    }
  });
}

TEST_CASE("memory: sizes of 0") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Memory<float> memory(2, 1, 3, 4);
    memory.m.fill(2);
    memory.z.fill(1);
    memory.update(backend, Tensor<float, 4>({2, 0, 1, 3}), Tensor<float, 4>({2, 0, 1, 4}), MemoryUpdate::delta);
    CHECK(memory.z(1, 0, 2) == 1);
    CHECK(memory.m(1, 0, 2, 3) == 2);
    CHECK(memory.retrieve(backend, Tensor<float, 4>({2, 0, 2, 3})).empty());
    Memory<float> nobody(0, 1, 3, 4);
    nobody.update(backend, Tensor<float, 4>({0, 5, 1, 3}), Tensor<float, 4>({0, 5, 1, 4}), MemoryUpdate::delta);
    CHECK(nobody.retrieve(backend, Tensor<float, 4>({0, 5, 1, 3})).empty());
    Memory<float> no_values(1, 1, 3, 0);  // z alone
    no_values.update(backend, Tensor<float, 4>({1, 5, 1, 3}), Tensor<float, 4>({1, 5, 1, 0}), MemoryUpdate::delta);
    CHECK(no_values.z(0, 0, 1) == 5);
    Tensor<float, 3> denominator({1, 2, 1});
    CHECK(no_values.retrieve(backend, Tensor<float, 4>({1, 2, 1, 3}), denominator).empty());
    CHECK(denominator(0, 1, 0) == 15);
    Memory<float> no_dims(1, 1, 0, 2);
    no_dims.update(backend, Tensor<float, 4>({1, 5, 1, 0}), Tensor<float, 4>({1, 5, 1, 2}), MemoryUpdate::delta);
    CHECK(no_dims.retrieve(backend, Tensor<float, 4>({1, 2, 1, 0}))(0, 1, 0, 1) == 0);
  });
}

TEST_CASE_TEMPLATE("memory: views with gaps, off alignment, repeated along the batch: the bits of their copies", T,
                   float, double, heed::bfloat16) {
  using A = heed::accumulator_t<T>;
  test::for_each_any_backend([](const AnyBackend& backend) {
    const auto key = test::random_tensor<T>({3, 21, 2, 9}, 1);
    const auto value = test::random_tensor<T>({3, 21, 2, 32}, 2);
    const auto query = test::random_tensor<T>({3, 13, 4, 9}, 3);
    for (const MemoryUpdate rule : rules) {
      Memory<T> memory(3, 2, 9, 32);
      memory.m = test::random_tensor<A>({3, 2, 9, 32}, 4);
      memory.z = test::random_tensor<A>({3, 2, 9}, 5, 1, 2);
      test::Strided<A, 4> m(memory.m);
      test::Strided<A, 3> z(memory.z);
      const test::Strided<T, 4> strided_key(key);
      const test::Strided<T, 4> strided_value(value);
      ::update<T>(backend, strided_key.view(), strided_value.view(), m.view(), z.view(), {.rule = rule});
      memory.update(backend, key, value, rule);
      CHECK(test::same_bits(m.view(), memory.m));
      CHECK(test::same_bits(z.view(), memory.z));
      CHECK(m.intact());
      CHECK(z.intact());

      Tensor<A, 3> denominator({3, 13, 4});
      const auto out = memory.retrieve(backend, query, denominator);
      const test::Strided<T, 4> strided_query(query);
      test::Strided<T, 4> strided_out(Tensor<T, 4>({3, 13, 4, 32}));
      test::Strided<A, 3> strided_denominator(Tensor<A, 3>({3, 13, 4}));
      ::retrieve<T>(backend, strided_query.view(), m.view(), z.view(), strided_out.view(),
                    {.denominator = strided_denominator.view()});
      CHECK(test::same_bits(strided_out.view(), out));
      CHECK(test::same_bits(strided_denominator.view(), denominator));
      CHECK(strided_out.intact());
      CHECK(strided_denominator.intact());

      // One memory for all rows.
      Tensor<T, 4> from_one({3, 13, 4, 32});
      ::retrieve<T>(backend, query, test::repeated(3, View<const A, 3>(memory.m.view()[1])),
                    test::repeated(3, View<const A, 2>(memory.z.view()[1])), from_one);
      CHECK(test::same_bits(from_one.view()[1], out.view()[1]));
    }
  });
}

TEST_CASE_TEMPLATE("case 31: bits do not depend on batch, threads, or the cut of the queries", T, float, double,
                   heed::float16) {
  using A = heed::accumulator_t<T>;
  const heed::Simd simd;
  for (const Index kv_heads : {1, 3}) {
    for (const Index value_head_dim : {8, 80}) {
      const Index heads = 2 * kv_heads;
      const auto key = test::random_tensor<T>({2, 300, kv_heads, 64}, 1);
      const auto value = test::random_tensor<T>({2, 300, kv_heads, value_head_dim}, 2);
      const auto query = test::random_tensor<T>({2, 150, heads, 64}, 3);
      for (const MemoryUpdate rule : rules) {
        CAPTURE(kv_heads);
        CAPTURE(value_head_dim);
        CAPTURE(static_cast<int>(rule));
        Memory<T> want(2, kv_heads, 64, value_head_dim);
        want.z = test::random_tensor<A>({2, kv_heads, 64}, 4, 1, 2);
        const Memory<T> before = want;
        want.update(simd, key, value, rule);
        const auto want_out = want.retrieve(simd, query);
        test::for_each_fast_backend([&](const auto& actual) {
          const AnyBackend backend(actual);
          Memory<T> memory = before;
          memory.update(backend, key, value, rule);
          CHECK(test::same_bits(memory.m, want.m));
          CHECK(test::same_bits(memory.z, want.z));
          CHECK(test::same_bits(memory.retrieve(backend, query), want_out));
          // Row 1 alone, its queries one, then eight, then the rest at a time.
          Memory<T> row(1, kv_heads, 64, value_head_dim);
          row.m = Tensor<A, 4>(View<const A, 4>(before.m).slice(0, 1, 1));
          row.z = Tensor<A, 3>(View<const A, 3>(before.z).slice(0, 1, 1));
          row.update(backend, key.view().slice(0, 1, 1), value.view().slice(0, 1, 1), rule);
          CHECK(test::same_bits(row.m.view()[0], want.m.view()[1]));
          CHECK(test::same_bits(row.z.view()[0], want.z.view()[1]));
          Index first = 0;
          for (const Index n : {1, 8, 141}) {
            const auto part = row.retrieve(backend, query.view().slice(0, 1, 1).slice(1, first, n));
            CHECK(test::same_bits(part, want_out.view().slice(0, 1, 1).slice(1, first, n)));
            first += n;
          }
        });
      }
    }
  }
}

TEST_CASE("memory_update: one head of one row is cut over the columns of M by threads") {
  test::ReversePool pool;
  const heed::Cpu cpu(pool);
  const auto key = test::random_tensor<float>({1, 256, 1, 64}, 1);
  const auto value = test::random_tensor<float>({1, 256, 1, 128}, 2);
  Memory<float> memory(1, 1, 64, 128);
  memory.update(cpu, key, value, MemoryUpdate::delta);
  CHECK(pool.parts_elsewhere() > 0);
}

// ---- errors

TEST_CASE("memory_retrieve: error texts") {
  const heed::Cpu cpu;
  const Tensor<float, 4> query({2, 5, 4, 3});
  const Tensor<float, 4> m({2, 2, 3, 6});
  const Tensor<float, 3> z({2, 2, 3});
  Tensor<float, 4> out({2, 5, 4, 6});
  heed::Workspace workspace(1 << 20);
  const auto text = [&](View<const float, 4> q, View<const float, 4> memory, View<const float, 3> normalizer,
                        View<float, 4> to, View<float, 3> denominator = {}) {
    return test::error_text<heed::ShapeError>(
        [&] { ops::memory_retrieve(cpu, q, memory, normalizer, to, workspace, {.denominator = denominator}); });
  };
  CHECK(text(query, m, z, out) == "(no error)");
  CHECK(text(query, Tensor<float, 4>({1, 2, 3, 6}), z, out) ==
        "heed: memory_retrieve: memory: expected [2, *, 3, *] (batch, kv heads, head dim, value head dim), got "
        "[1, 2, 3, 6]");
  CHECK(text(query, m, Tensor<float, 3>({2, 1, 3}), out) ==
        "heed: memory_retrieve: normalizer: expected [2, 2, 3] (batch, kv heads, head dim), got [2, 1, 3]");
  CHECK(text(query, m, z, Tensor<float, 4>({2, 5, 4, 5})) ==
        "heed: memory_retrieve: out: expected [2, 5, 4, 6] (batch, seq, heads, value head dim), got [2, 5, 4, 5]");
  CHECK(text(Tensor<float, 4>({2, 5, 3, 3}), m, z, Tensor<float, 4>({2, 5, 3, 6})) ==
        "heed: memory_retrieve: query: 3 heads are not a multiple of the memory's 2 kv heads");
  CHECK(text(query, Tensor<float, 4>({2, 0, 3, 6}), Tensor<float, 3>({2, 0, 3}), out) ==
        "heed: memory_retrieve: query: 4 heads are not a multiple of the memory's 0 kv heads");
  CHECK(text(query, m, z, out, Tensor<float, 3>({2, 5, 2})) ==
        "heed: memory_retrieve: denominator: expected [2, 5, 4] (batch, seq, heads), got [2, 5, 2]");
  Tensor<float, 4> square({2, 2, 2, 2});
  CHECK(text(square, square, Tensor<float, 3>({2, 2, 2}), square) ==
        "heed: memory_retrieve: out: must not overlap query");
  CHECK(text(Tensor<float, 4>({2, 2, 2, 2}), square, Tensor<float, 3>({2, 2, 2}), square) ==
        "heed: memory_retrieve: out: must not overlap memory");
  heed::Workspace small(64);
  CHECK(test::error_text<heed::WorkspaceError>([&] { ops::memory_retrieve(cpu, query, m, z, out, small); }) ==
        "heed: memory_retrieve: workspace: needs " +
            std::to_string(ops::memory_retrieve_workspace_size<float>(cpu, 3, 6)) + " bytes, has 64");
}

TEST_CASE("memory_update: error texts, and nothing is written") {
  const heed::Cpu cpu;
  const auto key = test::random_tensor<float>({2, 5, 2, 3}, 1);
  const auto value = test::random_tensor<float>({2, 5, 2, 6}, 2);
  Tensor<float, 4> m({2, 2, 3, 6});
  Tensor<float, 3> z({2, 2, 3});
  heed::Workspace workspace(1 << 20);
  const auto text = [&](View<const float, 4> keys, View<const float, 4> values, View<float, 4> memory,
                        View<float, 3> normalizer, View<const std::int64_t, 1> lengths = {}) {
    return test::error_text<heed::ShapeError>(
        [&] { ops::memory_update(cpu, keys, values, memory, normalizer, workspace, {.key_lengths = lengths}); });
  };
  CHECK(text(key, Tensor<float, 4>({2, 4, 2, 6}), m, z) ==
        "heed: memory_update: value: expected [2, 5, 2, *] (batch, seq, kv heads, value head dim), got [2, 4, 2, 6]");
  CHECK(text(key, value, Tensor<float, 4>({2, 2, 6, 3}), z) ==
        "heed: memory_update: memory: expected [2, 2, 3, 6] (batch, kv heads, head dim, value head dim), got "
        "[2, 2, 6, 3]");
  CHECK(text(key, value, m, Tensor<float, 3>({2, 2, 6})) ==
        "heed: memory_update: normalizer: expected [2, 2, 3] (batch, kv heads, head dim), got [2, 2, 6]");
  Tensor<std::int64_t, 1> lengths({3});
  CHECK(text(key, value, m, z, lengths) == "heed: memory_update: key_lengths: expected [2] (batch), got [3]");
  lengths = Tensor<std::int64_t, 1>({2});
  lengths(1) = 6;
  CHECK(text(key, value, m, z, lengths) == "heed: memory_update: key_lengths: row 1 must be in 0 to 5, got 6");
  lengths(1) = -1;
  CHECK(text(key, value, m, z, lengths) == "heed: memory_update: key_lengths: row 1 must be in 0 to 5, got -1");
  const View<float, 4> all(m.data(), {2, 2, 3, 3});
  CHECK(text(all, all, all, z.view()) ==
        "heed: memory_update: memory: expected [2, 3, 3, 3] (batch, kv heads, head "
        "dim, value head dim), got [2, 2, 3, 3]");
  Tensor<float, 4> cube({2, 2, 2, 2});
  CHECK(text(cube, Tensor<float, 4>({2, 2, 2, 2}), cube, Tensor<float, 3>({2, 2, 2})) ==
        "heed: memory_update: memory: must not overlap key");
  CHECK(text(Tensor<float, 4>({2, 2, 2, 2}), cube, cube, Tensor<float, 3>({2, 2, 2})) ==
        "heed: memory_update: memory: must not overlap value");
  CHECK(text(cube, Tensor<float, 4>({2, 2, 2, 2}), Tensor<float, 4>({2, 2, 2, 2}),
             View<float, 3>(cube.data(), {2, 2, 2})) == "heed: memory_update: normalizer: must not overlap key");
  CHECK(text(Tensor<float, 4>({2, 2, 2, 2}), cube, Tensor<float, 4>({2, 2, 2, 2}),
             View<float, 3>(cube.data(), {2, 2, 2})) == "heed: memory_update: normalizer: must not overlap value");
  CHECK(text(Tensor<float, 4>({2, 2, 2, 2}), Tensor<float, 4>({2, 2, 2, 2}), cube,
             View<float, 3>(cube.data(), {2, 2, 2})) == "heed: memory_update: normalizer: must not overlap memory");
  const float zeros[72] = {};
  CHECK(text(key, value, View<float, 4>(m.data(), {2, 2, 3, 6}, {0, 18, 6, 1}), z) ==
        "heed: memory_update: memory: an output must not repeat elements (stride 0), got stride 0 on batch");
  heed::Workspace small(64);
  CHECK(test::error_text<heed::WorkspaceError>([&] { ops::memory_update(cpu, key, value, m, z, small); }) ==
        "heed: memory_update: workspace: needs " + std::to_string(ops::memory_update_workspace_size<float>(cpu, 3, 6)) +
            " bytes, has 64");
  CHECK(test::same_bits(m, View<const float, 4>(zeros, {2, 2, 3, 6})));
  CHECK(test::same_bits(z, View<const float, 3>(zeros, {2, 2, 3})));
}
