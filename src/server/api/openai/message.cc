#include "server/api/openai/message.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <variant>

namespace stemma::server {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000U;

class MessageReader {
 public:
  MessageReader(const ApiRules& rules, std::vector<std::string>& ignored, Failure& failure)
      : rules_(rules), ignored_(ignored), failure_(failure) {}

  void read(Fields& request, std::vector<Message>& messages) {
    const Json* const value = request.take("messages");
    if (value == nullptr) {
      request.fail_missing("messages");
      return;
    }
    const Json::Array* const array = value->array();
    if (array == nullptr) {
      request.fail_type("messages", "an array", *value);
      return;
    }
    if (array->empty() || array->size() > rules_.max_messages) {
      request.fail_value("messages", "expected 1 to " + std::to_string(rules_.max_messages) +
                                         " messages, but got " + std::to_string(array->size()));
      return;
    }
    messages.reserve(array->size());
    for (size_t i = 0; i < array->size() && !failure_; ++i) {
      const std::string path = "messages[" + std::to_string(i) + "]";
      const Json& entry = (*array)[i];
      if (entry.object() == nullptr) {
        request.fail_type(path, "an object", entry);
        return;
      }
      read_message(*entry.object(), path + ".", messages.emplace_back());
    }
  }

 private:
  void read_message(const Json::Object& object, const std::string& path, Message& message) {
    Fields fields(object, path, failure_);
    read_role(fields, message);
    message.name = fields.string("name", rules_.max_name_bytes).value_or("");
    message.cache_control = count_pin(fields);
    fields.refuse({"audio"});
    const Json* const content = fields.take("content");
    if (message.role == "assistant") read_answer(fields, path, message);
    if (message.role == "tool") read_result(fields, message);
    fields.pass_over_rest(ignored_);
    if (content == nullptr) {
      const bool says_more = !message.calls.empty() || !message.reasoning.empty();
      if (!says_more && message.role != "tool") fields.fail_missing("content");
    } else if (const std::string* text = content->string()) {
      message.parts.push_back({*text, {}});
    } else if (const Json::Array* parts = content->array()) {
      message.plain = false;
      if (parts->empty() && message.calls.empty()) {
        fields.fail_value("content", "expected at least one part");
      }
      message.parts.reserve(parts->size());
      for (size_t i = 0; i < parts->size() && !failure_; ++i) {
        const std::string name = "content[" + std::to_string(i) + "]";
        read_part(fields, name, (*parts)[i], path + name + ".", message.parts.emplace_back());
      }
    } else {
      fields.fail_type("content", "a string or an array of parts", *content);
    }
  }

  static void read_role(Fields& fields, Message& message) {
    const std::optional<std::string> role = fields.string("role", 64);
    if (!role) {
      fields.fail_missing("role");
      return;
    }
    message.role = *role;
    if (*role == "function") {
      message.role = "tool";  // The role's name before there were tools.
    } else if (*role != "system" && *role != "developer" && *role != "user" &&
               *role != "assistant" && *role != "tool") {
      fields.fail_value("role", "expected system, developer, user, assistant or tool, but got '" +
                                    role->substr(0, 64) + "'");
    }
  }

  // Reads the fields that only an assistant's message has.
  void read_answer(Fields& fields, const std::string& path, Message& message) {
    open_calls_.clear();
    for (const char* name : {"reasoning_content", "reasoning"}) {
      const Json* const said = fields.take(name);
      if (said != nullptr && said->string() != nullptr && message.reasoning.empty()) {
        message.reasoning = *said->string();
      }
    }
    if (const Json* const calls = fields.take("tool_calls")) {
      if (calls->array() == nullptr) return fields.fail_type("tool_calls", "an array", *calls);
      for (size_t i = 0; i < calls->array()->size() && !failure_; ++i) {
        const std::string name = "tool_calls[" + std::to_string(i) + "]";
        const Json& call = (*calls->array())[i];
        if (call.object() == nullptr) return fields.fail_type(name, "an object", call);
        Fields own(*call.object(), path + name + ".", failure_);
        read_call(own, path + name + ".", message);
      }
    }
    if (const Json* const call = fields.take("function_call")) {
      if (call->object() == nullptr) return fields.fail_type("function_call", "an object", *call);
      Fields own(*call->object(), path + "function_call.", failure_);
      ToolCall made{.id = "function_call", .name = {}, .arguments = {}};
      read_function(own, made);
      add_call(own, std::move(made), message);
    }
  }

  void read_call(Fields& fields, const std::string& path, Message& message) {
    ToolCall call;
    const auto id = fields.string("id", rules_.max_name_bytes);
    if (!id || id->empty()) return fields.fail_missing("id");
    call.id = *id;
    const std::string type = fields.string("type", 64).value_or("function");
    call.custom = type == "custom";
    if (!call.custom && type != "function") {
      return fields.fail_value("type", "expected 'function' or 'custom'");
    }
    const Json* const inner = fields.take(type);
    if (inner == nullptr) return fields.fail_missing(type);
    if (inner->object() == nullptr) return fields.fail_type(type, "an object", *inner);
    fields.take("index");  // From the stream that the call came in.
    fields.pass_over_rest(ignored_);
    Fields own(*inner->object(), path + type + ".", failure_);
    read_function(own, call);
    add_call(own, std::move(call), message);
  }

