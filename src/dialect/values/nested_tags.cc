#include "dialect/values/nested_tags.h"

#include <optional>

#include "dialect/values/json_text.h"

namespace stemma::dialect {

namespace {

constexpr int kMostTagDepth = 32;

std::optional<std::string> value_of(std::string_view open, std::string_view written, int depth);

// Reads objects and arrays. Returns nullopt if these are not tags that close.
std::optional<std::string> members_of(std::string_view open, std::string_view written, int depth) {
  if (depth == 0) return std::nullopt;
  std::string object;
  std::string array;
  bool all_items = true;
  while (!written.empty()) {
    if (written.substr(0, open.size()) != open) return std::nullopt;
    const size_t name_end = written.find('>', open.size());
    if (name_end == std::string_view::npos) return std::nullopt;
    const std::string_view name = written.substr(open.size(), name_end - open.size());
    const std::string closer = std::string(open) + "/" + std::string(name) + ">";
    const size_t end = written.find(closer, name_end + 1);
    if (name.empty() || end == std::string_view::npos) return std::nullopt;
    const auto value = value_of(open, written.substr(name_end + 1, end - name_end - 1), depth - 1);
    if (!value) return std::nullopt;
    all_items = all_items && name == "item";
    const char* comma = object.empty() ? "" : ",";
    object += comma + json_string(name) + ":" + *value;
    array += comma + *value;
    written = trimmed(written.substr(end + closer.size()));
  }
  return all_items ? "[" + array + "]" : "{" + object + "}";
}

std::optional<std::string> value_of(std::string_view open, std::string_view written, int depth) {
  const std::string_view inner = trimmed(written);
  if (inner.substr(0, open.size()) == open) return members_of(open, inner, depth);
  return argument_as_json(written, ArgumentType::unknown);
}

}  // namespace

std::string nested_tags_as_json(std::string_view open, std::string_view written,
                                ArgumentType type) {
  const std::string_view inner = trimmed(written);
  if (inner.substr(0, open.size()) == open) {
    if (const auto value = members_of(open, inner, kMostTagDepth)) return *value;
  }
  return argument_as_json(written, type);
}

}  // namespace stemma::dialect
