// Reads what a chat completion says about tools, the form of its answer, and thinking.
// Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

// Each reads its fields of `body`. Errors go to `failure`, names of skipped fields to
// `request.options.ignored`.
void read_tools(Fields& body, const ApiRules& rules, Failure& failure, ChatRequest& request);
// Call it after the tools are read: the tool it names must exist.
void read_tool_choice(Fields& body, Failure& failure, ChatRequest& request);
// response_format, json_schema, grammar
void read_answer_form(Fields& body, Failure& failure, ChatRequest& request);
// reasoning_effort, reasoning, reasoning_format, and other APIs' names for them
void read_thinking(Fields& body, Failure& failure, ChatRequest& request);

}  // namespace stemma::server
