// A source of tensors by name, as a weight file is one, that holds what the test puts in.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/io/tensor_source.hpp"
#include "support/compare.hpp"

namespace test {

class TensorMap {
 public:
  template <class Tensorlike>
  void add(const std::string& name, const Tensorlike& tensor) {
    Entry entry;
    for (int axis = 0; axis < Tensorlike::rank(); ++axis) entry.extents.push_back(tensor.extent(axis));
    const auto values = as_double(tensor);
    entry.values.assign(values.data(), values.data() + values.size());
    entries_[name] = entry;
  }
  void remove(const std::string& name) { entries_.erase(name); }

  bool contains(std::string_view name) const { return entries_.count(std::string(name)) > 0; }

  template <class T, int Rank>
  heed::Tensor<T, Rank> read(std::string_view name) const {
    const auto found = entries_.find(std::string(name));
    if (found == entries_.end() || found->second.extents.size() != static_cast<std::size_t>(Rank)) {
      heed::raise(heed::Problem(heed::ErrorKind::format, "heed: TensorMap: no such tensor: ")
                      .append(std::string(name).c_str()));
    }
    Index extents[Rank];
    for (int axis = 0; axis < Rank; ++axis) extents[axis] = found->second.extents[static_cast<std::size_t>(axis)];
    heed::Tensor<T, Rank> tensor(extents);
    std::size_t i = 0;
    for (T& element : tensor.span()) {
      element = static_cast<T>(static_cast<heed::accumulator_t<T>>(found->second.values[i++]));
    }
    return tensor;
  }

 private:
  struct Entry {
    std::vector<Index> extents;
    std::vector<double> values;
  };
  std::map<std::string, Entry> entries_;
};

static_assert(heed::TensorSource<TensorMap>);

}  // namespace test
