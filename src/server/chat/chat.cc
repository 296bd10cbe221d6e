#include "server/chat/chat.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include "jinja/value.h"

namespace stemma::server {

namespace {

// What a client wrote that is nobody's message: names, arguments of the template.
constexpr jinja::Origin kNoMessage{0xFFFF'FFFEU};

jinja::Value value_of(const Json& json) {
  struct Visitor {
    jinja::Value operator()(std::monostate) const { return jinja::Value::none(); }
    jinja::Value operator()(bool value) const { return jinja::Value::boolean(value); }
    jinja::Value operator()(int64_t value) const { return jinja::Value::integer(value); }
    jinja::Value operator()(uint64_t value) const {
      return jinja::Value::real(static_cast<double>(value));
    }
    jinja::Value operator()(double value) const { return jinja::Value::real(value); }
    jinja::Value operator()(const std::string& value) const {
      return jinja::Value::string(value, kNoMessage);
    }
    jinja::Value operator()(const Json::Array& values) const {
      std::vector<jinja::Value> items;
      for (const Json& each : values) items.push_back(value_of(each));
      return jinja::Value::list(std::move(items));
    }
    jinja::Value operator()(const Json::Object& members) const {
      std::vector<std::pair<std::string, jinja::Value>> entries;
      for (const Json::Member& each : members)
        entries.emplace_back(each.name, value_of(each.value));
      return jinja::Value::dict(std::move(entries));
    }
  };
  return std::visit(Visitor{}, json.value);
}

// Parts of all messages are numbered through: the mark of a part's text is its number.
struct PartNumber {
  uint32_t message;
  uint32_t part;
};

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

constexpr char kSignBegin = '\x01';
constexpr char kSignEnd = '\x02';

// Marks what messages say in `text`, which is `frame` with their contents, as they are or trimmed, in place of
// the signs. false: it is not.
bool mark_messages(std::string_view frame, const std::vector<Message>& messages,
                   jinja::Text& text) {
  const auto own_text = [](std::string_view from) { return from.substr(0, from.find(kSignBegin)); };
  size_t at = own_text(frame).size();
  if (!text.view().starts_with(own_text(frame))) return false;
  frame.remove_prefix(at);
  while (!frame.empty()) {
    const size_t close = frame.find(kSignEnd);
    size_t which = 0;
    const auto [end, error] = std::from_chars(frame.data() + 1, frame.data() + frame.size(), which);
    if (close == std::string_view::npos || error != std::errc() || end != frame.data() + close ||
        which >= messages.size()) {
      return false;
    }
    frame.remove_prefix(close + 1);
    const std::string_view next = own_text(frame);
    const std::string whole = messages[which].text();
    const size_t first = std::min(whole.find_first_not_of(" \t\r\n"), whole.size());
    const size_t last = std::max(first, whole.find_last_not_of(" \t\r\n") + 1);
    size_t cut = 0;
    std::string_view said = whole;
    const auto fits = [&] {
      return text.view().substr(at).starts_with(said) &&
             text.view().substr(at + said.size()).starts_with(next);
    };
    if (!fits()) {
      cut = first;
      said = said.substr(first, last - first);
      if (!fits()) return false;
    }
    uint32_t number = 0;
    for (size_t m = 0; m < which; ++m) number += static_cast<uint32_t>(messages[m].parts.size());
    size_t begin = 0;  // Of the part, in all that was said.
    for (const ContentPart& part : messages[which].parts) {
      const size_t from = std::clamp(begin, cut, cut + said.size()) - cut;
      begin += part.text.size();
      const size_t to = std::clamp(begin, cut, cut + said.size()) - cut;
      if (from != to) text.marks.push_back({at + from, at + to, jinja::Origin{number}});
      ++number;
    }
    at += said.size() + next.size();
    frame.remove_prefix(next.size());
  }
  return at == text.bytes.size();
}

// Bytes that no tokenizer leaves out. Some swallow blanks beside a special token.
uint64_t solid_bytes(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count_if(
      text, [](char c) { return c != ' ' && c != '\t' && c != '\r' && c != '\n'; }));
}

ApiError no_tokens(const Error& why) {
  ApiError error;
  error.message = std::string("the prompt cannot be tokenised: ") + why.message();
  error.param = "prompt";
  return error;
}

}  // namespace

Chat::Chat(const engine::LanguageModel& model) : model_(model), specials_(model) {
  std::string text;
  for (Token token = 0; token < model.info().vocabulary; ++token) {
    text.clear();
    model.append_text(token, true, text);
    longest_token_ = std::max(longest_token_, solid_bytes(text));
  }
}

std::optional<ApiError> Chat::check_length(std::string_view text, uint64_t most_tokens) const {
  // Most texts are so short that they need not be looked at.
  if (text.size() / longest_token_ < most_tokens) return {};
  const uint64_t least = (solid_bytes(text) + longest_token_ - 1) / longest_token_;
  if (least <= most_tokens) return {};
  return context_surely_exceeded(least, most_tokens);
}

// Renders small conversations that differ in the role of what follows a message. Templates refuse some of them:
// then that role cannot follow.
void Chat::learn_message_ends() {
  const std::string roles[] = {"system", "developer", "user", "assistant"};
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
      if (render_text(asked, text)) return;
      for (size_t m = 0; m < text.marks.size(); ++m) {
        if (static_cast<uint32_t>(text.marks[m].origin) != which) continue;
        const size_t end = text.marks[m].end;
        const size_t next = m + 1 < text.marks.size() ? text.marks[m + 1].begin : text.bytes.size();
        message_ends_.learn(role, text.view().substr(end, next - end));
      }
    };
    learn();  // The answer follows.
    asked.add_generation_prompt = false;
    for (const std::string& next : roles) {
      asked.messages.push_back(say(next));
      learn();
      asked.messages.pop_back();
    }
  }
}

