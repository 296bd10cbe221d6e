// Chat: from messages to the tokens of a prompt.
//
//   messages --template--> text, with marks on what users wrote --tokenizer--> tokens, message ends
//
// The template is the model's own or the operator's, rendered by our interpreter (jinja/). If it
// uses an unsupported construct, the engine's list of templates is tried. If that has no match
// either, the error names the construct.
//
// A message's words are always text. If they spell a special token, alone or together with the
// template's text beside them, they stay text (special_texts.h). Everywhere else the text is
// tokenised as a whole, as the model was trained on it. If the template writes a BOS, no second one
// is added.
//
// Message ends are depths at which the next prompt may differ from this one: before the header of
// each message (message_ends.h). So all conversations that share a system prompt share all of it,
// whichever role follows.
//
// Tools, calls and thinking go through template_talk.h. When a model is loaded, dialect/probe.h
// finds out how it writes them; answers are parsed accordingly.
//
// Threading:  thread-safe.
// Cost:       rendering and tokenising, linear in the text.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/language_model.h"
#include "jinja/template.h"
#include "server/api/answer_reader.h"
#include "server/api/error.h"
#include "server/api/request.h"
#include "server/chat/answer_tokens.h"
#include "server/chat/message_ends.h"
#include "server/chat/session_dates.h"
#include "server/chat/special_texts.h"
#include "server/chat/splice.h"
#include "server/chat/template_talk.h"
#include "server/schedule/generation.h"
#include "stemma/retention.h"

namespace stemma::server {

// The known transcripts of a conversation's answers, by message. put_back() has completed the
// messages with them.
struct Recall {
  Transcripts& transcripts;
  std::vector<Transcripts::Found> found;
};

struct ChatPrompt {
  std::string text;
  std::vector<Token> tokens;
  std::vector<uint32_t> message_ends;
  std::vector<PriorityRange> pinned;  // cache_control: up to the end of the part that has it.
  std::vector<PromptPart> parts;      // In the order of the prompt.

  // How to parse the answer, and which special tokens that needs.
  AnswerReading reading;
  AnswerTokens answer;
  std::vector<std::string> ignored;  // Settings of the request that the template does not know.
};

class Chat {
 public:
  static constexpr size_t kMostCalls = 16'384;  // Calls of tools in all messages of a request.
  struct Options {
    // Thinking of older answers stays in the prompt, if the template can keep it.
    bool keep_thinking = false;
    // The time that templates print as a date; for tests.
    std::function<std::time_t()> now = [] { return std::time(nullptr); };
  };
  // Uses the model's template if `chat_template` is empty. Returns null after writing the reason,
  // for the operator, to `why`. A model without a template can be served, but refuses
  // conversations.
  static std::unique_ptr<Chat> create(const engine::LanguageModel& model,
                                      const std::string& chat_template, std::string& why,
                                      const Options& options);
  static std::unique_ptr<Chat> create(const engine::LanguageModel& model,
                                      const std::string& chat_template, std::string& why) {
    return create(model, chat_template, why, Options());
  }

  // Makes the prompt of a conversation; only its text if `tokens` is false. A text that must have
  // more than `most_tokens` is refused before it is tokenised. With a recall, known answers get the
  // tokens they were sampled as.
  std::optional<ApiError> render(const ChatRequest& request, bool tokens, ChatPrompt& prompt,
                                 uint64_t most_tokens = UINT64_MAX,
                                 const Recall* recall = nullptr) const;
  // Makes the prompt of a plain completion, with the same limit.
  std::optional<ApiError> plain(const CompletionRequest& request, ChatPrompt& prompt,
                                uint64_t most_tokens = UINT64_MAX) const;

  const std::string& source() const noexcept { return source_; }
  // How the model writes calls: as its template does, or, if the template knows no tools, as our
  // description of the tools says.
  const dialect::Format& format() const noexcept { return *format_; }
  // The special tokens whose text is part of answers that follow rules; null: none.
  const std::shared_ptr<const std::vector<Token>>& printed_tokens() const noexcept {
    return tokens_.printed;
  }

 private:
  Chat(const engine::LanguageModel& model, const Options& options);
  // create() without the part that is learned by rendering.
  static std::unique_ptr<Chat> open(const engine::LanguageModel& model,
                                    const std::string& chat_template, std::string& why,
                                    const Options& options);
  void learn_format();
  void learn_roles();
  void learn_message_ends();
  void learn_splicer();
  // Whether the template writes a small conversation of these roles, all messages in order.
  bool writes(std::initializer_list<const char*> roles) const;
  std::optional<ApiError> check_length(std::string_view text, uint64_t most_tokens) const;
  std::optional<ApiError> render_text(const ChatRequest& request, jinja::Text& text,
                                      std::vector<std::string>& ignored) const;
  // Renders our interpreter's template. Settings that change nothing go to `ignored`.
  std::variant<jinja::Text, jinja::Problem> render_template(
      const ChatRequest& request, const Thinking& thinking,
      std::vector<std::string>& ignored) const;
  std::optional<ApiError> render_by_engine(const ChatRequest& request,
                                           const std::optional<ApiError>& failure,
                                           jinja::Text& text) const;
  static std::optional<ApiError> check_calls(const std::vector<Message>& messages);
  static std::optional<ApiError> cut_final_message(const ChatRequest& request, jinja::Text& text);
  void plan_answer(const ChatRequest& request, std::string_view text, ChatPrompt& prompt) const;
  // In chat_tokens.cc: adds tokens, message ends, parts and pins of a rendered text.
  std::optional<ApiError> fill_tokens(const ChatRequest& request, const jinja::Text& text,
                                      uint64_t most_tokens, const Recall* recall,
                                      ChatPrompt& prompt) const;
  std::optional<ApiError> tokenise(const jinja::Text& text, const std::vector<Splice>& splices,
                                   ChatPrompt& prompt, std::vector<size_t>& token_ends) const;

  const engine::LanguageModel& model_;
  const Options options_;
  SpecialTexts specials_;
  uint64_t longest_token_ = 1;  // In bytes that are not blanks.
  std::string source_;
  std::optional<jinja::Template> template_;
  jinja::Limits limits_;  // Small while the template is learned from short conversations.
  std::shared_ptr<const dialect::Format> format_;
  std::shared_ptr<const dialect::Format> without_calls_;  // null: everything is text.
  AnswerTokens tokens_;
  AnswerTokens tokens_without_calls_;
  RoleRules roles_;
  MessageEnds message_ends_;
  std::unique_ptr<const Splicer> splicer_;
  mutable SessionDates dates_;
  std::string refusal_;  // Why our interpreter has no template.
  bool engine_list_ = false;
};

// The priority of prefixes marked with cache_control.
inline constexpr Priority kPinnedPriority = 90;

}  // namespace stemma::server
