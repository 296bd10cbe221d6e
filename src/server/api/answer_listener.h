// AnswerListener: turns a Scheduler's events into an HTTP answer of any API, whole or as a stream.
// A stream begins with the first piece, or with a sign of life if that takes long
// (HttpReply::keep_alive). An error before the stream begins gets its own status; afterwards it is
// the last event.
//
//   pieces --AnswerReader, one a choice--> parts --AnswerWriter, the API's--> the reply
//
// Threading:  like every Listener; the reply is thread-safe.
// Ownership:  shares the reply and owns the writer until the answer is complete.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer_reader.h"
#include "server/api/answer_writer.h"
#include "server/http/message.h"
#include "server/schedule/generation.h"

namespace stemma::server {

// The headers of every stream, also of those that begin with a sign of life.
HttpHeaders stream_headers(const HttpHeaders& more);

class AnswerListener final : public Listener {
 public:
  // Facts that are known once a choice has ended.
  struct Facts {
    std::string transcript_id;
  };
  struct Options {
    bool stream = false;
    uint32_t choices = 1;
    AnswerReading reading;
    std::string transcript_id;  // See AnswerBegun.
    HttpHeaders headers;        // For an answer that is not an error.
    // Memory limit for a whole answer. A larger one is dropped, `cancel` is called, and the client
    // gets an error. Streams are not held in memory.
    uint64_t most_bytes = UINT64_MAX;
    std::function<void()> cancel;
    // Called once for each choice that was not cut off by an error. May be empty.
    std::function<Facts(const ChoiceEnd&, const AnswerReader&)> look;
    // Called once, at the end: the HTTP status, the summary if there is one, an error's message.
    std::function<void(int status, const Summary* summary, const std::string& error)> ended;
  };

  AnswerListener(std::shared_ptr<HttpReply> reply, std::unique_ptr<AnswerWriter> writer,
                 Options options);

  void begun(const AnswerBegun& begun) override;
  void piece(Piece piece) override;
  bool calls_tools(uint32_t choice) override;
  void ended(ChoiceEnd end) override;
  void done(const Summary& summary) override;
  void failed(const Error& error, const std::string& message, bool overloaded) override;

 private:
  struct Choice {
    std::unique_ptr<AnswerReader> reader;  // null: the choice has not begun.
    std::vector<TokenLogprob> logprobs;    // Of tokens whose text is not yet classified.
    WholeChoice whole;                     // For an answer that is not streamed.
    bool thinks = false;                   // The latest text is thinking.
    uint32_t thinking_tokens = 0;          // Markers around thinking count, too.
    uint32_t unread_tokens = 0;            // Tokens of text that is not yet classified.
  };
  // Counts which of the parts' tokens were thinking. Call it before tell().
  void count_thinking(Choice& choice, uint32_t tokens) const;
  Choice& open(uint32_t choice);
  // Passes the waiting parts to the writer, or to the whole answer.
  void tell(Choice& choice);
  void keep(Choice& choice, AnswerPart&& part);
  void start_stream();
  void send();
  // Returns false if the answer has become too large.
  bool hold(uint64_t bytes);

  std::shared_ptr<HttpReply> reply_;
  const std::unique_ptr<AnswerWriter> writer_;
  const Options options_;
  AnswerBegun begun_;
  std::vector<Choice> choices_;
  std::vector<AnswerPart> parts_;
  uint64_t held_bytes_ = 0;  // Of whole choices.
  bool too_large_ = false;
  bool streaming_ = false;
  std::string out_;
};

}  // namespace stemma::server
