// MappedFile: a whole file as bytes in memory, mapped where the system can, read where it cannot.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "heed/core/tensor.hpp"
#include "heed/error.hpp"

// 1: POSIX mmap, pages come in as they are touched. 0: the file is read into memory when it is opened.
#if !defined(HEED_MMAP)
#if defined(__unix__) || defined(__APPLE__)
#define HEED_MMAP 1
#else
#define HEED_MMAP 0
#endif
#endif

#if HEED_MMAP
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#include <filesystem>
#endif

namespace heed::inline HEED_ABI {

// "heed: <door>: <path>: <reason>" for what the operating system refused. Of a very long path the end is shown, and of
// control characters a question mark.
inline Problem system_problem(const char* door, const std::string& path, const char* reason) noexcept {
  constexpr std::size_t longest = 300;
  const bool cut = path.size() > longest;
  Problem problem(ErrorKind::system, "heed: ");
  problem.append(door).append(cut ? ": ..." : ": ");
  for (std::size_t i = cut ? path.size() - longest : 0; i < path.size(); ++i) {
    const char letter[] = {static_cast<unsigned char>(path[i]) < 0x20 ? '?' : path[i], '\0'};
    problem.append(letter);
  }
  return problem.append(": ").append(reason);
}

// Owns the mapping (or the copy) and gives it back when it dies; movable, not copyable. The bytes start 64-byte aligned
// and stay where they are when the object is moved. Somebody who cuts the file short while it is mapped makes reading
// the lost part a bus error, as with every mapping; replacing the file by rename, as SafetensorsWriter does, is safe.
class MappedFile {
 public:
  MappedFile() noexcept = default;
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile moved(std::move(other));
    swap(moved);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { release(); }

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  // Opens a regular file for reading. Returns what went wrong, in the name of `door`: no such file, a folder, no
  // permission, no memory; then the object holds what it held before.
  Problem open(const char* door, const std::string& path);

 private:
  void swap(MappedFile& other) noexcept {
    std::swap(bytes_, other.bytes_);
#if !HEED_MMAP
    copy_.swap(other.copy_);
#endif
  }
  void release() noexcept;

  std::span<const std::byte> bytes_;
#if !HEED_MMAP
  Tensor<std::byte, 1> copy_;
#endif
};

#if HEED_MMAP

inline Problem MappedFile::open(const char* door, const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return system_problem(door, path, std::strerror(errno));

  Problem problem;
  MappedFile file;
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) {
    problem = system_problem(door, path, std::strerror(errno));
  } else if (S_ISDIR(status.st_mode)) {
    problem = system_problem(door, path, "is a folder");
  } else if (!S_ISREG(status.st_mode)) {
    problem = system_problem(door, path, "is not a regular file");
  } else if (!std::in_range<std::size_t>(status.st_size)) {
    problem = system_problem(door, path, "is larger than the address space");
  } else if (status.st_size > 0) {  // an empty mapping is an error to mmap; no bytes are no problem here
    const auto size = static_cast<std::size_t>(status.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      problem = system_problem(door, path, std::strerror(errno));
    } else {
      file.bytes_ = {static_cast<const std::byte*>(address), size};
    }
  }
  ::close(descriptor);  // the mapping stays
  if (!problem) swap(file);
  return problem;
}

inline void MappedFile::release() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

#else

inline Problem MappedFile::open(const char* door, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) return system_problem(door, path, error.message().c_str());
  if (std::filesystem::is_directory(status)) return system_problem(door, path, "is a folder");
  if (!std::filesystem::is_regular_file(status)) return system_problem(door, path, "is not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return system_problem(door, path, error.message().c_str());
  if (!std::in_range<Index>(size)) return system_problem(door, path, "is larger than the address space");

  std::FILE* stream = std::fopen(path.c_str(), "rb");
  if (stream == nullptr) return system_problem(door, path, std::strerror(errno));
  MappedFile file;
  file.copy_ = Tensor<std::byte, 1>({static_cast<Index>(size)});
  const std::size_t count = std::fread(file.copy_.data(), 1, static_cast<std::size_t>(size), stream);
  std::fclose(stream);
  if (count != size) return system_problem(door, path, "could not be read to its end");
  file.bytes_ = {file.copy_.data(), count};
  swap(file);
  return {};
}

inline void MappedFile::release() noexcept {}

#endif

}  // namespace heed::inline HEED_ABI
