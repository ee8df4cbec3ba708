// What a correct file gives: every type, shapes, texts, views, conversions, and the texts of what does not fit.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "heed/io/safetensors_reader.hpp"
#include "io/safetensors_bytes.hpp"

using heed::DType;
using heed::Index;
using heed::SafetensorsReader;
using namespace heed_test;

namespace {

// Written by the reference implementation, safetensors 0.8.0 for Python: safetensors.serialize() of numpy arrays.
const char* const golden_header = R"({"__metadata__":{"format":"np","quote \"é\"":"line\nbreak"},)"
                                  R"("ids":{"dtype":"I64","shape":[2,1],"data_offsets":[0,16]},)"
                                  R"("double":{"dtype":"F64","shape":[2],"data_offsets":[16,32]},)"
                                  R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[32,32]},)"
                                  R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[32,36]},)"
                                  R"("single":{"dtype":"F32","shape":[2,3],"data_offsets":[36,60]},)"
                                  R"("short":{"dtype":"I32","shape":[2],"data_offsets":[60,68]},)"
                                  R"("brain":{"dtype":"BF16","shape":[2],"data_offsets":[68,72]},)"
                                  R"("half":{"dtype":"F16","shape":[3],"data_offsets":[72,78]},)"
                                  R"("byte":{"dtype":"U8","shape":[2],"data_offsets":[78,80]},)"
                                  R"("mask":{"dtype":"BOOL","shape":[1,3],"data_offsets":[80,83]}})";
const char* const golden_data =
    "01000000000000000000000000ffffff"
    "9a9999999999b93f9c7500883ce437fe"
    "000010400000003f000000c0e6b1617f"
    "010000000000807f0000008007000000"
    "00000080803f40c0003efffb010000ff"
    "010001";

heed::Tensor<std::byte, 1> golden() {
  return file_bytes(golden_header, from_hex(golden_data));
}

// The text of the FormatError that `call` throws.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const heed::FormatError& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace

TEST_CASE("safetensors: a file of the reference implementation, read as it was written") {
  const auto bytes = golden();
  REQUIRE(bytes.size() == 8 + 656 + 83);
  const auto file = SafetensorsReader::from_bytes(bytes.span());

  REQUIRE(file.tensors().size() == 10);
  CHECK(file.tensors()[0].name == "brain");
  CHECK(file.tensors()[9].name == "single");
  CHECK(file.contains("ids"));
  CHECK_FALSE(file.contains("id"));
  CHECK_FALSE(file.contains("__metadata__"));

  CHECK(file.metadata().size() == 2);
  CHECK(file.metadata("format") == "np");
  CHECK(file.metadata("quote \"\xc3\xa9\"") == "line\nbreak");
  CHECK(file.metadata("absent").empty());

  const auto& info = file.info("single");
  CHECK(info.dtype == DType::f32);
  CHECK(info.rank == 2);
  CHECK(info.shape()[0] == 2);
  CHECK(info.shape()[1] == 3);
  CHECK(info.size() == 6);

  const auto single = file.view<float, 2>("single");
  CHECK(reinterpret_cast<const std::byte*>(single.data_handle()) == bytes.data() + 8 + 656 + 36);  // no copy
  CHECK(single.extent(0) == 2);
  CHECK(single.extent(1) == 3);
  CHECK(single(0, 0) == 0.5F);
  CHECK(single(0, 1) == -2.0F);
  CHECK(single(0, 2) == 3e38F);
  CHECK(single(1, 0) == 1e-45F);
  CHECK(std::isinf(single(1, 1)));
  CHECK(std::signbit(single(1, 2)));

  const auto real = file.view<double, 1>("double");
  CHECK(real(0) == 0.1);
  CHECK(real(1) == -1e300);
  const auto half = file.view<heed::float16, 1>("half");
  CHECK(static_cast<float>(half(0)) == 1.5F);
  CHECK(static_cast<float>(half(1)) == -65504.0F);
  CHECK(half(2).bits == 1);
  const auto brain = file.view<heed::bfloat16, 1>("brain");
  CHECK(static_cast<float>(brain(0)) == 1.0F);
  CHECK(static_cast<float>(brain(1)) == -3.0F);
  const auto ids = file.view<std::int64_t, 2>("ids", {2, 1});
  CHECK(ids(0, 0) == 1);
  CHECK(ids(1, 0) == -1099511627776);
  const auto small = file.view<std::int32_t, 1>("short");
  CHECK(small(0) == 7);
  CHECK(small(1) == -2147483647 - 1);
  CHECK(file.view<std::uint8_t, 1>("byte")(1) == 255);
  const auto mask = file.view<bool, 2>("mask");
  CHECK(mask(0, 0));
  CHECK_FALSE(mask(0, 1));
  CHECK(mask(0, 2));

  CHECK(file.view<float, 2>("empty").empty());
  CHECK(file.view<float, 2>("empty").extent(1) == 3);
  CHECK(file.read<double, 2>("empty").extent(1) == 3);
  CHECK(file.info("scalar").rank == 0);
  CHECK(file.view_flat<float>("scalar")(0) == 2.25F);
  CHECK(file.read_flat<double>("scalar")(0) == 2.25);
  CHECK(file.bytes(file.info("byte")).size() == 2);
}

