// Workspace: measuring is taking, borrowed buffers, frames, the error.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "heed/core/workspace.hpp"

namespace {

using heed::Index;
using heed::View;
using heed::Workspace;

template <class T>
bool is_aligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 64 == 0;
}

// What some layer would take: parts that live long, and parts in frames.
struct Taken {
  float* a = nullptr;
  View<double, 2> b;
  char* inner = nullptr;
  std::int64_t* after = nullptr;
};
Taken take_all(Workspace& workspace, Index n) {
  Taken taken;
  taken.a = workspace.take<float>(n);
  taken.b = workspace.take<double, 2>({n, Index{3}});
  {
    const Workspace::Frame frame(workspace);
    taken.inner = workspace.take<char>(100 * n);
  }
  taken.after = workspace.take<std::int64_t>(5);
  return taken;
}

}  // namespace

TEST_CASE("Workspace: measuring counts what taking takes") {
  for (const Index n : {0, 1, 7, 16, 1000}) {
    Workspace measuring = Workspace::measuring();
    const Taken counted = take_all(measuring, n);
    CHECK(counted.a == nullptr);
    CHECK(!counted.b.present());
    CHECK(counted.b.extent(0) == n);
    const std::size_t needed = measuring.size_needed();
    CHECK(needed % 64 == 0);
    CHECK(needed >= static_cast<std::size_t>(n * (4 + 24 + 100)));

    Workspace workspace(needed);
    CHECK(workspace.size() == needed);
    const Taken taken = take_all(workspace, n);
    CHECK(workspace.size_needed() == needed);  // to the byte
    CHECK(is_aligned(taken.a));
    CHECK(is_aligned(taken.b.data_handle()));
    CHECK(is_aligned(taken.inner));
    CHECK(taken.after == static_cast<void*>(taken.inner));  // the frame's memory is used again

    // Everything may be written, and nothing overlaps.
    if (n == 0) continue;
    std::memset(taken.a, 1, static_cast<std::size_t>(n) * sizeof(float));
    std::memset(taken.b.data_handle(), 2, static_cast<std::size_t>(n) * 3 * sizeof(double));
    std::memset(taken.inner, 3, static_cast<std::size_t>(n) * 100);
    CHECK(reinterpret_cast<unsigned char*>(taken.a)[n * 4 - 1] == 1);
    CHECK(reinterpret_cast<unsigned char*>(taken.b.data_handle())[n * 24 - 1] == 2);
  }
}

TEST_CASE("Workspace: frames give back, also nested ones; size_needed keeps the most") {
  Workspace workspace(1000);
  CHECK(workspace.size() == 1024);  // whole lines of 64 bytes
  CHECK(workspace.size_left() == 1024);
  workspace.take<char>(1);
  CHECK(workspace.size_left() == 960);
  {
    const Workspace::Frame outer(workspace);
    workspace.take<char>(65);
    CHECK(workspace.size_left() == 832);
    {
      const Workspace::Frame inner(workspace);
      workspace.take<double>(16);
      CHECK(workspace.size_left() == 704);
    }
    CHECK(workspace.size_left() == 832);
  }
  CHECK(workspace.size_left() == 960);
  CHECK(workspace.size_needed() == 320);
}

TEST_CASE("Workspace: takes tensors, contiguous and row-major") {
  Workspace workspace(4096);
  const View<float, 3> tensor = workspace.take<float, 3>({2, 3, 4});
  CHECK(tensor.is_contiguous());
  CHECK(tensor.extent(2) == 4);
  CHECK(workspace.size_left() == 4096 - 128);
  CHECK(workspace.take<float, 2>({0, 3}).empty());
  CHECK(workspace.size_left() == 4096 - 128);
}

TEST_CASE("Workspace: borrows a buffer, aligned or not, and writes only inside it") {
  std::vector<std::byte> memory(1024 + 64);
  std::byte* aligned = memory.data();
  while (!is_aligned(aligned)) ++aligned;
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{63}}) {
    CAPTURE(offset);
    Workspace workspace(std::span<std::byte>(aligned + offset, 512));
    // Lost at the start, and what does not fill a line at the end.
    CHECK(workspace.size() == (offset == 0 ? 512 : 448));
    const std::size_t size = workspace.size();
    const std::byte* first = workspace.take<std::byte>(static_cast<Index>(size));
    CHECK(is_aligned(first));
    CHECK(first >= aligned + offset);
    CHECK(first + size <= aligned + offset + 512);
    CHECK(workspace.size_left() == 0);
  }
  CHECK(Workspace(std::span<std::byte>(aligned + 1, 62)).size() == 0);   // ends before the first line begins
  CHECK(Workspace(std::span<std::byte>(aligned + 1, 126)).size() == 0);  // one byte short of a line
  CHECK(Workspace(std::span<std::byte>(aligned + 1, 127)).size() == 64);
  CHECK(Workspace(std::span<std::byte>()).size() == 0);
}

TEST_CASE("Workspace: default-made it is empty; moves take the memory") {
  Workspace none;
  CHECK(none.size() == 0);
  CHECK(none.size_left() == 0);
  Workspace original(256);
  const char* memory = original.take<char>(10);
  Workspace moved(std::move(original));
  CHECK(moved.size() == 256);
  CHECK(moved.size_left() == 192);
  CHECK(original.size() == 0);  // NOLINT: what a moved-from workspace is, is promised
  none = std::move(moved);
  CHECK(none.size() == 256);
  CHECK(none.take<char>(1) == memory + 64);
  CHECK(moved.size() == 0);  // NOLINT
  Workspace& self = none;
  none = std::move(self);
  CHECK(none.size() == 256);
  static_assert(!std::is_copy_constructible_v<Workspace> && !std::is_copy_assignable_v<Workspace>);
  static_assert(std::is_nothrow_move_constructible_v<Workspace> && std::is_nothrow_move_assignable_v<Workspace>);
}

TEST_CASE("check_workspace: too small is a WorkspaceError that names both sizes") {
  Workspace workspace(128);
  CHECK(!heed::check_workspace("Layer::forward", workspace, 0));
  CHECK(!heed::check_workspace("Layer::forward", workspace, 128));
  const heed::Problem problem = heed::check_workspace("Layer::forward", workspace, 129);
  CHECK(problem.kind() == heed::ErrorKind::workspace);
  CHECK(problem.text() == std::string("heed: Layer::forward: workspace: needs 129 bytes, has 128"));
  CHECK_THROWS_AS(heed::raise_if(problem), heed::WorkspaceError);
  workspace.take<char>(1);
  CHECK(heed::check_workspace("Layer::forward", workspace, 128).text() ==
        std::string("heed: Layer::forward: workspace: needs 128 bytes, has 64"));
}
