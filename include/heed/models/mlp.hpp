// Mlp: the feed-forward part of a block, plain or gated.
#pragma once

#include <optional>

#include "heed/core/workspace.hpp"
#include "heed/layers/linear.hpp"
#include "heed/models/elementwise.hpp"
#include "heed/ops/activations.hpp"

namespace heed {

enum class Activation {
  gelu,       // the erf form: BERT
  gelu_tanh,  // Gemma
  silu,       // Llama
};

// E hidden size, I intermediate size.
template <Scalar T>
struct MlpWeights {
  LinearWeights<T> gate = {};  // [I, E]; empty: not gated
  LinearWeights<T> up = {};    // [I, E]
  LinearWeights<T> down = {};  // [E, I]
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// out = down(f(up(x))), or gated down(f(gate(x)) · up(x)).
//
// Gate and up are one packed weight, so a call reads x once. Immutable, shared by copies and by threads. Source: Shazeer
// 2020 (arXiv 2002.05202) for the gated form.
template <Scalar T, Backend B = Cpu>
class Mlp {
 public:
  // Copies the weights. Allocates. Errors: ShapeError.
  Mlp(const MlpWeights<T>& weights, Activation activation, const B& backend = B())
      : activation_(activation),
        gated_(!weights.gate.weight.empty()),
        input_(gated_ ? LinearWeightsView<T>(joined(weights)) : LinearWeightsView<T>(weights.up), backend),
        down_(weights.down, backend) {
    raise_if(check_input("Mlp", "down.weight", weights.down.weight.view(),
                         {{"hidden size", hidden_size()}, {"intermediate size", intermediate_size()}}));
  }

  Index hidden_size() const noexcept { return input_.in_features(); }
  Index intermediate_size() const noexcept { return input_.out_features() / (gated_ ? 2 : 1); }
  Index weight_bytes() const noexcept { return input_.weight_bytes() + down_.weight_bytes(); }

  // Bytes that a call of up to `rows` rows takes.
  std::size_t workspace_size(Index rows) const noexcept {
    Workspace measured = Workspace::measuring();
    take(measured, rows);
    return measured.size_needed();
  }

  // x [rows, E] -> out [rows, E], which may be x itself, from a workspace of workspace_size(rows). Allocates nothing.
  // Numerics: as the operations, each result rounded to T. Errors: ShapeError.
  void forward(const B& backend, View<const T, 2> x, View<T, 2> out, Workspace& workspace) const {
    const Workspace::Frame frame(workspace);
    const View<T, 2> buffer = take(workspace, x.extent(0));
    for (Index first = 0; first < x.extent(0); first += rows_at_once) {
      const Index rows = x.extent(0) - first < rows_at_once ? x.extent(0) - first : rows_at_once;
      const View<T, 2> hidden = buffer.slice(0, 0, rows);
      input_.forward(backend, x.slice(0, first, rows), hidden);
      const View<T, 2> active = hidden.slice(1, 0, intermediate_size());
      activate(backend, active);
      if (gated_) {
        impl::multiply_rows<T>(backend, hidden.slice(1, intermediate_size(), intermediate_size()), active);
      }
      down_.forward(backend, active, out.slice(0, first, rows));
    }
  }

 private:
  // What is between the products of so many rows is still in the cache, and the workspace of a long call small.
  static constexpr Index rows_at_once = 512;

  View<T, 2> take(Workspace& workspace, Index rows) const noexcept {
    return workspace.take<T>({rows < rows_at_once ? rows : rows_at_once, input_.out_features()});
  }

  void activate(const B& backend, View<T, 2> rows) const {
    if (activation_ == Activation::silu) {
      ops::silu(backend, rows, rows);
    } else {
      ops::gelu(backend, rows, rows, activation_ == Activation::gelu ? GeluForm::erf : GeluForm::tanh);
    }
  }

  // Gate above up.
  static LinearWeights<T> joined(const MlpWeights<T>& weights) {
    const Index rows = weights.up.weight.extent(0);
    const Index columns = weights.up.weight.extent(1);
    const Axis in{"hidden size", columns};
    raise_if(check_input("Mlp", "gate.weight", weights.gate.weight.view(), {{"intermediate size", rows}, in}));
    for (const LinearWeights<T>* part : {&weights.gate, &weights.up}) {
      raise_if(check_linear_weights("Mlp", LinearWeightsView<T>(*part)));
    }
    LinearWeights<T> all{Tensor<T, 2>({2 * rows, columns}), {}};
    const bool biased = !weights.up.bias.empty() || !weights.gate.bias.empty();
    if (biased) all.bias = Tensor<T, 1>({2 * rows});
    Index row = 0;
    for (const LinearWeights<T>* part : {&weights.gate, &weights.up}) {
      for (Index r = 0; r < rows; ++r, ++row) {
        for (Index i = 0; i < columns; ++i) all.weight(row, i) = part->weight(r, i);
        if (!part->bias.empty()) all.bias(row) = part->bias(r);
      }
    }
    return all;
  }

  Activation activation_;
  bool gated_;
  Linear<T, B> input_;
  Linear<T, B> down_;
};

}  // namespace heed::inline HEED_ABI
