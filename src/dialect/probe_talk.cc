#include "dialect/probe_talk.h"

#include <utility>
#include <variant>

#include "dialect/values/json_text.h"

namespace stemma::dialect {

using jinja::Value;

namespace {

using Members = std::vector<std::pair<std::string, Value>>;

Value text(std::string_view bytes) { return Value::string(std::string(bytes)); }

Value message(std::string_view role, std::string_view content) {
  return Value::dict({{"role", text(role)}, {"content", text(content)}});
}

Value schema(std::string_view type) {
  return Value::dict({{"type", text(type)}, {"description", text("Something.")}});
}

Value parameters() {
  return Value::dict({{"type", text("object")},
                      {"properties", Value::dict({{std::string(kFirstKey), schema("string")},
                                                  {std::string(kSecondKey), schema("string")},
                                                  {std::string(kNumberKey), schema("integer")}})},
                      {"required", Value::list({text(kFirstKey)})}});
}

Value definition(std::string_view name) {
  return Value::dict({{"type", text("function")},
                      {"function", Value::dict({{"name", text(name)},
                                                {"description", text("Does something.")},
                                                {"parameters", parameters()}})}});
}

Value call(uint32_t index, const ProbeAnswer& answer) {
  const std::string json = ProbeTalk::arguments_json(index, answer.arguments);
  const Value arguments =
      answer.arguments_as == ArgumentsAs::text ? text(json) : read_json(json).value_or(Value());
  return Value::dict(
      {{"id", text(answer.id)},
       {"type", text("function")},
       {"function", Value::dict({{"name", text(index == 0 ? kFirstTool : kSecondTool)},
                                 {"arguments", arguments}})}});
}

Value answer_message(const ProbeAnswer& answer) {
  Members members = {{"role", text("assistant")}};
  Value content = text(answer.content == ContentAs::text ? kSaid : "");
  if (answer.content == ContentAs::none) content = Value::none();
  if (answer.thinking_field == "parts") {
    content = Value::list({Value::dict({{"type", text("thinking")}, {"thinking", text(kThought)}}),
                           Value::dict({{"type", text("text")}, {"text", text(kSaid)}})});
  } else if (!answer.thinking_field.empty()) {
    members.emplace_back(answer.thinking_field, text(kThought));
  }
  members.emplace_back("content", content);
  if (answer.calls > 0) {
    std::vector<Value> calls;
    for (uint32_t i = 0; i < answer.calls; ++i) calls.push_back(call(i, answer));
    members.emplace_back("tool_calls", Value::list(std::move(calls)));
  }
  return Value::dict(std::move(members));
}

}  // namespace

std::string_view after_question(std::string_view text) noexcept {
  const size_t at = text.rfind(kAsked);
  return at == kNowhere ? std::string_view() : text.substr(at + kAsked.size());
}

ProbeTalk::ProbeTalk(const jinja::Template& chat, const ProbeOptions& options)
    : chat_(chat), options_(options) {}

std::vector<Tool> ProbeTalk::tools() {
  return {{std::string(kFirstTool), parameters()}, {std::string(kSecondTool), parameters()}};
}

std::string ProbeTalk::arguments_json(uint32_t call, ProbeArguments kind) {
  const auto member = [](std::string_view key, std::string_view value) {
    return json_string(key) + ": " + json_string(value);
  };
  switch (kind) {
    case ProbeArguments::nested:
      return "{" + json_string(kFirstKey) + ": {\"inner\": [1, true, \"x\"]}}";
    case ProbeArguments::rough: return "{" + member(kFirstKey, "valu \"<one>\"\n'two'") + "}";
    case ProbeArguments::plain: break;
  }
  if (call > 0) return "{" + member(kFirstKey, kFirstValue) + "}";
  return "{" + member(kFirstKey, kFirstValue) + ", " + member(kSecondKey, kSecondValue) + ", " +
         json_string(kNumberKey) + ": " + std::string(kNumber) + "}";
}

std::optional<std::string> ProbeTalk::prompt() const {
  return render({message("user", kAsked)}, true);
}

std::optional<std::string> ProbeTalk::answered(const ProbeAnswer& answer) const {
  return render({message("user", kAsked), answer_message(answer)}, false);
}

std::optional<std::string> ProbeTalk::asked_again(const ProbeAnswer& answer) const {
  return render({message("user", kAsked), answer_message(answer), message("user", "And then?")},
                true);
}

std::optional<std::string> ProbeTalk::with_results(const ProbeAnswer& answer,
                                                   bool with_names) const {
  std::vector<Value> messages = {message("user", kAsked), answer_message(answer)};
  for (uint32_t i = 0; i < answer.calls; ++i) {
    Members members = {
        {"role", text("tool")}, {"tool_call_id", text(answer.id)}, {"content", text(kResult)}};
    if (with_names) members.emplace_back("name", text(i == 0 ? kFirstTool : kSecondTool));
    messages.push_back(Value::dict(std::move(members)));
  }
  return render(std::move(messages), true);
}

std::optional<std::string> ProbeTalk::render(std::vector<Value> messages, bool prompt) const {
  Members variables = {{"messages", Value::list(std::move(messages))},
                       {"bos_token", text(options_.bos_token)},
                       {"eos_token", text(options_.eos_token)},
                       {"add_generation_prompt", Value::boolean(prompt)}};
  if (with_tools) {
    variables.emplace_back("tools", Value::list({definition(kFirstTool), definition(kSecondTool)}));
  }
  if (thinking_on) {
    variables.emplace_back("enable_thinking", Value::boolean(true));
    variables.emplace_back("thinking", Value::boolean(true));
  }
  jinja::RenderOptions options;
  options.limits = options_.limits;
  std::tm now{};  // Some templates print the date.
  now.tm_year = 125;
  now.tm_mday = 1;
  options.now = now;
  auto rendered = chat_.render(Value::dict(std::move(variables)), options);
  if (auto* done = std::get_if<jinja::Text>(&rendered)) return std::move(done->bytes);
  return std::nullopt;
}

}  // namespace stemma::dialect
