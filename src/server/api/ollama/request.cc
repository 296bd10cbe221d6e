#include "server/api/ollama/request.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/api/body.h"
#include "server/api/options.h"
#include "server/api/tool_names.h"

namespace stemma::server {
namespace {

void read_model_options(Fields& body, const ApiRules& rules, Failure& failure,
                        RequestOptions& options) {
  const Json* const value = body.take("options");
  if (value == nullptr) return;
  if (value->object() == nullptr) return body.fail_type("options", "an object", *value);
  Fields fields(*value->object(), "options.", failure);
  read_sampling(fields, rules, options.sampling);
  read_stop(fields, rules, options.stop);
  // -1 means no limit; -2 means until the context is full.
  const auto most = fields.integer("num_predict", -2, kMaxCount);
  if (most && *most >= 0) options.max_tokens = static_cast<uint32_t>(*most);
  fields.pass_over_rest(options.ignored);
}

void read_think(Fields& body, Thinking& thinking) {
  const Json* const value = body.take("think");
  if (value == nullptr) return;
  thinking.wanted_name = thinking.effort_name = "think";
  if (const bool* wanted = value->boolean()) {
    thinking.wanted = *wanted;
  } else if (const std::string* effort = value->string(); effort != nullptr) {
    if (effort->size() > 64) return body.fail_value("think", "expected a word such as 'high'");
    thinking.wanted = true;
    thinking.effort = *effort;
  } else {
    body.fail_type("think", "a boolean or a string", *value);
  }
}

void read_ollama_format(Fields& body, AnswerForm& form) {
  const Json* const value = body.take("format");
  if (value == nullptr) return;
  if (value->object() != nullptr) {
    form.kind = AnswerForm::Kind::json_schema;
    form.schema = *value;
  } else if (const std::string* word = value->string(); word == nullptr) {
    body.fail_type("format", "'json' or a JSON schema", *value);
  } else if (*word == "json") {
    form.kind = AnswerForm::Kind::json_object;
  } else if (!word->empty()) {
    body.fail_value("format", "expected 'json' or a JSON schema");
  }
}

// Reads the fields that both kinds of requests have.
void read_common(Fields& body, const ApiRules& rules, Failure& failure, ChatRequest& chat) {
  RequestOptions& options = chat.options;
  options.sampling = rules.sampling;
  const auto model = body.string("model", rules.max_name_bytes);
  if (!model || model->empty()) body.fail_missing("model");
  options.model = ollama_model_name(model.value_or(""));
  options.stream = body.boolean("stream").value_or(true);
  read_model_options(body, rules, failure, options);
  read_think(body, chat.thinking);
  read_ollama_format(body, chat.form);
  read_cache(body, rules, options);
  for (const std::string_view hint : {"keep_alive", "logprobs", "top_logprobs", "truncate"}) {
    body.ignore(hint, Fields::Kind::any, options.ignored);
  }
}

constexpr size_t kMostOpenCalls = 4096;

class OllamaMessageReader {
 public:
  OllamaMessageReader(const ApiRules& rules, Failure& failure, ChatRequest& request)
      : rules_(rules), failure_(failure), request_(request) {}

  void read(Fields& body) {
    const Json* const value = body.take("messages");
    if (value == nullptr) return;
    if (value->array() == nullptr) return body.fail_type("messages", "an array", *value);
    if (value->array()->size() > rules_.max_messages) {
      return body.fail_value("messages", "expected at most " + std::to_string(rules_.max_messages));
    }
    for (size_t i = 0; i < value->array()->size() && !failure_; ++i) {
      const std::string path = "messages[" + std::to_string(i) + "]";
      const Json& message = (*value->array())[i];
      if (message.object() == nullptr) return body.fail_type(path, "an object", message);
      Fields fields(*message.object(), path + ".", failure_);
      read_message(fields, i);
    }
  }

 private:
  struct OpenCall {
    std::string id;
    std::string name;
  };

  void read_message(Fields& fields, size_t index) {
    Message& message = request_.messages.emplace_back();
    message.role = fields.string("role", 64).value_or("");
    if (message.role.empty()) return fields.fail_missing("role");
    const bool known = message.role == "system" || message.role == "developer" ||
                       message.role == "user" || message.role == "assistant" ||
                       message.role == "tool";
    if (!known) return fields.fail_value("role", "expected system, user, assistant or tool");
    if (const auto content = fields.string("content", kAnyLength); content && !content->empty()) {
      message.parts.push_back({*content, {}});
    } else if (message.role != "assistant") {
      message.parts.push_back({});
    }
    fields.refuse({"images", {"[]"}});
    if (message.role == "assistant") {
      message.reasoning = fields.string("thinking", kAnyLength).value_or("");
      read_calls(fields, index, message);
    } else if (message.role == "tool") {
      read_result(fields, message);
    }
    fields.pass_over_rest(request_.options.ignored);
  }

