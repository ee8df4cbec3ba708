// libFuzzer's target for what reads files that a stranger may have made. Every input is tried as a whole safetensors file;
// one that begins with { also as the header of such a file, as an index of shards, and as config.json. What is opened is
// read to its last byte. An input may be refused, by an error that names a culprit; it may not do anything else.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "heed/io/safetensors.hpp"
#include "heed/io/sharded_reader.hpp"
#include "heed/models/attention_config.hpp"

namespace {

[[noreturn]] void fail(const char* what, const char* text) {
  std::fprintf(stderr, "%s: \"%s\"\n", what, text);
  std::abort();
}

// "heed: <door>: <culprit>: <reason>", in one line that a terminal can show.
void check_text(const char* text) {
  const std::string_view all = text;
  constexpr std::string_view start = "heed: ";
  if (!all.starts_with(start)) fail("the error does not begin with heed", text);
  const std::size_t door = all.find(": ", start.size());
  // A culprit's own name may begin with a colon.
  const std::size_t culprit = door == all.npos ? all.npos : all.find(": ", door + 3);
  if (culprit == all.npos || culprit + 2 >= all.size()) fail("the error names no culprit, or no reason", text);
  for (const char letter : all) {
    if (static_cast<unsigned char>(letter) < 0x20) fail("the error holds a control character", text);
  }
}

void check(const heed::Problem& problem) {
  if (problem.kind() != heed::ErrorKind::format) fail("the error is of another kind", problem.text());
  check_text(problem.text());
}

// Every tensor as each kind of number; the sum keeps the compiler from leaving the reads out.
double sum_of(const heed::SafetensorsReader& file) {
  double sum = 0;
  for (const heed::TensorInfo& tensor : file.tensors()) {
    for (const std::byte byte : file.bytes(tensor)) sum += std::to_integer<int>(byte);
    const auto as = [&]<class T>(T) {
      const heed::Tensor<T, 1> values = file.read_flat<T>(tensor.name);
      for (const T value : values.span()) sum += static_cast<double>(value);
    };
    for (const int kind : {0, 1}) {
      try {
        kind == 0 ? as(float()) : as(std::int64_t());
      } catch (const heed::FormatError&) {  // another kind of number
      }
    }
  }
  for (const heed::MetadataEntry& entry : file.metadata()) sum += static_cast<double>(entry.value.size());
  return sum;
}

void read_safetensors(std::string_view input) {
  // In memory of exactly its size, so that the address sanitizer sees every read beyond it.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(input.data()),
                                     reinterpret_cast<const std::byte*>(input.data()) + input.size());
  heed::SafetensorsReader reader;
  if (const heed::Problem problem = reader.try_from_bytes(bytes)) return check(problem);
  volatile double sum = sum_of(reader);
  static_cast<void>(sum);
}

// A folder with one file of two tensors, for an index beside it; as long as the process lives.
class Folder {
 public:
  Folder() {
    const std::filesystem::path memory = "/dev/shm";  // faster than a disk, where there is one
    path_ = (std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path()) /
            ("heed_fuzz_" + std::to_string(std::random_device()()));
    std::filesystem::create_directory(path_);
    const float values[2] = {1, 2};
    heed::SafetensorsWriter writer;
    writer.add("a", heed::View<const float, 1>(values, {2}));
    writer.add("b", heed::View<const float, 1>(values, {1}));
    writer.write((path_ / "one.safetensors").string());
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  void write_index(std::string_view text) const {
    std::FILE* file = std::fopen((path_ / "model.safetensors.index.json").c_str(), "wb");
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size()) std::abort();
    std::fclose(file);
  }

 private:
  std::filesystem::path path_;
};

void read_index(std::string_view input) {
  static const Folder folder;
  folder.write_index(input);
  heed::ShardedReader reader;
  const heed::Problem problem = reader.try_open(folder.path());
  if (problem.kind() == heed::ErrorKind::system) return check_text(problem.text());  // of a file that there is not
  if (problem) return check(problem);
  // All of the files' tensors are in an index that is taken; one without files has none.
  const bool right = reader.tensors().empty() || (reader.tensors().size() == 2 && reader.read<float, 1>("a")(1) == 2);
  if (!right) fail("an index that lies was taken", "");
}

void read_config(std::string_view input) {
  try {
    const auto config = heed::ModelConfig::from_text(input);
    static_cast<void>(heed::attention_config(config, 0));
    static_cast<void>(heed::attention_config(config, 1));
  } catch (const heed::FormatError& error) {
    check_text(error.what());
  } catch (const heed::ShapeError& error) {  // sizes that do not divide
    check_text(error.what());
  } catch (const heed::OptionError& error) {  // options that contradict each other
    check_text(error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_safetensors(input);
  if (input.starts_with("{")) {
    // The same as a header, before 32 bytes of data: mutations need not keep the length in front right.
    const std::uint64_t length = size;
    std::string file(reinterpret_cast<const char*>(&length), sizeof length);
    file.append(input).append(32, '\x3f');
    read_safetensors(file);
    // Without these names they say nothing new.
    if (input.find("weight_map") != input.npos) read_index(input);
    if (input.find("model_type") != input.npos) read_config(input);
  }
  return 0;
}
