// Decodes bodies of OpenAI's Responses API to a conversation.
//
// `input` is a text or a list of items. Items of one answer (reasoning, message, calls) become one
// message again, so that the prompt is the same as when the answer was sampled. With
// previous_response_id the items of the stored turns come before those of the request. An
// item_reference stands for an item of a stored response.
//
// Hints and unknown fields are skipped and listed in `options.ignored`. Refused by name are fields
// that would change the answer and are not supported: `background`, `conversation`, `prompt`,
// images and files, and items of tools that OpenAI runs. Tools that OpenAI would run itself (web_search, file_search, code_interpreter ...) are
// skipped if they are only offered, because agents offer them to every server, and refused if
// tool_choice names one.
//
// Threading:  pure functions; the store is thread-safe.
// Cost:       one pass over the body and one over its values, and the same for stored turns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/error.h"
#include "server/api/request.h"
#include "server/api/responses/store.h"

namespace stemma::server {

// A tool inside a namespace. The model knows it as `offered`; calls tell clients the namespace and
// the name.
struct NamespacedTool {
  std::string offered;
  std::string name_space;
  std::string name;
};

// The fields of its request that a response repeats, as JSON texts.
struct ResponseEcho {
  std::string instructions = "null";
  std::string tools = "[]";
  std::string tool_choice = R"("auto")";
  std::string text = R"({"format":{"type":"text"},"verbosity":"medium"})";
  std::string reasoning = R"({"effort":null,"summary":null})";
  std::string metadata = "{}";
  std::string truncation = R"("disabled")";
  std::string user = "null";
};

struct ResponsesRequest {
  ChatRequest chat;
  std::string previous_response_id;  // Empty: none.
  bool store = true;
  bool summary = false;            // Send thinking as a summary, not as reasoning text.
  bool encrypted_content = false;  // include: reasoning.encrypted_content
  std::vector<NamespacedTool> namespaced;
  std::string input;  // The items of this request as a JSON array, for the store.
  ResponseEcho echo;
};

// Fills `request`, or returns what is wrong with the body; `request` is then unusable.
[[nodiscard]] std::optional<ApiError> decode_responses(std::string_view body, const ApiRules& rules,
                                                       ResponseStore& store,
                                                       ResponsesRequest& request);

}  // namespace stemma::server
