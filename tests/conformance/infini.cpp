// Group infini: Infini-attention between projections that are given, and the layer with its own.
#include <numeric>

#include "conformance/rope_attributes.hpp"
#include "conformance/run.hpp"
#include "heed/layers/infini_attention.hpp"

namespace conformance {

using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

heed::InfiniAttentionOptions infini_options(const Case& test) {
  using heed::TokenPositions;
  const Attributes& attributes = test.attributes();
  heed::InfiniAttentionOptions options;
  options.segment_length = attributes.size("segment_length");
  options.update = attributes.one_of<heed::MemoryUpdate>("update", {{"linear", heed::MemoryUpdate::linear},
                                                                    {"delta", heed::MemoryUpdate::delta},
                                                                    {"safe_delta", heed::MemoryUpdate::safe_delta}});
  options.empty_memory = attributes.one_of<heed::EmptyMemory>(
      "empty_memory", {{"bypass_gate", heed::EmptyMemory::bypass_gate}, {"apply_gate", heed::EmptyMemory::apply_gate}});
  options.memory_positions = attributes.one_of<TokenPositions>(
      "memory_positions", {{"none", TokenPositions::none}, {"rotary", TokenPositions::rotary}});
  options.local_positions = TokenPositions::none;
  if (attributes.has("rope")) {
    options.rope = rope_options(attributes.object("rope"));
    options.local_positions = TokenPositions::rotary;
  }
  options.scale = attributes.get<double>("scale");
  options.softcap = attributes.find<double>("softcap").value_or(0);
  if (const auto window = attributes.find<Index>("window")) options.window = {*window - 1, 0};

  attributes.expect("causal", "top_left");
  attributes.expect("gate", "one beta per query head");
  attributes.expect("denominator_epsilon", 0.0);
  attributes.one_of<int>(
      "positions",
      {{"count from 0 at the start of each row's document, padding not counted", 0},
       {"count from 0 at the start of each segment (RoPE is relative, so counting on gives the same)", 1}});
  // On which side padding is, where there is any; input.valid says it token by token.
  if (attributes.find<std::string>("padding").has_value() != test.contains("input.valid")) {
    throw attributes.unknown("padding");
  }
  // About gradients only.
  attributes.one_of<int>("gradient", {{"full", 0}, {"detached", 1}, {"truncated", 2}});
  attributes.find<Index>("truncate_segments");
  return options;
}

// How a sequence is cut into calls, and what that is called in a report.
struct Cut {
  std::string name;
  std::vector<Index> calls;
  bool is_given = false;  // the case says what the state is after each call
};

std::vector<Cut> cuts(const Case& test, Index length) {
  std::vector<Cut> list = {{"", {length}, false}};
  if (const auto splits = test.attributes().find<std::vector<Index>>("splits")) {
    if (std::accumulate(splits->begin(), splits->end(), Index{0}) != length) {
      throw CaseError("attributes: splits do not add up to the sequence's " + std::to_string(length) + " tokens");
    }
    list.push_back({"in the given calls", *splits, true});
  }
  if (length > 1) list.push_back({"token by token", std::vector<Index>(static_cast<std::size_t>(length), 1), false});
  return list;
}

template <class T, int Rank>
void copy(View<const T, Rank> from, View<T, Rank> to) {
  if constexpr (Rank == 1) {
    for (Index i = 0; i < to.extent(0); ++i) to(i) = from(i);
  } else {
    for (Index i = 0; i < to.extent(0); ++i) copy(from[i], to[i]);
  }
}

// A state to start from.
template <class A, int Rank>
void restore(const Case& test, const char* tensor, View<A, Rank> part) {
  Index extents[Rank];
  for (int axis = 0; axis < Rank; ++axis) extents[axis] = part.extent(axis);
  copy<A, Rank>(test.read<A, Rank>(tensor, extents).view(), part);
}

// The states after each call: [calls, ...].
template <class A, int Rank>
Tensor<A, Rank + 1> one_more_axis(View<const A, Rank> of, std::size_t count) {
  Index extents[Rank + 1] = {static_cast<Index>(count)};
  for (int axis = 0; axis < Rank; ++axis) extents[axis + 1] = of.extent(axis);
  return Tensor<A, Rank + 1>(extents);
}

// Streams the case through a layer in every cut, and checks outputs and states. `forward(state, first, count, call)` is
// a call on these tokens; it returns their outputs, of rank OutRank, with the tokens on axis 1. `flush(state)` takes
// the open segments in.
template <int OutRank, class T, class MakeState, class Forward, class Flush>
void stream(Case& test, Index batch, Index length, const MakeState& make_state, const Forward& forward,
            const Flush& flush) {
  using A = heed::accumulator_t<T>;
  const auto valid = test.read_optional<bool, 2>("input.valid", {batch, length});
  const auto reset = test.read_optional<bool, 2>("input.reset", {batch, length});
  for (const Cut& cut : cuts(test, length)) {
    auto state = make_state(batch);
    if (test.contains("input.M")) restore<A, 4>(test, "input.M", state.memory());
    if (test.contains("input.z")) restore<A, 3>(test, "input.z", state.normalizer());
    auto call_memory = one_more_axis<A, 4>(std::as_const(state).memory(), cut.calls.size());
    auto call_normalizer = one_more_axis<A, 3>(std::as_const(state).normalizer(), cut.calls.size());

    Tensor<T, OutRank> out;
    Index first = 0;
    for (std::size_t i = 0; i < cut.calls.size(); ++i) {
      const Index count = cut.calls[i];
      heed::InfiniAttentionCall call;
      if (test.contains("input.valid")) call.valid = std::as_const(valid).view().slice(1, first, count);
      if (test.contains("input.reset")) call.reset = std::as_const(reset).view().slice(1, first, count);
      const Tensor<T, OutRank> part = forward(state, first, count, call);
      if (out.empty()) {
        Index extents[OutRank];
        for (int axis = 0; axis < OutRank; ++axis) extents[axis] = axis == 1 ? length : part.extent(axis);
        out = Tensor<T, OutRank>(extents);
      }
      copy<T, OutRank>(part.view(), out.view().slice(1, first, count));
      copy<A, 4>(std::as_const(state).memory(), call_memory.view()[static_cast<Index>(i)]);
      copy<A, 3>(std::as_const(state).normalizer(), call_normalizer.view()[static_cast<Index>(i)]);
      first += count;
    }
    test.check("output.output", out, cut.name);
    test.check("output.M", std::as_const(state).memory(), cut.name);
    test.check("output.z", std::as_const(state).normalizer(), cut.name);
    test.check("output.pending", state.pending(), cut.name);
    if (cut.is_given && test.contains("output.call_M")) test.check("output.call_M", call_memory, cut.name);
    if (cut.is_given && test.contains("output.call_z")) test.check("output.call_z", call_normalizer, cut.name);
    if (test.contains("output.M_flushed")) {
      flush(state);
      test.check("output.M_flushed", std::as_const(state).memory(), cut.name);
      test.check("output.z_flushed", std::as_const(state).normalizer(), cut.name);
    }
  }
}

}  // namespace

