// Chat: from messages to the tokens of a prompt.
//
//   messages --template--> text, with marks on what users wrote --tokenizer--> tokens, message ends
//
// The template is the model's own or the operator's, rendered by our interpreter (jinja/); what that does
// not support is tried with the engine's list of templates, and if that has none either, the error names
// the construct.
//
// What a message says is text: where it spells a special token, alone or together with what the template
// writes beside it, that stays text (special_texts.h). Everywhere else the text is tokenised as a whole, as
// the model was trained on it. A BOS that the template writes is not put in front once more.
//
// Message ends are depths at which the next prompt may part from this one: before the header of each message
// (message_ends.h). So all conversations that share a system prompt share it whole, whoever speaks next.
//
// Threading:  immutable; thread-safe.
// Cost:       rendering and tokenising, linear in the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "jinja/template.h"
#include "server/api/error.h"
#include "server/api/request.h"
#include "server/chat/message_ends.h"
#include "server/chat/special_texts.h"
#include "stemma/retention.h"

namespace stemma::server {

struct ChatPrompt {
  std::string text;
  std::vector<Token> tokens;
  std::vector<uint32_t> message_ends;
  std::vector<PriorityRange> pinned;  // cache_control: up to the end of what bears it.
};

class Chat {
 public:
  // `chat_template` empty: the model's. null: `why`, for the person who starts the server. A model without a
  // template can be served; only conversations are refused then.
  static std::unique_ptr<Chat> create(const engine::LanguageModel& model,
                                      const std::string& chat_template, std::string& why);

  // The prompt of a conversation. With `tokens` false only its text. A text that must have more than
  // `most_tokens` is refused before it is tokenised.
  std::optional<ApiError> render(const ChatRequest& request, bool tokens, ChatPrompt& prompt,
                                 uint64_t most_tokens = UINT64_MAX) const;
  // The prompt of a plain completion; likewise.
  std::optional<ApiError> plain(const CompletionRequest& request, ChatPrompt& prompt,
                                uint64_t most_tokens = UINT64_MAX) const;

  const std::string& source() const noexcept { return source_; }

 private:
  explicit Chat(const engine::LanguageModel& model);
  // create(), but for what is learned by rendering.
  static std::unique_ptr<Chat> open(const engine::LanguageModel& model,
                                    const std::string& chat_template, std::string& why);
  void learn_message_ends();
  std::optional<ApiError> check_length(std::string_view text, uint64_t most_tokens) const;
  std::optional<ApiError> render_text(const ChatRequest& request, jinja::Text& text) const;
  std::optional<ApiError> render_by_engine(const ChatRequest& request,
                                           const std::optional<ApiError>& failure,
                                           jinja::Text& text) const;
  std::optional<ApiError> tokenise(const jinja::Text& text, ChatPrompt& prompt,
                                   std::vector<size_t>& token_ends) const;

  const engine::LanguageModel& model_;
  SpecialTexts specials_;
  uint64_t longest_token_ = 1;  // In bytes that are no blanks.
  std::string source_;
  std::optional<jinja::Template> template_;
  MessageEnds message_ends_;
  std::string refusal_;  // Why there is no template of ours.
  bool engine_list_ = false;
};

// The priority of what cache_control marks.
inline constexpr Priority kPinnedPriority = 90;

}  // namespace stemma::server
