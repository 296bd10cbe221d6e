#include "json/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "json/utf8.h"

namespace stemma {
namespace {

// Builds a Json out of the parser's events, within limits.
class Builder {
 public:
  Builder(const JsonLimits& limits, size_t text_bytes) : limits_(limits), text_bytes_(text_bytes) {}

  bool null() { return put({}); }
  bool boolean(bool value) { return put({value}); }
  bool number_integer(int64_t value) { return put({value}); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return put({static_cast<int64_t>(value)});
    return put({value});
  }
  bool number_float(double value, const std::string& /*text*/) { return put({value}); }
  bool string(std::string& value) { return put({std::move(value)}); }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // Not in JSON.

  bool start_array(size_t /*unknown*/) { return open({Json::Array()}); }
  bool start_object(size_t /*unknown*/) { return open({Json::Object()}); }
  bool key(std::string& name) {
    std::get<Json::Object>(open_.back()->value).push_back({std::move(name), {}});
    return true;
  }
  bool end_array() { return close(); }
  bool end_object() {
    const Json::Object& object = std::get<Json::Object>(open_.back()->value);
    // Sorted, so that many names cost little more than few.
    names_.clear();
    for (const Json::Member& member : object) names_.push_back(member.name);
    std::sort(names_.begin(), names_.end());
    const auto twice = std::adjacent_find(names_.begin(), names_.end());
    if (twice != names_.end()) {
      return fail("the name '" + std::string(twice->substr(0, 64)) + "' is there twice");
    }
    return close();
  }

  bool parse_error(size_t byte, const std::string& /*token*/, const nlohmann::json::exception& e) {
    if (fault_) return false;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...".
    std::string_view what = e.what();
    if (const size_t at = what.find("] "); at != what.npos) what.remove_prefix(at + 2);
    if (what.starts_with("parse error at ")) what.remove_prefix(15);
    fault_ = JsonFault{to_utf8(what.substr(0, 300)), std::min(byte, text_bytes_)};
    return false;
  }

  std::variant<Json, JsonFault> take() {
    if (fault_) return *std::move(fault_);
    return std::move(root_);
  }

 private:
  bool fail(std::string message) {
    fault_ = JsonFault{std::move(message), 0};
    return false;
  }
  // Where the next value goes.
  Json* place() {
    if (open_.empty()) return &root_;
    if (auto* array = std::get_if<Json::Array>(&open_.back()->value)) return &array->emplace_back();
    return &std::get<Json::Object>(open_.back()->value).back().value;
  }
  bool put(Json value) {
    if (++values_ > limits_.values) {
      return fail("more than " + std::to_string(limits_.values) + " values");
    }
    *place() = std::move(value);
    return true;
  }
  // Only the innermost array or object grows, so that pointers to the outer ones hold.
  bool open(Json value) {
    if (++values_ > limits_.values) {
      return fail("more than " + std::to_string(limits_.values) + " values");
    }
    if (open_.size() >= limits_.depth) {
      return fail("more than " + std::to_string(limits_.depth) + " levels deep");
    }
    Json* const at = place();
    *at = std::move(value);
    open_.push_back(at);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  size_t text_bytes_;
  Json root_;
  std::vector<Json*> open_;
  std::vector<std::string_view> names_;
  uint32_t values_ = 0;
  std::optional<JsonFault> fault_;
};

// For each byte: 1 if it stands for itself, the letter after the backslash ('u' for \u00XX), or 0 if it
// is above ASCII.
constexpr std::array<char, 256> make_escapes() {
  std::array<char, 256> table{};
  for (int i = 0; i < 0x20; ++i) table[i] = 'u';
  for (int i = 0x20; i < 0x80; ++i) table[i] = 1;
  table['"'] = '"';
  table['\\'] = '\\';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table[0x7F] = 'u';
  return table;
}
constexpr std::array<char, 256> kEscapes = make_escapes();

void append_escape(std::string& out, uint8_t byte) {
  out += '\\';
  out += kEscapes[byte];
  if (kEscapes[byte] != 'u') return;
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "00";
  out += kDigits[byte >> 4U];
  out += kDigits[byte & 15U];
}

// Bytes of the character at the front of `text`, or 0 if there is none. Of those above ASCII.
size_t character_bytes(std::string_view text) noexcept {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto follows = [&](size_t i) { return (at(i) & 0xC0U) == 0x80; };
  const uint8_t first = at(0);
  const uint8_t second = at(1);
  if (first < 0xC2 || first > 0xF4 || !follows(1)) return 0;
  if (first < 0xE0) return 2;
  if (!follows(2) || (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if (first < 0xF0) return 3;
  if (!follows(3) || (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return 4;
}

template <class T>
void append_floating(std::string& out, T value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
  // "-0" is a whole number to readers, and has no sign there.
  if (value == 0 && std::signbit(value)) out += ".0";
}

}  // namespace

std::optional<double> Json::number() const noexcept {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* large = std::get_if<uint64_t>(&value)) return static_cast<double>(*large);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

const Json* Json::find(std::string_view name) const noexcept {
  const Object* const members = object();
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

const char* Json::kind() const noexcept {
  constexpr std::array<const char*, 8> kKinds = {"null",       "a boolean", "an integer",
                                                 "an integer", "a number",  "a string",
                                                 "an array",   "an object"};
  return kKinds[value.index()];
}

std::variant<Json, JsonFault> parse_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits, text.size());
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

void append_json_escaped(std::string& out, std::string_view text) {
  size_t begin = 0;  // Of what can be copied as it is.
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (kEscapes[byte] == 1) {
      ++i;
      continue;
    }
    if (byte >= 0x80) {
      if (const size_t bytes = character_bytes(text.substr(i)); bytes != 0) {
        i += bytes;
        continue;
      }
      // Text of ours is valid; where it is not, take the slow way for the rest.
      out.append(text.substr(begin, i - begin));
      append_json_escaped(out, to_utf8(text.substr(i)));
      return;
    }
    out.append(text.substr(begin, i - begin));
    append_escape(out, byte);
    begin = ++i;
  }
  out.append(text.substr(begin));
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

void append_json_number(std::string& out, uint64_t value) {
  std::array<char, 20> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}

void append_json_number(std::string& out, double value) { append_floating(out, value); }
void append_json_number(std::string& out, float value) { append_floating(out, value); }

void append_json(std::string& out, const Json& json) {
  if (const bool* flag = json.boolean()) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<int64_t>(&json.value)) {
    out += std::to_string(*whole);
  } else if (const auto* large = std::get_if<uint64_t>(&json.value)) {
    append_json_number(out, *large);
  } else if (const auto* real = std::get_if<double>(&json.value)) {
    append_json_number(out, *real);
  } else if (const std::string* text = json.string()) {
    append_json_string(out, *text);
  } else if (const Json::Array* array = json.array()) {
    out += '[';
    for (size_t i = 0; i < array->size(); ++i) {
      if (i != 0) out += ',';
      append_json(out, (*array)[i]);
    }
    out += ']';
  } else if (const Json::Object* object = json.object()) {
    out += '{';
    for (size_t i = 0; i < object->size(); ++i) {
      if (i != 0) out += ',';
      append_json_string(out, (*object)[i].name);
      out += ':';
      append_json(out, (*object)[i].value);
    }
    out += '}';
  } else {
    out += "null";
  }
}

}  // namespace stemma
