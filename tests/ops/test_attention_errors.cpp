// Every error text of ops::attention and ops::attention_varlen, and that nothing is written before one.
#include <doctest/doctest.h>

#include <cmath>

#include "attention_formula.hpp"
#include "heed/ops/alibi.hpp"
#include "heed/ops/attention.hpp"

namespace {

using heed::AttentionOptions;
using heed::Index;
using heed::Tensor;
using heed::View;

struct Call {
  Tensor<float, 4> query{Tensor<float, 4>({2, 5, 4, 8})};
  Tensor<float, 4> key{Tensor<float, 4>({2, 7, 2, 8})};
  Tensor<float, 4> value{Tensor<float, 4>({2, 7, 2, 3})};
  Tensor<float, 4> out{Tensor<float, 4>({2, 5, 4, 3})};
  AttentionOptions<float> options;

  // The text of what attention() throws; check_attention() says the same, and the output is as it was.
  std::string text() {
    out.fill(42);
    const heed::Problem problem = heed::ops::check_attention<float>(query, key, value, out, options);
    std::string thrown;
    try {
      heed::ops::attention(heed::Simd(), query, key, value, out, options);
    } catch (const heed::ShapeError& error) {
      CHECK(problem.kind() == heed::ErrorKind::shape);
      thrown = error.what();
    } catch (const heed::OptionError& error) {
      CHECK(problem.kind() == heed::ErrorKind::option);
      thrown = error.what();
    }
    CHECK(thrown == problem.text());
    for (const float x : out.span()) CHECK(x == 42);
    return thrown;
  }
};

struct Varlen {
  Tensor<float, 3> query{Tensor<float, 3>({5, 4, 8})};
  Tensor<float, 3> key{Tensor<float, 3>({7, 2, 8})};
  Tensor<float, 3> value{Tensor<float, 3>({7, 2, 3})};
  Tensor<float, 3> out{Tensor<float, 3>({5, 4, 3})};
  Tensor<std::int64_t, 1> cu_q{Tensor<std::int64_t, 1>({3})};
  Tensor<std::int64_t, 1> cu_k{Tensor<std::int64_t, 1>({3})};
  Tensor<float, 2> lse{Tensor<float, 2>({4, 5})};
  AttentionOptions<float> options;

