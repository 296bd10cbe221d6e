// Writes answers in the format of OpenAI's completions, whole and as events of a stream, straight
// into a string.
//
// A chat stream begins each choice with {"delta":{"role":"assistant"}}; then come deltas with
// content, reasoning_content and tool_calls, a finish_reason for each choice, and [DONE]. The event
// of the last finish_reason also has `timings`, like llama-server's, and `stemma`: how much of the
// prompt was reused, where it came from, and why it was not more. With stream_options.include_usage
// both come once more in an event with no choices.
//
// Threading:  one thread at a time; free functions are pure.
// Cost:       constant text is written once; an event is a few appends to `out`, which a caller may
//             keep and clear.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/language_model.h"
#include "server/api/answer_writer.h"
#include "server/schedule/generation.h"

namespace stemma::server {

enum class AnswerKind : uint8_t { chat, completion };

// "chatcmpl-" or "cmpl-" and 22 letters and digits that cannot be guessed.
std::string answer_id(AnswerKind kind);

struct AnswerHead {
  AnswerKind kind = AnswerKind::chat;
  std::string id = {};
  std::string model = {};
  std::string fingerprint = {};  // system_fingerprint
  uint64_t created_s = 0;        // Since 1970.
  uint32_t choices = 1;
  bool include_usage = false;
  bool logprobs = false;
};

class OpenaiWriter final : public AnswerWriter {
 public:
  explicit OpenaiWriter(AnswerHead head);

  std::string_view id() const override { return head_.id; }
  std::string_view content_type(bool stream) const override;
  void start(const AnswerBegun& begun, std::string& out) override;
  void part(const AnswerPart& part, std::string& out) override;
  void end_choice(const AnswerEnd& end, std::string& out) override;
  void finish(const Summary& summary, std::string& out) override;
  void fail(const ApiError& error, std::string& out) override;
  std::string whole(std::span<const WholeChoice> choices, const Summary& summary) override;
  std::string refusal(const ApiError& error) const override;

 private:
  // A stream's state for a choice.
  struct Choice {
    bool begun = false;
    uint64_t text_offset = 0;  // For a completion, in characters.
  };
  Choice& open(uint32_t choice, std::string& out);
  void close(std::string& out) const;
  void append_delta(const AnswerPart& part, std::string& out) const;
  void append_end(const AnswerEnd& end, const Summary* summary, std::string& out) const;
  void append_choice(const WholeChoice& choice, std::string& out) const;

  AnswerHead head_;
  std::string event_head_;  // Up to the number of the choice.
  std::vector<Choice> choices_;
  uint32_t ended_ = 0;  // Choices that have ended.
  uint32_t thinking_tokens_ = 0;
  std::optional<AnswerEnd> last_end_;  // Sent with the summary.
};

// finish_reason: "stop", "length", "tool_calls"; "abort" and "error" for other endings.
std::string_view finish_reason(AnswerStop stop) noexcept;

// Parts of answers, for other routes too: each appends one JSON object.
void append_usage(std::string& out, const Summary& summary, uint32_t thinking_tokens = 0);
void append_timings(std::string& out, const Summary& summary);
// Appends `stemma`. An unused scope looks like a prompt that nobody has sent, so that a client that
// guesses a salt cannot tell whether it is in use.
void append_report(std::string& out, const Summary& summary);

// [{"token","logprob","bytes","top_logprobs":[...]}]
void append_token_logprobs(std::string& out, std::span<const TokenLogprob> tokens);

struct ModelCard {
  std::string id;
  uint64_t created_s = 0;
  uint32_t context_tokens = 0;
  engine::ModelInfo info;
};
std::string encode_models(std::span<const ModelCard> models);
std::string encode_model(const ModelCard& model);

// Writes {"tokens":[1,2]}, or with pieces {"tokens":[{"id":1,"piece":"a"}]}, token by token: only
// the text is held. A piece that is not UTF-8 becomes an array of its bytes.
class TokenListWriter {
 public:
  explicit TokenListWriter(bool pieces) : pieces_(pieces) {}
  void add(Token token, std::string_view piece = {});
  uint64_t bytes() const noexcept { return out_.size(); }
  std::string take();

 private:
  const bool pieces_;
  std::string out_ = R"({"tokens":[)";
  bool first_ = true;
};
std::string encode_content(std::string_view content);  // {"content":"..."}
std::string encode_prompt(std::string_view prompt);    // {"prompt":"..."}

}  // namespace stemma::server
