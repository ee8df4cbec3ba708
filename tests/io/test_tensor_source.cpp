// Names under a prefix, over a source that is no file.
#include <doctest/doctest.h>

#include <string>

#include "heed/io/tensor_source.hpp"

namespace {

// Has every tensor whose name ends in "weight"; remembers the last name asked for.
struct Recorder {
  mutable std::string last;

  bool contains(std::string_view name) const {
    last = name;
    return name.size() >= 6 && name.substr(name.size() - 6) == "weight";
  }
  template <class T, int Rank>
  heed::Tensor<T, Rank> read(std::string_view name) const {
    last = name;
    heed::Index ones[Rank];
    for (heed::Index& extent : ones) extent = 1;
    return heed::Tensor<T, Rank>(ones);
  }
};
static_assert(heed::TensorSource<Recorder>);
static_assert(heed::TensorSource<heed::PrefixedSource<Recorder>>);
static_assert(!heed::TensorSource<int>);

}  // namespace

TEST_CASE("tensor source: a prefix and a dot go before every name, prefixes nest") {
  const Recorder source;
  const heed::PrefixedSource layer(source, "layers.0");
  CHECK(layer.contains("q.weight"));
  CHECK(source.last == "layers.0.q.weight");
  CHECK_FALSE(layer.contains("q.bias"));

  const heed::PrefixedSource attention(layer, "attention.");  // its own dot is not doubled
  CHECK(attention.read<float, 2>("k").size() == 1);
  CHECK(source.last == "layers.0.attention.k");

  const heed::PrefixedSource root(source, "");
  CHECK(root.read<double, 1>("v").size() == 1);
  CHECK(source.last == "v");
}

TEST_CASE("tensor source: an optional tensor that is not there is an absent view") {
  const Recorder source;
  const heed::PrefixedSource layer(source, "a");
  CHECK(layer.read_optional<float, 2>("weight").view().present());
  CHECK(source.last == "a.weight");
  CHECK_FALSE(layer.read_optional<float, 1>("bias").view().present());
  CHECK(source.last == "a.bias");
}

TEST_CASE("tensor source: a name of 511 fits, one of 512 is a FormatError") {
  const Recorder source;
  const std::string prefix(400, 'p');
  const heed::PrefixedSource layer(source, prefix);
  CHECK(layer.read<float, 1>(std::string(110, 'n')).size() == 1);
  CHECK(source.last == prefix + "." + std::string(110, 'n'));
  CHECK_THROWS_WITH_AS((layer.read<float, 1>(std::string(111, 'n'))),
                       ("heed: PrefixedSource: " + std::string(120, 'p') + "...: name is too long").c_str(),
                       heed::FormatError);
}