TEST_CASE("safetensors: read converts floats to floats and integers to integers") {
  const auto bytes = golden();
  const auto file = SafetensorsReader::from_bytes(bytes.span());

  const auto from_double = file.read<float, 1>("double");
  CHECK(from_double(0) == 0.1F);
  CHECK(from_double(1) == -std::numeric_limits<float>::infinity());
  CHECK(file.read<double, 1>("double")(0) == 0.1);
  const auto from_half = file.read<double, 1>("half");
  CHECK(from_half(0) == 1.5);
  CHECK(from_half(1) == -65504.0);
  CHECK(from_half(2) == 0x1p-24);
  CHECK(file.read<float, 1>("brain")(1) == -3.0F);
  const auto to_half = file.read<heed::float16, 2>("single");
  CHECK(static_cast<float>(to_half(0, 1)) == -2.0F);
  CHECK(to_half(0, 2).bits == 0x7c00);  // infinity
  CHECK(file.read<heed::bfloat16, 1>("half")(0).bits == 0x3fc0);

  const auto ids = file.read<std::int64_t, 1>("short");
  CHECK(ids(0) == 7);
  CHECK(ids(1) == -2147483648LL);
  CHECK(file.read<std::int32_t, 1>("byte")(1) == 255);
  CHECK(file.read<std::uint8_t, 2>("mask")(0, 2) == 1);
  CHECK(file.read<bool, 2>("mask")(0, 2));
  CHECK(file.read_flat<std::int64_t>("ids")(1) == -1099511627776);
}

TEST_CASE("safetensors: a double becomes a 16-bit number in one rounding") {
  // 1 + 2^-8 + 2^-40 lies just above the middle of two bfloat16; as a float it is the middle, which goes to even.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  const double below = 1.0 + 3 * 0x1p-8 - 0x1p-40;
  const double half_above = -(1.0 + 0x1p-11 + 0x1p-40);
  const double huge = 1e300;
  std::string data(32, '\0');
  std::memcpy(data.data(), &above, 8);
  std::memcpy(data.data() + 8, &below, 8);
  std::memcpy(data.data() + 16, &half_above, 8);
  std::memcpy(data.data() + 24, &huge, 8);
  const auto bytes = file_bytes(R"({"x":{"dtype":"F64","shape":[4],"data_offsets":[0,32]}})", data);
  const auto file = SafetensorsReader::from_bytes(bytes.span());
  const auto brain = file.read<heed::bfloat16, 1>("x");
  CHECK(brain(0).bits == 0x3f81);
  CHECK(brain(1).bits == 0x3f81);
  CHECK(brain(3).bits == 0x7f80);
  const auto half = file.read<heed::float16, 1>("x");
  CHECK(half(2).bits == 0xbc01);
  CHECK(half(3).bits == 0x7c00);
}

