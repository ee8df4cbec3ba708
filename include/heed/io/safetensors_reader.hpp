// SafetensorsReader: tensors by name from a safetensors file, without a copy where the type fits.
#pragma once

#include "heed/core/shape.hpp"
#include "heed/io/mapped_file.hpp"
#include "heed/io/safetensors_parse.hpp"
#include "heed/io/tensor_source.hpp"

namespace heed::inline HEED_ABI {

// Opens a file, checks its header in full, and hands out tensors by name; a TensorSource. The file is mapped into
// memory: opening touches only the header, and a view only what is read through it. Movable, not copyable; safe to
// read from several threads.
//
//   const auto file = heed::SafetensorsReader::open("model.safetensors");
//   heed::View<const float, 2> query = file.view<float, 2>("layers.0.q");           // no copy; dtype must be F32
//   heed::Tensor<float, 2> key = file.read<float, 2>("layers.0.k", {64, 64});       // a copy, from any float type
//
// Errors: SystemError if the file cannot be opened, with its path and the system's reason. FormatError, which names the
// tensor and says what was expected and found, if the file breaks the format or does not hold what is asked for.
class SafetensorsReader {
 public:
  // Without tensors, to be given some by try_open().
  SafetensorsReader() noexcept = default;

  static SafetensorsReader open(const std::string& path) {
    SafetensorsReader reader;
    raise_if(reader.try_open(path));
    return reader;
  }

  // The same over bytes that the caller owns, and keeps for as long as the reader and its views are used.
  static SafetensorsReader from_bytes(std::span<const std::byte> bytes) {
    SafetensorsReader reader;
    raise_if(reader.try_from_bytes(bytes));
    return reader;
  }

  // Like open() and from_bytes(), but returns the problem; then the reader holds what it held before.
  [[nodiscard]] Problem try_open(const std::string& path) {
    SafetensorsReader opened;
    if (const Problem problem = opened.file_.open(door, path)) return problem;
    if (Problem problem = opened.try_from_bytes(opened.file_.bytes())) {
      return problem.append(" (in ").append(path.c_str()).append(")");
    }
    *this = std::move(opened);
    return {};
  }
  [[nodiscard]] Problem try_from_bytes(std::span<const std::byte> bytes) {
    SafetensorsHeader header;
    if (const Problem problem = impl::parse_file(door, bytes, header)) return problem;
    header_ = std::move(header);
    data_ = bytes.subspan(header_.data_begin);
    return {};
  }

  // All tensors, sorted by name.
  std::span<const TensorInfo> tensors() const noexcept { return header_.tensors; }

  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }

  // A tensor's type and shape; nullptr if there is no such tensor.
  const TensorInfo* find(std::string_view name) const noexcept {
    return find_in(header_.tensors, &TensorInfo::name, name);
  }

  // The same; FormatError if there is none.
  const TensorInfo& info(std::string_view name) const {
    const TensorInfo* tensor = find(name);
    if (tensor == nullptr) raise(impl::format_problem(door, name).append("no such tensor in the file"));
    return *tensor;
  }

  // The file's free texts, sorted by key.
  std::span<const MetadataEntry> metadata() const noexcept { return header_.metadata; }

  // The text under a key; an empty one if there is none.
  std::string_view metadata(std::string_view key) const noexcept {
    const MetadataEntry* entry = find_in(header_.metadata, &MetadataEntry::key, key);
    return entry == nullptr ? std::string_view() : std::string_view(entry->value);
  }

  // The file's own bytes as a view, valid while the reader (or what it was moved to) lives. The stored type must be
  // exactly T's, and the address a multiple of T's alignment. `shape`: the expected extents, heed::any for whatever
  // comes. No allocation. A BOOL tensor is looked through once, because a bool of another byte than 0 or 1 is
  // undefined.
  template <FileScalar T, int Rank>
  View<const T, Rank> view(std::string_view name, const Index (&shape)[Rank]) const {
    static_assert(Rank <= TensorInfo::max_rank);
    raise_if(check_view<T>(name, shape, Rank));
    Index extents[Rank];
    const TensorInfo& tensor = *find(name);
    for (int axis = 0; axis < Rank; ++axis) extents[axis] = tensor.extents[axis];
    return {reinterpret_cast<const T*>(bytes(tensor).data()), extents};
  }
  template <FileScalar T, int Rank>
  View<const T, Rank> view(std::string_view name) const {
    return view<T, Rank>(name, AnyShape<Rank>().extents);
  }

  // A copy as T. For a Scalar T the stored type may be F64, F32, F16 or BF16, rounded once to nearest; for
  // std::int64_t, std::int32_t, std::uint8_t and bool any integer up to I64 or BOOL, and every value must fit.
  // Allocates the result.
  template <FileScalar T, int Rank>
  Tensor<T, Rank> read(std::string_view name, const Index (&shape)[Rank]) const {
    static_assert(Rank <= TensorInfo::max_rank);
    raise_if(check_read<T>(name, shape, Rank));
    Index extents[Rank];
    const TensorInfo& tensor = *find(name);
    for (int axis = 0; axis < Rank; ++axis) extents[axis] = tensor.extents[axis];
    Tensor<T, Rank> result(extents);
    raise_if(copy(tensor, result.data()));
    return result;
  }
  template <FileScalar T, int Rank>
  Tensor<T, Rank> read(std::string_view name) const {
    return read<T, Rank>(name, AnyShape<Rank>().extents);
  }

