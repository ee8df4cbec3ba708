// One conformance case: its tensors, its options, and what was found about it.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/attributes.hpp"
#include "conformance/comparison.hpp"
#include "heed/io/safetensors_reader.hpp"

namespace conformance {

// The case needs what was not given; says what.
class CaseSkipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// How one tensor came out.
struct Finding {
  std::string tensor;  // "output.lse", or "output.lse (token by token)"
  Comparison comparison;
  double tolerance = 0;
  std::string place;  // the worst element's indices
  std::string fault;  // another shape; empty if the shapes agree
};

// A file that is a case, while it is run. A heed::TensorSource, which notes what is read: a case passes only if all its
// inputs were used and all its outputs checked.
class Case {
 public:
  Case(const std::filesystem::path& path, bool is_float);

  // The file's name without its ending; the name of its folder.
  const std::string& name() const { return name_; }
  const std::string& group() const { return group_; }
  // Where a model's files may lie beside the case.
  const std::filesystem::path& folder() const { return folder_; }
  // The operation or layer, and whose conventions ("seed", "onnx", or none: heed's own).
  std::string op() const { return std::string(file_.metadata("op")); }
  std::string preset() const { return is_onnx() ? "onnx" : std::string(file_.metadata("preset")); }
  // A node test of the ONNX standard names its operator set.
  std::string opset() const { return std::string(file_.metadata("opset")); }
  bool is_onnx() const { return !opset().empty(); }
  // The model behind the case, or none: a file without op that lies beside a config.json is no case.
  bool is_case() const { return !op().empty(); }

  const Attributes& attributes() const { return attributes_; }

  bool contains(std::string_view tensor) const { return file_.contains(tensor); }
  template <class T, int Rank>
  heed::Tensor<T, Rank> read(std::string_view tensor) const {
    used_.emplace(tensor);
    return file_.read<T, Rank>(tensor);
  }
  // The same where the shape is known from elsewhere; heed::any for what is not.
  template <class T, int Rank>
  heed::Tensor<T, Rank> read(std::string_view tensor, const heed::Index (&expected)[Rank]) const {
    used_.emplace(tensor);
    return file_.read<T, Rank>(tensor, expected);
  }
  std::span<const heed::Index> shape(std::string_view tensor) const { return file_.info(tensor).shape(); }
  // One extent of it; axes below 0 count from the last one, -1.
  heed::Index extent(std::string_view tensor, int axis) const {
    const auto axes = shape(tensor);
    const auto place = static_cast<std::size_t>(axis < 0 ? static_cast<int>(axes.size()) + axis : axis);
    if (place >= axes.size()) throw CaseError(std::string(tensor) + ": too few axes: " + shape_text(axes));
    return axes[place];
  }
  heed::DType dtype(std::string_view tensor) const { return file_.info(tensor).dtype; }
  bool is_boolean(std::string_view tensor) const { return dtype(tensor) == heed::DType::boolean; }

  // The tensor if it is there, else an absent one.
  template <class T, int Rank>
  heed::Tensor<T, Rank> read_optional(std::string_view tensor, const heed::Index (&expected)[Rank]) const {
    return contains(tensor) ? read<T, Rank>(tensor, expected) : heed::Tensor<T, Rank>();
  }

  // A tensor of up to 4 axes with axes of extent 1 put before them.
  template <class T>
  heed::Tensor<T, 4> read_right_aligned(std::string_view tensor) const {
    const auto axes = shape(tensor);
    if (axes.size() > 4) throw CaseError(std::string(tensor) + ": expected at most 4 axes, got " + shape_text(axes));
    heed::Index extents[] = {1, 1, 1, 1};
    for (std::size_t axis = 0; axis < axes.size(); ++axis) extents[4 - axes.size() + axis] = axes[axis];
    used_.emplace(tensor);
    heed::Tensor<T, 4> result(extents);
    const auto flat = file_.read_flat<T>(tensor);
    for (heed::Index i = 0; i < flat.size(); ++i) result.data()[i] = flat(i);
    return result;
  }

  // The case's tolerance for the scalar it is run in.
  double tolerance() const { return tolerance_; }
  double tolerance(const std::string& type) const;

  // Compares a result with the tensor of this name; integers and bools exactly. `how` says which of several runs it is.
  template <class Tensorlike>
  void check(const std::string& tensor, const Tensorlike& got, const std::string& how = {}) {
    check(tensor, got, how, tolerance());
  }
  template <class Tensorlike>
  void check(const std::string& tensor, const Tensorlike& got, const std::string& how, double tolerance) {
    using T = heed::scalar_t<Tensorlike>;
    constexpr int rank = Tensorlike::rank();
    const heed::Tensor<T, rank> copy(heed::View<const T, rank>{got});
    heed::Index extents[rank];
    for (int axis = 0; axis < rank; ++axis) extents[axis] = copy.extent(axis);
    std::vector<double> values(static_cast<std::size_t>(copy.size()));
    for (heed::Index i = 0; i < copy.size(); ++i) {
      if constexpr (heed::Scalar<T>) {
        values[static_cast<std::size_t>(i)] = static_cast<double>(heed::widen(copy.data()[i]));
      } else {
        values[static_cast<std::size_t>(i)] = static_cast<double>(copy.data()[i]);
      }
    }
    check_values(tensor, how, extents, values, tolerance);
  }

  // To be called when the adapter is done: nothing may have been left out.
  void finish() const;

  const std::vector<Finding>& findings() const { return findings_; }

 private:
  void check_values(const std::string& tensor, const std::string& how, std::span<const heed::Index> shape,
                    std::span<const double> got, double tolerance);

  std::string name_;
  std::string group_;
  std::filesystem::path folder_;
  heed::SafetensorsReader file_;
  Attributes attributes_;
  double tolerance_ = 0;
  double floor_ = 1;  // a tolerance is relative to this + |want|
  mutable std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> checked_;
  std::vector<Finding> findings_;
};

}  // namespace conformance