TEST_CASE("safetensors: what is asked for and not there is named, with what was expected and found") {
  const auto bytes = golden();
  const auto file = SafetensorsReader::from_bytes(bytes.span());
  const auto is = [](const std::string& text) { return "heed: SafetensorsReader: " + text; };

  CHECK(refusal([&] { file.read<float, 2>("layers.0.q"); }) == is("layers.0.q: no such tensor in the file"));
  CHECK(refusal([&] { (void)file.info("q"); }) == is("q: no such tensor in the file"));
  CHECK(refusal([&] {
          file.read<float, 2>("single", {4, 64});
        }) == is("single: expected [4, 64] (F64, F32, F16 or BF16), got [2, 3] (F32)"));
  CHECK(refusal([&] {
          file.read<float, 2>("single", {heed::any, 4});
        }) == is("single: expected [*, 4] (F64, F32, F16 or BF16), got [2, 3] (F32)"));
  CHECK(refusal([&] { file.read<float, 1>("single"); }) ==
        is("single: expected [*] (F64, F32, F16 or BF16), got [2, 3] (F32)"));
  CHECK(refusal([&] { file.read<float, 1>("scalar"); }) ==
        is("scalar: expected [*] (F64, F32, F16 or BF16), got [] (F32)"));
  CHECK(refusal([&] { file.read<float, 2>("ids"); }) ==
        is("ids: expected [*, *] (F64, F32, F16 or BF16), got [2, 1] (I64)"));
  CHECK(refusal([&] { file.read<std::int64_t, 2>("single"); }) ==
        is("single: expected [*, *] (I64, I32, I16, I8, U8 or BOOL), got [2, 3] (F32)"));
  CHECK(refusal([&] { (void)file.view<float, 1>("double"); }) == is("double: expected [*] (F32), got [2] (F64)"));
  CHECK(refusal([&] { (void)file.view<double, 1>("double", {3}); }) == is("double: expected [3] (F64), got [2] (F64)"));
  CHECK(refusal([&] { (void)file.view_flat<double>("single"); }) ==
        is("single: expected any shape (F64), got [2, 3] (F32)"));
  CHECK(refusal([&] { file.read<std::int32_t, 2>("ids"); }) ==
        is("ids: value -1099511627776 is out of the range of the type it is read as"));
  CHECK(refusal([&] { file.read<bool, 1>("byte"); }) ==
        is("byte: value 255 is out of the range of the type it is read as"));
  CHECK(refusal([&] { file.read<std::uint8_t, 1>("short"); }) ==
        is("short: value -2147483648 is out of the range of the type it is read as"));
  CHECK(file.read<float, 2>("single", {heed::any, 3})(0, 0) == 0.5F);
}

TEST_CASE("safetensors: a byte that is no bool is refused") {
  const auto bytes = file_bytes(R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", std::string("\1\2", 2));
  const auto file = SafetensorsReader::from_bytes(bytes.span());
  const std::string text = "heed: SafetensorsReader: m: value 2 is out of the range of the type it is read as";
  CHECK(refusal([&] { (void)file.view<bool, 1>("m"); }) == text);
  CHECK(refusal([&] { file.read<bool, 1>("m"); }) == text);
}

TEST_CASE("safetensors: misaligned data: a view is refused, a copy is read") {
  const float value = -7.5F;
  std::string data = "\1\2\3";
  data.append(reinterpret_cast<const char*>(&value), 4);
  std::string header = R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})";
  while (header.size() % 8 != 0) header += ' ';
  const auto bytes = file_bytes(header, data);
  const auto file = SafetensorsReader::from_bytes(bytes.span());
  CHECK(refusal([&] { (void)file.view<float, 1>("a"); }) ==
        "heed: SafetensorsReader: a: misaligned: a view needs its data at a multiple of 4 bytes; read it instead");
  CHECK(file.read<float, 1>("a")(0) == -7.5F);
  CHECK(file.read<double, 1>("a")(0) == -7.5);
}

