// ShardedReader: the weights of a model's folder, in one safetensors file or in several that an index lists.
#pragma once

#include "heed/io/json.hpp"
#include "heed/io/safetensors_reader.hpp"

namespace heed::inline HEED_ABI {

// Opens model.safetensors.index.json and the files it names, or else model.safetensors, and hands out tensors by name; a
// TensorSource. As with SafetensorsReader the files are mapped, and opening touches only their headers.
//
//   const auto weights = heed::ShardedReader::open("Llama-3.1-8B");
//   auto norm = weights.read<float, 1>("model.norm.weight", {4096});
//
// Errors: SystemError with the path of what cannot be opened. FormatError, which names the tensor or the file, if a file
// breaks its format, or if index and files disagree: each tensor of the files must be in the index, in the file that it
// says, and each tensor of the index in that file.
class ShardedReader {
 public:
  // A tensor and the file that it is in, by number.
  struct Entry : TensorInfo {
    std::size_t shard = 0;
  };

  static ShardedReader open(const std::string& folder) {
    ShardedReader reader;
    raise_if(reader.try_open(folder));
    return reader;
  }

  // Like open(), but returns the problem; then the reader holds what it held before.
  [[nodiscard]] Problem try_open(const std::string& folder) {
    ShardedReader opened;
    const std::string index = folder + "/model.safetensors.index.json";
    MappedFile text;
    const bool sharded = !text.open(door, index);
    Problem problem = sharded ? opened.open_shards(folder, text.bytes()) : opened.open_one(folder);
    if (problem) return problem;
    *this = std::move(opened);
    return {};
  }

  // All tensors, sorted by name.
  std::span<const Entry> tensors() const noexcept { return tensors_; }
  std::size_t num_shards() const noexcept { return shards_.size(); }

  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }

  // A tensor's type, shape and file; nullptr if there is no such tensor.
  const Entry* find(std::string_view name) const noexcept {
    const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                        [](const Entry& tensor, std::string_view text) { return tensor.name < text; });
    return found != tensors_.end() && found->name == name ? &*found : nullptr;
  }

  // A copy as T, as SafetensorsReader::read(). Allocates the result.
  template <FileScalar T, int Rank>
  Tensor<T, Rank> read(std::string_view name, const Index (&shape)[Rank]) const {
    return shard_of(name).template read<T, Rank>(name, shape);
  }
  template <FileScalar T, int Rank>
  Tensor<T, Rank> read(std::string_view name) const {
    return shard_of(name).template read<T, Rank>(name);
  }

 private:
  static constexpr const char* door = "ShardedReader";
  static constexpr const char* index_name = "model.safetensors.index.json";

  const SafetensorsReader& shard_of(std::string_view name) const {
    const Entry* tensor = find(name);
    if (tensor == nullptr) raise(impl::format_problem(door, name).append("no such tensor in the files"));
    return shards_[tensor->shard];
  }

  // Adds a file and its tensors.
  Problem add(const std::string& path) {
    SafetensorsReader& shard = shards_.emplace_back();
    if (const Problem problem = shard.try_open(path)) return problem;
    for (const TensorInfo& info : shard.tensors()) tensors_.push_back({info, shards_.size() - 1});
    return {};
  }

  Problem open_one(const std::string& folder) { return add(folder + "/model.safetensors"); }

  Problem open_shards(const std::string& folder, std::span<const std::byte> text) {
    Json index;
    if (const Problem problem = impl::parse_json_object(door, index_name, text, index)) return problem;
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object()) {
      return impl::format_problem(door, index_name).append("weight_map: expected an object of tensors and their files");
    }
    std::map<std::string, std::size_t, std::less<>, impl::JsonAllocator<std::pair<const std::string, std::size_t>>>
        files;
    for (const auto& [tensor, file] : map->items()) {
      const std::string* name = file.template get_ptr<const std::string*>();
      if (name == nullptr || !is_file_name(*name)) {
        return impl::append_name(
            impl::format_problem(door, tensor).append("expected the name of a file beside the index, got "),
            impl::json_text(file));
      }
      if (!files.emplace(*name, shards_.size()).second) continue;
      if (const Problem problem = add(folder + "/" + *name)) return problem;
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return check_index(*map, files);
  }

  // Files lie beside the index: a name with a separator could lead anywhere, one with a zero to another file.
  static bool is_file_name(const std::string& name) noexcept {
    for (const char letter : name) {
      if (static_cast<unsigned char>(letter) < 0x20) return false;
    }
    return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\:") == std::string::npos;
  }

  template <class Files>
  Problem check_index(const Json& map, const Files& files) const {
    for (const Entry& tensor : tensors_) {
      const auto entry = map.find(tensor.name);
      if (entry == map.end()) return impl::format_problem(door, tensor.name).append("in a file, but not in the index");
      if (files.find(entry->template get_ref<const std::string&>())->second != tensor.shard) {
        return impl::append_name(
            impl::format_problem(door, tensor.name).append("in another file than the index says, "),
            entry->template get_ref<const std::string&>());
      }
    }
    for (const auto& [name, file] : map.items()) {
      if (contains(name)) continue;
      return impl::append_name(
          impl::format_problem(door, name).append("no such tensor in the file that the index says, "),
          file.template get_ref<const std::string&>());
    }
    return {};
  }

  std::vector<SafetensorsReader> shards_;
  std::vector<Entry> tensors_;
};

static_assert(TensorSource<ShardedReader>);

}  // namespace heed::inline HEED_ABI
