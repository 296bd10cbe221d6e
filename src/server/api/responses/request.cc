#include "server/api/responses/request.h"

#include <utility>

#include "server/api/body.h"
#include "server/api/options.h"
#include "server/api/responses/items.h"
#include "server/api/responses/tools.h"

namespace stemma::server {
namespace {

void read_include(Fields& body, ResponsesRequest& request) {
  const Json* const value = body.take("include");
  if (value == nullptr) return;
  if (value->array() == nullptr) return body.fail_type("include", "an array", *value);
  for (const Json& entry : *value->array()) {
    const std::string* const what = entry.string();
    if (what == nullptr) return body.fail_type("include", "an array of strings", entry);
    if (*what == "reasoning.encrypted_content") {
      request.encrypted_content = true;
    } else if (*what == "message.output_text.logprobs") {
      if (!request.chat.options.top_logprobs) request.chat.options.top_logprobs = 0;
    } else {
      // It belongs to tools that OpenAI runs: there is nothing to include.
      request.chat.options.ignored.push_back("include (" + what->substr(0, 64) + ")");
    }
  }
}

void read_response_stream(Fields& body, Failure& failure, RequestOptions& options) {
  options.stream = body.boolean("stream").value_or(false);
  const Json* const value = body.take("stream_options");
  if (value == nullptr) return;
  if (value->object() == nullptr) return body.fail_type("stream_options", "an object", *value);
  Fields(*value->object(), "stream_options.", failure).pass_over_rest(options.ignored);
}

void read_limits(Fields& body, const ApiRules& rules, RequestOptions& options) {
  const auto most = body.integer("max_output_tokens", 1, kMaxCount);
  if (most) options.max_tokens = static_cast<uint32_t>(*most);
  const auto top = body.integer("top_logprobs", 0, rules.max_top_logprobs);
  if (top && *top > 0) options.top_logprobs = static_cast<uint32_t>(*top);
}

void read_echoes(Fields& body, Failure& failure, ResponsesRequest& request) {
  std::vector<std::string>& ignored = request.chat.options.ignored;
  if (const Json* metadata = body.take("metadata")) {
    if (metadata->object() == nullptr) return body.fail_type("metadata", "an object", *metadata);
    request.echo.metadata.clear();
    append_json(request.echo.metadata, *metadata);
  }
  const std::string truncation = body.string("truncation", 64).value_or("disabled");
  if (truncation == "auto") {
    // We never leave out parts of a prompt: a prompt that is too long is refused.
    ignored.push_back("truncation");
  } else if (truncation != "disabled") {
    body.fail_value("truncation", "expected 'auto' or 'disabled'");
  }
  request.echo.truncation = "\"" + std::string(failure ? "disabled" : truncation) + "\"";
  if (const Json* user = body.take("user")) {
    if (user->string() == nullptr) return body.fail_type("user", "a string", *user);
    ignored.emplace_back("user");
    request.echo.user.clear();
    append_json(request.echo.user, *user);
  }
  for (const std::string_view note :
       {"service_tier", "safety_identifier", "max_tool_calls", "client_metadata"}) {
    body.ignore(note, Fields::Kind::any, ignored);
  }
}

void refuse_unsupported(Fields& body) {
  body.refuse({"background", {"false"}});
  body.refuse({"conversation"});
  body.refuse({"prompt"});
  body.refuse({"context_management", {"[]"}});
  body.refuse({"moderation"});
}

void read_conversation(Fields& body, const ApiRules& rules, ResponseStore& store, Failure& failure,
                       ResponsesRequest& request) {
  request.store = body.boolean("store").value_or(true);
  request.previous_response_id =
      body.string("previous_response_id", rules.max_name_bytes).value_or("");
  // Instructions apply to one response only: those of earlier turns are dropped.
  const auto instructions = body.string("instructions", kAnyLength);
  if (instructions) {
    request.echo.instructions.clear();
    append_json_string(request.echo.instructions, *instructions);
    Message& message = request.chat.messages.emplace_back();
    message.role = "system";
    message.place = "instructions";
    message.parts.push_back({*instructions, {}});
  }
  if (failure) return;
  ItemReader items(rules, store, failure, request);
  if (!request.previous_response_id.empty()) {
    items.read_stored(body, request.previous_response_id);
  }
  if (!failure) items.read_input(body);
  if (!failure && request.chat.messages.empty()) {
    body.fail_value("input", "expected at least one message");
  }
}

}  // namespace

std::optional<ApiError> decode_responses(std::string_view body, const ApiRules& rules,
                                         ResponseStore& store, ResponsesRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& failure) {
    RequestOptions& options = request.chat.options;
    options.sampling = rules.sampling;
    options.model = fields.string("model", rules.max_name_bytes).value_or("");
    read_response_stream(fields, failure, options);
    read_limits(fields, rules, options);
    read_include(fields, request);
    read_sampling(fields, rules, options.sampling);
    read_stop(fields, rules, options.stop);
    read_cache(fields, rules, options);
    refuse_unsupported(fields);
    read_echoes(fields, failure, request);
    read_response_tools(fields, rules, failure, request);
    read_response_tool_choice(fields, failure, request);
    read_response_text(fields, failure, request);
    read_response_reasoning(fields, failure, request);
    if (const Json* kwargs = fields.take("chat_template_kwargs")) {
      if (kwargs->object() == nullptr) {
        fields.fail_type("chat_template_kwargs", "an object", *kwargs);
      }
      request.chat.template_kwargs = *kwargs;
    }
    read_conversation(fields, rules, store, failure, request);
    if (!failure) fields.pass_over_rest(options.ignored);
  });
}

}  // namespace stemma::server