TEST_CASE("safetensors: other known types are seen and refused by name") {
  const auto bytes = file_bytes(R"({"u":{"dtype":"U16","shape":[1],"data_offsets":[0,2]},)"
                                R"("f":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[2,3]},)"
                                R"("i":{"dtype":"I8","shape":[1],"data_offsets":[3,4]},)"
                                R"("j":{"dtype":"I16","shape":[1],"data_offsets":[4,6]}})",
                                std::string("\1\0\1\377\376\377", 6));
  const auto file = SafetensorsReader::from_bytes(bytes.span());
  CHECK(file.info("u").dtype == DType::u16);
  CHECK(refusal([&] { file.read<float, 1>("f"); }) ==
        "heed: SafetensorsReader: f: expected [*] (F64, F32, F16 or BF16), got [1] (F8_E4M3)");
  CHECK(refusal([&] { file.read<std::int32_t, 1>("u"); }) ==
        "heed: SafetensorsReader: u: expected [*] (I64, I32, I16, I8, U8 or BOOL), got [1] (U16)");
  CHECK(file.read<std::int32_t, 1>("i")(0) == -1);
  CHECK(file.read<std::int64_t, 1>("j")(0) == -2);
}

TEST_CASE("safetensors: a file is mapped, moves with its reader, and keeps its views") {
  const TemporaryFolder folder;
  const auto bytes = golden();
  const std::string path = folder.file("golden.safetensors");
  write_all(path, {reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(bytes.size())});

  auto file = SafetensorsReader::open(path);
  const auto view = file.view<float, 2>("single");
  auto moved = std::move(file);
  CHECK(view(0, 1) == -2.0F);
  CHECK(moved.view<float, 2>("single").data_handle() == view.data_handle());
  CHECK(SafetensorsReader::open(path).read<float, 2>("single")(0, 1) == -2.0F);

  // A problem leaves the reader as it was.
  CHECK(moved.try_open(folder.file("absent")));
  CHECK(moved.view<float, 2>("single")(0, 1) == -2.0F);
}

TEST_CASE("safetensors: what cannot be opened is a SystemError with path and reason") {
  const TemporaryFolder folder;
  const auto text = [](const std::string& path) {
    SafetensorsReader reader;
    const heed::Problem problem = reader.try_open(path);
    CHECK(problem.kind() == heed::ErrorKind::system);
    return std::string(problem.text());
  };
  const std::string absent = folder.file("absent.safetensors");
  CHECK(text(absent) == "heed: SafetensorsReader: " + absent + ": No such file or directory");
  CHECK(text(absent + "\n\x1b[1m") == "heed: SafetensorsReader: " + absent + "??[1m: No such file or directory");
  CHECK(text(folder.path()) == "heed: SafetensorsReader: " + folder.path() + ": is a folder");
  CHECK_THROWS_AS((void)SafetensorsReader::open(absent), heed::SystemError);
  CHECK_THROWS_AS((void)SafetensorsReader::open(folder.path()), heed::SystemError);

  // Of a long path the end is shown, so that the reason is never cut off.
  const std::string deep = folder.file(std::string(400, 'x'));
  const std::string deep_text = text(deep);
  CHECK(deep_text.rfind("heed: SafetensorsReader: ...xxx", 0) == 0);
  CHECK(deep_text.find(std::string(300, 'x') + ": ") != std::string::npos);

  const std::string locked = folder.file("locked");
  write_all(locked, "x");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (!std::ifstream(locked)) {  // root reads everything
    CHECK(text(locked) == "heed: SafetensorsReader: " + locked + ": Permission denied");
  }

  const std::string empty = folder.file("empty");
  write_all(empty, "");
  SafetensorsReader reader;
  CHECK(std::string(reader.try_open(empty).text()) ==
        "heed: SafetensorsReader: header: the file ends after 0 bytes (in " + empty + ")");
  CHECK_THROWS_AS((void)SafetensorsReader::open(empty), heed::FormatError);
}
