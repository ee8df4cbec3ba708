// Norm: layer_norm or rms_norm with its weights, and the places around a block's parts where there may be one.
#pragma once

#include <memory>
#include <optional>

#include "heed/layers/grouped_query_attention_options.hpp"
#include "heed/models/elementwise.hpp"
#include "heed/ops/layer_norm.hpp"
#include "heed/ops/rms_norm.hpp"

namespace heed {

enum class NormKind { rms, layer };

struct NormOptions {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;
  double weight_offset = 0;  // rms: the factor is weight_offset + weight (Gemma: 1)
};

// The norms around a part f of a block, each empty if the block has none there: x becomes
//
//   sum(x + after(f(before(x))))
//
// Llama has `before` (pre-norm), BERT `sum` (post-norm), OLMo 2 `after`, Gemma 2 and 3 `before` and `after`.
template <Scalar T>
struct BlockNormWeights {
  NormWeights<T> before = {};
  NormWeights<T> after = {};
  NormWeights<T> sum = {};
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// One norm over the last axis. Its copies share the weights.
template <Scalar T, Backend B = Cpu>
class Norm {
 public:
  // Copies the weights. Allocates.
  Norm(const NormWeightsView<T>& weights, const NormOptions& options)
      : options_(options),
        weights_(std::make_shared<const NormWeights<T>>(
            NormWeights<T>{Tensor<T, 1>(weights.weight), Tensor<T, 1>(weights.bias)})) {}

  const NormOptions& options() const noexcept { return options_; }
  Index weight_bytes() const noexcept {
    return (weights_->weight.size() + weights_->bias.size()) * static_cast<Index>(sizeof(T));
  }

  // x [rows, features] -> out, which may be x itself. Errors: as ops::layer_norm, ops::rms_norm.
  void forward(const B& backend, View<const T, 2> x, View<T, 2> out) const {
    if (options_.kind == NormKind::layer) {
      ops::layer_norm(backend, x, weights_->weight, weights_->bias, out, {.eps = options_.eps});
    } else {
      ops::rms_norm(backend, x, weights_->weight, out, {.eps = options_.eps, .weight_offset = options_.weight_offset});
    }
  }

 private:
  NormOptions options_;
  std::shared_ptr<const NormWeights<T>> weights_;
};

// The norms around one part of a block.
template <Scalar T, Backend B = Cpu>
struct BlockNorms {
  std::optional<Norm<T, B>> before, after, sum;

  // Copies the weights. `door` names the block in errors. Allocates. Errors: ShapeError.
  BlockNorms(const char* door, const BlockNormWeights<T>& weights, const NormOptions& options, Index hidden_size) {
    const Axis features{"hidden size", hidden_size};
    const auto make = [&](const char* name, const NormWeights<T>& from, std::optional<Norm<T, B>>& to) {
      if (from.weight.empty()) return;
      raise_if(check_input(door, name, from.weight.view(), {features}));
      if (!from.bias.empty()) raise_if(check_input(door, "norm bias", from.bias.view(), {features}));
      to.emplace(from, options);
    };
    make("norm before", weights.before, before);
    make("norm after", weights.after, after);
    make("norm of the sum", weights.sum, sum);
  }

  Index weight_bytes() const noexcept {
    Index bytes = 0;
    for (const auto* norm : {&before, &after, &sum}) bytes += *norm ? (*norm)->weight_bytes() : 0;
    return bytes;
  }

  // x = sum(x + after(f(before(x)))) over rows; f(in, y) writes y, which may be `in` itself. y: scratch of x's shape.
  template <class F>
  void apply(const B& backend, View<T, 2> x, View<T, 2> y, F&& f) const {
    if (before) before->forward(backend, x, y);
    f(before ? View<const T, 2>(y) : View<const T, 2>(x), y);
    if (after) after->forward(backend, y, y);
    impl::add_rows<T>(backend, y, x);
    if (sum) sum->forward(backend, x, x);
  }
};

}  // namespace heed::inline HEED_ABI
