#include "server/chat/answer_tokens.h"

#include <algorithm>
#include <string_view>

#include "dialect/values/json_text.h"

namespace stemma::server {

AnswerTokens answer_tokens(const engine::LanguageModel& model, const dialect::Format& format) {
  const std::vector<std::string> markers = dialect::markers(format);
  std::vector<Token> printed;
  AnswerTokens out;
  std::string text;
  for (Token token = 0; token < model.info().vocabulary; ++token) {
    if (!model.is_special(token) || model.ends_generation(token)) continue;
    text.clear();
    model.append_text(token, true, text);
    const std::string_view own = dialect::trimmed(text);
    if (own.empty()) continue;
    const auto in_marker = [&](const std::string& marker) {
      return marker.find(own) != std::string::npos;
    };
    // Headers of channels use more special tokens than the format names.
    if (!format.channels.opener.empty() || std::ranges::any_of(markers, in_marker)) {
      printed.push_back(token);
    }
    if (std::ranges::any_of(format.call_turn_ends,
                            [&](const std::string& end) { return dialect::trimmed(end) == own; })) {
      out.end_tokens.push_back(token);
    }
  }
  for (const std::string& end : format.call_turn_ends) {
    const std::string_view own = dialect::trimmed(end);
    if (own.empty()) continue;
    const Result<std::vector<Token>> tokens = model.tokenize_rest(own, true);
    // A single token that ends answers anyway, or is in the list, needs no text.
    if (tokens && tokens->size() == 1 &&
        (model.ends_generation(tokens->front()) || model.is_special(tokens->front()))) {
      continue;
    }
    out.end_texts.emplace_back(own);
  }
  if (!printed.empty()) {
    out.printed = std::make_shared<const std::vector<Token>>(std::move(printed));
  }
  return out;
}

}  // namespace stemma::server
