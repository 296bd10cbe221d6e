// Reads what a Responses request says about tools and about the form of its answer.
// Threading: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/responses/request.h"

namespace stemma::server {

// Each reads its field of `body`; errors go to `failure`.
void read_response_tools(Fields& body, const ApiRules& rules, Failure& failure,
                         ResponsesRequest& request);
// Call it after the tools are read: the tool it names must exist.
void read_response_tool_choice(Fields& body, Failure& failure, ResponsesRequest& request);
// text.format
void read_response_text(Fields& body, Failure& failure, ResponsesRequest& request);
void read_response_reasoning(Fields& body, Failure& failure, ResponsesRequest& request);

}  // namespace stemma::server