std::unique_ptr<Chat> Chat::create(const engine::LanguageModel& model,
                                   const std::string& chat_template, std::string& why) {
  std::unique_ptr<Chat> made = open(model, chat_template, why);
  if (made != nullptr) made->learn_message_ends();
  return made;
}

std::unique_ptr<Chat> Chat::open(const engine::LanguageModel& model,
                                 const std::string& chat_template, std::string& why) {
  std::unique_ptr<Chat> made(new Chat(model));
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
  // The engine may know the template by sight.
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

std::optional<ApiError> Chat::render_text(const ChatRequest& request, jinja::Text& text) const {
  if (!template_ && !engine_list_) {
    ApiError error;
    error.message = refusal_;
    error.code = "no_chat_template";
    return error;
  }
  std::optional<ApiError> failure;
  if (template_) {
    std::vector<jinja::Value> messages;
    uint32_t number = 0;
    for (const Message& message : request.messages) {
      std::vector<std::pair<std::string, jinja::Value>> fields;
      fields.emplace_back("role", jinja::Value::string(message.role));
      if (message.plain || message.parts.size() == 1 || !template_->mentions("type")) {
        // A template that does not look into lists gets one text; its parts keep their marks.
        jinja::Text joined;
        for (const ContentPart& part : message.parts) {
          const size_t begin = joined.bytes.size();
          joined.bytes += part.text;
          if (!part.text.empty()) {
            joined.marks.push_back({begin, joined.bytes.size(), jinja::Origin{number}});
          }
          ++number;
        }
        fields.emplace_back("content", jinja::Value::of(std::move(joined)));
      } else {
        std::vector<jinja::Value> parts;
        for (const ContentPart& part : message.parts) {
          parts.push_back(jinja::Value::dict(
              {{"type", jinja::Value::string("text")},
               {"text", jinja::Value::string(part.text, jinja::Origin{number++})}}));
        }
        fields.emplace_back("content", jinja::Value::list(std::move(parts)));
      }
      if (!message.name.empty()) {
        fields.emplace_back("name", jinja::Value::string(message.name, kNoMessage));
      }
      messages.push_back(jinja::Value::dict(std::move(fields)));
    }
    std::vector<std::pair<std::string, jinja::Value>> variables;
    if (const Json::Object* extra = request.template_kwargs.object()) {
      for (const Json::Member& each : *extra)
        variables.emplace_back(each.name, value_of(each.value));
    }
    variables.emplace_back("messages", jinja::Value::list(std::move(messages)));
    variables.emplace_back(
        "add_generation_prompt",
        jinja::Value::boolean(request.add_generation_prompt && !request.continue_final_message));
    variables.emplace_back("bos_token", jinja::Value::string(model_.info().bos_text));
    variables.emplace_back("eos_token", jinja::Value::string(model_.info().eos_text));
    jinja::RenderOptions options;
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    if (localtime_r(&now, &local) != nullptr) options.now = local;
    auto rendered = template_->render(jinja::Value::dict(std::move(variables)), options);
    if (auto* good = std::get_if<jinja::Text>(&rendered)) {
      text = std::move(*good);
      return {};
    }
    const jinja::Problem& problem = std::get<jinja::Problem>(rendered);
    failure = template_error(problem);
    if (problem.kind != jinja::ProblemKind::unsupported) return failure;
  }
  return render_by_engine(request, failure, text);
}

std::optional<ApiError> Chat::render_by_engine(const ChatRequest& request,
                                               const std::optional<ApiError>& failure,
                                               jinja::Text& text) const {
  const bool answer = request.add_generation_prompt && !request.continue_final_message;
  std::vector<engine::ChatMessage> messages;
  // The engine's list knows no marks. What is the template's own comes from another rendering, with a sign in
  // place of what each message says.
  std::vector<engine::ChatMessage> signs;
  for (const Message& message : request.messages) {
    messages.push_back({message.role, message.text()});
    signs.push_back({message.role, kSignBegin + std::to_string(signs.size()) + kSignEnd});
  }
  Result<std::string> rendered = model_.apply_own_template(source_, messages, answer);
  const Result<std::string> frame = model_.apply_own_template(source_, signs, answer);
  if (!rendered || !frame) {
    if (failure) return failure;
    ApiError error;
    error.message = refusal_;
    error.code = "no_chat_template";
    return error;
  }
  text.bytes = *std::move(rendered);
  if (!mark_messages(*frame, request.messages, text)) {
    ApiError error;
    error.message = "what messages say cannot be told from the chat template's own text";
    error.param = "messages";
    error.code = "template_failed";
    return error;
  }
  return {};
}

std::optional<ApiError> Chat::tokenise(const jinja::Text& text, ChatPrompt& prompt,
                                       std::vector<size_t>& token_ends) const {
  const engine::ModelInfo& info = model_.info();
  const bool has_bos = !info.bos_text.empty() && text.view().starts_with(info.bos_text) &&
                       (text.marks.empty() || text.marks.front().begin >= info.bos_text.size());
  // What somebody wrote and spells a special token is tokenised by itself, as text. Parts that touch are
  // looked at together: one may begin what the next one ends.
  std::vector<SpecialTexts::Stretch> spelled;
  for (size_t m = 0; m < text.marks.size();) {
    jinja::Mark mark = text.marks[m];
    for (++m; m < text.marks.size() && text.marks[m].begin <= mark.end; ++m)
      mark.end = text.marks[m].end;
    for (const SpecialTexts::Stretch& each : specials_.within(text.view(), mark.begin, mark.end))
      spelled.push_back(each);
  }
  spelled.push_back({text.bytes.size(), text.bytes.size()});
  std::string piece;
  const auto add = [&](size_t begin, size_t end, bool parse_special) -> std::optional<ApiError> {
    const bool first = prompt.tokens.empty();
    if (begin == end && (!first || end != text.bytes.size())) return {};
    const std::string_view run = text.view().substr(begin, end - begin);
    const Result<std::vector<Token>> tokens = first ? model_.tokenize(run, !has_bos, parse_special)
                                                    : model_.tokenize_rest(run, parse_special);
    if (!tokens) return no_tokens(tokens.error());
    size_t at = begin;
    for (size_t i = 0; i < tokens->size(); ++i) {
      const Token token = (*tokens)[i];
      piece.clear();
      model_.append_text(token, true, piece);
      // What the tokenizer put in front is not in the text: a BOS, a space.
      const bool added = first && i == 0 && !has_bos && info.adds_bos && piece == info.bos_text;
      const std::string_view rest = run.substr(at - begin);
      const bool spaced = piece.starts_with(' ') && !rest.starts_with(piece) &&
                          rest.starts_with(std::string_view(piece).substr(1));
      if (!added) at = std::min(end, at + piece.size() - (spaced ? 1 : 0));
      prompt.tokens.push_back(token);
      token_ends.push_back(at);
    }
    return {};
  };
  size_t begin = 0;
  for (const SpecialTexts::Stretch& each : spelled) {
    if (auto error = add(begin, each.begin, true)) return error;
    begin = each.begin;
    for (const size_t cut : specials_.cuts(text.view(), each.begin, each.end)) {
      if (auto error = add(begin, cut, false)) return error;
      begin = cut;
    }
    if (auto error = add(begin, each.end, false)) return error;
    begin = each.end;
  }
  return {};
}

std::optional<ApiError> Chat::render(const ChatRequest& request, bool tokens, ChatPrompt& prompt,
                                     uint64_t most_tokens) const {
  if (request.continue_final_message && request.messages.back().text().empty()) {
    // To continue nothing is to begin.
    ChatRequest begun = request;
    begun.messages.pop_back();
    begun.continue_final_message = false;
    begun.add_generation_prompt = true;
    return render(begun, tokens, prompt, most_tokens);
  }
  jinja::Text text;
  if (auto error = render_text(request, text)) return error;
  if (request.continue_final_message) {
    // Nothing of what would end the last message.
    uint32_t before = 0;  // Parts of the others.
    for (const Message& message : request.messages)
      before += static_cast<uint32_t>(message.parts.size());
    const uint32_t end = before;
    before -= static_cast<uint32_t>(request.messages.back().parts.size());
    while (!text.marks.empty() && (static_cast<uint32_t>(text.marks.back().origin) < before ||
                                   static_cast<uint32_t>(text.marks.back().origin) >= end)) {
      text.marks.pop_back();
    }
    if (text.marks.empty()) {
      ApiError error;
      error.message = "the chat template leaves the last message out";
      error.param = "continue_final_message";
      return error;
    }
    text.bytes.resize(text.marks.back().end);
  }
  if (tokens) {
    if (auto error = check_length(text.view(), most_tokens)) return error;
    std::vector<size_t> ends;
    if (auto error = tokenise(text, prompt, ends)) return error;
    // The number of tokens that lie wholly before a byte.
    const auto depth_at = [&](size_t byte) {
      return static_cast<uint32_t>(std::ranges::upper_bound(ends, byte) - ends.begin());
    };
    std::vector<PartNumber> numbers;
    for (uint32_t m = 0; m < request.messages.size(); ++m) {
      for (uint32_t p = 0; p < request.messages[m].parts.size(); ++p) numbers.push_back({m, p});
    }
    uint32_t pinned_to = 0;
    uint64_t pinned_ns = 0;
    for (const jinja::Mark& mark : text.marks) {
      const auto origin = static_cast<uint32_t>(mark.origin);
      if (origin >= numbers.size()) continue;
      const Message& message = request.messages[numbers[origin].message];
      const std::optional<CacheControl>& of_part =
          message.parts[numbers[origin].part].cache_control;
      const std::optional<CacheControl>& control = of_part ? of_part : message.cache_control;
      if (control) {
        pinned_to = std::max(pinned_to, depth_at(mark.end));
        pinned_ns = std::max(pinned_ns, control->ttl_ns);
      }
    }
    for (const size_t byte : message_ends_.find(text, request.messages)) {
      const uint32_t depth = depth_at(byte);
      if (depth == 0 || depth >= prompt.tokens.size()) continue;
      if (prompt.message_ends.empty() || prompt.message_ends.back() != depth) {
        prompt.message_ends.push_back(depth);
      }
    }
    if (pinned_to != 0) {
      prompt.pinned.push_back(
          {.begin = 0, .end = pinned_to, .priority = kPinnedPriority, .ttl_ns = pinned_ns});
    }
  }
  prompt.text = std::move(text.bytes);
  return {};
}

std::optional<ApiError> Chat::plain(const CompletionRequest& request, ChatPrompt& prompt,
                                    uint64_t most_tokens) const {
  if (!request.tokens.empty()) {
    prompt.tokens = request.tokens;
    return {};
  }
  if (auto error = check_length(request.prompt, most_tokens)) return error;
  prompt.text = request.prompt;
  const std::string& bos = model_.info().bos_text;
  const bool has_bos = !bos.empty() && prompt.text.starts_with(bos);
  // A completion's prompt is the operator's own format: special tokens are meant.
  Result<std::vector<Token>> tokens = model_.tokenize(prompt.text, !has_bos, true);
  if (!tokens) return no_tokens(tokens.error());
  prompt.tokens = *std::move(tokens);
  return {};
}

}  // namespace stemma::server
