#include "json/json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "json/utf8.h"

namespace stemma {
namespace {

// Builds a Json from the parser's events, within limits.
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
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // JSON has none.

  bool start_array(size_t /*unknown*/) { return open({Json::Array()}); }
  bool start_object(size_t /*unknown*/) { return open({Json::Object()}); }
  bool key(std::string& name) {
    std::get<Json::Object>(open_.back()->value).push_back({std::move(name), {}});
    return true;
  }
  bool end_array() { return close(); }
  bool end_object() {
    const Json::Object& object = std::get<Json::Object>(open_.back()->value);
    // Sorted, so that many names take little longer than few.
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
  // Returns where the next value goes.
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
  // Only the innermost array or object grows, so pointers to the outer ones stay valid.
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

bool append_json_object_text(std::string& out, std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos || text[first] != '{') return false;
  if (!nlohmann::json::accept(text.begin(), text.end())) return false;
  bool in_string = false;
  for (size_t i = first; i < text.size(); ++i) {
    const char byte = text[i];
    if (!in_string && kBlanks.find(byte) != kBlanks.npos) continue;
    out += byte;
    if (byte == '"') in_string = !in_string;
    // What follows a backslash does not end the string.
    if (in_string && byte == '\\') out += text[++i];
  }
  return true;
}

}  // namespace stemma
