// ops::linear_attention against its recurrence in double, and against what follows from it.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "heed/ops/compressive_memory.hpp"
#include "heed/ops/linear_attention.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/errors.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::accumulator_t;
using heed::Index;
using heed::LinearAttentionOptions;
using heed::Tensor;
using heed::View;
namespace ops = heed::ops;

namespace {

enum class Decay { none, head, dims };

struct Shape {
  Index batch = 2;
  Index tokens = 70;
  Index heads = 4;
  Index kv_heads = 2;
  Index dim = 8;
  Index value_dim = 12;
};

// The arguments of a call, and what they give in double.
template <class T>
struct Problem {
  using A = accumulator_t<T>;
  Tensor<T, 4> query, key, value;
  Tensor<A, 4> decay, state;
  Tensor<A, 3> beta;

  Problem(const Shape& shape, Decay kind, bool with_beta, std::uint64_t seed = 1)
      : query(test::random_tensor<T>({shape.batch, shape.tokens, shape.heads, shape.dim}, seed)),
        key(test::random_tensor<T>({shape.batch, shape.tokens, shape.kv_heads, shape.dim}, seed + 1)),
        value(test::random_tensor<T>({shape.batch, shape.tokens, shape.kv_heads, shape.value_dim}, seed + 2)),
        state(test::random_tensor<A>({shape.batch, shape.kv_heads, shape.dim, shape.value_dim}, seed + 3)) {
    // Keys of length below 1, as the delta rule wants them.
    const double shrink = 1 / std::sqrt(static_cast<double>(shape.dim));
    for (T& element : key.span()) element = test::from_double<T>(test::to_double(element) * shrink);
    const Index dims = kind == Decay::dims ? shape.dim : 1;
    if (kind != Decay::none) {
      decay = test::random_tensor<A>({shape.batch, shape.tokens, shape.kv_heads, dims}, seed + 4, -0.5, 0);
    }
    if (with_beta) beta = test::random_tensor<A>({shape.batch, shape.tokens, shape.kv_heads}, seed + 5, 0, 1);
  }

  LinearAttentionOptions<T> options(Index chunk_size = 32) const {
    LinearAttentionOptions<T> result;
    result.decay = decay;
    result.beta = beta;
    result.chunk_size = chunk_size;
    return result;
  }
  Tensor<T, 4> out() const {
    return Tensor<T, 4>({query.extent(0), query.extent(1), query.extent(2), value.extent(3)});
  }
};

// The recurrence, written with the whole transition: S = (1 − β k kᵀ) diag(e^g) S + β k vᵀ.
struct Wanted {
  Tensor<double, 4> out, state;
};
template <class T>
Wanted recurrence(const Problem<T>& problem, double scale) {
  const auto& [query, key, value, decay, state, beta] = problem;
  const Index dim = key.extent(3);
  Wanted wanted{Tensor<double, 4>({query.extent(0), query.extent(1), query.extent(2), value.extent(3)}),
                test::as_double(state)};
  for (Index b = 0; b < query.extent(0); ++b) {
    for (Index h = 0; h < query.extent(2); ++h) {
      const Index k = h / (query.extent(2) / key.extent(2));
      Tensor<double, 2> s(heed::View<const double, 2>(test::const_view(test::as_double(state))[b][k]));
      for (Index t = 0; t < query.extent(1); ++t) {
        const double rate = beta.empty() ? 0 : test::to_double(beta(b, t, k));
        Tensor<double, 2> next({dim, value.extent(3)});
        for (Index i = 0; i < dim; ++i) {
          for (Index d = 0; d < dim; ++d) {
            double kept = i == d ? 1 : 0;
            kept -= rate * test::to_double(key(b, t, k, i)) * test::to_double(key(b, t, k, d));
            if (!decay.empty()) kept *= std::exp(test::to_double(decay(b, t, k, decay.extent(3) == 1 ? 0 : d)));
            for (Index j = 0; j < value.extent(3); ++j) next(i, j) += kept * s(d, j);
          }
          for (Index j = 0; j < value.extent(3); ++j) {
            next(i, j) +=
                (beta.empty() ? 1 : rate) * test::to_double(key(b, t, k, i)) * test::to_double(value(b, t, k, j));
          }
        }
        s = next;
        for (Index j = 0; j < value.extent(3); ++j) {
          double answer = 0;
          for (Index d = 0; d < dim; ++d) answer += test::to_double(query(b, t, h, d)) * s(d, j);
          wanted.out(b, t, h, j) = scale * answer;
        }
      }
      for (Index d = 0; d < dim; ++d) {
        for (Index j = 0; j < value.extent(3); ++j) wanted.state(b, k, d, j) = s(d, j);
      }
    }
  }
  return wanted;
}

template <class T>
constexpr double tolerance() {
  return 64 * test::unit_roundoff<accumulator_t<T>> + 2 * test::unit_roundoff<T>;
}

}  // namespace

