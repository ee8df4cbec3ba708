// SafetensorsWriter: views to a safetensors file.
#pragma once

#include <filesystem>
#include <system_error>

#include "heed/io/mapped_file.hpp"
#include "heed/io/safetensors_parse.hpp"

namespace heed::inline HEED_ABI {

// Collects views and texts, then writes them as one file. Refers to the views' elements, which must live and stay until
// the last write.
//
//   heed::SafetensorsWriter writer;
//   writer.add("query", weights.query).metadata("format", "pt");
//   writer.write("model.safetensors");
//
// In the file, tensors of larger elements come first and the data start at a multiple of 8 bytes, so that every tensor
// is aligned; otherwise they keep the order in which they were added.
class SafetensorsWriter {
 public:
  // Adds a tensor of float, double, bfloat16, float16, std::int64_t, std::int32_t, std::uint8_t or bool, with any
  // strides. Errors: ShapeError for a negative extent or a size that does not fit 63 bits.
  template <class Tensorlike>
  SafetensorsWriter& add(std::string name, const Tensorlike& tensor) {
    using T = scalar_t<Tensorlike>;
    static_assert(FileScalar<T>, "a safetensors file holds floats, integers and bools");
    constexpr int rank = Tensorlike::rank();
    static_assert(rank <= TensorInfo::max_rank);
    const View<const T, rank> view = tensor;
    Source source;
    source.info.name = std::move(name);
    source.info.dtype = dtype_of<T>();
    source.info.rank = rank;
    source.data = reinterpret_cast<const std::byte*>(view.data_handle());
    for (int axis = 0; axis < rank; ++axis) {
      source.info.extents[axis] = view.extent(axis);
      source.strides[axis] = view.stride(axis);
    }
    raise_if(place(source));
    sources_.push_back(std::move(source));
    return *this;
  }

  // A tensor that dies at the end of the statement cannot be written later.
  template <class T, int Rank>
  void add(std::string name, Tensor<T, Rank>&& tensor) = delete;

  // Adds a text under a key.
  SafetensorsWriter& metadata(std::string key, std::string value) {
    metadata_.push_back({std::move(key), std::move(value)});
    return *this;
  }

  // Writes beside `path` and then renames, so that there is never half a file: at any moment the path holds the old
  // file or the new one. A symbolic link is replaced, not followed. Memory: the header only; the data are streamed.
  // Errors: SystemError with the path and the reason, and then nothing is left behind; FormatError, before anything is
  // written, for two tensors or two texts of one name and for names that are not UTF-8.
  void write(const std::string& path) const { raise_if(try_write(path)); }

  // The same, but returns the problem.
  [[nodiscard]] Problem try_write(const std::string& path) const {
    std::string header;
    std::vector<const Source*> order;
    if (const Problem problem = make_header(header, order)) return problem;

    // Renaming onto a device or a folder must not happen.
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      const bool folder = std::filesystem::is_directory(status);
      return system_problem(door, path, folder ? "is a folder" : "is not a regular file");
    }

    std::string temporary;
    std::FILE* file = create_beside(path, temporary);
    if (file == nullptr) return system_problem(door, path, std::strerror(errno));
    bool good = write_all(file, header, order) && flush(file);
    int reason = errno;
    if (std::fclose(file) != 0 && good) {
      good = false;
      reason = errno;
    }
    Problem problem;
    if (!good) {
      problem = system_problem(door, path, std::strerror(reason));
    } else if (std::filesystem::rename(temporary, path, error); error) {
      problem = system_problem(door, path, error.message().c_str());
    }
    if (problem) std::filesystem::remove(temporary, error);
    return problem;
  }

 private:
  static constexpr const char* door = "SafetensorsWriter";

  struct Source {
    TensorInfo info;
    const std::byte* data = nullptr;
    Index strides[TensorInfo::max_rank] = {};  // in elements
  };

  // Sets the bytes the tensor will take, as begin = 0 and end.
  static Problem place(Source& source) noexcept {
    for (const Index extent : source.info.shape()) {
      if (extent < 0) return shape_problem(source.info, "has a negative extent");
    }
    source.info.end = impl::checked_bytes(source.info.shape(), dtype_size(source.info.dtype));
    return source.info.end < 0 ? shape_problem(source.info, "is too large to address") : Problem();
  }
  static Problem shape_problem(const TensorInfo& info, const char* fault) noexcept {
    Problem problem(ErrorKind::shape, "heed: SafetensorsWriter: ");
    impl::append_name(problem, info.name).append(": ");
    return impl::append_shape(problem, info.shape()).append(" ").append(fault);
  }

