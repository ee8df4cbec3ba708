// What is written comes back bit for bit, aligned and in one piece; what cannot be written leaves nothing behind.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "heed/io/safetensors.hpp"
#include "io/safetensors_bytes.hpp"

#if HEED_MMAP
#include <sys/resource.h>

#include <csignal>
#endif

using heed::Index;
using heed::SafetensorsReader;
using heed::SafetensorsWriter;
using heed::Tensor;
using heed::View;
using namespace heed_test;

namespace {

template <class T, int Rank>
Tensor<T, Rank> numbered(const Index (&extents)[Rank]) {
  Tensor<T, Rank> tensor(extents);
  for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<T>(static_cast<float>(i) * 0.5F - 3.0F);
  return tensor;
}

}  // namespace

TEST_CASE("safetensors: the written bytes are those of the format") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.safetensors");
  const std::uint8_t bytes[] = {9, 8, 7};
  const float floats[] = {1.0F, -2.5F};
  const std::int64_t id = -1;
  SafetensorsWriter writer;
  writer.add("b", View<const std::uint8_t, 1>(bytes, {3}))
      .add("f\"\n", View<const float, 2>(floats, {1, 2}))
      .add("i", View<const std::int64_t, 1>(&id, {1}))
      .metadata("format", "pt");
  writer.write(path);

  // safetensors.numpy.load of Python reads these bytes as {"i": [-1], 'f"\n': [[1, -2.5]], "b": [9, 8, 7]}.
  const std::string header = R"({"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                             R"("f\"\u000a":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
                             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}}     )";
  const std::string written = read_all(path);
  CHECK(to_hex(written.substr(0, 8)) == "d000000000000000");
  CHECK(written.substr(8, header.size()) == header);
  CHECK(to_hex(written.substr(8 + header.size())) == "ffffffffffffffff0000803f000020c0090807");
}

TEST_CASE("safetensors: every type comes back bit for bit, and aligned for a view") {
  const TemporaryFolder folder;
  const std::string path = folder.file("all.safetensors");
  auto f64 = numbered<double, 2>({3, 5});
  f64(0, 0) = std::numeric_limits<double>::quiet_NaN();
  f64(0, 1) = 5e-324;
  const auto f32 = numbered<float, 3>({2, 1, 3});
  const auto f16 = numbered<heed::float16, 1>({7});
  const auto bf16 = numbered<heed::bfloat16, 1>({5});
  const auto i64 = numbered<std::int64_t, 1>({3});
  const auto i32 = numbered<std::int32_t, 1>({3});
  const std::uint8_t u8[] = {0, 1, 255};
  Tensor<bool, 2> mask({1, 3});
  mask(0, 1) = true;
  const Tensor<float, 2> empty({0, 4});

  SafetensorsWriter writer;  // the odd sizes first: the order of the file must mend it
  writer.add("u8", View<const std::uint8_t, 1>(u8, {3})).add("mask", mask).add("f16", f16).add("bf16", bf16);
  writer.add("empty", empty).add("f32", f32).add("i32", i32).add("i64", i64).add("f64", f64);
  writer.metadata("key \xe2\x82\xac", "value \"\\\t\x01").metadata("empty", "");
  writer.write(path);
  CHECK(folder.count() == 1);

  const auto file = SafetensorsReader::open(path);
  CHECK(file.tensors().size() == 9);
  CHECK(file.metadata("key \xe2\x82\xac") == "value \"\\\t\x01");
  CHECK(file.metadata().size() == 2);
  const auto same = [&]<class T, int Rank>(const char* name, View<const T, Rank> want) {
    const auto got = file.view<T, Rank>(name);  // would refuse a misaligned one
    for (int axis = 0; axis < Rank; ++axis) CHECK(got.extent(axis) == want.extent(axis));
    CHECK(std::memcmp(got.data_handle(), want.data_handle(), sizeof(T) * static_cast<std::size_t>(want.size())) == 0);
  };
  same("f64", std::as_const(f64).view());
  same("f32", f32.view());
  same("f16", f16.view());
  same("bf16", bf16.view());
  same("i64", i64.view());
  same("i32", i32.view());
  same("u8", View<const std::uint8_t, 1>(u8, {3}));
  same("mask", std::as_const(mask).view());
  CHECK(file.view<float, 2>("empty", {0, 4}).empty());
}

TEST_CASE("safetensors: strided views are written as what they show") {
  const TemporaryFolder folder;
  const std::string path = folder.file("strided.safetensors");
  const auto base = numbered<float, 4>({2, 3, 4, 5});
  const auto permuted = base.view().permute({0, 2, 1, 3});
  const auto turned = base.view().permute({3, 2, 1, 0});  // no axis of stride 1 at the end
  const auto cut = base.view().slice(1, 1, 2).slice(3, 2, 3);
  const float one = 4.0F;
  const View<const float, 3> repeated(&one, {2, 3, 2}, {0, 0, 0});
  const View<const float, 2> column(base.data(), {3, 1}, {20, 7});

  SafetensorsWriter writer;
  writer.add("permuted", permuted).add("turned", turned).add("cut", cut).add("repeated", repeated);
  writer.add("column", column).add("whole", base);
  writer.write(path);

  const auto file = SafetensorsReader::open(path);
  const auto a = file.view<float, 4>("permuted", {2, 4, 3, 5});
  const auto b = file.view<float, 4>("turned", {5, 4, 3, 2});
  const auto c = file.view<float, 4>("cut", {2, 2, 4, 3});
  const auto whole = file.view<float, 4>("whole", {2, 3, 4, 5});
  for (Index i = 0; i < 2; ++i) {
    for (Index j = 0; j < 3; ++j) {
      for (Index k = 0; k < 4; ++k) {
        for (Index l = 0; l < 5; ++l) {
          const float want = static_cast<float>(((i * 3 + j) * 4 + k) * 5 + l) * 0.5F - 3.0F;
          CHECK(whole(i, j, k, l) == want);
          CHECK(a(i, k, j, l) == want);
          CHECK(b(l, k, j, i) == want);
          if (j >= 1 && l >= 2) CHECK(c(i, j - 1, k, l - 2) == want);
        }
      }
    }
  }
  const auto same = file.view_flat<float>("repeated");
  CHECK(same.size() == 12);
  for (Index i = 0; i < same.size(); ++i) CHECK(same(i) == 4.0F);
  const auto rows = file.view<float, 2>("column", {3, 1});
  for (Index i = 0; i < 3; ++i) CHECK(rows(i, 0) == static_cast<float>(20 * i) * 0.5F - 3.0F);
}