TEST_CASE_TEMPLATE("linear_attention: the four rules are their recurrence", T, float, double, heed::bfloat16,
                   heed::float16) {
  const Shape shapes[] = {{},
                          {1, 33, 3, 3, 5, 1},    // no panel is full
                          {2, 1, 2, 1, 16, 32},   // decode
                          {1, 32, 1, 1, 1, 7},    // a whole chunk, one dim
                          {3, 9, 6, 2, 17, 40}};  // more than a panel
  test::for_each_backend([&](const auto& backend) {
    for (const Shape& shape : shapes) {
      for (const Decay kind : {Decay::none, Decay::head, Decay::dims}) {
        for (const bool with_beta : {false, true}) {
          const Problem<T> problem(shape, kind, with_beta);
          const Wanted wanted = recurrence(problem, 1 / std::sqrt(static_cast<double>(shape.dim)));
          auto state = problem.state;
          auto out = problem.out();
          ops::linear_attention(backend, problem.query, problem.key, problem.value, state, out, problem.options());
          CAPTURE(shape.tokens);
          CAPTURE(static_cast<int>(kind));
          CAPTURE(with_beta);
          CHECK(test::max_scaled_error(out, wanted.out) <= tolerance<T>());
          CHECK(test::max_scaled_error(state, wanted.state) <= tolerance<accumulator_t<T>>());
        }
      }
    }
  });
}

TEST_CASE("linear_attention: by hand") {
  test::for_each_backend([](const auto& backend) {
    Tensor<double, 4> query({1, 2, 1, 2}), key({1, 2, 1, 2}), value({1, 2, 1, 1}), state({1, 1, 2, 1}),
        out({1, 2, 1, 1});
    for (double& element : query.span()) element = 1;
    key(0, 0, 0, 0) = 1;
    key(0, 1, 0, 0) = 1;
    value(0, 0, 0, 0) = 3;
    value(0, 1, 0, 0) = 5;
    LinearAttentionOptions<double> options;
    options.scale = 2;
    ops::linear_attention(backend, query, key, value, state, out, options);
    CHECK(out(0, 0, 0, 0) == 6);   // 2 · 3
    CHECK(out(0, 1, 0, 0) == 16);  // 2 · (3 + 5)
    CHECK(state(0, 0, 0, 0) == 8);
    CHECK(state(0, 0, 1, 0) == 0);

    Tensor<double, 3> beta({1, 2, 1});
    beta.fill(0.5);
    options.beta = beta;
    state.fill(0);
    ops::linear_attention(backend, query, key, value, state, out, options);
    CHECK(out(0, 0, 0, 0) == 3);    // 2 · 0.5 · 3
    CHECK(out(0, 1, 0, 0) == 6.5);  // 2 · (1.5 + 0.5 · (5 − 1.5))
    CHECK(state(0, 0, 0, 0) == 3.25);
  });
}

TEST_CASE("linear_attention: with beta 1 a key of length 1 then retrieves its value, whatever was there") {
  test::for_each_backend([](const auto& backend) {
    Problem<double> problem({1, 40, 1, 1, 6, 9}, Decay::dims, true);
    for (Index t = 0; t < 40; ++t) {
      double square = 0;
      for (Index d = 0; d < 6; ++d) square += problem.key(0, t, 0, d) * problem.key(0, t, 0, d);
      for (Index d = 0; d < 6; ++d) problem.key(0, t, 0, d) /= std::sqrt(square);
    }
    problem.beta.fill(1);
    auto options = problem.options();
    options.scale = 1;
    auto out = problem.out();
    ops::linear_attention(backend, problem.key, problem.key, problem.value, problem.state, out, options);
    CHECK(test::max_error(out, problem.value) < 1e-13);
  });
}