void run_infini_attention(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const heed::HeadLayout heads{.num_heads = attributes.size("num_heads"),
                               .num_kv_heads = attributes.size("num_kv_heads"),
                               .head_dim = attributes.size("head_dim"),
                               .value_head_dim = attributes.size("value_head_dim")};
  const heed::InfiniAttentionOptions options = infini_options(test);

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto query = test.read<T, 4>("input.q");
    const auto key = test.read<T, 4>("input.k", {query.extent(0), query.extent(1), heed::any, heed::any});
    const auto value = test.read<T, 4>("input.v", {query.extent(0), query.extent(1), heed::any, heed::any});
    const auto beta = test.read<heed::accumulator_t<T>, 1>("weight.beta");
    const heed::InfiniAttentionCore<T, B> core(heads, beta, options, backend);
    heed::Workspace workspace(core.workspace_size(backend, query.extent(0), query.extent(1)));

    stream<4, T>(
        test, query.extent(0), query.extent(1), [&](Index batch) { return core.make_state(batch); },
        [&](auto& state, Index first, Index count, const heed::InfiniAttentionCall& call) {
          Tensor<T, 4> out({query.extent(0), count, heads.num_heads, heads.value_head_dim});
          core.forward(backend, query.view().slice(1, first, count), key.view().slice(1, first, count),
                       value.view().slice(1, first, count), state, out, workspace, call);
          return out;
        },
        [&](auto& state) { core.flush(backend, state, workspace); });
  });
}

void run_infini_attention_layer(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const heed::HeadLayout heads{.num_heads = attributes.size("num_heads"),
                               .num_kv_heads = attributes.size("num_kv_heads"),
                               .head_dim = attributes.size("head_dim"),
                               .value_head_dim = attributes.size("value_head_dim")};
  const heed::InfiniAttentionOptions options = infini_options(test);
  attributes.expect("hidden_size", test.extent("input.hidden_states", -1));
  const Attributes bias = attributes.object("bias");
  for (const char* projection : {"q", "k", "v", "o"}) {
    bias.expect(projection, test.contains(std::string("weight.") + projection + "_proj.bias"));
  }
  bias.finish();

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const auto weights = heed::InfiniAttentionWeights<T>::from_file(test, "weight");
    const heed::InfiniAttention<T, heed::HeadLayout{}, B> layer(weights, options, heads, backend);
    const auto x = test.read<T, 3>("input.hidden_states");
    heed::Workspace workspace(layer.workspace_size(backend, x.extent(0), x.extent(1)));

    stream<3, T>(
        test, x.extent(0), x.extent(1), [&](Index batch) { return layer.make_state(batch); },
        [&](auto& state, Index first, Index count, const heed::InfiniAttentionCall& call) {
          Tensor<T, 3> out({x.extent(0), count, layer.hidden_size()});
          layer.forward(backend, x.view().slice(1, first, count), state, out, workspace, call);
          return out;
        },
        [&](auto& state) { layer.flush(backend, state, workspace); });
  });
}

}  // namespace conformance
