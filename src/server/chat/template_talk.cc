#include "server/chat/template_talk.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "dialect/write_calls.h"

namespace stemma::server {
namespace {

using jinja::Origin;
using jinja::Value;

constexpr std::string_view kBetween = "\n\n";

// Returns a dict whose names are marked, too.
Value marked_dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<jinja::Dict>();
  for (auto& [name, value] : entries) dict->set(std::move(name), std::move(value));
  return Value::of(std::shared_ptr<const jinja::Dict>(std::move(dict)));
}

// Joins the texts of a message's parts; each keeps its own mark.
jinja::Text joined(const Message& message, size_t index, const PartNumbers& numbers) {
  jinja::Text text;
  for (size_t p = 0; p < message.parts.size(); ++p) {
    const std::string& part = message.parts[p].text;
    if (part.empty()) continue;
    const size_t begin = text.bytes.size();
    text.bytes += part;
    text.marks.push_back({begin, text.bytes.size(), numbers.of(index, p)});
  }
  return text;
}

bool through_dialect(const Message& message) {
  return message.role == "tool" || !message.calls.empty() ||
         (message.role == "assistant" && !message.reasoning.empty());
}

// The names of the tools that were called, by the ids of their calls. A later call may have the id
// of an earlier one.
using ToolNames = std::unordered_map<std::string_view, std::string_view>;

// Messages are to be asked for in their order.
dialect::Message for_dialect(const std::vector<Message>& messages, size_t index,
                             const PartNumbers& numbers, ToolNames& tool_names) {
  const Message& message = messages[index];
  dialect::Message out{.role = message.role,
                       .content = message.text(),
                       .reasoning = message.reasoning,
                       .call_id = message.call_id,
                       .origin = numbers.of(index)};
  for (const ToolCall& call : message.calls) {
    tool_names[call.id] = call.name;
    std::string arguments = call.arguments;
    if (call.custom) {
      arguments = R"({"input":)";
      append_json_string(arguments, call.arguments);
      arguments += '}';
    } else if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) {
      arguments = "{}";
    }
    out.calls.push_back({.id = call.id, .name = call.name, .arguments = std::move(arguments)});
  }
  if (message.role == "tool") {
    const auto called = tool_names.find(message.call_id);
    out.tool_name = called == tool_names.end() ? message.name : std::string(called->second);
  }
  return out;
}

const Value* member(const Value& message, std::string_view name) {
  return message.is(jinja::Kind::dict) ? message.as_dict().find(name) : nullptr;
}

std::string_view role_of_value(const Value& message) {
  const Value* const role = member(message, "role");
  return role != nullptr && role->is(jinja::Kind::string) ? role->as_text().view()
                                                          : std::string_view();
}

// Joins the contents of messages as one text, or as one list of parts.
class JoinedContents {
 public:
  void add(const Value& content) {
    using jinja::Kind;
    if (!parts_.empty() || content.is(Kind::list)) {
      if (parts_.empty() && said_) add_part(Value::of(std::exchange(text_, {})));
      if (!content.is(Kind::list)) return add_part(content);
      const auto& items = content.as_list().items;
      parts_.insert(parts_.end(), items.begin(), items.end());
      return;
    }
    if (said_) text_.bytes += kBetween;
    said_ = true;
    const jinja::Text& more = content.as_text();
    const size_t begin = text_.bytes.size();
    text_.bytes += more.bytes;
    for (const jinja::Mark& mark : more.marks) {
      text_.marks.push_back({begin + mark.begin, begin + mark.end, mark.origin});
    }
  }
  Value take() {
    return parts_.empty() ? Value::of(std::move(text_)) : Value::list(std::move(parts_));
  }

 private:
  void add_part(const Value& text) {
    parts_.push_back(Value::dict({{"type", Value::string("text")}, {"text", text}}));
  }

  jinja::Text text_;  // As long as there are only texts.
  bool said_ = false;
  std::vector<Value> parts_;
};

// Returns `message` with another content.
Value with_content(const Value& message, Value content) {
  auto dict = std::make_shared<jinja::Dict>(message.as_dict());
  dict->set(Value::string("content"), std::move(content));
  return Value::of(std::shared_ptr<const jinja::Dict>(std::move(dict)));
}

void add_text(jinja::Text& text, std::string_view bytes, Origin origin = jinja::kNoOrigin) {
  if (bytes.empty()) return;
  const size_t begin = text.bytes.size();
  text.bytes += bytes;
  if (origin != jinja::kNoOrigin) text.marks.push_back({begin, text.bytes.size(), origin});
}

}  // namespace

