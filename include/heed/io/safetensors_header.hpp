// The header of a safetensors file: which tensors there are and where their bytes lie, with every check that makes it
// safe to believe. Format: 8 bytes of length (little-endian), that many bytes of JSON, then the tensors' bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/error.hpp"
#include "heed/io/dtype.hpp"

namespace heed::inline HEED_ABI {

// One tensor of a file.
struct TensorInfo {
  static constexpr int max_rank = 8;

  std::string name;
  DType dtype = DType::f32;
  int rank = 0;  // 0: a single number
  Index extents[max_rank] = {};
  Index begin = 0;  // its bytes, counted from the end of the header
  Index end = 0;

  std::span<const Index> shape() const noexcept { return {extents, static_cast<std::size_t>(rank)}; }
  // The number of elements.
  Index size() const noexcept { return (end - begin) / dtype_size(dtype); }
};

struct MetadataEntry {
  std::string key;
  std::string value;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;      // sorted by name
  std::vector<MetadataEntry> metadata;  // sorted by key
  std::size_t data_begin = 0;           // where the tensors' bytes start in the file
};

namespace impl {

// As in the reference implementation. It bounds what is allocated for a header: a small multiple of the file's size.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

// Names come from files: of a long one the beginning is shown, and nothing that would garble a terminal.
inline Problem& append_name(Problem& problem, std::string_view name) noexcept {
  if (name.empty()) return problem.append("\"\"");
  constexpr std::size_t longest = 160;
  for (const char letter : name.substr(0, longest)) {
    const bool control = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
    const char text[] = {control ? '?' : letter, '\0'};
    problem.append(text);
  }
  return name.size() > longest ? problem.append("...") : problem;
}

inline Problem format_problem(const char* door, std::string_view subject) noexcept {
  Problem problem(ErrorKind::format, "heed: ");
  problem.append(door).append(": ");
  return append_name(problem, subject).append(": ");
}

// "[2, 3]"; in a pattern, -1 stands for any extent and is shown as *.
inline Problem& append_shape(Problem& problem, std::span<const Index> shape, bool pattern = false) noexcept {
  problem.append("[");
  const char* comma = "";
  for (const Index extent : shape) {
    problem.append(comma);
    comma = ", ";
    pattern&& extent == -1 ? problem.append("*") : problem.append(extent);
  }
  return problem.append("]");
}

// The bytes of the header for nlohmann's parser. A class of our own instead of a pointer, because the parser is a
// template over it: so its code, too, is separate for units with different compiler flags.
class HeaderIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit HeaderIterator(const std::byte* position) noexcept : position_(position) {}
  char operator*() const noexcept { return static_cast<char>(*position_); }
  HeaderIterator& operator++() noexcept {
    ++position_;
    return *this;
  }
  bool operator==(const HeaderIterator&) const noexcept = default;

 private:
  const std::byte* position_;
};

// Receives the header's JSON piece by piece (nlohmann's SAX interface), so that a document of any shape is refused at
// its first wrong piece and never built in memory. Every handler returns false to stop.
class HeaderHandler {
 public:
  HeaderHandler(const char* door, SafetensorsHeader& header) noexcept : door_(door), header_(header) {}

  const Problem& problem() const noexcept { return problem_; }

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("true or false"); }
  bool number_integer(std::int64_t) { return refuse("a negative number"); }
  bool number_float(double, const std::string&) { return refuse("a number that is not whole or has over 64 bits"); }
  template <class Binary>
  bool binary(Binary&) {
    return refuse("binary data");
  }

  bool number_unsigned(std::uint64_t value) {
    if (at_ != At::shape_item && at_ != At::offset) return refuse("a number");
    if (value > static_cast<std::uint64_t>(PTRDIFF_MAX)) return refuse("a number above 2^63 - 1");
    TensorInfo& tensor = header_.tensors.back();
    if (at_ == At::offset) {
      if (offsets_ == 2) return refuse("a third one");
      (offsets_++ == 0 ? tensor.begin : tensor.end) = static_cast<Index>(value);
    } else {
      if (tensor.rank == TensorInfo::max_rank) return refuse("a ninth one");
      tensor.extents[tensor.rank++] = static_cast<Index>(value);
    }
    return true;
  }

