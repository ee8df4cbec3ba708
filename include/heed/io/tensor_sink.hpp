// Where states are saved to and restored from: anything that takes and gives tensors and texts by name.
// SafetensorsWriter and SafetensorsReader do; this header knows no file format.
#pragma once

#include "heed/io/tensor_source.hpp"

namespace heed::inline HEED_ABI {

// add(name, view): keep a tensor under a name; the view's elements stay the caller's and must live until the sink has
// written them. metadata(key, value): keep a text.
template <class Sink>
concept TensorSink = requires(Sink& sink, const char* name, View<const float, 2> floats,
                              View<const std::int64_t, 1> integers) {
  sink.add(name, floats);
  sink.add(name, integers);
  sink.metadata(name, name);
};

// A TensorSource that has texts as well: metadata(key), empty if there is none.
template <class Source>
concept TextSource = TensorSource<Source> && requires(const Source& source, std::string_view key) {
  { source.metadata(key) } -> std::convertible_to<std::string_view>;
};

}  // namespace heed::inline HEED_ABI
