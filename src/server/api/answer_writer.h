// AnswerWriter: writes an answer in one API's format, whole or as a stream of events.
//
// AnswerListener (api/answer_listener.h) drives it: it decides when the reply begins, holds a whole
// answer within its limit, writes the log line, and parses what the model samples into parts. A
// writer only writes text. One writer serves one request. For a stream, in this order:
//
//   start(begun)                    once, before everything else
//   part(choice, event) ...         for each piece of an answer: text, thinking, a call
//   end_choice(end)                 once a choice; closes an open part
//   finish(summary)                 once, after all choices have ended
//   fail(error)                     replaces the rest if the answer breaks off; also without
//                                   start(), if the stream began with a sign of life
//
// For an answer that is not streamed: whole(), or refusal() with the error's own status.
//
// Invariant:  the events of a stream, joined, have the same contents as whole().
// Threading:  one thread at a time.
// Cost:       a few appends to `out` an event.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_events.h"
#include "server/api/error.h"
#include "server/schedule/generation.h"

namespace stemma::server {

// A piece of an answer as clients see it.
struct AnswerPart {
  uint32_t choice = 0;
  dialect::Event event = {};
  std::vector<TokenLogprob> logprobs = {};  // Of tokens whose text is complete with this event.
  // call_begin: the id that the client will send back with the result.
  std::string call_id = {};
  // The tool takes plain text; its arguments events are that text, not JSON.
  bool custom = false;
};

// One block of a whole answer. Blocks are in the order in which the model wrote them.
struct AnswerBlock {
  enum class Kind : uint8_t { text, thinking, call };
  Kind kind = Kind::text;
  std::string text = {};  // For a call: its arguments as JSON, or a custom tool's input.
  std::string name = {};  // Of a call.
  std::string call_id = {};
  bool custom = false;
  bool complete = true;  // false: a call that was cut off.
};

// How an answer ended. Each API has its own word for each.
enum class AnswerStop : uint8_t {
  end,         // The model ended the answer.
  stop_text,   // One of the client's stop texts.
  length,      // No room for more.
  tool_calls,  // It called tools and waits for their results.
  cancelled,
  failed,
};

struct AnswerEnd {
  uint32_t choice = 0;
  AnswerStop stop = AnswerStop::end;
  std::string stop_text = {};
  uint32_t generated_tokens = 0;
  uint32_t thinking_tokens = 0;  // The part of them that is thinking; 0 if not known.
  // An opaque id. If a client sends it back with the message, the sampled tokens are spliced in.
  // Empty: no transcript.
  std::string transcript_id = {};
};

struct WholeChoice {
  std::vector<AnswerBlock> blocks = {};
  std::vector<TokenLogprob> logprobs = {};
  AnswerEnd end = {};
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // The answer's id, for the log.
  virtual std::string_view id() const = 0;
  virtual std::string_view content_type(bool stream) const = 0;
  // What an idle stream sends. It may come before start(). Empty: nothing.
  virtual std::string_view keep_alive() const { return ": keep-alive\n\n"; }
  // The prefix of call ids.
  virtual std::string_view call_prefix() const { return "call_"; }

  virtual void start(const AnswerBegun& begun, std::string& out) = 0;
  virtual void part(const AnswerPart& part, std::string& out) = 0;
  virtual void end_choice(const AnswerEnd& end, std::string& out) = 0;
  virtual void finish(const Summary& summary, std::string& out) = 0;
  virtual void fail(const ApiError& error, std::string& out) = 0;

  virtual std::string whole(std::span<const WholeChoice> choices, const Summary& summary) = 0;
  // The body of an error reply in the API's own shape.
  virtual std::string refusal(const ApiError& error) const = 0;
  // The error's status. Some APIs have their own.
  virtual int refusal_status(const ApiError& error) const { return error.status; }
};

}  // namespace stemma::server
