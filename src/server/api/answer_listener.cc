#include "server/api/answer_listener.h"

#include <iterator>
#include <utility>

#include "server/api/refuse.h"

namespace stemma::server {
namespace {

uint64_t bytes_of(const std::vector<TokenLogprob>& logprobs) {
  uint64_t bytes = 0;
  for (const TokenLogprob& each : logprobs) {
    bytes += sizeof each + each.bytes.size();
    for (const auto& other : each.others) bytes += sizeof other + other.second.size();
  }
  return bytes;
}

void append(std::vector<TokenLogprob>& to, std::vector<TokenLogprob>&& more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  more.clear();
}

AnswerStop stop_of(StopCause cause, bool calls) {
  switch (cause) {
    case StopCause::eos: return calls ? AnswerStop::tool_calls : AnswerStop::end;
    case StopCause::stop_text: return AnswerStop::stop_text;
    case StopCause::length: return AnswerStop::length;
    case StopCause::cancelled: return AnswerStop::cancelled;
    case StopCause::failed: break;
  }
  return AnswerStop::failed;
}

}  // namespace

HttpHeaders stream_headers(const HttpHeaders& more) {
  HttpHeaders headers = {{"Cache-Control", "no-cache"}};
  headers.insert(headers.end(), more.begin(), more.end());
  return headers;
}

AnswerListener::AnswerListener(std::shared_ptr<HttpReply> reply,
                               std::unique_ptr<AnswerWriter> writer, Options options)
    : reply_(std::move(reply)),
      writer_(std::move(writer)),
      options_(std::move(options)),
      choices_(options_.choices) {}

bool AnswerListener::hold(uint64_t bytes) {
  if (too_large_) return false;
  held_bytes_ += bytes;
  if (held_bytes_ <= options_.most_bytes) return true;
  too_large_ = true;
  for (Choice& choice : choices_) choice = {};
  if (options_.cancel) options_.cancel();
  return false;
}

void AnswerListener::send() {
  if (out_.empty()) return;
  reply_->send(std::exchange(out_, {}));
}

void AnswerListener::start_stream() {
  if (streaming_) return;
  streaming_ = true;
  // It may have begun with a keep-alive.
  reply_->begin(200, writer_->content_type(true), stream_headers(options_.headers));
  writer_->start(begun_, out_);
}

AnswerListener::Choice& AnswerListener::open(uint32_t choice) {
  Choice& opened = choices_[choice];
  if (opened.reader != nullptr) return opened;
  opened.reader = std::make_unique<AnswerReader>(options_.reading, choice);
  if (options_.stream) start_stream();
  return opened;
}

void AnswerListener::keep(Choice& choice, AnswerPart&& part) {
  using Kind = dialect::EventKind;
  std::vector<AnswerBlock>& blocks = choice.whole.blocks;
  append(choice.whole.logprobs, std::move(part.logprobs));
  const auto last_is = [&](AnswerBlock::Kind kind) {
    return !blocks.empty() && blocks.back().kind == kind;
  };
  switch (part.event.kind) {
    case Kind::content:
    case Kind::reasoning: {
      const auto kind =
          part.event.kind == Kind::content ? AnswerBlock::Kind::text : AnswerBlock::Kind::thinking;
      if (part.event.text.empty()) return;
      if (!last_is(kind)) blocks.push_back({.kind = kind});
      blocks.back().text += part.event.text;
      return;
    }
    case Kind::call_begin:
      blocks.push_back({.kind = AnswerBlock::Kind::call,
                        .name = std::move(part.event.text),
                        .call_id = std::move(part.call_id),
                        .custom = part.custom,
                        .complete = false});
      return;
    case Kind::arguments:
      if (last_is(AnswerBlock::Kind::call)) blocks.back().text += part.event.text;
      return;
    case Kind::call_end:
      if (last_is(AnswerBlock::Kind::call)) blocks.back().complete = part.event.complete;
      return;
  }
}

void AnswerListener::tell(Choice& choice) {
  if (parts_.empty()) return;
  // We do not know which token made which part: the last part gets them all.
  parts_.back().logprobs = std::exchange(choice.logprobs, {});
  for (AnswerPart& part : parts_) {
    if (options_.stream) {
      writer_->part(part, out_);
    } else {
      if (!hold(part.event.text.size() + part.call_id.size() + bytes_of(part.logprobs))) break;
      keep(choice, std::move(part));
    }
  }
  parts_.clear();
  if (options_.stream) send();
}

void AnswerListener::begun(const AnswerBegun& begun) {
  begun_ = begun;
  begun_.transcript_id = options_.transcript_id;
}

void AnswerListener::piece(Piece piece) {
  if (too_large_) return;
  Choice& choice = open(piece.choice);
  append(choice.logprobs, std::move(piece.logprobs));
  choice.reader->feed(piece.text, parts_);
  count_thinking(choice, piece.tokens);
  tell(choice);
}

void AnswerListener::count_thinking(Choice& choice, uint32_t tokens) const {
  choice.unread_tokens += tokens;
  bool thinking = choice.thinks;
  bool known = false;
  for (const AnswerPart& part : parts_) {
    if (part.event.kind == dialect::EventKind::call_end) continue;
    choice.thinks = part.event.kind == dialect::EventKind::reasoning;
    thinking = thinking || choice.thinks;
    known = true;
  }
  // A marker has no text: it belongs to the thinking before or after it.
  if (!known) return;
  if (thinking) choice.thinking_tokens += choice.unread_tokens;
  choice.unread_tokens = 0;
}

bool AnswerListener::calls_tools(uint32_t choice) {
  return choices_[choice].reader != nullptr && choices_[choice].reader->calls_tools();
}

void AnswerListener::ended(ChoiceEnd end) {
  if (too_large_) return;
  Choice& choice = open(end.choice);
  choice.reader->finish(end.cause == StopCause::length, parts_);
  count_thinking(choice, 0);
  // The remaining logprobs go out with an empty part.
  if (parts_.empty() && !choice.logprobs.empty()) parts_.push_back({.choice = end.choice});
  tell(choice);
  if (too_large_) return;
  AnswerEnd how{
      .choice = end.choice,
      .stop = stop_of(end.cause, choice.reader->calls_tools()),
      .stop_text = end.stop_text,
      .generated_tokens = end.generated_tokens,
      .thinking_tokens = choice.thinking_tokens + (choice.thinks ? choice.unread_tokens : 0)};
  if (options_.look) {
    Facts facts = options_.look(end, *choice.reader);
    how.transcript_id = std::move(facts.transcript_id);
  }
  if (!options_.stream) {
    choice.whole.end = std::move(how);
    return;
  }
  writer_->end_choice(how, out_);
  send();
}

void AnswerListener::done(const Summary& summary) {
  if (too_large_) return failed(Error(Errc::stale, "too large"), "the answer is too large", false);
  // Called before the client can know, so that statistics it reads include this answer.
  if (options_.ended) options_.ended(200, &summary, "");
  if (!options_.stream) {
    std::vector<WholeChoice> whole;
    for (Choice& choice : choices_) whole.push_back(std::move(choice.whole));
    reply_->respond(200, writer_->content_type(false), writer_->whole(whole, summary),
                    options_.headers);
  } else {
    start_stream();
    writer_->finish(summary, out_);
    send();
    reply_->end();
  }
  reply_.reset();
}

void AnswerListener::failed(const Error& error, const std::string& message, bool overload) {
  const ApiError answer = too_large_
                              ? answer_too_large(options_.most_bytes,
                                                 "Ask for fewer choices (n), logprobs or tokens, "
                                                 "or for a stream.")
                          : error.code() == Errc::out_of_range ? no_token_possible(message)
                          : overload                           ? overloaded(message)
                                                               : internal_error(message);
  const bool cancelled = error.code() == Errc::stale && !too_large_;
  if (options_.ended) {
    options_.ended(cancelled ? 499 : answer.status, nullptr, too_large_ ? answer.message : message);
  }
  HttpRefusal refusal = refusal_of(answer, writer_->refusal(answer));
  refusal.status = writer_->refusal_status(answer);
  if (streaming_ || !try_refuse(*reply_, std::move(refusal))) {
    writer_->fail(answer, out_);
    send();
    reply_->end();
  }
  reply_.reset();
}

}  // namespace stemma::server