TEST_CASE("safetensors: an empty file of tensors") {
  const TemporaryFolder folder;
  const std::string path = folder.file("none.safetensors");
  SafetensorsWriter().write(path);
  CHECK(read_all(path) == std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  CHECK(SafetensorsReader::open(path).tensors().empty());
  SafetensorsWriter().metadata("a", "b").write(path);
  CHECK(SafetensorsReader::open(path).metadata("a") == "b");
}

TEST_CASE("safetensors: writing replaces the file in one step") {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.safetensors");
  auto tensor = numbered<float, 1>({100});
  SafetensorsWriter writer;
  writer.add("x", tensor);
  writer.write(path);

  // The old file stays whole under a reader of it, even as the source of what replaces it.
  const auto old = SafetensorsReader::open(path);
  const auto view = old.view<float, 1>("x");
  SafetensorsWriter second;
  second.add("y", view.slice(0, 50, 50));
  write_all(path + ".0.tmp", "left by a crash");
  second.write(path);
  CHECK(view(99) == tensor(99));
  CHECK(SafetensorsReader::open(path).view<float, 1>("y", {50})(0) == tensor(50));
  CHECK(folder.count() == 2);
  CHECK(read_all(path + ".0.tmp") == "left by a crash");

  // A writer may write again: it holds views, not copies.
  tensor(0) = 77.0F;
  writer.write(path);
  CHECK(SafetensorsReader::open(path).view<float, 1>("x")(0) == 77.0F);
}

TEST_CASE("safetensors: what cannot be written is a SystemError and leaves nothing behind") {
  const TemporaryFolder folder;
  const auto tensor = numbered<float, 2>({100, 1000});
  SafetensorsWriter writer;
  writer.add("x", tensor);
  const auto text = [&](const std::string& path) {
    const heed::Problem problem = writer.try_write(path);
    CHECK(problem.kind() == heed::ErrorKind::system);
    CHECK_THROWS_AS(writer.write(path), heed::SystemError);
    return std::string(problem.text());
  };
  const std::string nowhere = folder.file("absent/x.safetensors");
  CHECK(text(nowhere) == "heed: SafetensorsWriter: " + nowhere + ": No such file or directory");
  CHECK(text(folder.path()) == "heed: SafetensorsWriter: " + folder.path() + ": is a folder");
  CHECK(folder.count() == 0);

#if HEED_MMAP
  CHECK(text("/dev/null") == "heed: SafetensorsWriter: /dev/null: is not a regular file");

  // A full disk, played by a limit on the size of files.
  const std::string path = folder.file("x.safetensors");
  write_all(path, "old");
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 10'000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string refused = text(path);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(refused == "heed: SafetensorsWriter: " + path + ": File too large");
  CHECK(read_all(path) == "old");
  CHECK(folder.count() == 1);
#endif
}

TEST_CASE("safetensors: what would be no good file is refused before anything is written") {
  const TemporaryFolder folder;
  const auto tensor = numbered<float, 1>({2});
  const std::string path = folder.file("x");
  const auto text = [&](const SafetensorsWriter& writer) {
    const heed::Problem problem = writer.try_write(path);
    CHECK(problem.kind() == heed::ErrorKind::format);
    CHECK_THROWS_AS(writer.write(path), heed::FormatError);
    CHECK(folder.count() == 0);
    return std::string(problem.text());
  };
  CHECK(text(SafetensorsWriter().add("x", tensor).add("y", tensor).add("x", tensor)) ==
        "heed: SafetensorsWriter: x: there are two tensors of this name");
  CHECK(text(SafetensorsWriter().metadata("k", "a").metadata("k", "b")) ==
        "heed: SafetensorsWriter: __metadata__: k appears twice");
  CHECK(text(SafetensorsWriter().add("__metadata__", tensor)) ==
        "heed: SafetensorsWriter: __metadata__: expected a text, got an array");
  CHECK(text(SafetensorsWriter().add("\xff", tensor)) == "heed: SafetensorsWriter: header: not valid JSON at byte 3");

  SafetensorsWriter shapes;
  CHECK_THROWS_WITH_AS(shapes.add("n", View<const float, 2>(tensor.data(), {2, -1})),
                       "heed: SafetensorsWriter: n: [2, -1] has a negative extent", heed::ShapeError);
  CHECK_THROWS_WITH_AS(shapes.add("h", View<const float, 2>(tensor.data(), {Index{1} << 40, Index{1} << 40}, {0, 0})),
                       "heed: SafetensorsWriter: h: [1099511627776, 1099511627776] is too large to address",
                       heed::ShapeError);
}