Value template_value(const Json& json, Origin origin) {
  struct Visitor {
    Origin origin;
    Value operator()(std::monostate) const { return Value::none(); }
    Value operator()(bool value) const { return Value::boolean(value); }
    Value operator()(int64_t value) const { return Value::integer(value); }
    Value operator()(uint64_t value) const { return Value::real(static_cast<double>(value)); }
    Value operator()(double value) const { return Value::real(value); }
    Value operator()(const std::string& value) const { return Value::string(value, origin); }
    Value operator()(const Json::Array& values) const {
      std::vector<Value> items;
      for (const Json& each : values) items.push_back(template_value(each, origin));
      return Value::list(std::move(items));
    }
    Value operator()(const Json::Object& members) const {
      std::vector<std::pair<Value, Value>> entries;
      for (const Json::Member& each : members) {
        entries.emplace_back(Value::string(each.name, origin), template_value(each.value, origin));
      }
      return marked_dict(std::move(entries));
    }
  };
  return std::visit(Visitor{origin}, json.value);
}

Json argument_schema(const ToolSpec& tool) {
  const auto text = [](std::string_view value) { return Json{std::string(value)}; };
  const auto object = [](Json::Object members) { return Json{std::move(members)}; };
  if (tool.custom) {
    return object({{"type", text("object")},
                   {"properties", object({{"input", object({{"type", text("string")}})}})},
                   {"required", Json{Json::Array{text("input")}}},
                   {"additionalProperties", Json{false}}});
  }
  if (!tool.parameters.is_null()) return tool.parameters;
  return object({{"type", text("object")}, {"properties", object({})}});
}

std::string TemplateTalk::role_of(const Message& message, bool leading) const {
  if (message.role != "system" && message.role != "developer") return message.role;
  if (!rules_.system) return "user";
  if (!leading && !rules_.system_anywhere) return "user";
  return message.role == "developer" && !rules_.developer ? "system" : message.role;
}

Value TemplateTalk::plain(const Message& message, size_t index, const PartNumbers& numbers) const {
  std::vector<std::pair<std::string, Value>> fields;
  if (message.plain || message.parts.size() <= 1 || !chat_.mentions("type")) {
    // A template that does not read lists gets one text; the parts keep their marks.
    fields.emplace_back("content", Value::of(joined(message, index, numbers)));
  } else {
    std::vector<Value> parts;
    for (size_t p = 0; p < message.parts.size(); ++p) {
      parts.push_back(
          Value::dict({{"type", Value::string("text")},
                       {"text", Value::string(message.parts[p].text, numbers.of(index, p))}}));
    }
    fields.emplace_back("content", Value::list(std::move(parts)));
  }
  if (!message.name.empty()) {
    fields.emplace_back("name", Value::string(message.name, kNoMessage));
  }
  return Value::dict(std::move(fields));
}

std::vector<Value> TemplateTalk::messages(const ChatRequest& request,
                                          const PartNumbers& numbers) const {
  const std::vector<Message>& all = request.messages;
  std::vector<Value> out;
  ToolNames tool_names;
  bool leading = true;
  for (size_t i = 0; i < all.size();) {
    if (through_dialect(all[i])) {
      // Calls and their results are written together: some templates need them alternating.
      std::vector<dialect::Message> run = {for_dialect(all, i, numbers, tool_names)};
      for (++i; i < all.size() && all[i].role == "tool"; ++i) {
        run.push_back(for_dialect(all, i, numbers, tool_names));
      }
      for (Value& each : dialect::write_messages(format_, run)) out.push_back(std::move(each));
      leading = false;
      continue;
    }
    const Message& message = all[i];
    const bool system = message.role == "system" || message.role == "developer";
    leading = leading && system;
    auto dict = std::make_shared<jinja::Dict>();
    dict->set(Value::string("role"), Value::string(role_of(message, leading)));
    const Value rest = plain(message, i, numbers);
    for (const auto& [name, value] : rest.as_dict().entries()) dict->set(name, value);
    out.push_back(Value::of(std::shared_ptr<const jinja::Dict>(std::move(dict))));
    ++i;
  }
  if (!request.tools.empty() && !format_.lists_tools) describe_tools(request, out);
  join_neighbours(out);
  return out;
}

