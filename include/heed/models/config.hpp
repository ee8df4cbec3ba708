// ModelConfig: a model's config.json, and ConfigReader, which asks it for members and passes none over in silence.
#pragma once

#include <cmath>
#include <initializer_list>
#include <set>

#include "heed/io/json.hpp"

namespace heed::inline HEED_ABI {

// The members of one JSON object, asked for by name. A member that is null counts as absent, as in Transformers. Every
// error is a FormatError that names the member: "heed: config.json: rope_scaling.factor: expected a number, got true".
//
// Remembers which members were asked for, so that what is left can be refused: finish().
class ConfigReader {
 public:
  // `path` stands before the members' names in errors: "" or "rope_scaling.".
  ConfigReader(const Json& object, std::string file, std::string path)
      : object_(&object), file_(std::move(file)), path_(std::move(path)) {}

  bool contains(const char* name) const { return find(name) != nullptr; }
  // True also for a member that is null.
  bool mentions(const char* name) const { return object_->contains(name); }

  bool flag(const char* name, bool otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) raise(wrong(name, "true or false", *value));
    return *value->template get_ptr<const bool*>();
  }

  double number(const char* name) const { return number_of(name, required(name, "a number")); }
  double number(const char* name, double otherwise) const {
    const Json* value = find(name);
    return value == nullptr ? otherwise : number_of(name, *value);
  }

  // A count: a whole number from 1 to 2^28 − 1, so that a product of two, and a sum of some, stays far from overflow.
  Index size(const char* name) const { return size_of(name, required(name, size_words)); }
  Index size(const char* name, Index otherwise) const {
    const Json* value = find(name);
    return value == nullptr ? otherwise : size_of(name, *value);
  }

  std::string_view text(const char* name) const { return text_of(name, required(name, "a text")); }
  std::string_view text(const char* name, std::string_view otherwise) const {
    const Json* value = find(name);
    return value == nullptr ? otherwise : text_of(name, *value);
  }

  // The row of a table whose label is the member's text, or `otherwise` where it is absent and that is given.
  template <class Row, std::size_t count>
  const Row& choose(const char* name, const Row (&rows)[count], const char* Row::*label,
                    std::string_view otherwise = {}) const {
    const std::string_view wanted = otherwise.empty() ? text(name) : text(name, otherwise);
    for (const Row& row : rows) {
      if (wanted == row.*label) return row;
    }
    Problem unknown = problem(name).append("expected one of");
    for (const Row& row : rows) unknown.append(" ").append(row.*label);
    raise(impl::append_name(unknown.append(", got "), wanted));
  }

  // Calls use(number) for each number of a list.
  template <class Use>
  void numbers(const char* name, Use&& use) const {
    const Json& list = required(name, "a list of numbers");
    if (!list.is_array()) raise(wrong(name, "a list of numbers", list));
    for (const Json& item : list) use(number_of(name, item));
  }

  // Text `index` of a list of `count` texts.
  std::string_view text_at(const char* name, Index index, Index count) const {
    const Json& list = required(name, "a list of texts");
    if (!list.is_array() || static_cast<Index>(list.size()) != count) {
      raise(problem(name).append("expected a list of ").append(count).append(" texts, one a layer"));
    }
    return text_of(name, list[static_cast<std::size_t>(index)]);
  }

  // The reader of an object among the members, which must be there.
  ConfigReader object(const char* name) const {
    const Json& value = required(name, "an object");
    if (!value.is_object()) raise(wrong(name, "an object", value));
    return {value, file_, path_ + name + "."};
  }

  // The member must be absent or this value, as JSON writes it; nothing else is known here.
  void expect(const char* name, const char* json) const {
    const Json* value = find(name);
    if (value == nullptr || impl::json_text(*value) == json) return;
    raise(problem(name)
              .append("only ")
              .append(json)
              .append(" is supported, got ")
              .append(impl::json_text(*value).c_str()));
  }

  // To be called when all is read: no other member may be there whose name holds one of these words, unless it is null,
  // false or named in `harmless`. Without words: no other member at all.
  void finish(std::initializer_list<const char*> words = {}, std::initializer_list<const char*> harmless = {}) const {
    for (const auto& [name, value] : object_->items()) {
      bool about = words.size() == 0;
      for (const char* word : words) about = about || name.find(word) != std::string::npos;
      for (const char* known : harmless) about = about && name != known;
      if (!about || value.is_null() || value == false || seen_.count(name) > 0) continue;
      raise(impl::append_name(problem(name.c_str()).append("is not an option that is supported, got "),
                              impl::json_text(value)));
    }
  }

  // The beginning of an error's text.
  Problem problem(const char* name) const { return impl::format_problem(file_.c_str(), path_ + name); }

 private:
  static constexpr const char* size_words = "a whole number from 1 to 268435455";

  // nullptr if it is absent or null.
  const Json* find(const char* name) const {
    const auto found = object_->find(name);
    if (found == object_->end()) return nullptr;
    seen_.insert(name);
    return found->is_null() ? nullptr : &*found;
  }
  const Json& required(const char* name, const char* expected) const {
    const Json* value = find(name);
    if (value == nullptr) raise(problem(name).append("is missing, expected ").append(expected));
    return *value;
  }
  Problem wrong(const char* name, const char* expected, const Json& value) const {
    return impl::append_name(problem(name).append("expected ").append(expected).append(", got "),
                             impl::json_text(value));
  }

  double number_of(const char* name, const Json& value) const {
    if (!value.is_number()) raise(wrong(name, "a number", value));
    const auto number = value.template get<double>();
    if (!std::isfinite(number)) raise(wrong(name, "a finite number", value));
    return number;
  }
  Index size_of(const char* name, const Json& value) const {
    const auto* whole = value.template get_ptr<const std::uint64_t*>();
    if (whole == nullptr || *whole < 1 || *whole > 268435455) raise(wrong(name, size_words, value));
    return static_cast<Index>(*whole);
  }
  std::string_view text_of(const char* name, const Json& value) const {
    const auto* text = value.template get_ptr<const std::string*>();
    if (text == nullptr) raise(wrong(name, "a text", value));
    return *text;
  }

  using Names = std::set<std::string, std::less<>, impl::JsonAllocator<std::string>>;

  const Json* object_;
  std::string file_;
  std::string path_;
  mutable Names seen_;
};

// A model's config.json as Hugging Face's Transformers writes it.
//
//   const auto config = heed::ModelConfig::open("Llama-3.1-8B/config.json");
//   config.model_type();   // "llama"
//
// Errors: SystemError if the file cannot be opened; FormatError if it is not a JSON object.
class ModelConfig {
 public:
  static ModelConfig open(const std::string& path) {
    MappedFile file;
    raise_if(file.open("ModelConfig", path));
    return from_bytes(file.bytes());
  }
  // The same from a text in memory, which may die afterwards.
  static ModelConfig from_text(std::string_view text) { return from_bytes(std::as_bytes(std::span(text))); }
  static ModelConfig from_bytes(std::span<const std::byte> text) {
    Json object;
    raise_if(impl::parse_json_object("ModelConfig", file_name, text, object));
    return ModelConfig(std::move(object));
  }

  // The family: "llama", "bert", ….
  std::string_view model_type() const { return reader().text("model_type"); }
  // Of all members; the config must live longer.
  ConfigReader reader() const { return {*object_, file_name, ""}; }

 private:
  static constexpr const char* file_name = "config.json";

  explicit ModelConfig(Json object) : object_(std::make_shared<const Json>(std::move(object))) {}

  std::shared_ptr<const Json> object_;  // shared by copies
};

}  // namespace heed::inline HEED_ABI
