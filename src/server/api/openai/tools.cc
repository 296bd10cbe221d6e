#include "server/api/openai/tools.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "server/api/custom_format.h"
#include "server/api/openai/message.h"
#include "server/api/tool_names.h"

namespace stemma::server {
namespace {

constexpr uint32_t kAnyText = std::numeric_limits<uint32_t>::max();

class ChatToolReader {
 public:
  ChatToolReader(const ApiRules& rules, Failure& failure, ChatRequest& request)
      : rules_(rules), failure_(failure), request_(request) {}

  void read(Fields& body) {
    const Json* const value = body.take("tools");
    if (value == nullptr) return;
    const Json::Array* const list = value->array();
    if (list == nullptr) return body.fail_type("tools", "an array", *value);
    if (!check_tool_count(body, "tools", list->size())) return;
    for (size_t i = 0; i < list->size() && !failure_; ++i) {
      const std::string path = "tools[" + std::to_string(i) + "]";
      if ((*list)[i].object() == nullptr) return body.fail_type(path, "an object", (*list)[i]);
      read_tool(*(*list)[i].object(), path + ".");
    }
  }

 private:
  void read_tool(const Json::Object& object, const std::string& path) {
    Fields fields(object, path, failure_);
    const std::string type = fields.string("type", 64).value_or("function");
    ToolSpec tool;
    tool.cache_control = read_cache_control(fields, request_.options.ignored, failure_);
    if (type != "function" && type != "custom") {
      return fields.fail_unsupported(
          "type", "tools of the type '" + type + "' are not; 'function' and 'custom' are");
    }
    const Json* const inner = fields.take(type);
    if (inner == nullptr) return fields.fail_missing(type);
    if (inner->object() == nullptr) return fields.fail_type(type, "an object", *inner);
    fields.pass_over_rest(request_.options.ignored);
    tool.custom = type == "custom";
    Fields own(*inner->object(), path + type + ".", failure_);
    read_own(own, tool);
    own.pass_over_rest(request_.options.ignored);
    if (failure_) return;
    const auto same = [&](const ToolSpec& other) { return other.name == tool.name; };
    if (std::ranges::any_of(request_.tools, same)) {
      return own.fail_value("name", "another tool is called '" + tool.name + "', too");
    }
    request_.tools.push_back(std::move(tool));
  }

  void read_own(Fields& own, ToolSpec& tool) {
    const auto name = own.string("name", kMostToolNameBytes);
    if (!name) return own.fail_missing("name");
    if (!check_tool_name(own, *name)) return;
    tool.name = *name;
    tool.description = own.string("description", kAnyText).value_or("");
    if (tool.custom) {
      return read_custom_format(own, failure_, tool);
    }
    tool.strict = own.boolean("strict").value_or(false);
    if (const Json* const parameters = own.take("parameters")) {
      if (parameters->object() == nullptr) {
        return own.fail_type("parameters", "an object", *parameters);
      }
      // {} means the same as leaving it out.
      if (!parameters->object()->empty()) tool.parameters = *parameters;
    }
  }

