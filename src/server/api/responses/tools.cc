#include "server/api/responses/tools.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/api/custom_format.h"
#include "server/api/tool_names.h"

namespace stemma::server {
namespace {

std::string text_of(const Json& value) {
  std::string text;
  append_json(text, value);
  return text;
}

class ToolReader {
 public:
  ToolReader(const ApiRules& rules, Failure& failure, ResponsesRequest& request)
      : rules_(rules), failure_(failure), request_(request) {}

  // `name_space` is that of the tools in the list, or empty.
  void read_list(Fields& owner, std::string_view path, const Json& value,
                 const std::string& name_space) {
    const Json::Array* const tools = value.array();
    if (tools == nullptr) return owner.fail_type("tools", "an array", value);
    if (!check_tool_count(owner, "tools", request_.chat.tools.size() + tools->size())) return;
    for (size_t i = 0; i < tools->size() && !failure_; ++i) {
      const std::string name = "tools[" + std::to_string(i) + "]";
      const Json& tool = (*tools)[i];
      if (tool.object() == nullptr) return owner.fail_type(name, "an object", tool);
      Fields fields(*tool.object(), std::string(path) + name + ".", failure_);
      read_tool(fields, name_space);
    }
  }

 private:
  void read_tool(Fields& fields, const std::string& name_space) {
    const std::string type = fields.string("type", rules_.max_name_bytes).value_or("");
    if (type.empty()) return fields.fail_missing("type");
    if (type == "function" || type == "custom") return read_own(fields, type, name_space);
    if (type == "namespace" && name_space.empty()) return read_namespace(fields);
    // Only OpenAI can run such a tool, so the model does not learn of it.
    request_.chat.options.ignored.push_back(fields.path("") + " (" + type.substr(0, 64) + ")");
  }

  void read_namespace(Fields& fields) {
    const auto name = fields.string("name", rules_.max_name_bytes);
    if (!name || name->empty()) return fields.fail_missing("name");
    fields.take("description");
    const Json* const tools = fields.take("tools");
    if (tools == nullptr) return fields.fail_missing("tools");
    read_list(fields, fields.path("") + ".", *tools, *name);
    fields.pass_over_rest(request_.chat.options.ignored);
  }

  void read_own(Fields& fields, const std::string& type, const std::string& name_space) {
    ToolSpec tool;
    const auto name = fields.string("name", rules_.max_name_bytes);
    if (!name || name->empty()) return fields.fail_missing("name");
    tool.name = *name;
    tool.description = fields.string("description", kAnyLength).value_or("");
    tool.custom = type == "custom";
    if (tool.custom) {
      read_custom_format(fields, failure_, tool);
    } else {
      tool.strict = fields.boolean("strict").value_or(false);
      if (const Json* parameters = fields.take("parameters")) {
        if (parameters->object() == nullptr) {
          return fields.fail_type("parameters", "an object", *parameters);
        }
        tool.parameters = *parameters;
      }
    }
    fields.pass_over_rest(request_.chat.options.ignored);
    if (!name_space.empty()) {
      // Use the plain name, unless another tool has it.
      if (is_known(tool.name)) tool.name = name_space + "__" + tool.name;
      request_.namespaced.push_back({tool.name, name_space, *name});
    }
    if (!check_tool_name(fields, tool.name)) return;
    if (is_known(tool.name)) return fields.fail_value("name", "another tool has it");
    request_.chat.tools.push_back(std::move(tool));
  }

  bool is_known(std::string_view name) const {
    return std::ranges::find(request_.chat.tools, name, &ToolSpec::name) !=
           request_.chat.tools.end();
  }

