#include "server/api/tool_names.h"

#include <algorithm>
#include <string>

namespace stemma::server {

bool is_tool_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kMostToolNameBytes &&
         std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
         });
}

bool check_tool_name(Fields& tool, std::string_view name) {
  if (is_tool_name(name)) return true;
  tool.fail_value("name", "expected 1 to 128 of: letters, digits, _ - . : /");
  return false;
}

bool check_tool_count(Fields& owner, std::string_view field, size_t count) {
  if (count <= kMostTools) return true;
  owner.fail_value(field, "expected at most " + std::to_string(kMostTools) + " tools, but got " +
                              std::to_string(count));
  return false;
}

}  // namespace stemma::server
