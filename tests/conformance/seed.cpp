// Group seed: the layers of the Python code that heed grew out of.
#include <numeric>

#include "conformance/masks.hpp"
#include "conformance/rope_attributes.hpp"
#include "conformance/run.hpp"
#include "heed/layers/multi_head_self_attention.hpp"
#include "heed/layers/seed_infini_attention.hpp"

namespace conformance {

using heed::accumulator_t;
using heed::Index;
using heed::Tensor;

void run_seed_multi_head_self_attention(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const auto num_heads = attributes.size("num_heads");
  const heed::MultiHeadSelfAttentionOptions options{.scale = attributes.get<double>("scale"),
                                                    .dropout = attributes.get<double>("dropout")};
  attributes.expect("training", false);
  attributes.expect("causal", "none");
  attributes.expect("window", nullptr);
  attributes.expect("softcap", nullptr);
  attributes.expect("rope", nullptr);
  expect_mask(test, "input.mask");
  const Attributes bias = attributes.object("bias");
  for (const char* projection : {"Q", "K", "V"}) {
    bias.expect("qkv", test.contains(std::string("weight.") + projection + ".bias"));
  }
  bias.expect("out", test.contains("weight.dense.bias"));
  bias.finish();

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto weights = heed::ProjectionWeights<T>::from_file(test, "weight", {"Q", "K", "V", "dense"});
    const heed::MultiHeadSelfAttention<T, heed::HeadLayout{}, B> layer(weights, options, {.num_heads = num_heads},
                                                                       backend);
    attributes.expect("hidden_size", layer.hidden_size());
    attributes.expect("head_dim", layer.heads().head_dim);
    attributes.expect("num_kv_heads", layer.heads().num_kv_heads);

    const auto x = test.read<T, 3>("input.hidden_states");
    const Mask<T> mask(test, "input.mask");
    Tensor<T, 4> probabilities;
    if (test.contains("output.attention_weights")) {
      probabilities = Tensor<T, 4>({x.extent(0), num_heads, x.extent(1), x.extent(1)});
    }
    test.check("output.output", layer.forward(backend, x,
                                              {.mask = mask.boolean,
                                               .bias = mask.additive,
                                               .training = attributes.get<bool>("training"),
                                               .weights = probabilities}));
    if (test.contains("output.attention_weights")) test.check("output.attention_weights", probabilities);
  });
}

namespace {

// What the seed does, whatever the numbers are: the preset has no options for it.
void expect_seed_infini(const Case& test, const heed::RopeOptions& rope, Index head_dim) {
  const Attributes& attributes = test.attributes();
  attributes.expect("causal", "none");
  attributes.expect("denominator_epsilon", 1e-8);
  attributes.expect("dropout", 0.0);
  attributes.expect("empty_memory", "apply_gate");
  attributes.expect("gate", "one beta for the layer");
  attributes.expect("memory_positions", "rotary");
  attributes.expect("segment_length", "the length of the call");
  attributes.expect("softcap", nullptr);
  attributes.expect("update", "linear");
  attributes.expect("window", nullptr);
  attributes.one_of<int>("gradient", {{"full", 0}, {"detached", 1}, {"truncated", 2}});
  attributes.expect("positions", test.contains("input.positions") ? "input.positions" : "restart at 0 in each call");
  if (error_of(attributes.get<double>("scale"), 1 / std::sqrt(static_cast<double>(head_dim))) > 1e-15) {
    throw attributes.unknown("scale");
  }
  if (!(rope == heed::RopeOptions{.theta = rope.theta, .rotary_dim = head_dim})) throw attributes.unknown("rope");
  expect_mask(test, "input.mask_0", "one [B,1,n,n] per call");
  const Attributes bias = attributes.object("bias");
  for (const char* projection : {"q", "k", "v", "o"}) {
    bias.expect(projection, test.contains(std::string("weight.") + projection + "_proj.bias"));
  }
  bias.finish();
}

}  // namespace

void run_seed_infini_attention(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const auto head_dim = attributes.size("head_dim");
  const heed::HeadLayout heads{
      .num_heads = attributes.size("num_heads"), .num_kv_heads = attributes.size("num_kv_heads"), .head_dim = head_dim};
  const heed::RopeOptions rope = rope_options(attributes.object("rope"));
  const auto calls = attributes.get<std::vector<Index>>("calls");
  attributes.expect("hidden_size", test.extent("input.hidden_states", -1));
  expect_seed_infini(test, rope, head_dim);

  dispatch(setup, [&]<class T>(const auto& backend) {
    using A = accumulator_t<T>;
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto weights = heed::InfiniAttentionWeights<T>::from_file(test, "weight");
    const heed::seed::InfiniAttention<T, heed::HeadLayout{}, B> layer(weights, rope.theta, heads, backend);
    const auto x = test.read<T, 3>("input.hidden_states");
    const auto positions = test.read_optional<std::int64_t, 2>("input.positions", {x.extent(0), x.extent(1)});
    if (std::accumulate(calls.begin(), calls.end(), Index{0}) != x.extent(1)) throw attributes.unknown("calls");

    auto state = layer.make_state(x.extent(0));
    const auto restore = [&]<int Rank>(const char* name, heed::View<A, Rank> part) {
      if (!test.contains(name)) return;
      Index extents[Rank];
      for (int axis = 0; axis < Rank; ++axis) extents[axis] = part.extent(axis);
      const auto given = test.read<A, Rank>(name, extents);
      std::copy(given.data(), given.data() + given.size(), part.data_handle());
    };
    restore("input.M", state.memory());
    restore("input.z", state.normalizer());

    const auto count = static_cast<Index>(calls.size());
    Tensor<T, 3> out({x.extent(0), x.extent(1), x.extent(2)});
    Tensor<A, 5> call_memory({count, x.extent(0), heads.num_kv_heads, head_dim, head_dim});
    Tensor<A, 4> call_normalizer({count, x.extent(0), heads.num_kv_heads, head_dim});
    heed::Workspace workspace(layer.workspace_size(backend, x.extent(0), x.extent(1)));
    Index first = 0;
    for (Index i = 0; i < count; ++i) {
      const Index tokens = calls[static_cast<std::size_t>(i)];
      const std::string name = "input.mask_" + std::to_string(i);
      const Index mask_shape[] = {x.extent(0), 1, tokens, tokens};
      if (test.contains(name) && shape_text(test.shape(name)) != shape_text(mask_shape)) {
        throw CaseError(name + ": expected " + shape_text(mask_shape) + ", got " + shape_text(test.shape(name)));
      }
      const Mask<T> mask(test, name);
      heed::seed::InfiniAttentionCall<T> call{.mask = mask.boolean, .bias = mask.additive};
      if (test.contains("input.positions")) call.positions = positions.view().slice(1, first, tokens);
      layer.forward(backend, x.view().slice(1, first, tokens), state, out.view().slice(1, first, tokens), workspace,
                    call);
      std::copy(state.memory().data_handle(), state.memory().data_handle() + state.memory().size(),
                call_memory.view()[i].data_handle());
      std::copy(state.normalizer().data_handle(), state.normalizer().data_handle() + state.normalizer().size(),
                call_normalizer.view()[i].data_handle());
      first += tokens;
    }
    test.check("output.output", out);
    test.check("output.M", state.memory());
    test.check("output.z", state.normalizer());
    test.check("output.call_M", call_memory);
    test.check("output.call_z", call_normalizer);
  });
}

}  // namespace conformance