  const ApiRules& rules_;
  Failure& failure_;
  ResponsesRequest& request_;
};

bool is_offered(const ResponsesRequest& request, std::string_view name) {
  return std::ranges::find(request.chat.tools, name, &ToolSpec::name) != request.chat.tools.end();
}

// Reads {"type":"function","name":"f"} in tool_choice or its list. If empty, `failure` says why.
std::string chosen_name(const Json& value, const std::string& path, Failure& failure,
                        const ResponsesRequest& request) {
  if (value.object() == nullptr) {
    Json::Object nothing;
    Fields(nothing, path, failure).fail_type("", "an object", value);
    return {};
  }
  Fields fields(*value.object(), path + ".", failure);
  const std::string type = fields.string("type", 64).value_or("");
  const std::string name = fields.string("name", kAnyLength).value_or("");
  if (type != "function" && type != "custom") {
    fields.fail_unsupported("type", "a tool of the type '" + type + "' is not run by this server");
  } else if (name.empty()) {
    fields.fail_missing("name");
  } else if (!is_offered(request, name)) {
    fields.fail_value("name", "'tools' has no tool of this name");
  }
  return name;
}

void read_allowed_tools(Fields& fields, Failure& failure, ResponsesRequest& request) {
  ToolChoice& choice = request.chat.tool_choice;
  const std::string mode = fields.string("mode", 64).value_or("auto");
  if (mode != "auto" && mode != "required") {
    return fields.fail_value("mode", "expected 'auto' or 'required'");
  }
  if (mode == "required") choice.kind = ToolChoice::Kind::required;
  const Json* const tools = fields.take("tools");
  if (tools == nullptr) return fields.fail_missing("tools");
  if (tools->array() == nullptr) return fields.fail_type("tools", "an array", *tools);
  for (size_t i = 0; i < tools->array()->size() && !failure; ++i) {
    const std::string path = "tool_choice.tools[" + std::to_string(i) + "]";
    choice.names.push_back(chosen_name((*tools->array())[i], path, failure, request));
  }
  if (choice.names.empty()) fields.fail_value("tools", "expected at least one tool");
}

// {"type":"json_schema","name","schema","strict"}
void read_schema(Fields& format, ResponsesRequest& request) {
  AnswerForm& form = request.chat.form;
  form.kind = AnswerForm::Kind::json_schema;
  format.take("name");
  format.take("description");
  form.strict = format.boolean("strict").value_or(false);
  const Json* const schema = format.take("schema");
  if (schema == nullptr) return format.fail_missing("schema");
  if (schema->object() == nullptr) return format.fail_type("schema", "an object", *schema);
  form.schema = *schema;
}

}  // namespace

void read_response_tools(Fields& body, const ApiRules& rules, Failure& failure,
                         ResponsesRequest& request) {
  const Json* const tools = body.take("tools");
  if (tools != nullptr) {
    ToolReader(rules, failure, request).read_list(body, "", *tools, "");
    request.echo.tools = text_of(*tools);
  }
  request.chat.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
}

void read_response_tool_choice(Fields& body, Failure& failure, ResponsesRequest& request) {
  const Json* const value = body.take("tool_choice");
  if (value == nullptr) return;
  request.echo.tool_choice = text_of(*value);
  ToolChoice& choice = request.chat.tool_choice;
  if (const std::string* word = value->string()) {
    if (*word == "none") {
      choice.kind = ToolChoice::Kind::none;
    } else if (*word == "required") {
      choice.kind = ToolChoice::Kind::required;
    } else if (*word != "auto") {
      body.fail_value("tool_choice", "expected 'auto', 'none', 'required' or an object");
    }
    if (*word == "required" && request.chat.tools.empty()) {
      body.fail_value("tool_choice", "it needs a tool in 'tools' that this server can offer");
    }
    return;
  }
  if (value->object() == nullptr) {
    return body.fail_type("tool_choice", "a string or an object", *value);
  }
  Fields fields(*value->object(), "tool_choice.", failure);
  if (fields.string("type", 64).value_or("") == "allowed_tools") {
    return read_allowed_tools(fields, failure, request);
  }
  choice.kind = ToolChoice::Kind::named;
  choice.names = {chosen_name(*value, "tool_choice", failure, request)};
}

void read_response_text(Fields& body, Failure& failure, ResponsesRequest& request) {
  const Json* const value = body.take("text");
  if (value == nullptr) return;
  if (value->object() == nullptr) return body.fail_type("text", "an object", *value);
  Fields fields(*value->object(), "text.", failure);
  fields.ignore("verbosity", Fields::Kind::string, request.chat.options.ignored);
  std::string format_text = R"({"type":"text"})";
  if (const Json* format = fields.take("format")) {
    if (format->object() == nullptr) return fields.fail_type("format", "an object", *format);
    Fields inner(*format->object(), "text.format.", failure);
    const std::string type = inner.string("type", 64).value_or("");
    if (type == "json_schema") {
      read_schema(inner, request);
    } else if (type == "json_object") {
      request.chat.form.kind = AnswerForm::Kind::json_object;
    } else if (type != "text") {
      inner.fail_value("type", "expected 'text', 'json_object' or 'json_schema'");
    }
    inner.pass_over_rest(request.chat.options.ignored);
    format_text = text_of(*format);
  }
  fields.pass_over_rest(request.chat.options.ignored);
  const Json* const verbosity = value->find("verbosity");
  request.echo.text = R"({"format":)" + format_text + R"(,"verbosity":)" +
                      (verbosity == nullptr ? R"("medium")" : text_of(*verbosity)) + "}";
}

void read_response_reasoning(Fields& body, Failure& failure, ResponsesRequest& request) {
  const Json* const value = body.take("reasoning");
  if (value == nullptr) return;
  if (value->object() == nullptr) return body.fail_type("reasoning", "an object", *value);
  Fields fields(*value->object(), "reasoning.", failure);
  Thinking& thinking = request.chat.thinking;
  thinking.wanted_name = thinking.effort_name = "reasoning.effort";
  const std::string effort = fields.string("effort", 64).value_or("");
  if (effort == "none") {
    thinking.wanted = false;
  } else if (!effort.empty()) {
    thinking.wanted = true;
    thinking.effort = effort;
  }
  auto summary = fields.string("summary", 64);
  if (!summary) summary = fields.string("generate_summary", 64);
  request.summary = summary && *summary != "none";
  fields.pass_over_rest(request.chat.options.ignored);
  const auto echo = [](const std::string& word) {
    std::string text;
    append_json_string(text, word);
    return word.empty() ? "null" : text;
  };
  request.echo.reasoning =
      R"({"effort":)" + echo(effort) + R"(,"summary":)" + echo(summary.value_or("")) + "}";
}

}  // namespace stemma::server
