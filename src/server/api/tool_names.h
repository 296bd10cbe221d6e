// Names of tools, which all APIs treat alike.
// Threading: pure functions.
#pragma once

#include <string_view>

#include "server/api/fields.h"

namespace stemma::server {

inline constexpr uint32_t kMostToolNameBytes = 128;
inline constexpr uint32_t kMostTools = 4096;  // In one request.

// Names appear beside markers in prompts and answers, so nothing in them may look like a marker.
bool is_tool_name(std::string_view name) noexcept;
// Refuses the field `name` of a tool unless it is such a name. Returns whether it is.
bool check_tool_name(Fields& tool, std::string_view name);
// Refuses a list of this many tools if it is too long. Returns whether it is not.
bool check_tool_count(Fields& owner, std::string_view field, size_t count);

}  // namespace stemma::server
