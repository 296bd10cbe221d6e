// What clients are told: answers of OpenAI's endpoints, whole and as events of a stream, written straight
// into a string.
//
// An AnswerWriter writes one request's answer. For a stream, in this order:
//
//   begin(choice)     chat only: {"delta":{"role":"assistant"}}, once for each choice
//   piece(piece)      text, and logprobs if they were asked for
//   end(end, summary) finish_reason; with a summary (of the last choice) also timings and `stemma`
//   usage(summary)    nothing unless stream_options.include_usage; then an event with no choices
//   done()            data: [DONE]
//
// Beside what OpenAI sends there are llama-server's `timings`, and `stemma`: how much of the prompt was
// reused, how it got there, and why it was not more.
//
// Threading:  one thread at a time; free functions are pure.
// Cost:       what does not change from event to event is written once; an event is a few appends to
//             `out`, which a caller may keep and clear.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/language_model.h"
#include "server/schedule/generation.h"

namespace stemma::server {

enum class AnswerKind : uint8_t { chat, completion };

// "chatcmpl-" or "cmpl-" and 22 letters and digits that say all of the 128 random bits.
std::string answer_id(AnswerKind kind, uint64_t random_high, uint64_t random_low);

struct AnswerHead {
  AnswerKind kind = AnswerKind::chat;
  std::string id = {};
  std::string model = {};
  std::string fingerprint = {};  // system_fingerprint
  uint64_t created_s = 0;        // Since 1970.
  bool include_usage = false;
  bool logprobs = false;
};

// A choice of a whole answer: its pieces, joined.
struct AnswerChoice {
  std::string text;
  std::vector<TokenLogprob> logprobs;
  ChoiceEnd end;

  void add(Piece piece);
};

class AnswerWriter {
 public:
  explicit AnswerWriter(AnswerHead head);

  // Each appends one event to `out`, or nothing where nothing is to be said.
  void begin(uint32_t choice, std::string& out) const;
  void piece(const Piece& piece, std::string& out);
  void end(const ChoiceEnd& end, const Summary* summary, std::string& out) const;
  void usage(const Summary& summary, std::string& out) const;
  static void done(std::string& out);

  // The answer that is no stream. Choices in order.
  std::string whole(std::span<const AnswerChoice> choices, const Summary& summary) const;

 private:
  void open(uint32_t choice, std::string& out) const;
  void close(std::string& out) const;

  AnswerHead head_;
  std::string event_head_;              // Up to the number of the choice.
  std::vector<uint64_t> text_offsets_;  // Of each choice of a completion, in characters.
};

// finish_reason: "stop", "length"; "abort" and "error" for what ended otherwise.
std::string_view finish_reason(StopCause cause) noexcept;

// Parts of answers, for routes of their own: each appends one JSON object.
void append_usage(std::string& out, const Summary& summary);
void append_timings(std::string& out, const Summary& summary);
// `stemma`. A scope that nobody has used looks like a prompt that nobody has sent: whether a salt is in use is not
// told to whoever guesses it.
void append_report(std::string& out, const Summary& summary);

struct ModelCard {
  std::string id;
  uint64_t created_s = 0;
  uint32_t context_tokens = 0;
  engine::ModelInfo info;
};
std::string encode_models(std::span<const ModelCard> models);
std::string encode_model(const ModelCard& model);

// {"tokens":[1,2]}, or with pieces {"tokens":[{"id":1,"piece":"a"}]}, token by token: nothing but the text is held.
// A piece that is no UTF-8 is an array of its bytes.
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