  // The same whatever the rank, 0 included: all elements in one row, the last axis running fastest. The shape is in
  // info(name).
  template <FileScalar T>
  View<const T, 1> view_flat(std::string_view name) const {
    raise_if(check_view<T>(name, nullptr, any_rank));
    const TensorInfo& tensor = *find(name);
    return {reinterpret_cast<const T*>(bytes(tensor).data()), {tensor.size()}};
  }
  template <FileScalar T>
  Tensor<T, 1> read_flat(std::string_view name) const {
    raise_if(check_read<T>(name, nullptr, any_rank));
    const TensorInfo& tensor = *find(name);
    Tensor<T, 1> result({tensor.size()});
    raise_if(copy(tensor, result.data()));
    return result;
  }

  // A tensor's bytes as they lie in the file, of any type.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const noexcept {
    return data_.subspan(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(tensor.end - tensor.begin));
  }

 private:
  static constexpr const char* door = "SafetensorsReader";
  static constexpr int any_rank = -1;

  template <int Rank>
  struct AnyShape {
    Index extents[Rank];
    constexpr AnyShape() noexcept {
      for (Index& extent : extents) extent = any;
    }
  };

  template <class Entry>
  static const Entry* find_in(const std::vector<Entry>& sorted, std::string Entry::*name,
                              std::string_view wanted) noexcept {
    const auto found =
        std::lower_bound(sorted.begin(), sorted.end(), wanted,
                         [name](const Entry& entry, std::string_view text) { return entry.*name < text; });
    return found != sorted.end() && (*found).*name == wanted ? &*found : nullptr;
  }

  // Is there such a tensor, of this shape, and of a type that `fits`? `types` says so in words.
  Problem check(std::string_view name, const Index* shape, int rank, bool (*fits)(DType), const char* types) const {
    const TensorInfo* tensor = find(name);
    if (tensor == nullptr) return impl::format_problem(door, name).append("no such tensor in the file");
    bool same = rank == any_rank || rank == tensor->rank;
    for (int axis = 0; same && axis < rank; ++axis) same = shape[axis] == any || shape[axis] == tensor->extents[axis];
    if (same && fits(tensor->dtype)) return {};

    Problem problem = impl::format_problem(door, name).append("expected ");
    if (rank == any_rank) {
      problem.append("any shape");
    } else {
      impl::append_shape(problem, {shape, static_cast<std::size_t>(rank)}, true);
    }
    problem.append(" (").append(types).append("), got ");
    return impl::append_shape(problem, tensor->shape()).append(" (").append(dtype_name(tensor->dtype)).append(")");
  }

  template <class T>
  Problem check_read(std::string_view name, const Index* shape, int rank) const {
    constexpr const char* types = Scalar<T> ? "F64, F32, F16 or BF16" : "I64, I32, I16, I8, U8 or BOOL";
    return check(
        name, shape, rank, [](DType type) { return converts_to<T>(type); }, types);
  }

  template <class T>
  Problem check_view(std::string_view name, const Index* shape, int rank) const {
    constexpr DType type = dtype_of<T>();
    const Problem problem = check(
        name, shape, rank, [](DType stored) { return stored == type; }, dtype_name(type));
    if (problem) return problem;
    const TensorInfo& tensor = *find(name);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes(tensor).data());
    if (tensor.size() > 0 && address % alignof(T) != 0) {
      return impl::format_problem(door, name)
          .append("misaligned: a view needs its data at a multiple of ")
          .append(static_cast<Index>(alignof(T)))
          .append(" bytes; read it instead");
    }
    if constexpr (std::same_as<T, bool>) {
      for (const std::byte value : bytes(tensor)) {
        if (value > std::byte{1}) return out_of_range(tensor, std::to_integer<std::int64_t>(value));
      }
    }
    return {};
  }

  static Problem out_of_range(const TensorInfo& tensor, std::int64_t value) noexcept {
    return impl::format_problem(door, tensor.name)
        .append("value ")
        .append(static_cast<Index>(value))
        .append(" is out of the range of the type it is read as");
  }

  // Converts a tensor whose type is known to convert. The bytes may have any alignment.
  template <class T>
  Problem copy(const TensorInfo& tensor, T* out) const {
    const std::byte* from = bytes(tensor).data();
    const Index size = dtype_size(tensor.dtype);
    const Index count = tensor.size();
    if (count == 0) return {};
    if constexpr (Scalar<T>) {
      if (tensor.dtype == dtype_of<T>()) {
        std::memcpy(static_cast<void*>(out), from, bytes(tensor).size());
      } else {
        for (Index i = 0; i < count; ++i) out[i] = detail::convert_float<T>(tensor.dtype, from + i * size);
      }
    } else {
      for (Index i = 0; i < count; ++i) {
        const std::int64_t value = detail::load_integer(tensor.dtype, from + i * size);
        if (!detail::integer_fits<T>(value)) return out_of_range(tensor, value);
        out[i] = static_cast<T>(value);
      }
    }
    return {};
  }

  MappedFile file_;  // empty over the caller's bytes
  SafetensorsHeader header_;
  std::span<const std::byte> data_;
};

static_assert(TensorSource<SafetensorsReader>);

}  // namespace heed::inline HEED_ABI
