// Safetensors files built byte by byte, for tests that must not trust heed's own writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "heed/core/tensor.hpp"

namespace heed_test {

// The bytes of a file with this header text and these data, in memory of exactly that size, so that a sanitizer sees
// every read beyond it. `length` is what the file says of its header, by default the truth.
inline heed::Tensor<std::byte, 1> file_bytes(std::string_view header, std::string_view data, std::uint64_t length) {
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes.append(header).append(data);
  return heed::Tensor<std::byte, 1>(heed::View<const std::byte, 1>(std::as_bytes(std::span(bytes))));
}
inline heed::Tensor<std::byte, 1> file_bytes(std::string_view header, std::string_view data = {}) {
  return file_bytes(header, data, header.size());
}

// "00ff" -> two bytes.
inline std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

inline std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    hex += digits[static_cast<unsigned char>(byte) >> 4U];
    hex += digits[static_cast<unsigned char>(byte) & 15U];
  }
  return hex;
}

// A folder of its own for a test's files; removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::filesystem::path base = std::filesystem::temp_directory_path();
    for (int number = 0;; ++number) {
      path_ = base / ("heed_test_" + std::to_string(number));
      if (std::filesystem::create_directory(path_)) break;
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(std::string_view name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  // How many files are in it.
  std::ptrdiff_t count() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

inline void write_all(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace heed_test