  Varlen() {
    cu_q(1) = 2;
    cu_q(2) = 5;
    cu_k(1) = 3;
    cu_k(2) = 7;
  }
  std::string text() {
    const heed::Problem problem =
        heed::ops::check_attention_varlen<float>(query, key, value, cu_q, cu_k, out, lse, options);
    try {
      heed::ops::attention_varlen(heed::Simd(), query, key, value, cu_q, cu_k, out, lse, options);
    } catch (const heed::Error& error) {
      CHECK(std::string(error.what()) == problem.text());
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("attention: a good call has no problem") {
  Call call;
  CHECK_FALSE(heed::ops::check_attention<float>(call.query, call.key, call.value, call.out, {}));
  Varlen packed;
  CHECK(packed.text().empty());
}

TEST_CASE("attention: shapes of the tensors") {
  Call call;
  SUBCASE("batch") {
    call.key = Tensor<float, 4>({3, 7, 2, 8});
    CHECK(call.text() ==
          "heed: attention: key: expected [2, *, *, 8] (batch, keys, kv heads, head dim), got [3, 7, 2, 8]");
  }
  SUBCASE("head dim") {
    call.key = Tensor<float, 4>({2, 7, 2, 9});
    CHECK(call.text() ==
          "heed: attention: key: expected [2, *, *, 8] (batch, keys, kv heads, head dim), got [2, 7, 2, 9]");
  }
  SUBCASE("keys without values") {
    call.value = Tensor<float, 4>({2, 6, 2, 3});
    CHECK(call.text() ==
          "heed: attention: value: expected [2, 7, 2, *] (batch, keys, kv heads, value head dim), got [2, 6, 2, 3]");
  }
  SUBCASE("groups") {
    call.key = Tensor<float, 4>({2, 7, 3, 8});
    call.value = Tensor<float, 4>({2, 7, 3, 3});
    CHECK(call.text() == "heed: attention: query: its number of heads, 4, is not a multiple of key's kv heads, 3");
  }
  SUBCASE("no kv head") {
    call.key = Tensor<float, 4>({2, 7, 0, 8});
    call.value = Tensor<float, 4>({2, 7, 0, 3});
    CHECK(call.text() == "heed: attention: query: its number of heads, 4, is not a multiple of key's kv heads, 0");
  }
  SUBCASE("out") {
    call.out = Tensor<float, 4>({2, 5, 4, 8});
    CHECK(call.text() ==
          "heed: attention: out: expected [2, 5, 4, 3] (batch, queries, heads, value head dim), got [2, 5, 4, 8]");
  }
}

TEST_CASE("attention: strides") {
  Call call;
  const View<const float, 4> apart(call.query.data(), {2, 2, 4, 4}, {Index{160}, Index{32}, Index{8}, Index{2}});
  CHECK(std::string(heed::ops::check_attention<float>(apart, call.key, call.value, call.out, {}).text()) ==
        "heed: attention: query: the last axis must be contiguous (stride 1), got stride 2 on head dim");
  const View<float, 4> repeating(call.out.data(), {2, 5, 4, 3}, {Index{0}, Index{12}, Index{3}, Index{1}});
  CHECK(std::string(heed::ops::check_attention<float>(call.query, call.key, call.value, repeating, {}).text()) ==
        "heed: attention: out: an output must not repeat elements (stride 0), got stride 0 on batch");
}

TEST_CASE("attention: the output may not overlap an input or another output") {
  Tensor<float, 4> all({2, 5, 4, 3});
  Tensor<float, 4> out({2, 5, 4, 3});
  Tensor<float, 4> weights({2, 4, 5, 5});
  const View<float, 3> lse(out.data(), {2, 4, 5});
  const auto text = [&](View<const float, 4> query, View<const float, 4> key, View<const float, 4> value,
                        const AttentionOptions<float>& options = {}) {
    return std::string(heed::ops::check_attention<float>(query, key, value, out, options).text());
  };
  CHECK(text(out, all, all) == "heed: attention: out: must not overlap query");
  CHECK(text(all, out, all) == "heed: attention: out: must not overlap key");
  CHECK(text(all, all, out) == "heed: attention: out: must not overlap value");
  CHECK(text(all, all, all, {.log_sum_exp = lse}) == "heed: attention: out: must not overlap log_sum_exp");
  const View<float, 4> overlapping(out.data() + 119, {2, 4, 5, 5});
  CHECK(text(all, all, all, {.weights = overlapping}) == "heed: attention: out: must not overlap weights");
}

TEST_CASE("attention: masks, biases and lists of the wrong shape") {
  Call call;
  SUBCASE("a key axis that is too short") {
    const Tensor<bool, 2> mask({5, 6});
    call.options.mask = mask;
    CHECK(call.text() ==
          "heed: attention: mask: expected a shape that broadcasts to [2, 4, 5, 7] (batch, heads, queries, keys), got "
          "[5, 6]");
  }
  SUBCASE("one query's mask given to a batch") {
    const Tensor<float, 3> bias({2, 5, 7});
    call.options.bias = bias;
    CHECK(call.text() ==
          "heed: attention: bias: expected a shape that broadcasts to [2, 4, 5, 7] (batch, heads, queries, keys), got "
          "[2, 5, 7]");
  }
  SUBCASE("a transposed mask") {
    const Tensor<bool, 2> mask({7, 5});
    call.options.mask = mask.view().permute({1, 0});
    CHECK(call.text() == "heed: attention: mask: the last axis must be contiguous (stride 1), got stride 5 on keys");
  }
  SUBCASE("slopes") {
    const Tensor<float, 1> slopes({2});
    call.options.alibi_slopes = slopes;
    CHECK(call.text() == "heed: attention: alibi_slopes: expected [4] (heads), got [2]");
  }
  SUBCASE("sinks") {
    const Tensor<float, 1> sinks({2});
    call.options.sinks = sinks;
    CHECK(call.text() == "heed: attention: sinks: expected [4] (heads), got [2]");
  }
  SUBCASE("lengths") {
    const Tensor<std::int64_t, 1> lengths({3});
    call.options.key_lengths = lengths;
    CHECK(call.text() == "heed: attention: key_lengths: expected [2] (batch), got [3]");
  }
  SUBCASE("offsets") {
    const Tensor<std::int64_t, 1> offsets({1});
    call.options.query_offsets = offsets;
    CHECK(call.text() == "heed: attention: query_offsets: expected [2] (batch), got [1]");
  }
  SUBCASE("log-sum-exp") {
    Tensor<float, 3> lse({2, 5, 4});
    call.options.log_sum_exp = lse;
    CHECK(call.text() == "heed: attention: log_sum_exp: expected [2, 4, 5] (batch, heads, queries), got [2, 5, 4]");
  }
  SUBCASE("weights") {
    Tensor<float, 4> weights({2, 4, 5, 8});
    call.options.weights = weights;
    CHECK(call.text() ==
          "heed: attention: weights: expected [2, 4, 5, 7] (batch, heads, queries, keys), got [2, 4, 5, 8]");
  }
}

TEST_CASE("attention: options out of their range") {
  Call call;
  Tensor<std::int64_t, 1> list({2});
  SUBCASE("scale") {
    call.options.scale = static_cast<float>(test::infinity);
    CHECK(call.text() == "heed: attention: scale: must be finite, got inf");
  }
  SUBCASE("softcap") {
    call.options.softcap = -2;
    CHECK(call.text() == "heed: attention: softcap: must be positive and finite, or 0 for none, got -2");
  }
  SUBCASE("dropout") {
    call.options.dropout = 1;
    CHECK(call.text() == "heed: attention: dropout: must be at least 0 and below 1, got 1");
  }
  SUBCASE("window") {
    call.options.window = {-2, 0};
    CHECK(call.text() == "heed: attention: window.left: must be at least 0, or -1 for no limit, got -2");
    call.options.window = {0, -3};
    CHECK(call.text() == "heed: attention: window.right: must be at least 0, or -1 for no limit, got -3");
  }
  SUBCASE("a length beyond the keys, or below none") {
    list(1) = 8;
    call.options.key_lengths = list;
    CHECK(call.text() == "heed: attention: key_lengths: must be from 0 to 7, got 8 for batch row 1");
    list(1) = -1;
    CHECK(call.text() == "heed: attention: key_lengths: must be from 0 to 7, got -1 for batch row 1");
  }
  SUBCASE("offset") {
    list(0) = std::int64_t{1} << 62;
    call.options.query_offsets = list;
    CHECK(call.text() ==
          "heed: attention: query_offsets: must be within 2^61, got 4611686018427387904 for batch row 0");
  }
}

TEST_CASE("attention: a workspace that is too small") {
  Call call;
  call.out.fill(42);
  const auto needed = heed::ops::attention_workspace_size<float>(heed::Reference(), {2, 5, 7, 4, 2, 8, 3});
  CHECK(needed == 64);
  heed::Workspace small;
  try {
    heed::ops::attention(heed::Reference(), call.query, call.key, call.value, call.out, {}, small);
    FAIL("not reached");
  } catch (const heed::WorkspaceError& error) {
    CHECK(std::string(error.what()) == "heed: attention: workspace: needs 64 bytes, has 0");
  }
  CHECK(call.out(0, 0, 0, 0) == 42);
  Varlen packed;
  CHECK_THROWS_WITH_AS(heed::ops::attention_varlen(heed::Reference(), packed.query, packed.key, packed.value,
                                                   packed.cu_q, packed.cu_k, packed.out, {}, {}, small),
                       "heed: attention_varlen: workspace: needs 64 bytes, has 0", heed::WorkspaceError);
}

TEST_CASE("attention_varlen: shapes and cumulative lengths") {
  Varlen packed;
  SUBCASE("head dim") {
    packed.key = Tensor<float, 3>({7, 2, 9});
    CHECK(packed.text() ==
          "heed: attention_varlen: key: expected [*, *, 8] (total keys, kv heads, head dim), got [7, 2, 9]");
  }
  SUBCASE("values") {
    packed.value = Tensor<float, 3>({6, 2, 3});
    CHECK(packed.text() ==
          "heed: attention_varlen: value: expected [7, 2, *] (total keys, kv heads, value head dim), got [6, 2, 3]");
  }
  SUBCASE("groups") {
    packed.key = Tensor<float, 3>({7, 3, 8});
    packed.value = Tensor<float, 3>({7, 3, 3});
    CHECK(packed.text() ==
          "heed: attention_varlen: query: its number of heads, 4, is not a multiple of key's kv heads, 3");
  }
  SUBCASE("out") {
    packed.out = Tensor<float, 3>({4, 4, 3});
    CHECK(packed.text() ==
          "heed: attention_varlen: out: expected [5, 4, 3] (total queries, heads, value head dim), got [4, 4, 3]");
  }
  SUBCASE("log-sum-exp") {
    packed.lse = Tensor<float, 2>({5, 4});
    CHECK(packed.text() == "heed: attention_varlen: log_sum_exp: expected [4, 5] (heads, total queries), got [5, 4]");
  }
  SUBCASE("different numbers of sequences") {
    packed.cu_k = Tensor<std::int64_t, 1>({4});
    CHECK(packed.text() == "heed: attention_varlen: cu_seqlens_k: expected [3] (sequences + 1), got [4]");
  }
  SUBCASE("no element") {
    packed.cu_q = Tensor<std::int64_t, 1>({0});
    CHECK(packed.text() == "heed: attention_varlen: cu_seqlens_q: must hold at least one element");
  }
  SUBCASE("beginning") {
    packed.cu_q(0) = 1;
    CHECK(packed.text() == "heed: attention_varlen: cu_seqlens_q: must begin with 0, got 1 at 0");
  }
  SUBCASE("order") {
    packed.cu_k(1) = 8;
    CHECK(packed.text() == "heed: attention_varlen: cu_seqlens_k: must not decrease, got 7 at 2");
  }
  SUBCASE("end") {
    packed.cu_q(2) = 4;
    CHECK(packed.text() == "heed: attention_varlen: cu_seqlens_q: must end with the number of rows, 5, got 4");
  }
  SUBCASE("overlap") {
    const View<float, 3> same(packed.value.data(), {5, 4, 2});
    const Tensor<float, 3> narrow({7, 2, 2});
    CHECK(std::string(heed::ops::check_attention_varlen<float>(packed.query, packed.value.view().slice(2, 0, 3), narrow,
                                                               packed.cu_q, packed.cu_k, same, {}, {})
                          .text()) ==
          "heed: attention_varlen: key: expected [*, *, 8] (total keys, kv heads, head dim), got [7, 2, 3]");
    CHECK(std::string(heed::ops::check_attention_varlen<float>(packed.query, packed.key, packed.value, packed.cu_q,
                                                               packed.cu_k,
                                                               View<float, 3>(packed.value.data(), {5, 4, 3}), {}, {})
                          .text()) == "heed: attention_varlen: out: must not overlap value");
  }
  SUBCASE("options of padded batches") {
    const Tensor<bool, 1> mask({7});
    packed.options.mask = mask;
    CHECK(packed.text() ==
          "heed: attention_varlen: mask: this option has the shape of a padded batch and is not for packed sequences");
    packed.options = {};
    const Tensor<std::int64_t, 1> lengths({2});
    packed.options.key_lengths = lengths;
    CHECK(packed.text() ==
          "heed: attention_varlen: key_lengths: this option has the shape of a padded batch and is not for packed "
          "sequences");
  }
  SUBCASE("an option out of range") {
    packed.options.dropout = -0.5F;
    CHECK(packed.text() == "heed: attention_varlen: dropout: must be at least 0 and below 1, got -0.5");
  }
}

TEST_CASE("alibi_slopes: an output that repeats elements") {
  Tensor<float, 1> one({1});
  CHECK_THROWS_WITH_AS(heed::ops::alibi_slopes(View<float, 1>(one.data(), {4}, {Index{0}})),
                       "heed: alibi_slopes: out: an output must not repeat elements (stride 0), got stride 0 on heads",
                       heed::ShapeError);
}