  static void append_text(std::string& json, std::string_view text) {
    json += '"';
    for (const char letter : text) {
      constexpr const char* digits = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(letter);
      if (letter == '"' || letter == '\\') {
        json += '\\';
        json += letter;
      } else if (code < 0x20) {
        json += "\\u00";
        json += digits[code >> 4U];
        json += digits[code & 15U];
      } else {
        json += letter;
      }
    }
    json += '"';
  }

  // The length and the JSON, padded so that the data start aligned; and the order of the data.
  Problem make_header(std::string& header, std::vector<const Source*>& order) const {
    for (const Source& source : sources_) order.push_back(&source);
    // Not stable_sort: libstdc++ 12's uses what it declares deprecated, and newer clangs warn whoever includes this.
    std::sort(order.begin(), order.end(), [](const Source* a, const Source* b) {
      const auto a_size = dtype_size(a->info.dtype);
      const auto b_size = dtype_size(b->info.dtype);
      return a_size == b_size ? a < b : a_size > b_size;
    });

    header.assign(8, '\0');
    const char* comma = "{";
    if (!metadata_.empty()) {
      header += "{\"__metadata__\":";
      for (const MetadataEntry& entry : metadata_) {
        header += comma;
        append_text(header, entry.key);
        header += ':';
        append_text(header, entry.value);
        comma = ",";
      }
      header += '}';
    }
    Index begin = 0;
    for (const Source* source : order) {
      const TensorInfo& info = source->info;
      if (info.end > PTRDIFF_MAX - begin) return shape_problem(info, "does not fit behind the other tensors");
      header += comma;
      append_text(header, info.name);
      header += ":{\"dtype\":\"";
      header += dtype_name(info.dtype);
      header += "\",\"shape\":[";
      for (int axis = 0; axis < info.rank; ++axis) {
        if (axis > 0) header += ',';
        header += std::to_string(info.extents[axis]);
      }
      header += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + info.end) + "]}";
      begin += info.end;
      comma = ",";
    }
    header += *comma == '{' ? "{}" : "}";
    while (header.size() % 8 != 0) header += ' ';
    const std::uint64_t length = header.size() - 8;
    std::memcpy(header.data(), &length, sizeof length);

    // What the reader would refuse is not written: names twice, names that are not UTF-8, a header over the limit.
    SafetensorsHeader parsed;
    return impl::parse_header(door, std::as_bytes(std::span(header)).subspan(8), begin, parsed);
  }

  // A new file in the same folder, so that renaming stays within one file system. Numbered, because a crashed program
  // may have left one, and another may be writing the same path.
  static std::FILE* create_beside(const std::string& path, std::string& temporary) {
    for (int number = 0; number < 1000; ++number) {
      temporary = path + "." + std::to_string(number) + ".tmp";
      errno = 0;
      std::FILE* file = std::fopen(temporary.c_str(), "wbx");  // x: fails if it exists
      if (file != nullptr || errno != EEXIST) return file;
    }
    return nullptr;
  }

  static bool write_all(std::FILE* file, const std::string& header, const std::vector<const Source*>& order) {
    if (std::fwrite(header.data(), 1, header.size(), file) != header.size()) return false;
    for (const Source* source : order) {
      if (source->info.end > 0 && !write_elements(file, *source)) return false;
    }
    return true;
  }

  // Row-major, in the longest runs that lie together.
  static bool write_elements(std::FILE* file, const Source& source) {
    const TensorInfo& info = source.info;
    const auto element = static_cast<std::size_t>(dtype_size(info.dtype));
    Index run = 1;
    int outer = info.rank;  // axes before the run
    while (outer > 0 && (info.extents[outer - 1] == 1 || source.strides[outer - 1] == run))
      run *= info.extents[--outer];
    const auto count = static_cast<std::size_t>(run);

    Index position[TensorInfo::max_rank] = {};
    Index offset = 0;
    for (;;) {
      const std::byte* from = source.data + offset * static_cast<Index>(element);
      if (std::fwrite(from, element, count, file) != count) return false;
      int axis = outer - 1;
      for (; axis >= 0; --axis) {
        offset += source.strides[axis];
        if (++position[axis] < info.extents[axis]) break;
        offset -= source.strides[axis] * info.extents[axis];
        position[axis] = 0;
      }
      if (axis < 0) return true;
    }
  }

  // To the disk, not only to the system: a rename must not become durable before the data are.
  static bool flush(std::FILE* file) noexcept {
    if (std::fflush(file) != 0) return false;
#if HEED_MMAP
    return ::fsync(::fileno(file)) == 0;
#else
    return true;
#endif
  }

  std::vector<Source> sources_;
  std::vector<MetadataEntry> metadata_;
};

}  // namespace heed::inline HEED_ABI