  void read_function(Fields& own, ToolCall& call) {
    const auto name = own.string("name", rules_.max_name_bytes);
    if (!name || name->empty()) return own.fail_missing("name");
    call.name = *name;
    const char* const field = call.custom ? "input" : "arguments";
    const Json* const value = own.take(field);
    own.pass_over_rest(ignored_);
    if (value == nullptr) return;
    if (value->object() != nullptr && !call.custom) {
      append_json(call.arguments, *value);  // Some clients send the object itself.
      return;
    }
    if (value->string() == nullptr) return own.fail_type(field, "a string", *value);
    // A call that was cut off has arguments that are no JSON. They stay a text.
    call.arguments = *value->string();
  }

  void add_call(Fields& own, ToolCall call, Message& message) {
    if (failure_) return;
    if (!open_calls_.insert(call.id).second) {
      return own.fail_value("id",
                            "two calls of one message are called '" + call.id.substr(0, 64) + "'");
    }
    message.calls.push_back(std::move(call));
  }

  void read_result(Fields& fields, Message& message) {
    const auto id = fields.string("tool_call_id", rules_.max_name_bytes);
    // A function's result names no call: it answers the only open one.
    if (!id && open_calls_.size() != 1) return fields.fail_missing("tool_call_id");
    message.call_id = id ? *id : *open_calls_.begin();
    if (open_calls_.erase(message.call_id) == 0) {
      return fields.fail_value("tool_call_id", "no call of the answer before it is called '" +
                                                   message.call_id.substr(0, 64) +
                                                   "', or it has a result already");
    }
  }

  void read_part(Fields& message, const std::string& name, const Json& value,
                 const std::string& path, ContentPart& part) {
    if (value.object() == nullptr) {
      message.fail_type(name, "an object", value);
      return;
    }
    Fields fields(*value.object(), path, failure_);
    const std::optional<std::string> type = fields.string("type", 64);
    if (!type) {
      fields.fail_missing("type");
      return;
    }
    if (*type == "refusal") {
      const auto refusal = fields.string("refusal", std::numeric_limits<uint32_t>::max());
      part.text = refusal.value_or("");
      return fields.pass_over_rest(ignored_);
    }
    if (*type != "text") {
      fields.fail_unsupported("type", "parts of the type '" + *type + "' are not; 'text' is");
      return;
    }
    const std::optional<std::string> text =
        fields.string("text", std::numeric_limits<uint32_t>::max());
    if (!text) fields.fail_missing("text");
    part.text = text.value_or("");
    part.cache_control = count_pin(fields);
    fields.pass_over_rest(ignored_);
  }

  std::optional<CacheControl> count_pin(Fields& owner) {
    const auto control = read_cache_control(owner, ignored_, failure_);
    if (control && ++pins_ > rules_.max_pins) {
      owner.fail_value("cache_control", "expected it at most " + std::to_string(rules_.max_pins) +
                                            " times in one request");
    }
    return control;
  }

  const ApiRules& rules_;
  std::vector<std::string>& ignored_;
  Failure& failure_;
  uint32_t pins_ = 0;
  std::set<std::string> open_calls_;  // Calls of the last answer without a result so far.
};

}  // namespace

std::optional<CacheControl> read_cache_control(Fields& owner, std::vector<std::string>& ignored,
                                               Failure& failure) {
  const Json* const value = owner.take("cache_control");
  if (value == nullptr) return {};
  if (value->object() == nullptr) {
    owner.fail_type("cache_control", "an object", *value);
    return {};
  }
  Fields fields(*value->object(), owner.path("cache_control") + ".", failure);
  const std::optional<std::string> type = fields.string("type", 64);
  if (!type) {
    fields.fail_missing("type");
  } else if (*type != "ephemeral") {
    fields.fail_value("type", "expected 'ephemeral'");
  }
  CacheControl control;
  const std::string ttl = fields.string("ttl", 64).value_or("5m");
  if (ttl == "1h") {
    control.ttl_ns = 60 * kMinuteNs;
  } else if (ttl == "5m") {
    control.ttl_ns = 5 * kMinuteNs;
  } else {
    fields.fail_value("ttl", "expected '5m' or '1h'");
  }
  fields.pass_over_rest(ignored);
  return control;
}

void read_messages(Fields& request, const ApiRules& rules, Failure& failure,
                   std::vector<std::string>& ignored, std::vector<Message>& messages) {
  MessageReader(rules, ignored, failure).read(request, messages);
}

}  // namespace stemma::server
