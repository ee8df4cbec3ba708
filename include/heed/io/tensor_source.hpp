// Where weights come from: anything that has tensors by name. SafetensorsReader is one; this header knows no file
// format, so that layers can offer from_file() without including one.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include "heed/core/tensor.hpp"
#include "heed/error.hpp"

namespace heed::inline HEED_ABI {

// contains(name): is there such a tensor? read<T, Rank>(name): a copy of it as T, converted from the stored type;
// raises an error that names the tensor if there is none, if its rank is another, or if its type does not convert.
template <class Source>
concept TensorSource = requires(const Source& source, std::string_view name) {
  { source.contains(name) } -> std::same_as<bool>;
  { source.template read<float, 1>(name) } -> std::same_as<Tensor<float, 1>>;
  { source.template read<double, 2>(name) } -> std::same_as<Tensor<double, 2>>;
};

// A part of a source: every name gets `prefix` and a dot in front (no dot if the prefix is empty or ends with one).
// Refers to both source and prefix, which must live longer. A prefix of a prefix works as well.
//
//   const PrefixedSource layer(file, "layers.0.attention");
//   weights.query = layer.template read<T, 2>("q_proj.weight");   // layers.0.attention.q_proj.weight
template <TensorSource Source>
class PrefixedSource {
 public:
  PrefixedSource(const Source& source, std::string_view prefix) noexcept : source_(source), prefix_(prefix) {}

  // True if the source has prefix.name.
  bool contains(std::string_view name) const { return source_.contains(FullName(prefix_, name).view()); }

  // A copy of prefix.name. Allocates the result. Errors: the source's; a FormatError if the name is longer than 511.
  template <class T, int Rank>
  Tensor<T, Rank> read(std::string_view name) const {
    return source_.template read<T, Rank>(FullName(prefix_, name).view());
  }

  // A copy of prefix.name if there is one, else an empty tensor, whose view counts as absent: for optional biases.
  template <class T, int Rank>
  Tensor<T, Rank> read_optional(std::string_view name) const {
    const FullName full(prefix_, name);
    return source_.contains(full.view()) ? source_.template read<T, Rank>(full.view()) : Tensor<T, Rank>();
  }

 private:
  // Joined in a fixed buffer: a std::string here would put its code into units with other compiler flags.
  class FullName {
   public:
    FullName(std::string_view prefix, std::string_view name) {
      append(prefix);
      if (!prefix.empty() && prefix.back() != '.') append(".");
      append(name);
    }
    std::string_view view() const noexcept { return {text_, length_}; }

   private:
    void append(std::string_view part) {
      for (const char letter : part) {
        if (length_ + 1 == sizeof text_) {
          text_[120] = '\0';
          raise(Problem(ErrorKind::format, "heed: PrefixedSource: ").append(text_).append("...: name is too long"));
        }
        text_[length_++] = letter;
      }
    }

    std::size_t length_ = 0;
    char text_[512];
  };

  const Source& source_;
  std::string_view prefix_;
};

}  // namespace heed::inline HEED_ABI
