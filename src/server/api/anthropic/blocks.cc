#include "server/api/anthropic/blocks.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "server/api/openai/message.h"

namespace stemma::server {
namespace {

constexpr uint32_t kAnyBytes = std::numeric_limits<uint32_t>::max();
constexpr std::string_view kEmptyLine = "\n\n";

class BlockReader {
 public:
  BlockReader(const ApiRules& rules, Failure& failure, uint32_t& pins,
              std::vector<std::string>& ignored, std::vector<Message>& messages)
      : rules_(rules), failure_(failure), pins_(pins), ignored_(ignored), messages_(messages) {}

  void read_system(Fields& request) {
    const Json* const value = request.take("system");
    if (value == nullptr) return;
    Message message;
    message.role = "system";
    message.place = "system";
    if (!read_texts(request, "system", *value, message)) return;
    if (!message.parts.empty()) messages_.push_back(std::move(message));
  }

  void read_messages(Fields& request) {
    const Json* const value = request.take("messages");
    if (value == nullptr) return request.fail_missing("messages");
    const Json::Array* const array = value->array();
    if (array == nullptr) return request.fail_type("messages", "an array", *value);
    if (array->empty() || array->size() > rules_.max_messages) {
      return request.fail_value("messages", "expected 1 to " + std::to_string(rules_.max_messages) +
                                                " messages, but got " +
                                                std::to_string(array->size()));
    }
    for (size_t i = 0; i < array->size() && !failure_; ++i) {
      const std::string path = "messages[" + std::to_string(i) + "]";
      const Json& entry = (*array)[i];
      if (entry.object() == nullptr) return request.fail_type(path, "an object", entry);
      Fields fields(*entry.object(), path + ".", failure_);
      const size_t before = messages_.size();
      read_message(fields);
      for (size_t m = before; m < messages_.size(); ++m) messages_[m].place = path;
      fields.pass_over_rest(ignored_);
    }
    check_results(request, "messages");
  }

 private:
  void read_message(Fields& fields) {
    const std::optional<std::string> role = fields.string("role", 64);
    const Json* const content = fields.take("content");
    if (!role) return fields.fail_missing("role");
    if (content == nullptr) return fields.fail_missing("content");
    if (*role == "assistant") {
      read_assistant(fields, *content);
    } else if (*role == "user") {
      read_user(fields, *content);
    } else if (*role == "system") {
      Message message;
      message.role = "system";
      if (read_texts(fields, "content", *content, message)) messages_.push_back(std::move(message));
    } else {
      fields.fail_value(
          "role", "expected user, assistant or system, but got '" + role->substr(0, 64) + "'");
    }
  }

  // Reads a text, or blocks of text joined by empty lines. Returns false if it is neither.
  bool read_texts(Fields& owner, const std::string& name, const Json& value, Message& message) {
    if (const std::string* text = value.string()) {
      message.parts.push_back({.text = *text, .cache_control = {}});
      return true;
    }
    return each_block(owner, name, value, [&](Fields& block, const std::string& type) {
      if (type != "text") return refuse_block(block, type);
      add_text(block, message, kEmptyLine);
    });
  }

  // Calls read(block, type) for each object of the array; fields that it does not read are ignored.
  template <class Read>
  bool each_block(Fields& owner, const std::string& name, const Json& value, Read&& read) {
    const Json::Array* const blocks = value.array();
    if (blocks == nullptr) {
      owner.fail_type(name, "a string or an array of blocks", value);
      return false;
    }
    for (size_t i = 0; i < blocks->size() && !failure_; ++i) {
      const std::string path = name + "[" + std::to_string(i) + "]";
      const Json& entry = (*blocks)[i];
      if (entry.object() == nullptr) {
        owner.fail_type(path, "an object", entry);
        return false;
      }
      Fields block(*entry.object(), owner.path(path) + ".", failure_);
      const std::optional<std::string> type = block.string("type", 64);
      if (!type) {
        block.fail_missing("type");
        return false;
      }
      read(block, *type);
      block.pass_over_rest(ignored_);
    }
    return !failure_;
  }

  static void refuse_block(Fields& block, const std::string& type) {
    block.fail_unsupported(
        "type", "blocks of the type '" + type + "' are not supported by this server; text is");
  }

  void add_text(Fields& block, Message& message, std::string_view between) {
    const std::optional<std::string> text = block.string("text", kAnyBytes);
    if (!text) return block.fail_missing("text");
    message.plain = false;
    // The separator belongs to the part before it, so that a pinned part stays the same when a
    // block is added.
    if (!message.parts.empty() && !text->empty()) message.parts.back().text += between;
    message.parts.push_back(
        {.text = *text,
         .cache_control = read_cache_control(block, rules_, failure_, pins_, ignored_)});
  }

