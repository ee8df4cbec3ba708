// JSON documents that come with a model (config.json, model.safetensors.index.json), read into memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heed/io/mapped_file.hpp"
#include "heed/io/safetensors_header.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// The standard allocator in this namespace: it makes all of nlohmann's code for our documents separate for units with
// different compiler flags.
template <class T>
struct JsonAllocator : std::allocator<T> {
  JsonAllocator() noexcept = default;
  template <class U>
  JsonAllocator(const JsonAllocator<U>&) noexcept {}
};

}  // namespace impl

// nlohmann::json but for its allocator.
using Json = nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, double,
                                  impl::JsonAllocator>;

namespace impl {

// An index of half a million tensors is far below it. It bounds what is allocated: a small multiple of the text.
inline constexpr std::size_t max_json_bytes = 100'000'000;

// "true", "\"rotary\"", "{...}": a value as errors show it.
inline std::string json_text(const Json& value) {
  if (value.is_object()) return value.empty() ? "{}" : "{...}";
  if (value.is_array()) return value.empty() ? "[]" : "[...]";
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// The object that a text is. `name` stands for it in errors. Allocates it.
[[nodiscard]] inline Problem parse_json_object(const char* door, std::string_view name, std::span<const std::byte> text,
                                               Json& object) {
  if (text.size() > max_json_bytes) {
    return format_problem(door, name).append("longer than the limit of 100000000 bytes");
  }
  // nlohmann takes a zero byte for the end of the text and would not look at what follows.
  if (!text.empty() && std::memchr(text.data(), 0, text.size()) != nullptr) {
    return format_problem(door, name).append("holds a zero byte");
  }
  const HeaderIterator begin(text.data());
  const HeaderIterator end(text.data() + text.size());
  Json parsed = Json::parse(begin, end, nullptr, false);
  if (parsed.is_discarded()) return format_problem(door, name).append("not valid JSON");
  if (!parsed.is_object()) {
    return append_name(format_problem(door, name).append("expected an object, got "), json_text(parsed));
  }
  object = std::move(parsed);
  return {};
}

}  // namespace impl
}  // namespace heed::inline HEED_ABI
