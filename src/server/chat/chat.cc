#include "server/chat/chat.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "dialect/probe.h"
#include "jinja/value.h"
#include "server/chat/engine_list.h"
#include "server/chat/part_numbers.h"

namespace stemma::server {

namespace {

ApiError template_error(const jinja::Problem& problem) {
  ApiError error;
  switch (problem.kind) {
    case jinja::ProblemKind::raised:
      error.message = "the model's chat template refuses this conversation: " + problem.message;
      error.param = "messages";
      error.code = "template_refused";
      break;
    case jinja::ProblemKind::limit:
      error.message = "the chat template does not end within its limits: " + problem.to_string();
      error.param = "messages";
      error.code = "template_failed";
      break;
    default:
      error.message = "the model's chat template cannot be rendered (" + problem.to_string() +
                      "); start the server with --chat-template FILE";
      error.status = 500;
      error.type = "server_error";
      error.code = "template_failed";
  }
  return error;
}

}  // namespace

// Finds the format of the template's own tools; without one, uses a format described to the model.
void Chat::learn_format() {
  dialect::Format format;
  if (template_) {
    format =
        dialect::probe(*template_, source_,
                       {.bos_token = model_.info().bos_text, .eos_token = model_.info().eos_text});
  }
  if (!dialect::supports_tools(format)) {
    format.lists_tools = false;
    format.calls = {};
    format.calls.shape = dialect::CallShape::json;
    format.calls.parallel = true;
    format.calls.call_open = "<tool_call>";
    format.calls.call_close = "</tool_call>";
    format.calls.name_key = "name";
    format.calls.arguments_key = "arguments";
    format.history = {};
  }
  tokens_ = answer_tokens(model_, format);
  dialect::Format without = format;
  without.calls = {};
  without.call_turn_ends.clear();
  if (!without.thinking.opener.empty() || !without.channels.opener.empty() ||
      !without.content_open.empty()) {
    tokens_without_calls_ = answer_tokens(model_, without);
    without_calls_ = std::make_shared<const dialect::Format>(std::move(without));
  }
  format_ = std::make_shared<const dialect::Format>(std::move(format));
}

bool Chat::writes(std::initializer_list<const char*> roles) const {
  ChatRequest asked;
  for (const char* role : roles) {
    Message message;
    message.role = role;
    message.parts.push_back({.text = "a", .cache_control = {}});
    asked.messages.push_back(std::move(message));
  }
  jinja::Text text;
  std::vector<std::string> ignored;
  if (render_text(asked, text, ignored)) return false;
  size_t next = 0;
  for (const jinja::Mark& mark : text.marks) {
    if (static_cast<uint32_t>(mark.origin) != next) return false;
    ++next;
  }
  return next == asked.messages.size();
}

void Chat::learn_roles() {
  // Without knowledge, roles stay as they are.
  roles_ = {};
  if (!template_ || !writes({"user"})) return;
  const bool developer = writes({"developer", "user"});
  const bool system = writes({"system", "user"});
  const bool anywhere = writes({"user", "assistant", "system", "user"});
  const bool runs = writes({"user", "user"});
  roles_ = {
      .system = system, .system_anywhere = anywhere, .user_runs = runs, .developer = developer};
}

// Renders small conversations that differ in the role of the message that follows. If the template
// refuses one, that role cannot follow.
void Chat::learn_message_ends() {
  const std::string roles[] = {"system", "developer", "user", "assistant"};
  // Use the roles as they are: a replacement for a refused role would tell nothing about the
  // accepted ones.
  const RoleRules learned = std::exchange(roles_, RoleRules());
  const auto say = [](const std::string& role) {
    Message message;
    message.role = role;
    message.parts.push_back({.text = "a", .cache_control = {}});
    return message;
  };
  for (const std::string& role : roles) {
    ChatRequest asked;
    if (role == "assistant") asked.messages.push_back(say("user"));
    const auto which = static_cast<uint32_t>(asked.messages.size());
    asked.messages.push_back(say(role));
    const auto learn = [&] {
      jinja::Text text;
      std::vector<std::string> ignored;
      if (render_text(asked, text, ignored)) return;
      for (size_t m = 0; m < text.marks.size(); ++m) {
        if (static_cast<uint32_t>(text.marks[m].origin) != which) continue;
        const size_t end = text.marks[m].end;
        const size_t next = m + 1 < text.marks.size() ? text.marks[m + 1].begin : text.bytes.size();
        message_ends_.learn(role, text.view().substr(end, next - end));
      }
    };
    learn();  // Learns the end before an answer.
    asked.add_generation_prompt = false;
    for (const std::string& next : roles) {
      asked.messages.push_back(say(next));
      learn();
      asked.messages.pop_back();
    }
  }
  roles_ = learned;
}

std::unique_ptr<Chat> Chat::create(const engine::LanguageModel& model,
                                   const std::string& chat_template, std::string& why,
                                   const Options& options) {
  std::unique_ptr<Chat> made = open(model, chat_template, why, options);
  if (made == nullptr) return nullptr;
  made->limits_ = dialect::ProbeOptions().limits;
  made->learn_format();
  made->learn_roles();
  made->learn_message_ends();
  made->learn_splicer();
  made->limits_ = {};
  return made;
}

std::unique_ptr<Chat> Chat::open(const engine::LanguageModel& model,
                                 const std::string& chat_template, std::string& why,
                                 const Options& options) {
  std::unique_ptr<Chat> made(new Chat(model, options));
  const bool given = !chat_template.empty();
  made->source_ = given ? chat_template : model.info().chat_template;
  if (made->source_.empty()) {
    made->refusal_ = "the model has no chat template; start the server with --chat-template FILE";
    return made;
  }
  auto parsed = jinja::Template::parse(made->source_);
  if (auto* good = std::get_if<jinja::Template>(&parsed)) {
    made->template_ = std::move(*good);
    if (made->template_->unsupported().empty()) return made;
    made->refusal_ = made->template_->unsupported().front().to_string();
  } else {
    made->refusal_ = std::get<jinja::Problem>(parsed).to_string();
  }
  // The engine may recognise the template.
  const engine::ChatMessage probe[] = {{"user", "?"}};
  made->engine_list_ = model.apply_own_template(made->source_, probe, true).has_value();
  if (made->engine_list_ || made->template_) return made;
  if (given) {
    why = "--chat-template: " + made->refusal_;
    return nullptr;
  }
  made->refusal_ = "the model's chat template is not supported (" + made->refusal_ +
                   "); start the server with --chat-template FILE";
  return made;
}

std::variant<jinja::Text, jinja::Problem> Chat::render_template(
    const ChatRequest& request, const Thinking& thinking, std::vector<std::string>& ignored) const {
  const PartNumbers numbers(request.messages);
  const TemplateTalk talk(*template_, *format_, roles_);
  Variables variables;
  talk.add_thinking(thinking, options_.keep_thinking, variables, ignored);
  if (const Json::Object* extra = request.template_kwargs.object()) {
    for (const Json::Member& each : *extra)
      variables.emplace_back(each.name, template_value(each.value, kNoMessage));
  }
  variables.emplace_back("messages", jinja::Value::list(talk.messages(request, numbers)));
  std::vector<jinja::Value> tools = talk.tools(request);
  if (!tools.empty()) variables.emplace_back("tools", jinja::Value::list(std::move(tools)));
  variables.emplace_back(
      "add_generation_prompt",
      jinja::Value::boolean(request.add_generation_prompt && !request.continue_final_message));
  variables.emplace_back("bos_token", jinja::Value::string(model_.info().bos_text));
  variables.emplace_back("eos_token", jinja::Value::string(model_.info().eos_text));
  jinja::RenderOptions options;
  options.limits = limits_;
  options.now = dates_.date(request.options.salt, request.options.session, options_.now());
  return template_->render(jinja::Value::dict(std::move(variables)), options);
}

std::optional<ApiError> Chat::render_text(const ChatRequest& request, jinja::Text& text,
                                          std::vector<std::string>& ignored) const {
  if (!template_ && !engine_list_) {
    ApiError error;
    error.message = refusal_;
    error.code = "no_chat_template";
    return error;
  }
  if (!template_) return render_by_engine(request, {}, text);
  std::vector<std::string> unused;
  auto rendered = render_template(request, request.thinking, unused);
  const auto raised = [&] {
    const auto* const problem = std::get_if<jinja::Problem>(&rendered);
    return problem != nullptr && problem->kind == jinja::ProblemKind::raised;
  };
  if (raised() && !request.thinking.effort.empty()) {
    // The template may refuse this effort, which is a hint: try without it.
    std::vector<std::string> without = {request.thinking.effort_name};
    Thinking thinking = request.thinking;
    if (!thinking.wanted && thinking.effort == "none") {
      thinking.wanted = false;
      thinking.wanted_name.clear();
    }
    thinking.effort.clear();
    auto again = render_template(request, thinking, without);
    if (std::holds_alternative<jinja::Text>(again)) {
      rendered = std::move(again);
      unused = std::move(without);
    }
  }
  if (auto* good = std::get_if<jinja::Text>(&rendered)) {
    text = std::move(*good);
    ignored.insert(ignored.end(), unused.begin(), unused.end());
    return {};
  }
  const jinja::Problem& problem = std::get<jinja::Problem>(rendered);
  ApiError failure = template_error(problem);
  if (problem.kind != jinja::ProblemKind::unsupported) return failure;
  return render_by_engine(request, failure, text);
}

std::optional<ApiError> Chat::render_by_engine(const ChatRequest& request,
                                               const std::optional<ApiError>& failure,
                                               jinja::Text& text) const {
  ApiError error;
  const bool calls = std::ranges::any_of(request.messages, [](const Message& message) {
    return !message.calls.empty() || message.role == "tool";
  });
  if (calls || !request.tools.empty()) {
    error.message = "tools need a chat template that can be rendered here; this model's cannot (" +
                    (failure ? failure->message : refusal_) +
                    "). Start the server with --chat-template FILE";
    error.param = "tools";
    error.code = "unsupported_parameter";
    return error;
  }
  switch (render_by_engine_list(model_, source_, request, text)) {
    case EngineRendering::done: return {};
    case EngineRendering::no_template:
      if (failure) return failure;
      error.message = refusal_;
      error.code = "no_chat_template";
      return error;
    case EngineRendering::no_marks: break;
  }
  error.message = "what messages say cannot be told from the chat template's own text";
  error.param = "messages";
  error.code = "template_failed";
  return error;
}

// Cuts off the text that would end the last message.
std::optional<ApiError> Chat::cut_final_message(const ChatRequest& request, jinja::Text& text) {
  const PartNumbers numbers(request.messages);
  while (!text.marks.empty()) {
    const auto place = numbers.place(text.marks.back().origin);
    if (place && place->message + 1 == request.messages.size()) break;
    text.marks.pop_back();
  }
  if (text.marks.empty()) {
    ApiError error;
    error.message = "the chat template leaves the last message out";
    error.param = "continue_final_message";
    return error;
  }
  text.bytes.resize(text.marks.back().end);
  return {};
}

void Chat::plan_answer(const ChatRequest& request, std::string_view text,
                       ChatPrompt& prompt) const {
  AnswerReading& reading = prompt.reading;
  const bool calls = !request.tools.empty() && request.tool_choice.kind != ToolChoice::Kind::none;
  reading.format = calls ? format_ : without_calls_;
  prompt.answer = calls ? tokens_ : tokens_without_calls_;
  // Rules need these tokens.
  if (request.form.kind != AnswerForm::Kind::free) prompt.answer.printed = tokens_.printed;
  if (reading.format == nullptr) return;
  reading.start = dialect::answer_start(*reading.format, text);
  if (!request.thinking.apart) {
    // Here thinking is ordinary text, including its markers.
    auto format = std::make_shared<dialect::Format>(*reading.format);
    format->thinking = {};
    format->channels.thinking_headers.clear();
    reading.format = std::move(format);
    if (reading.start == dialect::AnswerStart::thinking) reading.start = dialect::AnswerStart::text;
  }
  if (!calls) return;
  const std::vector<std::string>& only = request.tool_choice.names;
  for (const ToolSpec& tool : request.tools) {
    if (!only.empty() && std::ranges::find(only, tool.name) == only.end()) continue;
    reading.tools.push_back({tool.name, template_value(argument_schema(tool), jinja::kNoOrigin)});
    if (tool.custom) reading.custom_tools.push_back(tool.name);
  }
}

// Templates, and the search for the calls of results, look at calls several times.
std::optional<ApiError> Chat::check_calls(const std::vector<Message>& messages) {
  size_t calls = 0;
  for (const Message& message : messages) calls += message.calls.size();
  if (calls <= kMostCalls) return {};
  return ApiError{.message = "expected at most " + std::to_string(kMostCalls) +
                             " calls of tools in all messages, but got " + std::to_string(calls),
                  .param = "messages",
                  .code = "too_many_calls"};
}

std::optional<ApiError> Chat::render(const ChatRequest& request, bool tokens, ChatPrompt& prompt,
                                     uint64_t most_tokens, const Recall* recall) const {
  if (request.continue_final_message && request.messages.back().text().empty()) {
    // Continuing an empty message means beginning one.
    ChatRequest begun = request;
    begun.messages.pop_back();
    if (begun.messages.empty()) {
      return ApiError{.message =
                          "the only message is an empty answer: there is nothing to "
                          "continue; put a user's message before it",
                      .param = "messages",
                      .code = "invalid_value"};
    }
    begun.continue_final_message = false;
    begun.add_generation_prompt = true;
    return render(begun, tokens, prompt, most_tokens, recall);
  }
  if (auto error = check_calls(request.messages)) return error;
  jinja::Text text;
  if (auto error = render_text(request, text, prompt.ignored)) return error;
  if (request.continue_final_message) {
    if (auto error = cut_final_message(request, text)) return error;
  }
  plan_answer(request, text.view(), prompt);
  if (tokens) {
    if (auto error = fill_tokens(request, text, most_tokens, recall, prompt)) return error;
  }
  prompt.text = std::move(text.bytes);
  return {};
}

}  // namespace stemma::server
