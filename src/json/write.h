// Writes JSON without building a document. Needs no parser, so it may be used anywhere.
//
// Threading:  pure functions.
// Cost:       they allocate only as `out` grows.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace stemma {

// Appends `text` in quotes, escaped; invalid UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The same without the quotes.
void append_json_escaped(std::string& out, std::string_view text);
void append_json_number(std::string& out, uint64_t value);
// Appends the shortest text that reads back as the same number; null for NaN and infinity.
void append_json_number(std::string& out, double value);
void append_json_number(std::string& out, float value);

// Writes the members of one object, from its construction to its end:
//
//   JsonObject object(out);
//   object.add("requests", uint64_t{3});
//   append_json(object.name("report"), report);
class JsonObject {
 public:
  explicit JsonObject(std::string& out) : out_(out) { out_ += '{'; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;
  ~JsonObject() { out_ += '}'; }

  // Writes the name; the caller appends one value to what is returned.
  std::string& name(std::string_view name);
  void add(std::string_view name, std::string_view text);
  template <class Number>
  void add(std::string_view name, Number value)
    requires std::same_as<Number, uint64_t> || std::same_as<Number, double>
  {
    append_json_number(this->name(name), value);
  }

 private:
  std::string& out_;
  bool first_ = true;
};

}  // namespace stemma
