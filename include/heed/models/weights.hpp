// Reading a model's weights by name and shape, with an eye on what has been read: what is left over is an error.
#pragma once

#include <initializer_list>
#include <set>
#include <string>

#include "heed/io/sharded_reader.hpp"
#include "heed/layers/linear.hpp"

namespace heed::inline HEED_ABI {

// A TensorSource that checks shapes itself: SafetensorsReader, ShardedReader.
template <class Source>
concept WeightSource = TensorSource<Source> &&
    requires(const Source& source, std::string_view name, const Index (&shape)[2]) {
  { source.template read<float, 2>(name, shape) } -> std::same_as<Tensor<float, 2>>;
};

// Reads weights from a source. Every error is a FormatError that names the tensor.
template <WeightSource Source>
class WeightLoader {
 public:
  explicit WeightLoader(const Source& source) : source_(&source) {}

  bool contains(const std::string& name) const { return source_->contains(name); }

  // A copy of a tensor of exactly this shape, as T. Allocates it.
  template <Scalar T, int Rank>
  Tensor<T, Rank> read(const std::string& name, const Index (&shape)[Rank]) const {
    seen_.insert(name);
    if (!source_->contains(name)) {
      Problem problem = impl::format_problem(door, name).append("no such tensor in the file, expected ");
      raise(impl::append_shape(problem, shape));
    }
    return source_->template read<T, Rank>(name, shape);
  }

  // name.weight [out, in] and, if there is to be one, name.bias [out].
  template <Scalar T>
  LinearWeights<T> linear(const std::string& name, Index out_features, Index in_features, bool bias) const {
    LinearWeights<T> weights{read<T, 2>(name + ".weight", {out_features, in_features}), {}};
    if (bias) weights.bias = read<T, 1>(name + ".bias", {out_features});
    return weights;
  }

  // To be called when all under `prefix` is read ("" for all there is): the source may hold nothing else, but what is
  // under one of `neighbours` and buffers that old versions of Transformers have saved. A source that cannot list its
  // tensors is not looked through.
  void finish(const std::string& prefix, std::initializer_list<std::string> neighbours = {}) const {
    if constexpr (requires { source_->tensors().begin()->name; }) {
      for (const auto& tensor : source_->tensors()) {
        if (!is_under(tensor.name, prefix) || seen_.count(tensor.name) > 0 || is_buffer(tensor.name)) continue;
        bool known = false;
        for (const std::string& neighbour : neighbours) known = known || is_under(tensor.name, neighbour);
        if (known) continue;
        Problem problem = impl::format_problem(door, tensor.name).append("a tensor ");
        raise(impl::append_shape(problem, tensor.shape()).append(" that the model has no place for"));
      }
    }
  }

 private:
  static constexpr const char* door = "load";

  static bool is_under(std::string_view name, std::string_view prefix) {
    if (prefix.empty() || name == prefix) return true;
    return name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix && name[prefix.size()] == '.';
  }
  static bool is_buffer(std::string_view name) {
    for (const std::string_view buffer : {"rotary_emb.inv_freq", "attention.bias", "attention.masked_bias", "attn.bias",
                                          "attn.masked_bias", "embeddings.position_ids"}) {
      if (name.size() >= buffer.size() && name.substr(name.size() - buffer.size()) == buffer) return true;
    }
    return false;
  }

  using Names = std::set<std::string, std::less<>, impl::JsonAllocator<std::string>>;

  const Source* source_;
  mutable Names seen_;
};

// "model.layers" and "0" joined by a dot; either may be empty.
inline std::string joined_name(std::string_view prefix, std::string_view name) {
  std::string text(prefix);
  if (!text.empty() && !name.empty() && text.back() != '.') text += '.';
  return text.append(name);
}

}  // namespace heed::inline HEED_ABI
