// Linear: y = x · Wᵀ + b as a layer, its weight packed once for the backend that will read it.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "heed/core/random.hpp"
#include "heed/io/tensor_source.hpp"
#include "heed/layers/describe.hpp"
#include "heed/ops/linear.hpp"

namespace heed {

// A linear layer's weights wherever they lie: a file's mapped memory, a buffer of yours, a LinearWeights. Layers are
// made from views and keep a packed copy, so what is viewed may die once the layer is made.
template <Scalar T>
struct LinearWeightsView {
  View<const T, 2> weight = {};  // [out features, in features], as PyTorch stores it
  View<const T, 1> bias = {};    // [out features], or absent
};

// The same, owned. What from_file() returns.
template <Scalar T>
struct LinearWeights {
  Tensor<T, 2> weight = {};  // [out features, in features]
  Tensor<T, 1> bias = {};    // [out features]; empty if there is none

  HEED_INLINE operator LinearWeightsView<T>() const noexcept { return {weight, bias}; }

  // Reads prefix.weight and, if there is one, prefix.bias. Allocates the result. Errors: the source's (FormatError).
  template <class Source>
  HEED_INLINE static LinearWeights from_file(const Source& source, std::string_view prefix) {
    const PrefixedSource<Source> part(source, prefix);
    return {part.template read<T, 2>("weight"), part.template read_optional<T, 1>("bias")};
  }

  // Uniform numbers in ±1/√(in features), as PyTorch begins with. The weight takes stream `stream` of the seed, the
  // bias the next one. Allocates the result.
  HEED_INLINE static LinearWeights random(std::uint64_t seed, Index out_features, Index in_features, bool bias = true,
                                          std::uint64_t stream = 0) {
    const double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0;
    LinearWeights weights{Tensor<T, 2>({out_features, in_features}), {}};
    fill_uniform(weights.weight, seed, stream, -bound, bound);
    if (bias) {
      weights.bias = Tensor<T, 1>({out_features});
      fill_uniform(weights.bias, seed, stream + 1, -bound, bound);
    }
    return weights;
  }
};

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

// In this namespace also because shared_ptr's code for it must not be shared by units with other flags.
template <class T, class Space>
struct LinearData {
  PackedWeight<T, Space> weight;
  Tensor<T, 1, Space> bias;
};

}  // namespace impl

// What is wrong with weights that a Linear is to be made from.
template <Scalar T>
[[nodiscard]] Problem check_linear_weights(const char* door, const LinearWeightsView<T>& weights) noexcept {
  Problem problem = check_input(door, "weight", weights.weight, {{"out features", any}, {"in features", any}});
  if (!problem && weights.bias.present()) {
    problem = check_input(door, "bias", weights.bias, {{"out features", weights.weight.extent(0)}});
  }
  return problem;
}

// y = x · weightᵀ + bias.
//
//   const heed::Linear<float> linear({.weight = w, .bias = b});   // w: [out features, in features]
//   linear.forward(cpu, x, out);                                  // [..., in features] -> [..., out features]
//   auto y = linear.forward(cpu, x);
//
// The weights are packed for B at construction; they are immutable, copies of the layer share them, and threads may
// share the layer. Numerics: as ops::linear.
template <Scalar T, Backend B = Cpu>
class Linear {
 public:
  // Copies the weights, which are in the host's memory (to a device: and waits). Allocates. Errors: ShapeError.
  explicit Linear(const LinearWeightsView<T>& weights, const B& backend = B()) {
    raise_if(check_linear_weights("Linear", weights));
    data_ = std::make_shared<const Data>(
        Data{ops::pack_weight<T>(backend, weights.weight), move_to(backend, Tensor<T, 1>(weights.bias))});
  }

  Index in_features() const noexcept { return data_->weight.panels.in_features; }
  Index out_features() const noexcept { return data_->weight.panels.out_features; }
  bool has_bias() const noexcept { return !data_->bias.empty(); }

  // What is wrong with the arguments of forward().
  template <int Rank>
  [[nodiscard]] Problem check_forward(ViewOn<B, const T, Rank> x, ViewOn<B, T, Rank> out) const noexcept {
    const char* door = "Linear::forward";
    return first_problem(check_rows(door, "x", x, "in features", in_features()),
                         check_rows_like(door, "out", out, x, "out features", out_features()),
                         check_disjoint(door, out, x, "x"));
  }

  // out = x · weightᵀ + bias over the last axis.
  //
  //   x    [..., in features]    up to 4 axes before it, any strides there
  //   out  [..., out features]   View or Tensor; must not overlap x
  //
  // Allocates nothing. Errors: ShapeError.
  template <class Out>
  void forward(const B& backend, ViewOn<B, const T, std::remove_cvref_t<Out>::rank()> x, Out&& out) const {
    const auto y = output_on(backend, out);
    raise_if(check_forward(x, y));
    ops::linear(backend, x, data_->weight, data_->bias.view(), y);
  }

  // The same into a new tensor. Allocates the result.
  template <class In>
  TensorOn<B, T, In::rank()> forward(const B& backend, const In& x) const {
    constexpr int rank = In::rank();
    const ViewOn<B, const T, rank> input(x);
    raise_if(check_rows("Linear::forward", "x", input, "in features", in_features()));
    Index extents[rank];
    for (int axis = 0; axis < rank; ++axis) extents[axis] = input.extent(axis);
    extents[rank - 1] = out_features();
    auto out = make_tensor<T>(backend, extents);
    forward(backend, input, out);
    return out;
  }

  // Bytes of the packed weight and the bias.
  Index weight_bytes() const noexcept {
    return (data_->weight.storage->elements.size() + data_->bias.size()) * static_cast<Index>(sizeof(T));
  }

  // "Linear<float>: in_features 64, out_features 128, bias; 33280 bytes of weights; backend cpu, avx2 with fma"
  std::string describe() const {
    impl::Description text("Linear", scalar_name<T>());
    text.size("in_features", in_features()).size("out_features", out_features()).note(has_bias() ? "bias" : "no bias");
    return text.build<B>(weight_bytes());
  }

 private:
  using Data = impl::LinearData<T, space_of<B>>;
  std::shared_ptr<const Data> data_;
};

}  // namespace heed::inline HEED_ABI
