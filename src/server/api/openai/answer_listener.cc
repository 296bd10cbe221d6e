#include "server/api/openai/answer_listener.h"

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

}  // namespace

AnswerListener::AnswerListener(std::shared_ptr<HttpReply> reply, Options options)
    : reply_(std::move(reply)),
      options_(std::move(options)),
      writer_(options_.head),
      choices_(options_.choices),
      opened_(options_.choices, 0) {
  // Counted at once, copied only when a choice begins: requests may wait for long.
  if (!options_.stream) hold(options_.echo.size() * choices_.size());
}

AnswerChoice& AnswerListener::whole(uint32_t choice) {
  if (opened_[choice] == 0) choices_[choice].text = options_.echo;
  opened_[choice] = 1;
  return choices_[choice];
}

bool AnswerListener::hold(uint64_t bytes) {
  if (too_large_) return false;
  held_bytes_ += bytes;
  if (held_bytes_ <= options_.most_bytes) return true;
  too_large_ = true;
  for (AnswerChoice& choice : choices_) choice = {};
  if (options_.cancel) options_.cancel();
  return false;
}

void AnswerListener::send() {
  if (out_.empty()) return;
  reply_->send(std::exchange(out_, {}));
}

void AnswerListener::open(uint32_t choice) {
  if (!streaming_) {
    streaming_ = true;
    // It may have begun with a comment.
    reply_->begin(200, kEventStream, event_stream_headers());
  }
  if (opened_[choice] != 0) return;
  opened_[choice] = 1;
  writer_.begin(choice, out_);
  // A piece without anything is none.
  writer_.piece({.choice = choice, .text = options_.echo, .logprobs = prompt_}, out_);
}

void AnswerListener::prompt(std::vector<TokenLogprob>&& logprobs) {
  if (options_.stream) {
    prompt_ = std::move(logprobs);
  } else if (hold(bytes_of(logprobs) * choices_.size())) {
    for (AnswerChoice& choice : choices_) choice.logprobs = logprobs;
  }
}

void AnswerListener::piece(Piece piece) {
  if (!options_.stream) {
    if (!hold(piece.text.size() + bytes_of(piece.logprobs))) return;
    whole(piece.choice).add(std::move(piece));
    return;
  }
  open(piece.choice);
  writer_.piece(piece, out_);
  send();
}

void AnswerListener::ended(ChoiceEnd end) {
  if (!options_.stream) {
    if (!too_large_) whole(end.choice).end = std::move(end);
    return;
  }
  open(end.choice);
  ends_.push_back(std::move(end));
  // The last one waits for the summary.
  if (ends_.size() < options_.choices) {
    writer_.end(ends_.back(), nullptr, out_);
    send();
  }
}

void AnswerListener::done(const Summary& summary) {
  if (too_large_) return failed(Error(Errc::stale, "too large"), "the answer is too large", false);
  // Told before the client can know: what it counts is then counted.
  if (options_.ended) options_.ended(200, &summary, "");
  if (!options_.stream) {
    reply_->respond(200, kJson, writer_.whole(choices_, summary));
  } else {
    if (!ends_.empty()) writer_.end(ends_.back(), &summary, out_);
    writer_.usage(summary, out_);
    AnswerWriter::done(out_);
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
  if (streaming_ || !try_refuse(*reply_, answer)) {
    reply_->send(encode_error_event(answer));
    reply_->end();
  }
  reply_.reset();
}

}  // namespace stemma::server
