// From the bytes of a safetensors file to a header that can be believed: the JSON, then every check of what it claims.
#pragma once

#include <bit>

#include "heed/io/safetensors_header.hpp"

namespace heed::inline HEED_ABI {
namespace impl {

// The bytes an element count takes, or -1 if it or a stride would not fit 63 bits. Axes of size 0 count as 1, because
// the strides of a view are products of the other axes.
inline Index checked_bytes(std::span<const Index> shape, Index element_size) noexcept {
  Index limit = PTRDIFF_MAX / element_size;
  Index count = 1;
  bool empty = false;
  for (const Index extent : shape) {
    empty = empty || extent == 0;
    if (extent > limit) return -1;
    limit /= (std::max)(extent, Index{1});
    count *= (std::max)(extent, Index{1});
  }
  return empty ? 0 : count * element_size;
}

// One tensor against itself and the `data_size` bytes there are.
inline Problem check_tensor(const char* door, const TensorInfo& tensor, Index data_size) noexcept {
  const auto offsets = [&tensor](Problem problem) {
    return problem.append("data_offsets [").append(tensor.begin).append(", ").append(tensor.end).append("] ");
  };
  if (tensor.begin > tensor.end) {
    return offsets(format_problem(door, tensor.name)).append("run backwards");
  }
  if (tensor.end > data_size) {
    return offsets(format_problem(door, tensor.name))
        .append("reach beyond the data of ")
        .append(data_size)
        .append(" bytes: the file is cut short or damaged");
  }
  const Index bytes = checked_bytes(tensor.shape(), dtype_size(tensor.dtype));
  if (bytes == tensor.end - tensor.begin) return {};
  Problem problem = format_problem(door, tensor.name);
  append_shape(problem, tensor.shape()).append(" (").append(dtype_name(tensor.dtype)).append(") ");
  if (bytes < 0) return problem.append("is too large to address");
  problem.append("takes ").append(bytes).append(" bytes, but data_offsets hold ");
  return problem.append(tensor.end - tensor.begin);
}

// All tensors together: their bytes must fill the data from its first byte to its last, without gap or overlap.
inline Problem check_layout(const char* door, const std::vector<TensorInfo>& tensors, Index data_size) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  std::string_view before = "header";
  Index expected = 0;
  for (const TensorInfo* tensor : order) {
    if (tensor->begin != expected) {
      Problem problem = format_problem(door, tensor->name);
      problem.append("data begins at byte ").append(tensor->begin).append(", but that of ");
      append_name(problem, before).append(" ends at byte ").append(expected);
      return problem.append(tensor->begin > expected ? ": a gap" : ": an overlap");
    }
    expected = tensor->end;
    before = tensor->name;
  }
  if (expected == data_size) return {};
  Problem problem = format_problem(door, before);
  return problem.append(data_size - expected).append(" bytes follow the data of the last tensor");
}

// Sorts by name and finds the first name that is there twice.
template <class Entry>
const Entry* sort_and_find_twice(std::vector<Entry>& entries, std::string Entry::*name) {
  std::sort(entries.begin(), entries.end(), [name](const Entry& a, const Entry& b) { return a.*name < b.*name; });
  const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                        [name](const Entry& a, const Entry& b) { return a.*name == b.*name; });
  return twice == entries.end() ? nullptr : &*twice;
}

// Reads the header's JSON and checks everything it says about the `data_size` bytes that follow it. Allocates the
// header, a small multiple of its text. That the data are aligned is not asked for, as the format does not promise it:
// only a view needs it, and checks it.
inline Problem parse_header(const char* door, std::span<const std::byte> text, Index data_size,
                            SafetensorsHeader& header) {
  if (text.size() > max_header_bytes) {
    return format_problem(door, "header").append("longer than the limit of 100000000 bytes");
  }
  if (text.empty() || text.front() != std::byte{'{'}) {
    return format_problem(door, "header").append("does not begin with {");
  }
  // nlohmann takes a zero byte for the end of the text and would not look at what follows.
  if (std::memchr(text.data(), 0, text.size()) != nullptr) {
    return format_problem(door, "header").append("holds a zero byte");
  }
  HeaderHandler handler(door, header);
  const HeaderIterator begin(text.data());
  const HeaderIterator end(text.data() + text.size());
  if (!nlohmann::json::sax_parse(begin, end, &handler)) return handler.problem();

  if (const MetadataEntry* twice = sort_and_find_twice(header.metadata, &MetadataEntry::key)) {
    Problem problem = format_problem(door, "__metadata__");
    return append_name(problem, twice->key).append(" appears twice");
  }
  if (const TensorInfo* twice = sort_and_find_twice(header.tensors, &TensorInfo::name)) {
    return format_problem(door, twice->name).append("there are two tensors of this name");
  }
  for (const TensorInfo& tensor : header.tensors) {
    if (const Problem problem = check_tensor(door, tensor, data_size)) return problem;
  }
  return check_layout(door, header.tensors, data_size);
}

// The same for the bytes of a whole file, which begin with the length of the header.
inline Problem parse_file(const char* door, std::span<const std::byte> bytes, SafetensorsHeader& header) {
  static_assert(std::endian::native == std::endian::little, "safetensors files hold little-endian numbers");
  constexpr std::size_t length_bytes = 8;
  Problem problem = format_problem(door, "header");
  if (bytes.size() < length_bytes) {
    return problem.append("the file ends after ").append(static_cast<Index>(bytes.size())).append(" bytes");
  }
  const auto length = detail::load_bytes<std::uint64_t>(bytes.data());
  const std::size_t rest = bytes.size() - length_bytes;
  if (length > max_header_bytes) return problem.append("longer than the limit of 100000000 bytes");
  if (length > rest) {
    problem.append("says it has ").append(static_cast<Index>(length)).append(" bytes, but only ");
    return problem.append(static_cast<Index>(rest)).append(" follow: the file is cut short or damaged");
  }
  const auto text = bytes.subspan(length_bytes, static_cast<std::size_t>(length));
  header.data_begin = length_bytes + text.size();
  return parse_header(door, text, static_cast<Index>(rest - text.size()), header);
}

}  // namespace impl
}  // namespace heed::inline HEED_ABI
