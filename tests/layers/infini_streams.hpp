// What the tests of Infini-attention share: cores on any backend, and random streams that run through them in any cut.
#pragma once

#include <memory>
#include <vector>

#include "heed/layers/infini_attention.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/infini_formula.hpp"
#include "support/random.hpp"
#include "support/strided.hpp"

namespace test {

inline heed::InfiniAttentionOptions options_of(const InfiniSettings& s) {
  using heed::TokenPositions;
  heed::InfiniAttentionOptions options;
  options.segment_length = s.segment_length;
  options.update = static_cast<heed::MemoryUpdate>(s.rule);
  options.empty_memory = s.apply_gate ? heed::EmptyMemory::apply_gate : heed::EmptyMemory::bypass_gate;
  options.local_positions = s.rotary ? TokenPositions::rotary : TokenPositions::none;
  options.memory_positions = s.rotary_memory ? TokenPositions::rotary : TokenPositions::none;
  options.rope = {.theta = s.theta,
                  .layout = s.interleaved ? heed::RopeLayout::interleaved : heed::RopeLayout::half,
                  .rotary_dim = s.rotary_dim};
  if (s.stretch != 1) {
    options.rope.scaling.type = heed::RopeType::linear;
    options.rope.scaling.factor = s.stretch;
  }
  if (s.scale != 0) options.scale = s.scale;
  options.softcap = s.softcap;
  if (s.window > 0) options.window = {s.window - 1, 0};
  return options;
}

// What properties of streams are tested with.
inline const InfiniSettings all_settings[] = {
    {.segment_length = 5},
    {.segment_length = 5, .rule = Rule::delta, .apply_gate = true, .rotary_memory = true},
    {.segment_length = 7, .rule = Rule::safe_delta, .rotary = false, .window = 4},
    {.segment_length = 64, .rule = Rule::delta},
};

// Queries, keys and values of a batch of streams, with padding and documents if asked for.
template <class T>
struct Streams {
  heed::Tensor<T, 4> query, key, value;
  heed::Tensor<heed::accumulator_t<T>, 1> beta;
  heed::Tensor<bool, 2> valid, reset;

  Streams(const heed::HeadLayout& heads, Index batch, Index seq, std::uint64_t seed = 1)
      : query(random_tensor<T>({batch, seq, heads.num_heads, heads.head_dim}, seed, -2, 2)),
        key(random_tensor<T>({batch, seq, heads.num_kv_heads, heads.head_dim}, seed + 100, -2, 2)),
        value(random_tensor<T>({batch, seq, heads.num_kv_heads, heads.value_head_dim}, seed + 200)),
        beta(random_tensor<heed::accumulator_t<T>>({heads.num_heads}, seed + 300, -2, 2)) {}

  // Makes a third of the tokens padding.
  void add_padding(std::uint64_t seed = 5) {
    Random random(seed);
    valid = heed::Tensor<bool, 2>({key.extent(0), key.extent(1)});
    for (bool& flag : valid.span()) flag = random.below(3) > 0;
  }
  // Begins documents, some of them at padding, some twice in a row.
  void add_documents(std::uint64_t seed = 6) {
    Random random(seed);
    reset = heed::Tensor<bool, 2>({key.extent(0), key.extent(1)});
    for (bool& flag : reset.span()) flag = random.below(9) == 0;
  }

  Index batch() const { return key.extent(0); }
  Index seq() const { return key.extent(1); }
  heed::InfiniAttentionCall call(Index first, Index n) const {
    heed::InfiniAttentionCall call;
    if (!valid.empty()) call.valid = valid.view().slice(1, first, n);
    if (!reset.empty()) call.reset = reset.view().slice(1, first, n);
    return call;
  }
  std::vector<double> betas() const { return row_of(beta.data(), beta.size()); }
};

// An InfiniAttentionCore on a backend that is known at run time only: its code is compiled once, by
// test_infini_attention_cores.cpp, not by every test.
template <class T>
class AnyCore {
 public:
  AnyCore() = default;
  AnyCore(const AnyCore&) = delete;
  AnyCore& operator=(const AnyCore&) = delete;
  virtual ~AnyCore() = default;

  virtual const heed::HeadLayout& heads() const = 0;
  virtual const heed::InfiniStateLayout& state_layout() const = 0;
  virtual heed::InfiniState<T> make_state(Index batch) const = 0;
  virtual std::size_t workspace_size(Index batch, Index tokens) const = 0;
  virtual Index forward(heed::View<const T, 4> query, heed::View<const T, 4> key, heed::View<const T, 4> value,
                        heed::InfiniState<T>& state, heed::View<T, 4> out, heed::Workspace& workspace,
                        const heed::InfiniAttentionCall& call = {}) const = 0;
  virtual void flush(heed::InfiniState<T>& state, heed::Workspace& workspace) const = 0;
};

template <class T>
std::unique_ptr<AnyCore<T>> make_core(const AnyBackend& backend, const heed::HeadLayout& heads,
                                      heed::View<const heed::accumulator_t<T>, 1> beta,
                                      const heed::InfiniAttentionOptions& options);

// Causal attention over tokens first … first + n − 1 of some streams alone, at positions 0, 1, … if they are turned.
heed::Tensor<float, 4> local_attention(const AnyBackend& backend, const Streams<float>& streams, Index first, Index n,
                                       bool rotary);

// Runs the streams from `first` on through a core, in calls of these lengths, with a workspace of just the right size
// for each; returns the outputs [B, Σ calls, H, Dv].
template <class T>
heed::Tensor<T, 4> run(const AnyCore<T>& core, const Streams<T>& streams, heed::InfiniState<T>& state,
                       const std::vector<Index>& calls, Index first = 0) {
  Index total = 0;
  for (const Index n : calls) total += n;
  heed::Tensor<T, 4> out({streams.batch(), total, core.heads().num_heads, core.heads().value_head_dim});
  Index done = 0;
  for (const Index n : calls) {
    heed::Workspace workspace(core.workspace_size(streams.batch(), n));
    const Index from = first + done;
    core.forward(streams.query.view().slice(1, from, n), streams.key.view().slice(1, from, n),
                 streams.value.view().slice(1, from, n), state, out.view().slice(1, done, n), workspace,
                 streams.call(from, n));
    done += n;
  }
  return out;
}

// Everything a state says, all bits.
template <class T>
bool same_state(const heed::InfiniState<T>& a, const heed::InfiniState<T>& b) {
  return same_bits(a.memory(), b.memory()) && same_bits(a.normalizer(), b.normalizer()) &&
         same_bits(a.pending(), b.pending()) && same_bits(a.position(), b.position());
}

// A cut of `total` tokens into calls of 1 to `most`.
inline std::vector<Index> random_cut(Index total, Index most, std::uint64_t seed) {
  Random random(seed);
  std::vector<Index> calls;
  for (Index left = total; left > 0; left -= calls.back()) calls.push_back(std::min(left, 1 + random.below(most)));
  return calls;
}

}  // namespace test
