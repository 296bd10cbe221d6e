#include "server/chat/engine_list.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "server/chat/part_numbers.h"

namespace stemma::server {
namespace {

constexpr char kSignBegin = '\x01';
constexpr char kSignEnd = '\x02';

// Marks the messages' contents in `text`, which is `frame` with these contents, whole or trimmed,
// in place of the signs. Returns false if `text` is different.
bool mark_messages(std::string_view frame, const std::vector<Message>& messages,
                   jinja::Text& text) {
  const PartNumbers numbers(messages);
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
    size_t begin = 0;  // Begin of the part, in the whole content.
    for (size_t p = 0; p < messages[which].parts.size(); ++p) {
      const size_t from = std::clamp(begin, cut, cut + said.size()) - cut;
      begin += messages[which].parts[p].text.size();
      const size_t to = std::clamp(begin, cut, cut + said.size()) - cut;
      if (from != to) text.marks.push_back({at + from, at + to, numbers.of(which, p)});
    }
    at += said.size() + next.size();
    frame.remove_prefix(next.size());
  }
  return at == text.bytes.size();
}

}  // namespace

EngineRendering render_by_engine_list(const engine::LanguageModel& model,
                                      const std::string& chat_template, const ChatRequest& request,
                                      jinja::Text& text) {
  const bool answer = request.add_generation_prompt && !request.continue_final_message;
  std::vector<engine::ChatMessage> messages;
  std::vector<engine::ChatMessage> signs;
  for (const Message& message : request.messages) {
    messages.push_back({message.role, message.text()});
    signs.push_back({message.role, kSignBegin + std::to_string(signs.size()) + kSignEnd});
  }
  Result<std::string> rendered = model.apply_own_template(chat_template, messages, answer);
  const Result<std::string> frame = model.apply_own_template(chat_template, signs, answer);
  if (!rendered || !frame) return EngineRendering::no_template;
  text.bytes = *std::move(rendered);
  return mark_messages(*frame, request.messages, text) ? EngineRendering::done
                                                       : EngineRendering::no_marks;
}

}  // namespace stemma::server
