// ShardedReader: one file or several, and every way in which an index and its files can disagree.
#include <doctest/doctest.h>

#include <string>

#include "heed/io/safetensors_writer.hpp"
#include "heed/io/sharded_reader.hpp"
#include "io/safetensors_bytes.hpp"
#include "support/compare.hpp"
#include "support/error_text.hpp"
#include "support/random.hpp"

namespace {

using heed::bfloat16;
using heed::Index;
using heed::ShardedReader;
using heed::Tensor;
using heed_test::TemporaryFolder;
using test::error_text;

constexpr const char* index_name = "model.safetensors.index.json";

// Two files: a and c in the first, b in the second.
struct Shards {
  TemporaryFolder folder;
  Tensor<float, 2> a = test::random_tensor<float>({2, 3}, 1);
  Tensor<bfloat16, 1> b = test::random_tensor<bfloat16>({4}, 2);
  Tensor<double, 1> c = test::random_tensor<double>({5}, 3);

  Shards() {
    heed::SafetensorsWriter first;
    first.add("a", a).add("c", c);
    first.write(folder.file("one.safetensors"));
    heed::SafetensorsWriter second;
    second.add("b", b);
    second.write(folder.file("two.safetensors"));
  }
  std::string with_index(const std::string& map) const {
    heed_test::write_all(folder.file(index_name), R"({"metadata": {"total_size": 72}, "weight_map": {)" + map + "}}");
    return error_text([&] { ShardedReader::open(folder.path()); });
  }
};

}  // namespace

TEST_CASE("ShardedReader: tensors of several files, as they are in them") {
  const Shards shards;
  const std::string index = R"("a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors")";
  REQUIRE(shards.with_index(index) == "no error");
  const auto reader = ShardedReader::open(shards.folder.path());
  CHECK(reader.num_shards() == 2);
  REQUIRE(reader.tensors().size() == 3);
  CHECK(reader.tensors()[0].name == "a");
  CHECK(reader.tensors()[1].name == "b");
  CHECK(reader.tensors()[2].name == "c");
  CHECK(reader.contains("b"));
  CHECK_FALSE(reader.contains("d"));
  CHECK(reader.find("d") == nullptr);
  CHECK(reader.find("b")->dtype == heed::DType::bf16);
  CHECK(test::same_bits(reader.read<float, 2>("a"), shards.a));
  CHECK(test::same_bits(reader.read<bfloat16, 1>("b", {4}), shards.b));
  CHECK(test::max_error(reader.read<float, 1>("b"), shards.b) == 0);
  CHECK(test::same_bits(reader.read<double, 1>("c", {heed::any}), shards.c));
  CHECK(error_text([&] { reader.read<float, 1>("d"); }) == "heed: ShardedReader: d: no such tensor in the files");
  CHECK(error_text([&] { reader.read<float, 1>("c", {4}); }) ==
        "heed: SafetensorsReader: c: expected [4] (F64, F32, F16 or BF16), got [5] (F64)");
}

TEST_CASE("ShardedReader: a folder without an index has one file") {
  const Shards shards;
  const std::string path = shards.folder.file("model.safetensors");
  CHECK(error_text([&] { ShardedReader::open(shards.folder.path()); }) ==
        "heed: SafetensorsReader: " + path + ": No such file or directory");
  heed::SafetensorsWriter writer;
  writer.add("a", shards.a);
  writer.write(path);
  const auto reader = ShardedReader::open(shards.folder.path());
  CHECK(reader.num_shards() == 1);
  CHECK(test::same_bits(reader.read<float, 2>("a"), shards.a));
}

TEST_CASE("ShardedReader: an index that its files do not bear out") {
  const Shards shards;
  const std::string a = R"("a": "one.safetensors", )";
  const std::string b = R"("b": "two.safetensors", )";
  const std::string c = R"("c": "one.safetensors")";
  CHECK(shards.with_index(b + c) == "heed: ShardedReader: a: in a file, but not in the index");
  CHECK(shards.with_index(R"("a": "two.safetensors", )" + b + c) ==
        "heed: ShardedReader: a: in another file than the index says, two.safetensors");
  CHECK(shards.with_index(a + b + R"("d": "two.safetensors", )" + c) ==
        "heed: ShardedReader: d: no such tensor in the file that the index says, two.safetensors");
  CHECK(shards.with_index(a + R"("b": "three.safetensors", )" + c) ==
        "heed: SafetensorsReader: " + shards.folder.file("three.safetensors") + ": No such file or directory");
  for (const std::string name :
       {"../one.safetensors", "/etc/passwd", "..", "", "c:one", "x\\\\y", "two.safetensors\\u0000", "x\\ny"}) {
    INFO("name: ", name);
    CHECK(shards.with_index(a + "\"b\": \"" + name + "\", " + c)
              .find("heed: ShardedReader: b: expected the name of a file beside the index, got \"") == 0);
  }
  CHECK(shards.with_index(a + R"("b": 2, )" + c) ==
        "heed: ShardedReader: b: expected the name of a file beside the index, got 2");
  // The same tensor in two files.
  heed::SafetensorsWriter writer;
  writer.add("a", shards.a).add("b", shards.b);
  writer.write(shards.folder.file("two.safetensors"));
  CHECK(shards.with_index(a + b + c) == "heed: ShardedReader: a: in another file than the index says, one.safetensors");
}

TEST_CASE("ShardedReader: an index that is none") {
  const TemporaryFolder folder;
  const auto text_of = [&](const std::string& text) {
    heed_test::write_all(folder.file(index_name), text);
    return error_text([&] { ShardedReader::open(folder.path()); });
  };
  CHECK(text_of("") == "heed: ShardedReader: model.safetensors.index.json: not valid JSON");
  CHECK(text_of("[]") == "heed: ShardedReader: model.safetensors.index.json: expected an object, got []");
  const std::string expected =
      "heed: ShardedReader: model.safetensors.index.json: weight_map: expected an object of tensors and their files";
  CHECK(text_of("{}") == expected);
  CHECK(text_of("{\"weight_map\": []}") == expected);
  // No tensors, no files: an empty model, which is as good as its index.
  CHECK(text_of("{\"weight_map\": {}}") == "no error");
}
