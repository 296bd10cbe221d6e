#include "server/api/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stemma::server {
namespace {

constexpr size_t kShown = 64;  // Limit of a client's own text in messages, in bytes.

std::string show(const Json& value) {
  std::string text;
  if (value.array() != nullptr || value.object() != nullptr) return value.kind();
  append_json(text, value);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

std::string show(double value) {
  std::string text;
  append_json_number(text, value);
  return text;
}

}  // namespace

std::optional<int64_t> whole_number(const Json& value) noexcept {
  if (const auto* whole = std::get_if<int64_t>(&value.value)) return *whole;
  const auto* real = std::get_if<double>(&value.value);
  constexpr double kLimit = 0x1.0p53;
  if (real == nullptr || std::fabs(*real) > kLimit || *real != std::trunc(*real)) return {};
  return static_cast<int64_t>(*real);
}

Fields::Fields(const Json::Object& object, std::string path, Failure& failure)
    : object_(&object), path_(std::move(path)), failure_(&failure), known_(object.size()) {}

std::string Fields::path(std::string_view name) const {
  std::string path = path_ + std::string(name.substr(0, 4 * kShown));
  if (name.empty() && path.ends_with('.')) path.pop_back();
  return path;
}

const Json* Fields::take(std::string_view name) {
  for (size_t i = 0; i < object_->size(); ++i) {
    const Json::Member& member = (*object_)[i];
    if (member.name != name) continue;
    known_[i] = true;
    return member.value.is_null() ? nullptr : &member.value;
  }
  return nullptr;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* const value = take(name);
  if (value == nullptr) return {};
  if (const bool* flag = value->boolean()) return *flag;
  fail_type(name, "a boolean", *value);
  return {};
}

std::optional<std::string> Fields::string(std::string_view name, uint32_t max_bytes) {
  const Json* const value = take(name);
  if (value == nullptr) return {};
  const std::string* const text = value->string();
  if (text == nullptr) {
    fail_type(name, "a string", *value);
    return {};
  }
  if (text->size() > max_bytes) {
    fail_value(name,
               "expected at most " + std::to_string(max_bytes) + " bytes, but got " +
                   std::to_string(text->size()),
               "string_above_max_length");
    return {};
  }
  return *text;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  const Json* const value = take(name);
  if (value == nullptr) return {};
  const std::optional<int64_t> whole = whole_number(*value);
  if (!whole && !std::holds_alternative<uint64_t>(value->value)) {
    fail_type(name, "an integer", *value);
    return {};
  }
  if (!whole || *whole < low || *whole > high) {
    fail_range(name, *value, static_cast<double>(low), static_cast<double>(high));
    return {};
  }
  return whole;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const Json* const value = take(name);
  if (value == nullptr) return {};
  const std::optional<double> number = value->number();
  if (!number) {
    fail_type(name, "a number", *value);
    return {};
  }
  if (*number < low || *number > high) {
    fail_range(name, *value, low, high);
    return {};
  }
  return number;
}

void Fields::ignore(std::string_view name, Kind kind, std::vector<std::string>& ignored) {
  const Json* const value = take(name);
  if (value == nullptr) return;
  if (kind == Kind::boolean && value->boolean() == nullptr) {
    fail_type(name, "a boolean", *value);
  } else if (kind == Kind::string && value->string() == nullptr) {
    fail_type(name, "a string", *value);
  } else if (kind == Kind::object && value->object() == nullptr) {
    fail_type(name, "an object", *value);
  } else {
    ignored.push_back(path(name));
  }
}

void Fields::refuse(const Unsupported& field) {
  const Json* const value = take(field.name);
  if (value == nullptr) return;
  // Only short values can be harmless; others are not written out.
  std::string text;
  const bool small = (value->array() == nullptr || value->array()->size() <= 1) &&
                     (value->object() == nullptr || value->object()->size() <= 1) &&
                     (value->string() == nullptr || value->string()->size() <= kShown);
  if (small) append_json(text, *value);
  for (const std::string_view harmless : field.harmless) {
    if (text == harmless) return;
  }
  fail_unsupported(field.name, "it is not supported by this server");
}

void Fields::finish() {
  if (failed()) return;
  const auto unknown = std::find(known_.begin(), known_.end(), false);
  if (unknown == known_.end()) return;
  const std::string name = path((*object_)[unknown - known_.begin()].name);
  *failure_ = ApiError{
      .message = "Unknown parameter: '" + name + "'.", .param = name, .code = "unknown_parameter"};
}

void Fields::pass_over_rest(std::vector<std::string>& ignored) {
  for (size_t i = 0; i < known_.size(); ++i) {
    if (!known_[i] && !(*object_)[i].value.is_null()) ignored.push_back(path((*object_)[i].name));
    known_[i] = true;
  }
}

void Fields::fail_type(std::string_view name, std::string_view expected, const Json& got) {
  if (failed()) return;
  const std::string field = path(name);
  *failure_ = ApiError{.message = "Invalid type for '" + field + "': expected " +
                                  std::string(expected) + ", but got " + got.kind() + ".",
                       .param = field,
                       .code = "invalid_type"};
}

void Fields::fail_value(std::string_view name, std::string_view message, std::string_view code) {
  if (failed()) return;
  const std::string field = path(name);
  *failure_ = ApiError{.message = "Invalid '" + field + "': " + std::string(message) + ".",
                       .param = field,
                       .code = std::string(code)};
}

void Fields::fail_range(std::string_view name, const Json& got, double low, double high) {
  const std::optional<double> number = got.number();
  const bool whole = !std::holds_alternative<double>(got.value);
  fail_value(name,
             "expected a value from " + show(low) + " to " + show(high) + ", but got " + show(got),
             std::string(whole ? "integer" : "decimal") +
                 (number && *number < low ? "_below_min_value" : "_above_max_value"));
}

void Fields::fail_missing(std::string_view name) {
  if (failed()) return;
  const std::string field = path(name);
  *failure_ = ApiError{.message = "Missing required parameter: '" + field + "'.",
                       .param = field,
                       .code = "missing_required_parameter"};
}

void Fields::fail_unsupported(std::string_view name, std::string_view message) {
  if (failed()) return;
  const std::string field = path(name);
  *failure_ =
      ApiError{.message = "Unsupported parameter: '" + field + "': " + std::string(message) + ".",
               .param = field,
               .code = "unsupported_parameter"};
}

}  // namespace stemma::server