  void read_user(Fields& fields, const Json& content) {
    Message message;
    message.role = "user";
    bool said = false;
    if (const std::string* text = content.string()) {
      message.parts.push_back({.text = *text, .cache_control = {}});
      messages_.push_back(std::move(message));
      return;
    }
    each_block(fields, "content", content, [&](Fields& block, const std::string& type) {
      if (type == "text") {
        add_text(block, message, kEmptyLine);
        said = true;
      } else if (type == "tool_result") {
        // Results keep their place: text before them is a message of its own.
        if (!message.parts.empty()) {
          messages_.push_back(std::exchange(message, {}));
          message.role = "user";
        }
        read_result(block);
        said = true;
      } else {
        refuse_block(block, type);
      }
    });
    if (!said) fields.fail_value("content", "expected at least one block");
    if (!message.parts.empty()) messages_.push_back(std::move(message));
  }

  void read_result(Fields& block) {
    const std::optional<std::string> id = block.string("tool_use_id", rules_.max_name_bytes);
    if (!id) return block.fail_missing("tool_use_id");
    if (waiting_.erase(*id) == 0) {
      return block.fail_value("tool_use_id",
                              seen_.contains(*id)
                                  ? "there is a result of this call already, or other messages "
                                    "stand between"
                                  : "no call of the message before has this id");
    }
    Message message;
    message.role = "tool";
    message.call_id = *id;
    message.is_error = block.boolean("is_error").value_or(false);
    message.cache_control = read_cache_control(block, rules_, failure_, pins_, ignored_);
    const Json* const content = block.take("content");
    if (content != nullptr && !read_texts(block, "content", *content, message)) return;
    // A tool with an empty result has a result, too.
    if (message.parts.empty()) message.parts.emplace_back();
    messages_.push_back(std::move(message));
  }

  void read_assistant(Fields& fields, const Json& content) {
    // Consecutive assistant messages are one answer.
    if (messages_.empty() || messages_.back().role != "assistant") {
      if (!waiting_.empty()) return check_results(fields, "content");
      messages_.emplace_back().role = "assistant";
    }
    Message& message = messages_.back();
    if (const std::string* text = content.string()) {
      message.parts.push_back({.text = *text, .cache_control = {}});
      return;
    }
    each_block(fields, "content", content, [&](Fields& block, const std::string& type) {
      if (type == "text") {
        add_text(block, message, {});
      } else if (type == "thinking") {
        const std::optional<std::string> thought = block.string("thinking", kAnyBytes);
        if (!thought) return block.fail_missing("thinking");
        message.reasoning += *thought;
        // A signature that is not ours is found nowhere, and ignored.
        const auto signature = block.string("signature", kAnyBytes);
        if (signature && signature->size() <= rules_.max_name_bytes) {
          message.transcript_id = *signature;
        }
      } else if (type == "redacted_thinking") {
        static_cast<void>(block.take("data"));
        ignored_.push_back(block.path("type") + "=redacted_thinking");
      } else if (type == "tool_use") {
        read_call(block, message);
      } else {
        refuse_block(block, type);
      }
    });
  }

  void read_call(Fields& block, Message& message) {
    ToolCall call;
    const std::optional<std::string> id = block.string("id", rules_.max_name_bytes);
    const std::optional<std::string> name = block.string("name", rules_.max_name_bytes);
    if (!id) return block.fail_missing("id");
    if (!name) return block.fail_missing("name");
    if (!seen_.insert(*id).second) {
      return block.fail_value("id", "another call of this conversation has the same id");
    }
    waiting_.insert(*id);
    call.id = *id;
    call.name = *name;
    const Json* const input = block.take("input");
    if (input != nullptr && input->object() == nullptr) {
      return block.fail_type("input", "an object", *input);
    }
    if (input == nullptr) {
      call.arguments = "{}";
    } else {
      append_json(call.arguments, *input);
    }
    if (auto control = read_cache_control(block, rules_, failure_, pins_, ignored_)) {
      message.cache_control = control;
    }
    message.calls.push_back(std::move(call));
  }

  // Checks that every call has its result before the next answer, or the end.
  void check_results(Fields& fields, std::string_view name) {
    if (waiting_.empty() || failure_) return;
    fields.fail_value(name, "the call '" + waiting_.begin()->substr(0, 64) +
                                "' has no tool_result in the message behind it");
  }

  const ApiRules& rules_;
  Failure& failure_;
  uint32_t& pins_;
  std::vector<std::string>& ignored_;
  std::vector<Message>& messages_;
  std::set<std::string, std::less<>> seen_;     // Ids of all calls,
  std::set<std::string, std::less<>> waiting_;  // and of those that wait for results.
};

}  // namespace

std::optional<CacheControl> read_cache_control(Fields& owner, const ApiRules& rules,
                                               Failure& failure, uint32_t& pins,
                                               std::vector<std::string>& ignored) {
  const auto control = read_cache_control(owner, ignored, failure);
  if (control && ++pins > rules.max_pins) {
    owner.fail_value("cache_control", "expected it at most " + std::to_string(rules.max_pins) +
                                          " times in one request");
  }
  return control;
}

void read_anthropic_messages(Fields& request, const ApiRules& rules, Failure& failure,
                             uint32_t& pins, std::vector<std::string>& ignored,
                             std::vector<Message>& messages) {
  BlockReader reader(rules, failure, pins, ignored, messages);
  reader.read_system(request);
  reader.read_messages(request);
}

}  // namespace stemma::server