// Joins neighbouring messages if the template does not accept them separately.
void TemplateTalk::join_neighbours(std::vector<Value>& messages) const {
  const auto joins = [&](const Value& message) {
    const std::string_view role = role_of_value(message);
    const Value* const content = member(message, "content");
    return ((role == "system" && !rules_.system_anywhere) ||
            (role == "user" && !rules_.user_runs)) &&
           content != nullptr &&
           (content->is(jinja::Kind::string) || content->is(jinja::Kind::list));
  };
  std::vector<Value> out;
  for (size_t i = 0; i < messages.size();) {
    const size_t first = i++;
    const std::string_view role = role_of_value(messages[first]);
    while (joins(messages[first]) && i < messages.size() && joins(messages[i]) &&
           role_of_value(messages[i]) == role) {
      ++i;
    }
    if (i == first + 1) {
      out.push_back(std::move(messages[first]));
      continue;
    }
    JoinedContents all;
    for (size_t m = first; m < i; ++m) all.add(*member(messages[m], "content"));
    out.push_back(with_content(messages[first], all.take()));
  }
  messages = std::move(out);
}

void TemplateTalk::describe_tools(const ChatRequest& request, std::vector<Value>& messages) const {
  jinja::Text text;
  add_text(text,
           "# Tools\n\nYou may call functions to help with the request. These are available, one "
           "in each line:\n");
  for (size_t t = 0; t < request.tools.size(); ++t) {
    const ToolSpec& tool = request.tools[t];
    std::string line = R"({"name":)";
    append_json_string(line, tool.name);
    line += R"(,"description":)";
    append_json_string(line, tool.description);
    line += R"(,"parameters":)";
    append_json(line, argument_schema(tool));
    line += '}';
    add_text(text, line, PartNumbers::of_tool(t));
    add_text(text, "\n");
  }
  const dialect::Call example{.id = "", .name = "NAME", .arguments = R"({"argument": "value"})"};
  add_text(text, "\nTo call one, write exactly this, with its name and arguments:\n");
  add_text(text, dialect::write_calls_as_text(format_, {&example, 1}));
  Value said = Value::of(std::move(text));
  if (!messages.empty() && role_of_value(messages.front()) == "system") {
    const Value* const content = member(messages.front(), "content");
    if (content != nullptr) {
      JoinedContents all;
      all.add(*content);
      all.add(said);
      messages.front() = with_content(messages.front(), all.take());
      return;
    }
  }
  messages.insert(messages.begin(),
                  Value::dict({{"role", Value::string(rules_.system ? "system" : "user")},
                               {"content", std::move(said)}}));
}

std::vector<Value> TemplateTalk::tools(const ChatRequest& request) const {
  std::vector<Value> out;
  if (!format_.lists_tools) return out;
  for (size_t t = 0; t < request.tools.size(); ++t) {
    const ToolSpec& tool = request.tools[t];
    const Origin origin = PartNumbers::of_tool(t);
    out.push_back(Value::dict(
        {{"type", Value::string("function")},
         {"function",
          Value::dict({{"name", Value::string(tool.name, origin)},
                       {"description", Value::string(tool.description, origin)},
                       {"parameters", template_value(argument_schema(tool), origin)}})}}));
  }
  return out;
}

void TemplateTalk::add_thinking(const Thinking& thinking, bool keep, Variables& variables,
                                std::vector<std::string>& ignored) const {
  const auto ignore = [&](const std::string& name) {
    if (!name.empty() && std::ranges::find(ignored, name) == ignored.end()) ignored.push_back(name);
  };
  bool switched = false;
  std::optional<bool> wanted = thinking.wanted;
  if (!wanted && thinking.effort == "none") wanted = false;
  if (wanted) {
    for (const char* name : {"enable_thinking", "thinking"}) {
      if (!chat_.mentions(name)) continue;
      variables.emplace_back(name, Value::boolean(*wanted));
      switched = true;
    }
    if (!switched && thinking.wanted) ignore(thinking.wanted_name);
  }
  if (!thinking.effort.empty()) {
    if (chat_.mentions("reasoning_effort")) {
      variables.emplace_back("reasoning_effort", Value::string(thinking.effort, kNoMessage));
    } else if (thinking.effort != "none" || !switched) {
      ignore(thinking.effort_name);
    }
  }
  if (thinking.budget_tokens) ignore(thinking.budget_name);
  if (!keep) return;
  // Names under which templates keep the thinking of older answers.
  for (const char* name : {"preserve_thinking", "keep_past_thinking", "keep_reasoning"}) {
    if (chat_.mentions(name)) variables.emplace_back(name, Value::boolean(true));
  }
  for (const char* name : {"clear_thinking", "truncate_history_thinking", "drop_thinking"}) {
    if (chat_.mentions(name)) variables.emplace_back(name, Value::boolean(false));
  }
}

}  // namespace stemma::server
