// Group attention, and the seed's repeat_kv.
#include "heed/ops/attention.hpp"

#include "conformance/attention_on_device.hpp"
#include "conformance/masks.hpp"
#include "conformance/run.hpp"
#include "heed/ops/alibi.hpp"
#include "heed/ops/repeat_kv.hpp"

namespace conformance {

using heed::accumulator_t;
using heed::Index;
using heed::Tensor;

namespace {

// The options that attention and attention_varlen share.
template <class T>
heed::AttentionOptions<T> attention_options(const Attributes& attributes) {
  using A = accumulator_t<T>;
  heed::AttentionOptions<T> options;
  options.scale = static_cast<A>(attributes.get<double>("scale"));
  if (const auto softcap = attributes.find<double>("softcap")) options.softcap = static_cast<A>(*softcap);
  options.causal = attributes.one_of<heed::Causal>("causal", {{"none", heed::Causal::none},
                                                              {"top_left", heed::Causal::top_left},
                                                              {"bottom_right", heed::Causal::bottom_right}});
  if (const auto window = attributes.find<Index>("window")) options.window = {*window - 1, 0};
  attributes.expect("rope", nullptr);
  return options;
}

// The sizes of query, key and value, whose last two axes are heads and dims.
void expect_heads(const Case& test) {
  test.attributes().expect("num_heads", test.extent("input.q", -2));
  test.attributes().expect("num_kv_heads", test.extent("input.k", -2));
  test.attributes().expect("head_dim", test.extent("input.q", -1));
  test.attributes().expect("value_head_dim", test.extent("input.v", -1));
}

}  // namespace

void run_attention(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  expect_heads(test);
  attributes.expect("key_lengths", test.contains("input.key_lengths"));
  attributes.expect("sinks", test.contains("input.sinks"));
  attributes.expect("alibi", test.contains("input.slopes")
                                 ? nlohmann::json("bias -slope[h] * |query position - key position|")
                                 : nlohmann::json());
  if (attributes.has("bottom_right_corner")) {  // what heed's bottom_right with key_lengths means
    attributes.expect("bottom_right_corner", "each row's key length");
    attributes.expect("causal", "bottom_right");
    attributes.expect("key_lengths", true);
  }
  expect_mask(test, "input.mask");

  dispatch_attention(setup, [&]<class T>(const auto& backend) {
    using A = accumulator_t<T>;
    auto options = attention_options<T>(attributes);
    const Mask<T> mask(test, "input.mask");
    options.mask = mask.boolean;
    options.bias = mask.additive;
    const auto lengths = test.read_optional<std::int64_t, 1>("input.key_lengths", {heed::any});
    const auto slopes = test.read_optional<A, 1>("input.slopes", {heed::any});
    const auto sinks = test.read_optional<A, 1>("input.sinks", {heed::any});
    options.key_lengths = lengths;
    options.alibi_slopes = slopes;
    options.sinks = sinks;

    const auto query = test.read<T, 4>("input.q");
    const auto key = test.read<T, 4>("input.k");
    const auto value = test.read<T, 4>("input.v");
    Tensor<A, 3> lse({query.extent(0), query.extent(2), query.extent(1)});
    options.log_sum_exp = lse;
    Tensor<T, 4> weights;
    if (test.contains("output.weights")) {
      weights = Tensor<T, 4>({query.extent(0), query.extent(2), query.extent(1), key.extent(1)});
      options.weights = weights;
    }
    test.check("output.output", attend(backend, query, key, value, options));
    test.check("output.lse", lse);
    if (test.contains("output.weights")) test.check("output.weights", weights);
  });
}

void run_attention_varlen(Case& test, const Setup& setup) {
  expect_heads(test);
  dispatch_attention(setup, [&]<class T>(const auto& backend) {
    const auto query = test.read<T, 3>("input.q");
    const auto key = test.read<T, 3>("input.k");
    const auto value = test.read<T, 3>("input.v");
    const auto queries = test.read<std::int64_t, 1>("input.cu_seqlens_q");
    const auto keys = test.read<std::int64_t, 1>("input.cu_seqlens_k");
    Tensor<T, 3> out({query.extent(0), query.extent(1), value.extent(2)});
    Tensor<accumulator_t<T>, 2> lse({query.extent(1), query.extent(0)});
    attend_varlen(backend, query, key, value, queries, keys, out, lse, attention_options<T>(test.attributes()));
    test.check("output.output", out);
    test.check("output.lse", lse);
  });
}

void run_alibi_slopes(Case& test, const Setup& setup) {
  const auto heads = test.attributes().size("num_heads");
  dispatch(setup, [&]<class T>(const auto&) {
    Tensor<accumulator_t<T>, 1> slopes({heads});
    heed::ops::alibi_slopes(slopes);
    test.check("output.slopes", slopes);
  });
}

void run_repeat_kv(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const Index kv_heads = test.extent("input.x", 2);
  const auto heads = attributes.size("num_heads");
  attributes.expect("layout", "[B,S,K,D]");
  attributes.expect("num_kv_heads", kv_heads);
  attributes.expect("head_dim", test.extent("input.x", 3));
  if (attributes.size("repeats") * kv_heads != heads) throw attributes.unknown("repeats");
  dispatch(setup, [&]<class T>(const auto& backend) {
    const auto x = test.read<T, 4>("input.x");
    Tensor<T, 4> out({x.extent(0), x.extent(1), heads, x.extent(3)});
    heed::ops::repeat_kv(backend, x, out);
    test.check("output.output", out);
  });
}

}  // namespace conformance
