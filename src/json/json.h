// Json: a JSON document as a plain value. json/write.h writes JSON without building one.
//
// Reading is strict: UTF-8 only, no name twice in an object, limits on depth and size. Only json.cc
// uses the parser behind it, nlohmann's.
// Threading:  values and pure functions.
// Cost:       about 56 bytes a value besides its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "json/write.h"

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
  std::optional<double> number() const noexcept;  // Any of the three kinds.
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
  uint32_t depth = 32;          // Nested arrays and objects.
  uint32_t values = 4'000'000;  // All values, not counting names.
};

// What is wrong with a text, and at which byte.
struct JsonFault {
  std::string message;
  uint64_t byte = 0;
};

// Parses the text as one value, or returns what is wrong with it.
std::variant<Json, JsonFault> parse_json(std::string_view text, const JsonLimits& limits = {});

// Appends the whole value, without spaces.
void append_json(std::string& out, const Json& value);

// Appends `text`, without the blanks between its values, if it is one JSON object. Returns false
// and appends nothing if it is not. Unlike parse_json(), it takes any depth and names that come
// twice: what another parser makes of them is its own affair.
bool append_json_object_text(std::string& out, std::string_view text);

}  // namespace stemma
