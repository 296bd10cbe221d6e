// Json: a JSON document as a plain value, and what writes one without building it first.
//
// Reading is strict: UTF-8 only, no name twice in an object, no deeper and no larger than a limit. The
// parser behind it is nlohmann's, in json.cc and nowhere else.
// Threading:  values and pure functions.
// Cost:       about 56 bytes a value beside its text; append_* allocate only as `out` grows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stemma {

struct Json {
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // As written, each name once.
  // Whole numbers are int64_t, or uint64_t beyond it; others are double and finite.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value;

  bool is_null() const noexcept { return value.index() == 0; }
  const bool* boolean() const noexcept { return std::get_if<bool>(&value); }
  const std::string* string() const noexcept { return std::get_if<std::string>(&value); }
  const Array* array() const noexcept { return std::get_if<Array>(&value); }
  const Object* object() const noexcept { return std::get_if<Object>(&value); }
  std::optional<double> number() const noexcept;  // Any of the three.
  // The member of an object; null if there is none or this is no object. O(members).
  const Json* find(std::string_view name) const noexcept;
  // "a string", "an array": for messages.
  const char* kind() const noexcept;
};

struct Json::Member {
  std::string name;
  Json value;
};

struct JsonLimits {
  uint32_t depth = 32;          // Arrays and objects inside each other.
  uint32_t values = 4'000'000;  // All of them, names not counted.
};

// What is wrong with a text, and where.
struct JsonFault {
  std::string message;
  uint64_t byte = 0;
};

// The text as one value, or what is wrong with it.
std::variant<Json, JsonFault> parse_json(std::string_view text, const JsonLimits& limits = {});

// Appends `text` in quotes, escaped; what is not UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The same without the quotes.
void append_json_escaped(std::string& out, std::string_view text);
void append_json_number(std::string& out, uint64_t value);
// The shortest text that reads back as the same number; null for what JSON cannot say.
void append_json_number(std::string& out, double value);
void append_json_number(std::string& out, float value);
// The whole value, without spaces.
void append_json(std::string& out, const Json& value);

}  // namespace stemma