  const ApiRules& rules_;
  Failure& failure_;
  ChatRequest& request_;
};

bool has_tool(const ChatRequest& request, const std::string& name) {
  return std::ranges::find(request.tools, name, &ToolSpec::name) != request.tools.end();
}

// Reads the name in {"type":"function","function":{"name":...}}.
std::optional<std::string> named_tool(Fields& owner, Failure& failure, ChatRequest& request,
                                      const Json& value, const std::string& path) {
  if (value.object() == nullptr) {
    owner.fail_type(path, "an object", value);
    return {};
  }
  Fields fields(*value.object(), path + ".", failure);
  const std::string type = fields.string("type", 64).value_or("function");
  const Json* const inner = fields.take(type);
  const Json* name = inner == nullptr ? fields.take("name") : inner->find("name");
  fields.pass_over_rest(request.options.ignored);
  if (name == nullptr || name->string() == nullptr) {
    fields.fail_missing(type + ".name");
    return {};
  }
  if (!has_tool(request, *name->string())) {
    fields.fail_value(type + ".name", "there is no tool '" + name->string()->substr(0, 128) + "'");
    return {};
  }
  return *name->string();
}

void read_allowed(Fields& body, Failure& failure, ChatRequest& request, const Json& value) {
  // The list is inside this object, or beside the type.
  const Json* const inner = value.find("allowed_tools");
  const Json& allowed = inner == nullptr ? value : *inner;
  const Json* const mode = allowed.find("mode");
  const Json* const list = allowed.find("tools");
  if (mode != nullptr && mode->string() != nullptr && *mode->string() == "required") {
    request.tool_choice.kind = ToolChoice::Kind::required;
  } else if (mode != nullptr && (mode->string() == nullptr || *mode->string() != "auto")) {
    return body.fail_value("tool_choice.allowed_tools.mode", "expected 'auto' or 'required'");
  }
  if (list == nullptr || list->array() == nullptr || list->array()->empty()) {
    return body.fail_value("tool_choice.allowed_tools.tools", "expected at least one tool");
  }
  for (const Json& each : *list->array()) {
    const auto name = named_tool(body, failure, request, each, "tool_choice.allowed_tools.tools");
    if (!name) return;
    request.tool_choice.names.push_back(*name);
  }
}

void read_named_choice(Fields& body, Failure& failure, ChatRequest& request, const Json& value) {
  const Json* const type = value.find("type");
  const std::string kind = type != nullptr && type->string() != nullptr ? *type->string() : "";
  if (kind == "allowed_tools") return read_allowed(body, failure, request, value);
  if (kind == "auto" || kind == "required" || kind == "none" || kind == "any") {
    return body.fail_value("tool_choice", "expected the text '" + kind + "' instead of an object");
  }
  const auto name = named_tool(body, failure, request, value, "tool_choice");
  if (!name) return;
  request.tool_choice = {.kind = ToolChoice::Kind::named, .names = {*name}};
}

void read_json_schema(Fields& owner, std::string_view name, const Json& value, AnswerForm& form) {
  if (value.object() == nullptr && value.boolean() == nullptr) {
    return owner.fail_type(name, "a JSON schema, which is an object", value);
  }
  form.kind = AnswerForm::Kind::json_schema;
  form.schema = value;
}

void read_response_format(Fields& body, Failure& failure, ChatRequest& request) {
  const Json* const value = body.take("response_format");
  if (value == nullptr) return;
  if (value->object() == nullptr) return body.fail_type("response_format", "an object", *value);
  Fields fields(*value->object(), "response_format.", failure);
  const auto type = fields.string("type", 64);
  if (!type) return fields.fail_missing("type");
  AnswerForm& form = request.form;
  if (*type == "json_object") {
    form.kind = AnswerForm::Kind::json_object;
    // llama-server puts the schema beside the type.
    if (const Json* schema = fields.take("schema")) {
      read_json_schema(fields, "schema", *schema, form);
    }
  } else if (*type == "json_schema") {
    const Json* const inner = fields.take("json_schema");
    if (inner == nullptr) return fields.fail_missing("json_schema");
    if (inner->object() == nullptr) return fields.fail_type("json_schema", "an object", *inner);
    Fields own(*inner->object(), "response_format.json_schema.", failure);
    own.take("name");
    own.take("description");
    form.strict = own.boolean("strict").value_or(false);
    const Json* const schema = own.take("schema");
    if (schema == nullptr) return own.fail_missing("schema");
    read_json_schema(own, "schema", *schema, form);
    own.pass_over_rest(request.options.ignored);
  } else if (*type != "text") {
    return fields.fail_unsupported("type",
                                   "'" + *type + "' is not; text, json_object and json_schema are");
  }
  fields.pass_over_rest(request.options.ignored);
}

}  // namespace

void read_tools(Fields& body, const ApiRules& rules, Failure& failure, ChatRequest& request) {
  ChatToolReader(rules, failure, request).read(body);
  request.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
}

void read_tool_choice(Fields& body, Failure& failure, ChatRequest& request) {
  const Json* const value = body.take("tool_choice");
  if (value == nullptr) return;
  using Kind = ToolChoice::Kind;
  if (value->object() != nullptr) return read_named_choice(body, failure, request, *value);
  const std::string* const word = value->string();
  if (word == nullptr) return body.fail_type("tool_choice", "a string or an object", *value);
  if (*word == "auto") {
    request.tool_choice.kind = Kind::automatic;
  } else if (*word == "none") {
    request.tool_choice.kind = Kind::none;
  } else if (*word == "required" || *word == "any") {
    request.tool_choice.kind = Kind::required;
    if (request.tools.empty()) body.fail_value("tool_choice", "a call needs 'tools'");
  } else {
    body.fail_value("tool_choice", "expected auto, none, required, or an object that names a tool");
  }
}

void read_answer_form(Fields& body, Failure& failure, ChatRequest& request) {
  read_response_format(body, failure, request);
  const auto taken = [&](std::string_view name) {
    if (request.form.kind == AnswerForm::Kind::free) return false;
    body.fail_value(name, "the form of the answer is given already");
    return true;
  };
  if (const Json* schema = body.take("json_schema")) {
    if (!taken("json_schema")) read_json_schema(body, "json_schema", *schema, request.form);
  }
  const auto grammar = body.string("grammar", kAnyText);
  if (grammar && !grammar->empty() && !taken("grammar")) {
    request.form.kind = AnswerForm::Kind::gbnf;
    request.form.grammar = *grammar;
  }
}

void read_thinking(Fields& body, Failure& failure, ChatRequest& request) {
  Thinking& thinking = request.thinking;
  thinking.effort = body.string("reasoning_effort", 64).value_or("");
  // OpenRouter's: {"effort":"high"} or {"enabled":false}.
  if (const Json* const value = body.take("reasoning")) {
    if (value->object() == nullptr) return body.fail_type("reasoning", "an object", *value);
    Fields fields(*value->object(), "reasoning.", failure);
    if (const auto effort = fields.string("effort", 64)) {
      thinking.effort = *effort;
      thinking.effort_name = "reasoning.effort";
    }
    thinking.wanted = fields.boolean("enabled");
    thinking.wanted_name = "reasoning.enabled";
    if (const auto most = fields.integer("max_tokens", 1, std::numeric_limits<int32_t>::max())) {
      thinking.budget_tokens = static_cast<uint32_t>(*most);
      thinking.budget_name = "reasoning.max_tokens";
    }
    fields.pass_over_rest(request.options.ignored);
  }
  if (const auto wanted = body.boolean("enable_thinking")) {
    thinking.wanted = *wanted;
    thinking.wanted_name = "enable_thinking";
  }
  const auto budget = body.integer("thinking_budget", -1, std::numeric_limits<int32_t>::max());
  if (budget && *budget > 0) {
    thinking.budget_tokens = static_cast<uint32_t>(*budget);
    thinking.budget_name = "thinking_budget";
  }
  if (budget && *budget == 0) thinking.wanted = false;
  if (const auto format = body.string("reasoning_format", 64)) thinking.apart = *format != "none";
}

}  // namespace stemma::server
