#include "dialect/write_calls.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "dialect/values/json_text.h"

namespace stemma::dialect {

using jinja::Kind;
using jinja::Value;

namespace {

using Members = std::vector<std::pair<std::string, Value>>;

bool is_letter_or_digit(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z');
}

// Returns `id` if it is nine letters or digits, otherwise nine that are derived from `id`.
std::string nine(const std::string& id) {
  if (id.size() == 9 && std::all_of(id.begin(), id.end(), is_letter_or_digit)) return id;
  uint64_t hash = 0xCBF2'9CE4'8422'2325U;
  for (const char byte : id) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100'0000'01B3U;
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string out;
  for (int i = 0; i < 9; ++i, hash /= 36) out += kDigits[hash % 36];
  return out;
}

class Writer {
 public:
  Writer(const Format& format, std::span<const Message> messages)
      : format_(format), messages_(messages), used_(messages.size(), false) {}

  std::vector<Value> write() {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      if (used_[i]) continue;
      if (message.role == "tool") {
        result(message);
      } else if (message.calls.empty()) {
        plain(message, message.content, message.reasoning);
      } else {
        calls(message, i);
      }
    }
    return std::move(out_);
  }

 private:
  static Value text(const Message& message, std::string bytes) {
    return Value::string(std::move(bytes), message.origin);
  }

  std::string id_for(const std::string& id) const {
    return format_.history.ids_of_nine ? nine(id) : id;
  }

  // Writes a message's content and thinking where the template looks for them.
  void add_texts(const Message& message, const std::string& content, const std::string& reasoning,
                 Members& members) const {
    const std::string& field = format_.thinking.field;
    Value value = text(message, content);
    if (!reasoning.empty() && field == "parts") {
      std::vector<Value> parts = {Value::dict(
          {{"type", Value::string("thinking")}, {"thinking", text(message, reasoning)}})};
      if (!content.empty()) {
        parts.push_back(
            Value::dict({{"type", Value::string("text")}, {"text", text(message, content)}}));
      }
      value = Value::list(std::move(parts));
    } else if (!reasoning.empty() && !field.empty()) {
      members.emplace_back(field, text(message, reasoning));
    }
    members.emplace_back("content", std::move(value));
  }

  void plain(const Message& message, const std::string& content, const std::string& reasoning) {
    Members members = {{"role", Value::string(message.role)}};
    add_texts(message, content, reasoning, members);
    out_.push_back(Value::dict(std::move(members)));
  }

  void calls(const Message& message, size_t index) {
    const History& history = format_.history;
    if (!history.renders_calls) {
      std::string content = message.content;
      if (!content.empty() && supports_tools(format_)) content += "\n";
      plain(message, content + write_calls_as_text(format_, message.calls), message.reasoning);
      return;
    }
    std::string content = message.content;
    std::string reasoning = message.reasoning;
    const bool apart =
        (history.content_hides_calls && !content.empty()) ||
        (history.thinking_excludes_content && !content.empty() && !reasoning.empty());
    if (apart) plain(message, std::exchange(content, {}), {});
    if (format_.calls.parallel || message.calls.size() == 1) {
      with_calls(message, message.calls, content, reasoning);
      return;
    }
    for (const Call& call : message.calls) {
      with_calls(message, {&call, 1}, std::exchange(content, {}), std::exchange(reasoning, {}));
      const size_t found = result_of(call, index);
      if (found == messages_.size()) continue;
      used_[found] = true;
      result(messages_[found]);
    }
  }

  // Finds the call's result in the run of results after message `index`.
  size_t result_of(const Call& call, size_t index) const {
    for (size_t i = index + 1; i < messages_.size() && messages_[i].role == "tool"; ++i) {
      if (!used_[i] && messages_[i].call_id == call.id) return i;
    }
    return messages_.size();
  }

  void with_calls(const Message& message, std::span<const Call> calls, const std::string& content,
                  const std::string& reasoning) {
    Members members = {{"role", Value::string(message.role)}};
    add_texts(message, content, reasoning, members);
    if (content.empty() && format_.history.empty_content == EmptyContentAs::none &&
        members.back().second.is(Kind::string)) {
      members.back().second = Value::none();
    }
    std::vector<Value> list;
    for (const Call& call : calls) {
      list.push_back(
          Value::dict({{"id", text(message, id_for(call.id))},
                       {"type", Value::string("function")},
                       {"function", Value::dict({{"name", text(message, call.name)},
                                                 {"arguments", arguments(message, call)}})}}));
    }
    members.emplace_back("tool_calls", Value::list(std::move(list)));
    out_.push_back(Value::dict(std::move(members)));
  }

  Value arguments(const Message& message, const Call& call) const {
    if (format_.history.arguments == ArgumentsAs::text) return text(message, call.arguments);
    std::optional<Value> value = read_json(call.arguments, message.origin);
    if (!value || !value->is(Kind::dict)) {
      // A call that was cut off. Templates that write each argument apart need an object.
      const CallShape shape = format_.calls.shape;
      const bool apart =
          shape == CallShape::tagged || shape == CallShape::literals || shape == CallShape::python;
      if (!apart) return text(message, call.arguments);
      return Value::dict({{"arguments", text(message, call.arguments)}});
    }
    if (!format_.history.nested_as_text) return *value;
    auto dict = std::make_shared<jinja::Dict>();
    for (const auto& [key, inner] : value->as_dict().entries()) {
      const bool plain = inner.is(Kind::string) || inner.is(Kind::integer) || inner.is(Kind::real);
      dict->set(key, plain ? inner : text(message, write_json(inner)));
    }
    return Value::of(std::shared_ptr<const jinja::Dict>(std::move(dict)));
  }

  void result(const Message& message) {
    if (format_.history.results == ResultsAs::user_text) {
      out_.push_back(Value::dict(
          {{"role", Value::string("user")}, {"content", text(message, message.content)}}));
      return;
    }
    Members members = {{"role", Value::string("tool")},
                       {"tool_call_id", text(message, id_for(message.call_id))},
                       {"content", text(message, message.content)}};
    std::string name = message.tool_name;
    if (name.empty()) name = name_of_call(message.call_id);
    if (!name.empty()) members.emplace_back("name", text(message, name));
    out_.push_back(Value::dict(std::move(members)));
  }

  std::string name_of_call(const std::string& id) const {
    for (const Message& message : messages_) {
      for (const Call& call : message.calls) {
        if (call.id == id) return call.name;
      }
    }
    return {};
  }

  const Format& format_;
  std::span<const Message> messages_;
  std::vector<bool> used_;  // Results already written after their call.
  std::vector<Value> out_;
};

}  // namespace

std::vector<Value> write_messages(const Format& format, std::span<const Message> messages) {
  return Writer(format, messages).write();
}

}  // namespace stemma::dialect
