// AnswerListener: what a Scheduler says of a request, as an HTTP answer: whole, or as a stream of events
// that begins with the first piece, or with a comment if that is long in coming (HttpReply::keep_alive). An
// error before that has a status of its own; after it, it is the last event.
//
// Threading:  as Listener says; the reply is thread-safe.
// Ownership:  of the reply, until the answer is complete.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/error.h"
#include "server/api/openai/answer.h"
#include "server/http/message.h"
#include "server/schedule/generation.h"

namespace stemma::server {

// What streams of events begin with, and what they say while there is nothing to say.
inline constexpr std::string_view kEventStream = "text/event-stream";
inline HttpHeaders event_stream_headers() { return {{"Cache-Control", "no-cache"}}; }
inline constexpr std::string_view kKeepAliveComment = ": keep-alive\n\n";

class AnswerListener final : public Listener {
 public:
  struct Options {
    AnswerHead head;
    bool stream = false;
    uint32_t choices = 1;
    std::string echo;  // Comes before every choice's text.
    // What a whole answer may take in memory. One that takes more is let go, `cancel` is called, and the
    // client is told; a stream is not held.
    uint64_t most_bytes = UINT64_MAX;
    std::function<void()> cancel;
    // Told once, at the end: the HTTP status, the summary if there is one, an error's message.
    std::function<void(int status, const Summary* summary, const std::string& error)> ended;
  };

  AnswerListener(std::shared_ptr<HttpReply> reply, Options options);

  void prompt(std::vector<TokenLogprob>&& logprobs) override;
  void piece(Piece piece) override;
  void ended(ChoiceEnd end) override;
  void done(const Summary& summary) override;
  void failed(const Error& error, const std::string& message, bool overloaded) override;

 private:
  void open(uint32_t choice);
  void send();
  // A choice of a whole answer, begun with what is echoed.
  AnswerChoice& whole(uint32_t choice);
  // False: the answer has become too large.
  bool hold(uint64_t bytes);

  std::shared_ptr<HttpReply> reply_;
  Options options_;
  AnswerWriter writer_;
  std::vector<TokenLogprob> prompt_;   // Of what is echoed in a stream.
  std::vector<AnswerChoice> choices_;  // Of a whole answer.
  std::vector<uint8_t> opened_;        // By choice: whether it has begun.
  std::vector<ChoiceEnd> ends_;        // Of a stream: the last one goes out with the summary.
  uint64_t held_bytes_ = 0;            // Of choices_.
  bool too_large_ = false;
  bool streaming_ = false;
  std::string out_;
};

}  // namespace stemma::server
