// ops::repeat_kv.
#include <doctest/doctest.h>

#include <string>

#include "heed/ops/repeat_kv.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

using heed::Index;
using heed::Tensor;
using heed::View;
using test::AnyBackend;
namespace ops = heed::ops;

namespace {

// The door on a backend of any type, compiled once a scalar and rank.
template <class T>
HEED_NOINLINE void repeat_kv_on(AnyBackend backend, View<const T, 4> x, View<T, 4> out) {
  backend.visit([&](const auto& b) { ops::repeat_kv(b, x, out); });
}
template <class Out>
void repeat_kv(AnyBackend backend, View<const heed::scalar_t<Out>, 4> x, Out&& out) {
  repeat_kv_on(backend, x, heed::output_view(out));
}

}  // namespace

TEST_CASE_TEMPLATE("case 16: repeat_kv interleaves: 4 heads of 2 kv heads are 0, 0, 1, 1", T, float, double,
                   heed::bfloat16, heed::float16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const T x[] = {test::from_double<T>(0), test::from_double<T>(1)};
    Tensor<T, 4> out({1, 1, 4, 1});
    repeat_kv(backend, View<const T, 4>(x, {1, 1, 2, 1}), out);
    for (Index h = 0; h < 4; ++h) CHECK(test::to_double(out(0, 0, h, 0)) == static_cast<double>(h / 2));
  });
}

TEST_CASE("case 17: repeat_kv repeats heads, not the sequence") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    const double x[] = {1, 2, 3, 4};  // [1, 2, 2, 1]: token 0 has heads 1, 2; token 1 has heads 3, 4
    Tensor<double, 4> out({1, 2, 4, 1});
    repeat_kv(backend, View<const double, 4>(x, {1, 2, 2, 1}), out);
    const double want[] = {1, 1, 2, 2, 3, 3, 4, 4};
    CHECK(test::same_bits(out, View<const double, 4>(want, {1, 2, 4, 1})));
  });
}

TEST_CASE_TEMPLATE("repeat_kv: ragged sizes, strided, permuted and repeated views", T, float, heed::bfloat16) {
  test::for_each_any_backend([](const AnyBackend& backend) {
    for (const Index kv_heads : {1, 2, 3}) {
      for (const Index group : {1, 2, 5}) {
        CAPTURE(kv_heads);
        CAPTURE(group);
        const Index heads = kv_heads * group;
        const auto x = test::random_tensor<T>({2, 7, kv_heads, 5}, 1);
        const test::Strided strided(x);
        test::Strided out(Tensor<T, 4>({Index{2}, Index{7}, heads, Index{5}}));
        repeat_kv(backend, strided.view(), out.view());
        bool same = true;
        for (Index b = 0; b < 2; ++b) {
          for (Index s = 0; s < 7; ++s) {
            for (Index h = 0; h < heads; ++h) {
              same = same && test::same_bits(out.view()[b][s][h], x.view()[b][s][h / group]);
            }
          }
        }
        CHECK(same);
        CHECK(out.intact());

        // Stored [B, K, S, D] and wanted [B, H, S, D], as some caches have it.
        const auto by_head = test::random_tensor<T>({2, kv_heads, 7, 5}, 2);
        Tensor<T, 4> by_head_out({Index{2}, heads, Index{7}, Index{5}});
        repeat_kv(backend, by_head.view().permute({0, 2, 1, 3}), by_head_out.view().permute({0, 2, 1, 3}));
        for (Index h = 0; h < heads; ++h) {
          CHECK(test::same_bits(by_head_out.view().slice(1, h, 1), by_head.view().slice(1, h / group, 1)));
        }
        Tensor<T, 4> batch({Index{3}, Index{7}, heads, Index{5}});
        repeat_kv(backend, test::repeated(3, x.view()[1]), batch);
        for (Index b = 0; b < 3; ++b) CHECK(test::same_bits(batch.view()[b], out.view()[1]));
      }
    }
  });
}

TEST_CASE("repeat_kv: three workers give what one gives") {
  const auto x = test::random_tensor<float>({3, 101, 2, 40}, 1);
  Tensor<float, 4> one({3, 101, 8, 40});
  Tensor<float, 4> three({3, 101, 8, 40});
  repeat_kv(heed::Reference(), x, one);
  test::ReversePool pool;
  repeat_kv(heed::Cpu(pool), x, three);
  CHECK(pool.parts_elsewhere() > 0);
  CHECK(test::same_bits(one, three));
}

TEST_CASE("repeat_kv: empty axes") {
  test::for_each_any_backend([](const AnyBackend& backend) {
    Tensor<float, 4> no_tokens({2, 0, 4, 5});
    repeat_kv(backend, Tensor<float, 4>({2, 0, 2, 5}), no_tokens);
    Tensor<float, 4> no_heads({2, 3, 0, 5});
    repeat_kv(backend, Tensor<float, 4>({2, 3, 2, 5}), no_heads);
    repeat_kv(backend, Tensor<float, 4>({2, 3, 0, 5}), no_heads);
    CHECK(no_heads.empty());
  });
}

TEST_CASE("repeat_kv: what is wrong is said, and nothing is written") {
  const heed::Simd backend;
  const Tensor<float, 4> x({2, 3, 4, 5});
  Tensor<float, 4> out({2, 3, 6, 5});
  out.fill(7);
  CHECK_THROWS_WITH_AS(ops::repeat_kv(backend, x, out),
                       "heed: repeat_kv: out: its 6 heads are not a multiple of x's 4 kv heads", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::repeat_kv(backend, Tensor<float, 4>({2, 3, 0, 5}), out),
                       "heed: repeat_kv: out: its 6 heads are not a multiple of x's 0 kv heads", heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::repeat_kv(backend, Tensor<float, 4>({2, 4, 3, 5}), out),
                       "heed: repeat_kv: out: expected [2, 4, *, 5] (batch, seq, heads, head dim), got [2, 3, 6, 5]",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::repeat_kv(backend, x.view().permute({0, 1, 3, 2}), out),
                       "heed: repeat_kv: x: the last axis must be contiguous (stride 1), got stride 5 on head dim",
                       heed::ShapeError);
  CHECK_THROWS_WITH_AS(ops::repeat_kv(backend, out, out), "heed: repeat_kv: out: must not overlap x", heed::ShapeError);
  for (const float value : out.span()) CHECK(value == 7);
  CHECK(std::string(ops::check_repeat_kv<float>(x, out).text()) ==
        "heed: repeat_kv: out: its 6 heads are not a multiple of x's 4 kv heads");
  CHECK_FALSE(ops::check_repeat_kv<float>(Tensor<float, 4>({2, 3, 2, 5}), out));
}
