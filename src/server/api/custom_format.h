// The format of a custom tool's input, which chat completions and Responses name alike.
// Threading: pure functions.
#pragma once

#include "server/api/conversation.h"
#include "server/api/fields.h"

namespace stemma::server {

// Reads `format` and `strict` of a custom tool. A grammar (Lark, or a regular expression) is not
// enforced: `tool.unenforced` names it, and a strict tool is refused.
void read_custom_format(Fields& fields, Failure& failure, ToolSpec& tool);

}  // namespace stemma::server