  void read_calls(Fields& fields, size_t index, Message& message) {
    const Json* const value = fields.take("tool_calls");
    if (value == nullptr) return;
    if (value->array() == nullptr) return fields.fail_type("tool_calls", "an array", *value);
    for (size_t i = 0; i < value->array()->size() && !failure_; ++i) {
      const std::string name = "tool_calls[" + std::to_string(i) + "]";
      const Json& entry = (*value->array())[i];
      const Json* const function = entry.find("function");
      if (function == nullptr || function->object() == nullptr) {
        return fields.fail_type(name, "an object with 'function'", entry);
      }
      Fields call_fields(*entry.object(), fields.path(name) + ".", failure_);
      Fields inner(*function->object(), fields.path(name) + ".function.", failure_);
      ToolCall& call = message.calls.emplace_back();
      call.id = call_fields.string("id", rules_.max_name_bytes).value_or("");
      if (call.id.empty()) call.id = "call_" + std::to_string(index) + "_" + std::to_string(i);
      call.name = inner.string("name", rules_.max_name_bytes).value_or("");
      if (call.name.empty()) return inner.fail_missing("name");
      const Json* const arguments = inner.take("arguments");
      if (arguments == nullptr) {
        call.arguments = "{}";
      } else if (arguments->object() == nullptr) {
        return inner.fail_type("arguments", "an object", *arguments);
      } else {
        append_json(call.arguments, *arguments);
      }
      if (open_.size() >= kMostOpenCalls) {
        return fields.fail_value(
            "tool_calls",
            "expected at most " + std::to_string(kMostOpenCalls) + " calls that wait for results");
      }
      open_.push_back({call.id, call.name});
    }
  }

  void read_result(Fields& fields, Message& message) {
    const std::string id = fields.string("tool_call_id", rules_.max_name_bytes).value_or("");
    std::string name = fields.string("tool_name", rules_.max_name_bytes).value_or("");
    if (name.empty()) name = fields.string("name", rules_.max_name_bytes).value_or("");
    const auto call = std::ranges::find_if(open_, [&](const OpenCall& each) {
      return !id.empty() ? each.id == id : name.empty() || each.name == name;
    });
    if (call == open_.end()) {
      return fields.fail_value("role", "no tool call before this result waits for it");
    }
    message.call_id = call->id;
    open_.erase(call);
  }

  const ApiRules& rules_;
  Failure& failure_;
  ChatRequest& request_;
  std::vector<OpenCall> open_;  // Calls that have no result yet.
};

void read_ollama_tools(Fields& body, const ApiRules& rules, Failure& failure,
                       ChatRequest& request) {
  const Json* const value = body.take("tools");
  if (value == nullptr) return;
  if (value->array() == nullptr) return body.fail_type("tools", "an array", *value);
  if (!check_tool_count(body, "tools", value->array()->size())) return;
  for (size_t i = 0; i < value->array()->size() && !failure; ++i) {
    const std::string path = "tools[" + std::to_string(i) + "]";
    const Json& entry = (*value->array())[i];
    const Json* const function = entry.find("function");
    if (function == nullptr || function->object() == nullptr) {
      return body.fail_type(path, "an object with 'function'", entry);
    }
    Fields fields(*function->object(), path + ".function.", failure);
    ToolSpec tool;
    tool.name = fields.string("name", rules.max_name_bytes).value_or("");
    if (tool.name.empty()) return fields.fail_missing("name");
    if (!check_tool_name(fields, tool.name)) return;
    if (std::ranges::find(request.tools, tool.name, &ToolSpec::name) != request.tools.end()) {
      return fields.fail_value("name", "another tool has the same name");
    }
    tool.description = fields.string("description", kAnyLength).value_or("");
    if (const Json* parameters = fields.take("parameters")) {
      if (parameters->object() == nullptr) {
        return fields.fail_type("parameters", "an object", *parameters);
      }
      tool.parameters = *parameters;
    }
    fields.pass_over_rest(request.options.ignored);
    request.tools.push_back(std::move(tool));
  }
}

}  // namespace

std::string ollama_model_name(std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

std::optional<ApiError> decode_ollama_chat(std::string_view body, const ApiRules& rules,
                                           OllamaRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& failure) {
    read_common(fields, rules, failure, request.chat);
    read_ollama_tools(fields, rules, failure, request.chat);
    OllamaMessageReader(rules, failure, request.chat).read(fields);
    request.load_only = request.chat.messages.empty();
    if (!failure) fields.pass_over_rest(request.chat.options.ignored);
  });
}

std::optional<ApiError> decode_ollama_generate(std::string_view body, const ApiRules& rules,
                                               OllamaRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& failure) {
    read_common(fields, rules, failure, request.chat);
    const std::string prompt = fields.string("prompt", kAnyLength).value_or("");
    const std::string system = fields.string("system", kAnyLength).value_or("");
    request.raw = fields.boolean("raw").value_or(false);
    fields.refuse({"images", {"[]"}});
    fields.refuse({"suffix", {R"("")"}});
    fields.refuse({"template", {R"("")"}});
    fields.ignore("context", Fields::Kind::any, request.chat.options.ignored);
    if (request.raw && request.chat.form.kind != AnswerForm::Kind::free) {
      fields.fail_unsupported("format", "it cannot be enforced on a raw prompt here");
    }
    request.load_only = prompt.empty();
    const auto add = [&](std::string_view role, const std::string& text) {
      Message& message = request.chat.messages.emplace_back();
      message.role = role;
      message.place = role == "user" ? "prompt" : role;
      message.parts.push_back({text, {}});
    };
    if (!system.empty()) add("system", system);
    add("user", prompt);
    if (!failure) fields.pass_over_rest(request.chat.options.ignored);
    request.plain.prompt = prompt;
    request.plain.options = request.chat.options;
  });
}

}  // namespace stemma::server
