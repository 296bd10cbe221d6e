#include "server/api/openai/message.h"

#include <limits>

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
    message.cache_control = read_cache_control(fields, path);
    fields.refuse({"tool_calls", {"[]"}});
    fields.refuse({"tool_call_id"});
    fields.refuse({"function_call"});
    fields.refuse({"audio"});
    // What answers of other servers carry and clients send back.
    fields.ignore("refusal", Fields::Kind::string, ignored_);
    fields.ignore("annotations", Fields::Kind::any, ignored_);
    fields.ignore("reasoning_content", Fields::Kind::string, ignored_);
    fields.ignore("reasoning", Fields::Kind::string, ignored_);
    const Json* const content = fields.take("content");
    fields.finish();
    if (content == nullptr) {
      fields.fail_missing("content");
    } else if (const std::string* text = content->string()) {
      message.parts.push_back({*text, {}});
    } else if (const Json::Array* parts = content->array()) {
      message.plain = false;
      if (parts->empty()) fields.fail_value("content", "expected at least one part");
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
    if (*role == "tool" || *role == "function") {
      fields.fail_unsupported("role",
                              "'" + *role + "' needs tools, which this server does not have");
    } else if (*role != "system" && *role != "developer" && *role != "user" &&
               *role != "assistant") {
      fields.fail_value("role", "expected system, developer, user or assistant, but got '" +
                                    role->substr(0, 64) + "'");
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
    if (*type != "text") {
      fields.fail_unsupported("type", "parts of the type '" + *type + "' are not; 'text' is");
      return;
    }
    const std::optional<std::string> text =
        fields.string("text", std::numeric_limits<uint32_t>::max());
    if (!text) fields.fail_missing("text");
    part.text = text.value_or("");
    part.cache_control = read_cache_control(fields, path);
    fields.ignore("annotations", Fields::Kind::any, ignored_);
    fields.finish();
  }

  std::optional<CacheControl> read_cache_control(Fields& owner, const std::string& path) {
    const Json* const value = owner.take("cache_control");
    if (value == nullptr) return {};
    if (value->object() == nullptr) {
      owner.fail_type("cache_control", "an object", *value);
      return {};
    }
    Fields fields(*value->object(), path + "cache_control.", failure_);
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
    fields.finish();
    if (++pins_ > rules_.max_pins) {
      owner.fail_value("cache_control", "expected it at most " + std::to_string(rules_.max_pins) +
                                            " times in one request");
    }
    return control;
  }

  const ApiRules& rules_;
  std::vector<std::string>& ignored_;
  Failure& failure_;
  uint32_t pins_ = 0;
};

}  // namespace

void read_messages(Fields& request, const ApiRules& rules, Failure& failure,
                   std::vector<std::string>& ignored, std::vector<Message>& messages) {
  MessageReader(rules, ignored, failure).read(request, messages);
}

}  // namespace stemma::server
