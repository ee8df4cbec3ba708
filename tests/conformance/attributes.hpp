// A case's options, of which none may be passed over: what the adapter does not ask for, or does not know, is a failure.
#pragma once

#include <concepts>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace conformance {

// The case cannot be run as it says.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A JSON object that remembers which members were looked at. An absent member counts as null, "not used".
class Attributes {
 public:
  explicit Attributes(nlohmann::json object = nlohmann::json::object(), std::string name = "attributes")
      : object_(std::move(object)), name_(std::move(name)) {
    if (!object_.is_object()) throw CaseError(name_ + ": expected an object, got " + object_.dump());
  }

  // True if the member is there and not null.
  bool has(const std::string& key) const {
    seen_.insert(key);
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null();
  }

  // The member as a number, bool, text or list.
  template <class T>
  T get(const std::string& key) const {
    if (!has(key)) throw CaseError(name_ + ": " + key + " is missing");
    const nlohmann::json& value = object_.at(key);
    bool fits = true;
    if constexpr (std::same_as<T, bool>) {
      fits = value.is_boolean();
    } else if constexpr (std::integral<T>) {
      fits = value.is_number_integer();
    } else if constexpr (std::floating_point<T>) {
      fits = value.is_number();
    }
    if (!fits) throw unknown(key);
    try {
      return value.get<T>();
    } catch (const nlohmann::json::exception&) {
      throw unknown(key);
    }
  }

  // The member as a number of things.
  std::ptrdiff_t size(const std::string& key) const {
    const auto value = get<std::ptrdiff_t>(key);
    if (value < 0) throw unknown(key);
    return value;
  }

  // The member, or nothing if it is null.
  template <class T>
  std::optional<T> find(const std::string& key) const {
    return has(key) ? std::optional<T>(get<T>(key)) : std::nullopt;
  }

  // An object among the members.
  Attributes object(const std::string& key) const {
    if (!has(key)) throw CaseError(name_ + ": " + key + " is missing");
    return Attributes(object_.at(key), name_ + "." + key);
  }

  // The member as JSON text.
  std::string json(const std::string& key) const {
    if (!has(key)) throw CaseError(name_ + ": " + key + " is missing");
    return object_.at(key).dump();
  }

  // The member must be this value (nullptr: not used).
  void expect(const std::string& key, const nlohmann::json& value) const {
    const nlohmann::json found = has(key) ? object_.at(key) : nlohmann::json();
    if (found != value) {
      throw CaseError(name_ + ": " + key + " = " + found.dump() + ", but only " + value.dump() +
                      " is known to this runner");
    }
  }

  // Which of the texts the member is; a text that is none of them is a failure.
  template <class Value>
  Value one_of(const std::string& key, std::initializer_list<std::pair<const char*, Value>> choices) const {
    const auto text = get<std::string>(key);
    for (const auto& [name, value] : choices) {
      if (text == name) return value;
    }
    throw unknown(key);
  }

  // To be called last: every member must have been looked at.
  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (seen_.count(key) == 0) throw unknown(key);
    }
  }

  CaseError unknown(const std::string& key) const {
    const auto found = object_.find(key);
    return CaseError(name_ + ": " + key + " = " + (found == object_.end() ? "null" : found->dump()) +
                     " is not known to this runner");
  }

 private:
  nlohmann::json object_;
  std::string name_;
  mutable std::set<std::string> seen_;
};

}  // namespace conformance
