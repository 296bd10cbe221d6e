#include "server/api/anthropic/request.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/anthropic/blocks.h"
#include "server/api/anthropic/error.h"
#include "server/api/body.h"
#include "server/api/options.h"
#include "server/api/tool_names.h"

namespace stemma::server {
namespace {

// Tools that Anthropic's servers run. Their types end in a date: "web_search_20250305".
bool is_server_tool(std::string_view type) {
  constexpr std::array<std::string_view, 5> kKinds = {
      "web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "mcp_toolset"};
  return std::ranges::any_of(kKinds, [&](std::string_view kind) { return type.starts_with(kind); });
}

class RequestReader {
 public:
  RequestReader(Fields& fields, Failure& failure, const ApiRules& rules, ChatRequest& request)
      : fields_(fields), failure_(failure), rules_(rules), request_(request) {}

  void read(AnthropicBody kind) {
    RequestOptions& options = request_.options;
    // First, because the rest of such a request is not the whole conversation.
    refuse_thread();
    options.model = fields_.string("model", rules_.max_name_bytes).value_or("");
    const auto most = fields_.integer("max_tokens", 1, kMaxCount);
    if (most) options.max_tokens = static_cast<uint32_t>(*most);
    if (kind == AnthropicBody::messages && !most) fields_.fail_missing("max_tokens");
    options.stream = fields_.boolean("stream").value_or(false);
    options.sampling = rules_.sampling;
    read_sampling(fields_, rules_, options.sampling);
    read_stops(options.stop);
    read_cache(fields_, rules_, options);
    read_metadata(options);
    read_anthropic_messages(fields_, rules_, failure_, pins_, options.ignored, request_.messages);
    if (auto control = read_cache_control(fields_, rules_, failure_, pins_, options.ignored);
        control && !request_.messages.empty() && !request_.messages.back().cache_control) {
      request_.messages.back().cache_control = control;
    }
    read_tools();
    read_tool_choice();
    read_thinking();
    read_output();
    read_continuation();
    fields_.refuse({"mcp_servers", {"[]"}});
    fields_.pass_over_rest(options.ignored);
  }

 private:
  void read_stops(std::vector<std::string>& stop) {
    const Json* const value = fields_.take("stop_sequences");
    if (value == nullptr) return;
    const Json::Array* const array = value->array();
    if (array == nullptr) return fields_.fail_type("stop_sequences", "an array of strings", *value);
    if (array->size() > rules_.max_stops) {
      return fields_.fail_value("stop_sequences",
                                "expected at most " + std::to_string(rules_.max_stops) +
                                    " texts, but got " + std::to_string(array->size()));
    }
    for (const Json& entry : *array) {
      const std::string* const text = entry.string();
      if (text == nullptr) return fields_.fail_type("stop_sequences", "strings", entry);
      if (text->empty() || text->size() > rules_.max_stop_bytes) {
        return fields_.fail_value(
            "stop_sequences", "expected texts of 1 to " + std::to_string(rules_.max_stop_bytes) +
                                  " bytes, but got one of " + std::to_string(text->size()));
      }
      stop.push_back(*text);
    }
  }

  // A hint: requests of one user_id belong together.
  void read_metadata(RequestOptions& options) {
    const Json* const value = fields_.take("metadata");
    if (value == nullptr) return;
    if (value->object() == nullptr) return fields_.fail_type("metadata", "an object", *value);
    Fields inner(*value->object(), "metadata.", failure_);
    if (const Json* user = inner.take("user_id")) {
      const std::string* const text = user->string();
      if (text == nullptr) return inner.fail_type("user_id", "a string", *user);
      if (text->size() <= rules_.max_name_bytes) options.user_session = *text;
    }
    inner.pass_over_rest(options.ignored);
  }

  void read_tools() {
    const Json* const value = fields_.take("tools");
    if (value == nullptr) return;
    const Json::Array* const array = value->array();
    if (array == nullptr) return fields_.fail_type("tools", "an array", *value);
    if (!check_tool_count(fields_, "tools", array->size())) return;
    for (size_t i = 0; i < array->size() && !failure_; ++i) {
      const std::string path = "tools[" + std::to_string(i) + "]";
      const Json& entry = (*array)[i];
      if (entry.object() == nullptr) return fields_.fail_type(path, "an object", entry);
      Fields tool(*entry.object(), path + ".", failure_);
      read_tool(tool);
      tool.pass_over_rest(request_.options.ignored);
    }
  }

  void read_tool(Fields& tool) {
    const std::string type = tool.string("type", 128).value_or("custom");
    const std::optional<std::string> name = tool.string("name", rules_.max_name_bytes);
    if (is_server_tool(type)) {
      // Only Anthropic can run such a tool, so the model does not learn of it.
      request_.options.ignored.push_back(tool.path("") + " (" + type + ")");
      std::vector<std::string> its_own;
      return tool.pass_over_rest(its_own);
    }
    if (type != "custom") {
      return tool.fail_unsupported(
          "type", "'" + type +
                      "' is a tool that Anthropic defines, which this server does not have; tools "
                      "with an input_schema are supported");
    }
    if (!name || name->empty()) return tool.fail_missing("name");
    if (!check_tool_name(tool, *name)) return;
    for (const ToolSpec& other : request_.tools) {
      if (other.name == *name) return tool.fail_value("name", "another tool has the same name");
    }
    ToolSpec spec;
    spec.name = *name;
    spec.description =
        tool.string("description", std::numeric_limits<uint32_t>::max()).value_or("");
    const Json* const schema = tool.take("input_schema");
    if (schema == nullptr) return tool.fail_missing("input_schema");
    if (schema->object() == nullptr) return tool.fail_type("input_schema", "an object", *schema);
    spec.parameters = *schema;
    spec.schema_name = "input_schema";
    spec.strict = tool.boolean("strict").value_or(false);
    spec.cache_control =
        read_cache_control(tool, rules_, failure_, pins_, request_.options.ignored);
    request_.tools.push_back(std::move(spec));
  }

  void read_tool_choice() {
    const Json* const value = fields_.take("tool_choice");
    if (value == nullptr) return;
    if (value->object() == nullptr) return fields_.fail_type("tool_choice", "an object", *value);
    Fields choice(*value->object(), "tool_choice.", failure_);
    const std::optional<std::string> type = choice.string("type", 64);
    const std::optional<std::string> name = choice.string("name", rules_.max_name_bytes);
    request_.parallel_calls = !choice.boolean("disable_parallel_tool_use").value_or(false);
    choice.pass_over_rest(request_.options.ignored);
    using Kind = ToolChoice::Kind;
    if (!type) return choice.fail_missing("type");
    if (*type == "none") {
      request_.tool_choice.kind = Kind::none;
    } else if (*type == "any") {
      request_.tool_choice.kind = Kind::required;
    } else if (*type == "tool") {
      if (!name) return choice.fail_missing("name");
      const auto known = std::ranges::find(request_.tools, *name, &ToolSpec::name);
      if (known == request_.tools.end()) {
        return choice.fail_value("name", "no tool of this request has this name");
      }
      request_.tool_choice = {.kind = Kind::named, .names = {*name}};
    } else if (*type != "auto") {
      return choice.fail_value("type", "expected auto, any, tool or none");
    }
    if (request_.tool_choice.kind == Kind::required && request_.tools.empty()) {
      choice.fail_value("type", "'any' needs tools");
    }
  }

  // Without this field there is no thinking, as with Anthropic's models.
  void read_thinking() {
    request_.thinking.wanted = false;
    request_.thinking.wanted_name.clear();
    const Json* const value = fields_.take("thinking");
    if (value == nullptr) return;
    request_.thinking.wanted_name = "thinking";
    if (value->object() == nullptr) return fields_.fail_type("thinking", "an object", *value);
    Fields thinking(*value->object(), "thinking.", failure_);
    const std::optional<std::string> type = thinking.string("type", 64);
    const auto budget = thinking.integer("budget_tokens", 1, kMaxCount);
    thinking.pass_over_rest(request_.options.ignored);
    if (!type) return thinking.fail_missing("type");
    if (*type == "enabled") {
      if (!budget) return thinking.fail_missing("budget_tokens");
      request_.thinking.budget_tokens = static_cast<uint32_t>(*budget);
      request_.thinking.budget_name = "thinking.budget_tokens";
      request_.thinking.wanted = true;
    } else if (*type == "adaptive") {
      request_.thinking.wanted = true;
    } else if (*type != "disabled") {
      thinking.fail_value("type", "expected enabled, adaptive or disabled");
    }
  }

  // Reads output_config: effort, and the form of the answer. output_format is its older name.
  void read_output() {
    const Json* const config = fields_.take("output_config");
    const Json* format = fields_.take("output_format");
    if (config != nullptr) {
      if (config->object() == nullptr) {
        return fields_.fail_type("output_config", "an object", *config);
      }
      Fields inner(*config->object(), "output_config.", failure_);
      request_.thinking.effort = inner.string("effort", 64).value_or("");
      request_.thinking.effort_name = "output_config.effort";
      if (const Json* newer = inner.take("format")) format = newer;
      inner.pass_over_rest(request_.options.ignored);
    }
    if (format == nullptr || failure_) return;
    if (format->object() == nullptr)
      return fields_.fail_type("output_format", "an object", *format);
    Fields inner(*format->object(), "output_format.", failure_);
    const std::optional<std::string> type = inner.string("type", 64);
    const Json* const schema = inner.take("schema");
    inner.pass_over_rest(request_.options.ignored);
    if (!type) return inner.fail_missing("type");
    if (*type != "json_schema") return inner.fail_value("type", "expected json_schema");
    if (schema == nullptr) return inner.fail_missing("schema");
    request_.form.kind = AnswerForm::Kind::json_schema;
    request_.form.schema = *schema;
    request_.form.strict = true;
  }

  // Refuses a conversation held by the server: after this code, clients send all of it again.
  void refuse_thread() {
    if (fields_.take("thread") == nullptr || failure_) return;
    fields_.fail_unsupported("thread", "this server holds no conversations; send all messages");
    failure_->code = kThreadUnsupported;
  }

  // If the last message is an answer, it is continued.
  void read_continuation() {
    if (request_.messages.empty() || request_.messages.back().role != "assistant") return;
    request_.continue_final_message = true;
    request_.add_generation_prompt = false;
  }

  Fields& fields_;
  Failure& failure_;
  const ApiRules& rules_;
  ChatRequest& request_;
  uint32_t pins_ = 0;
};

}  // namespace

std::optional<ApiError> decode_anthropic(std::string_view body, AnthropicBody kind,
                                         const ApiRules& rules, ChatRequest& request) {
  request = {};
  return decode_body(body, rules, [&](Fields& fields, Failure& failure) {
    RequestReader(fields, failure, rules, request).read(kind);
  });
}

}  // namespace stemma::server