  bool string(std::string& value) {
    if (at_ == At::metadata_value) {
      header_.metadata.back().value = std::move(value);
      at_ = At::metadata;
      return true;
    }
    if (at_ != At::dtype) return refuse("a text");
    at_ = At::fields;
    if (find_dtype(value, header_.tensors.back().dtype)) return true;
    append_name(start().append("unknown dtype "), value);
    return false;
  }

  bool start_object(std::size_t) {
    if (at_ == At::file) return go(At::names);
    if (at_ == At::tensor) return go(At::fields);
    if (at_ == At::metadata_start) return go(At::metadata);
    return refuse("an object");
  }

  bool key(std::string& name) {
    if (at_ == At::metadata) {
      header_.metadata.push_back({std::move(name), {}});
      return go(At::metadata_value);
    }
    if (at_ == At::names && name == "__metadata__") {
      if (metadata_seen_) return stop("appears twice", "__metadata__");
      metadata_seen_ = true;
      return go(At::metadata_start);
    }
    if (at_ == At::names) {
      header_.tensors.emplace_back().name = std::move(name);
      fields_seen_ = 0;
      offsets_ = 0;
      return go(At::tensor);
    }
    constexpr std::pair<const char*, At> fields[] = {
        {"dtype", At::dtype}, {"shape", At::shape}, {"data_offsets", At::offsets}};
    for (unsigned bit = 1; const auto& [field, where] : fields) {
      if (name == field) {
        if ((fields_seen_ & bit) != 0) return stop("appears twice", field);
        fields_seen_ |= bit;
        return go(where);
      }
      bit <<= 1U;
    }
    append_name(start().append("unknown field "), name);
    return false;
  }

  bool end_object() {
    if (at_ == At::fields && fields_seen_ != 7) {
      const bool dtype_missing = (fields_seen_ & 1U) == 0;
      return stop("is missing", dtype_missing ? "dtype" : (fields_seen_ & 2U) == 0 ? "shape" : "data_offsets");
    }
    return go(at_ == At::names ? At::file : At::names);
  }

  bool start_array(std::size_t) {
    if (at_ == At::shape) return go(At::shape_item);
    if (at_ == At::offsets) return go(At::offset);
    return refuse("an array");
  }

  bool end_array() {
    if (at_ == At::offset && offsets_ != 2) return refuse(offsets_ == 0 ? "none" : "one");
    return go(At::fields);
  }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    problem_ = format_problem(door_, "header").append("not valid JSON at byte ").append(static_cast<Index>(position));
    return false;
  }

 private:
  // What comes next: the value of ..., or a key inside ...
  enum class At {
    file,
    names,
    tensor,
    fields,
    dtype,
    shape,
    shape_item,
    offsets,
    offset,
    metadata_start,
    metadata,
    metadata_value
  };

  bool go(At next) noexcept {
    at_ = next;
    return true;
  }

  // Begins the text with what is being read: the tensor's name, or the header as a whole.
  Problem& start() {
    const bool whole = at_ == At::file || at_ == At::names;
    const bool metadata = at_ == At::metadata_start || at_ == At::metadata || at_ == At::metadata_value;
    problem_ = format_problem(door_, whole ? "header" : metadata ? "__metadata__" : header_.tensors.back().name);
    return problem_;
  }

  bool stop(const char* fault, const char* what) {
    start().append(what).append(" ").append(fault);
    return false;
  }

  bool refuse(const char* got) {
    const char* expected = "an object";
    if (at_ == At::tensor) expected = "an object with dtype, shape and data_offsets";
    if (at_ == At::metadata_start) expected = "an object of texts";
    if (at_ == At::metadata_value) expected = "a text";
    if (at_ == At::dtype) expected = "dtype to be a text";
    if (at_ == At::shape) expected = "shape to be an array";
    if (at_ == At::shape_item) expected = "shape to hold at most 8 sizes";
    if (at_ == At::offsets) expected = "data_offsets to be an array";
    if (at_ == At::offset) expected = "data_offsets to hold two byte positions";
    start().append("expected ").append(expected).append(", got ").append(got);
    return false;
  }

  const char* door_;
  SafetensorsHeader& header_;
  Problem problem_;
  At at_ = At::file;
  unsigned fields_seen_ = 0;  // bit 0 dtype, 1 shape, 2 data_offsets
  int offsets_ = 0;
  bool metadata_seen_ = false;
};

}  // namespace impl
}  // namespace heed::inline HEED_ABI