TEST_CASE_TEMPLATE("linear_attention: cuts into calls; at chunks, and with chunk_size 1, bit for bit", T, float,
                   double) {
  test::for_each_backend([](const auto& backend) {
    for (const Decay kind : {Decay::none, Decay::head, Decay::dims}) {
      for (const bool with_beta : {false, true}) {
        const Problem<T> problem({}, kind, with_beta);
        for (const Index chunk : {1, 8, 32, 100}) {
          auto whole_state = problem.state;
          auto whole = problem.out();
          ops::linear_attention(backend, problem.query, problem.key, problem.value, whole_state, whole,
                                problem.options(chunk));
          for (const Index length : {1, 13, 32, 64}) {
            CAPTURE(chunk);
            CAPTURE(length);
            CAPTURE(static_cast<int>(kind));
            CAPTURE(with_beta);
            auto state = problem.state;
            auto out = problem.out();
            for (Index first = 0; first < 70; first += length) {
              const Index n = 70 - first < length ? 70 - first : length;
              auto options = problem.options(chunk);
              if (kind != Decay::none) options.decay = options.decay.slice(1, first, n);
              if (with_beta) options.beta = options.beta.slice(1, first, n);
              ops::linear_attention(backend, problem.query.view().slice(1, first, n),
                                    problem.key.view().slice(1, first, n), problem.value.view().slice(1, first, n),
                                    state, out.view().slice(1, first, n), options);
            }
            if (length % chunk == 0) {
              CHECK(test::same_bits(out, whole));
              CHECK(test::same_bits(state, whole_state));
            } else {
              CHECK(test::max_scaled_error(out, whole) <= tolerance<T>());
              CHECK(test::max_scaled_error(state, whole_state) <= tolerance<T>());
            }
          }
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("linear_attention: bits are the same alone, in a batch, on threads, from strided views", T, float,
                   heed::bfloat16) {
  using A = accumulator_t<T>;
  // Large enough for Cpu to split one head's columns.
  const Problem<T> problem({1, 100, 2, 1, 40, 90}, Decay::head, true);
  auto state = problem.state;
  auto out = problem.out();
  ops::linear_attention(heed::Simd(), problem.query, problem.key, problem.value, state, out, problem.options());

  test::for_each_fast_backend([&](const auto& backend) {
    auto own_state = problem.state;
    auto own = problem.out();
    ops::linear_attention(backend, problem.query, problem.key, problem.value, own_state, own, problem.options());
    CHECK(test::same_bits(own, out));
    CHECK(test::same_bits(own_state, state));

    // Twice in a batch, by stride 0, into memory with gaps.
    const auto twice = [](const auto& tensor) { return test::repeated(2, test::const_view(tensor)[0]); };
    test::Strided<A, 4> states{Tensor<A, 4>(twice(problem.state))};
    test::Strided<T, 4> outs{Tensor<T, 4>({2, 100, 2, 90})};
    LinearAttentionOptions<T> options;
    options.decay = twice(problem.decay);
    options.beta = twice(problem.beta);
    ops::linear_attention(backend, twice(problem.query), twice(problem.key), twice(problem.value), states.view(),
                          outs.view(), options);
    CHECK(states.intact());
    CHECK(outs.intact());
    for (Index b = 0; b < 2; ++b) {
      CHECK(test::same_bits(outs.view()[b], out.view()[0]));
      CHECK(test::same_bits(states.view()[b], state.view()[0]));
    }
  });
}

TEST_CASE("linear_attention: one beta for all heads; a decay for the state is one for each of its dims") {
  test::for_each_backend([](const auto& backend) {
    Problem<double> problem({}, Decay::head, true);
    for (Index b = 0; b < 2; ++b) {
      for (Index t = 0; t < 70; ++t) problem.beta(b, t, 1) = problem.beta(b, t, 0);
    }
    auto state = problem.state;
    auto out = problem.out();
    ops::linear_attention(backend, problem.query, problem.key, problem.value, state, out, problem.options());

    auto options = problem.options();
    options.beta = options.beta.slice(2, 0, 1);
    Tensor<double, 4> decay({2, 70, 2, 8});
    for (Index i = 0; i < decay.size(); ++i) decay.data()[i] = problem.decay.data()[i / 8];
    options.decay = decay;
    auto other_state = problem.state;
    auto other = problem.out();
    ops::linear_attention(backend, problem.query, problem.key, problem.value, other_state, other, options);
    CHECK(test::max_scaled_error(other, out) < 1e-13);
    CHECK(test::max_scaled_error(other_state, state) < 1e-13);
  });
}

TEST_CASE("linear_attention: a decay of -inf forgets; strong and growing ones are as the recurrence has them") {
  test::for_each_backend([](const auto& backend) {
    for (const Decay kind : {Decay::head, Decay::dims}) {
      Problem<float> problem({1, 40, 2, 1, 8, 12}, kind, true);
      for (Index d = 0; d < problem.decay.extent(3); ++d)
        problem.decay(0, 17, 0, d) = -std::numeric_limits<float>::infinity();
      auto state = problem.state;
      auto out = problem.out();
      ops::linear_attention(backend, problem.query, problem.key, problem.value, state, out, problem.options());

      auto options = problem.options();
      options.decay = options.decay.slice(1, 17, 23);
      options.beta = options.beta.slice(1, 17, 23);
      Tensor<float, 4> empty({1, 1, 8, 12});
      auto rest = problem.out();
      ops::linear_attention(backend, problem.query.view().slice(1, 17, 23), problem.key.view().slice(1, 17, 23),
                            problem.value.view().slice(1, 17, 23), empty, rest.view().slice(1, 17, 23), options);
      CHECK(test::max_scaled_error(out.view().slice(1, 17, 23), rest.view().slice(1, 17, 23)) < 1e-5);
      CHECK(test::max_scaled_error(state, empty) < 1e-5);

      // e^(−60) a token: a chunk's sum of logs is −1800, whose e^(+1800) no float holds. And growth.
      for (const float rate : {-60.0F, 0.05F}) {
        Problem<float> strong({1, 40, 2, 1, 8, 12}, kind, true);
        for (float& element : strong.decay.span()) element = rate;
        const Wanted wanted = recurrence(strong, 1 / std::sqrt(8.0));
        auto result = strong.out();
        ops::linear_attention(backend, strong.query, strong.key, strong.value, strong.state, result, strong.options());
        CHECK(test::max_scaled_error(result, wanted.out) < 2e-5);
        CHECK(test::max_scaled_error(strong.state, wanted.state) < 2e-5);
      }
    }
  });
}

TEST_CASE("linear_attention: a later token never matters, not even NaN; tokens beyond a row's length neither") {
  test::for_each_backend([](const auto& backend) {
    for (const Decay kind : {Decay::none, Decay::head, Decay::dims}) {
      const Problem<float> problem({}, kind, true);
      auto state = problem.state;
      auto out = problem.out();
      ops::linear_attention(backend, problem.query, problem.key, problem.value, state, out, problem.options());
      Problem<float> other({}, kind, true);
      constexpr float nan = std::numeric_limits<float>::quiet_NaN();
      for (Index b = 0; b < 2; ++b) {
        for (Index d = 0; d < 8; ++d) other.key(b, 50, 0, d) = nan;
        for (Index j = 0; j < 12; ++j) other.value(b, 50, 0, j) = nan;
        other.beta(b, 50, 0) = nan;
      }
      auto changed = problem.out();
      auto changed_state = problem.state;
      ops::linear_attention(backend, other.query, other.key, other.value, changed_state, changed, other.options());
      CHECK(test::same_bits(changed.view().slice(1, 0, 50), out.view().slice(1, 0, 50)));
      CHECK(std::isnan(changed(0, 51, 0, 0)));
      CHECK(test::same_bits(changed.view().slice(2, 2, 2), out.view().slice(2, 2, 2)));  // the other kv head's

      Tensor<std::int64_t, 1> lengths({2});
      lengths(0) = 50;
      auto options = other.options();
      options.key_lengths = lengths;
      changed.fill(7);
      changed_state = problem.state;
      ops::linear_attention(backend, other.query, other.key, other.value, changed_state, changed, options);
      CHECK(test::same_bits(changed.view()[0].slice(0, 0, 50), out.view()[0].slice(0, 0, 50)));
      const Tensor<float, 3> beyond(View<const float, 3>(changed.view()[0].slice(0, 50, 20)));
      for (const float element : beyond.span()) CHECK(element == 0);
      const Tensor<float, 3> padding(View<const float, 3>(changed.view()[1]));
      for (const float element : padding.span()) CHECK(element == 0);
      CHECK(test::same_bits(changed_state.view()[1], problem.state.view()[1]));
      CHECK(std::isfinite(changed_state(0, 0, 0, 0)));
    }
  });
}

TEST_CASE("linear_attention: the linear rule on φ(k), with a column of ones, is compressive memory") {
  const auto phi = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  test::for_each_backend([&](const auto& backend) {
    const Problem<double> problem({}, Decay::none, false);
    Tensor<double, 4> memory({2, 2, 8, 12});
    Tensor<double, 3> normalizer({2, 2, 8});
    heed::Workspace workspace(ops::memory_update_workspace_size<double>(backend, 8, 12) +
                              ops::memory_retrieve_workspace_size<double>(backend, 8, 12));
    ops::memory_update(backend, problem.key, problem.value, memory, normalizer, workspace);
    auto retrieved = problem.out();
    ops::memory_retrieve(backend, problem.query, memory, normalizer, retrieved, workspace);

    auto query = problem.query;
    auto key = problem.key;
    for (double& element : query.span()) element = phi(element);
    for (double& element : key.span()) element = phi(element);
    Tensor<double, 4> value({2, 70, 2, 13});
    value.fill(1);
    test::for_each_element([](double from, double& to) { to = from; }, problem.value.view(),
                           value.view().slice(3, 0, 12));
    Tensor<double, 4> state({2, 2, 8, 13});
    Tensor<double, 4> out({2, 70, 4, 13});
    LinearAttentionOptions<double> options;
    options.scale = 1;
    ops::linear_attention(backend, query, key, value, state, out, options);
    CHECK(test::max_scaled_error(state.view().slice(3, 0, 12), memory) < 1e-13);
    for (Index d = 0; d < 8; ++d) CHECK(state(1, 1, d, 12) == doctest::Approx(normalizer(1, 1, d)).epsilon(1e-13));
    for (Index h = 0; h < 4; ++h) {  // the last token has seen them all
      for (Index j = 0; j < 12; ++j) {
        CHECK(out(1, 69, h, j) / out(1, 69, h, 12) == doctest::Approx(retrieved(1, 69, h, j)).epsilon(1e-12));
      }
    }
  });
}

TEST_CASE("linear_attention: sizes of 0") {
  test::for_each_backend([](const auto& backend) {
    for (int axis = 0; axis < 6; ++axis) {
      CAPTURE(axis);
      Shape shape{2, 3, 4, 2, 8, 12};
      Index* const sizes[] = {&shape.batch, &shape.tokens, &shape.heads, &shape.kv_heads, &shape.dim, &shape.value_dim};
      *sizes[axis] = 0;
      if (axis == 3) shape.heads = 0;
      Problem<float> problem(shape, Decay::head, true);
      const auto before = problem.state;
      auto out = problem.out();
      out.fill(3);
      ops::linear_attention(backend, problem.query, problem.key, problem.value, problem.state, out, problem.options());
      for (const float element : out.span()) CHECK(element == 0);  // without dims every answer is 0
      if (axis == 1) CHECK(test::same_bits(problem.state, before));
    }
  });
}

TEST_CASE("linear_attention: errors say what is wrong, and nothing is written") {
  const Problem<float> problem({2, 3, 4, 2, 8, 12}, Decay::dims, true);
  auto state = problem.state;
  auto out = problem.out();
  out.fill(5);
  const auto shape_error = [&](const LinearAttentionOptions<float>& options) {
    return test::error_text<heed::ShapeError>(
        [&] { ops::linear_attention(heed::Cpu(), problem.query, problem.key, problem.value, state, out, options); });
  };
  const auto option_error = [&](const LinearAttentionOptions<float>& options) {
    return test::error_text<heed::OptionError>(
        [&] { ops::linear_attention(heed::Cpu(), problem.query, problem.key, problem.value, state, out, options); });
  };
  const auto call = [&](View<const float, 4> query, View<const float, 4> key, View<const float, 4> value,
                        View<float, 4> s, View<float, 4> o) {
    return test::error_text<heed::ShapeError>([&] { ops::linear_attention(heed::Cpu(), query, key, value, s, o); });
  };
  const auto q = test::const_view(problem.query);
  const auto k = test::const_view(problem.key);
  const auto v = test::const_view(problem.value);
  CHECK(call(q, k.slice(3, 0, 7), v, state, out) ==
        "heed: linear_attention: key: expected [2, 3, *, 8] (batch, seq, kv heads, head dim), got [2, 3, 2, 7]");
  CHECK(
      call(q, k, v.slice(1, 0, 2), state, out) ==
      "heed: linear_attention: value: expected [2, 3, 2, *] (batch, seq, kv heads, value head dim), got [2, 2, 2, 12]");
  CHECK(call(q.slice(2, 0, 3), k, v, state, out) ==
        "heed: linear_attention: query: its number of heads, 3, is not a multiple of key's kv heads, 2");
  CHECK(call(q, k, v, state.view().slice(2, 0, 7), out) ==
        "heed: linear_attention: state: expected [2, 2, 8, 12] (batch, kv heads, head dim, value head dim), got "
        "[2, 2, 7, 12]");
  CHECK(call(q, k, v, state, out.view().slice(3, 0, 11)) ==
        "heed: linear_attention: out: expected [2, 3, 4, 12] (batch, seq, heads, value head dim), got [2, 3, 4, 11]");
  Tensor<float, 4> decay({2, 3, 2, 2});
  LinearAttentionOptions<float> options;
  options.decay = decay;
  CHECK(shape_error(options) ==
        "heed: linear_attention: decay: expected [2, 3, 2, 8] (batch, seq, kv heads, head dim), got [2, 3, 2, 2]");
  Tensor<float, 3> beta({2, 3, 3});
  options = {};
  options.beta = beta;
  CHECK(shape_error(options) ==
        "heed: linear_attention: beta: expected [2, 3, 2] (batch, seq, kv heads), got [2, 3, 3]");
  Tensor<std::int64_t, 1> lengths({2});
  lengths(1) = 4;
  options = {};
  options.key_lengths = lengths;
  CHECK(option_error(options) == "heed: linear_attention: key_lengths: must be from 0 to 3, got 4 for batch row 1");
  options = {};
  options.chunk_size = 0;
  CHECK(option_error(options) == "heed: linear_attention: chunk_size: must be from 1 to 4096, got 0");
  options = {};
  options.scale = std::numeric_limits<float>::infinity();
  CHECK(option_error(options) == "heed: linear_attention: scale: must be finite, got inf");
  Tensor<float, 4> square({2, 3, 4, 8});
  Tensor<float, 4> values({2, 3, 2, 8});
  Tensor<float, 4> square_state({2, 2, 8, 8});
  CHECK(call(square, k, values, square_state, square) == "heed: linear_attention: out: must not overlap query");
  Tensor<float, 4> room({2, 2, 8, 12});
  CHECK(call(q, k, View<const float, 4>(room.data(), {2, 3, 2, 12}), room, out) ==
        "heed: linear_attention: state: must not overlap value");
  CHECK(call(q, k, v, room, View<float, 4>(room.data(), {2, 3, 4, 12})) ==
        "heed: linear_attention: out: must not overlap state");
  heed::Workspace small(64);
  CHECK(test::error_text<heed::WorkspaceError>([&] {
          ops::linear_attention(heed::Cpu(), q, k, v, state, out, {}, small);
        }).find("heed: linear_attention: workspace: needs ") == 0);
  for (const float element : out.span()) CHECK(element == 5);
  CHECK(test::same_bits(state, problem.state));
}

TEST_CASE("linear_attention: the workspace grows with what needs it, and is enough") {
  using heed::LinearAttentionExtents;
  test::for_each_backend([](const auto& backend) {
    const auto size = [&](const LinearAttentionExtents& extents) {
      return ops::linear_attention_workspace_size<float>(backend, extents);
    };
    const LinearAttentionExtents extents{4, 2, 8, 12, 32};
    for (int axis = 0; axis < 4; ++axis) {
      LinearAttentionExtents larger = extents;
      Index* const sizes[] = {&larger.num_heads, &larger.head_dim, &larger.value_head_dim, &larger.chunk_size};
      *sizes[axis] *= 3;
      CHECK(size(larger) >= size(extents));
    }
    const Problem<float> problem({}, Decay::dims, true);
    heed::Workspace workspace(size(extents));
    auto state = problem.state;
    auto out = problem.out();
    ops::linear_attention(backend, problem.query, problem.key, problem.value, state, out, problem.options(), workspace);
    auto other_state = problem.state;
    auto other = problem.out();
    ops::linear_attention(backend, problem.query, problem.key, problem.value, other_state, other, problem.options());
    CHECK(test::same_bits(out, other));
  });
}
