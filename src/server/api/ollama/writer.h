// OllamaWriter: writes an answer in Ollama's format. A stream has one JSON object per line; the
// last one has done: true, and counts and times in nanoseconds. An answer that is not streamed is
// one object with all of that.
//
// A call is sent once it is complete, because its arguments are a JSON object there. A call that
// was cut off is not sent.
//
// Invariant:  the objects of a stream, joined, have the same contents as whole().
// Threading:  one thread at a time.
// Cost:       a few appends an event; a call is held until it ends.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/answer_writer.h"

namespace stemma::server {

enum class OllamaKind : uint8_t { chat, generate };

struct OllamaHead {
  OllamaKind kind = OllamaKind::chat;
  std::string id = {};  // For the log.
  std::string model = {};
  std::string created_at = {};  // "2026-01-31T10:00:00Z"
};

// Encodes an API error for Ollama's clients.
std::string encode_ollama_error(const ApiError& error);
std::string ollama_time(uint64_t unix_seconds);

class OllamaWriter final : public AnswerWriter {
 public:
  explicit OllamaWriter(OllamaHead head);

  std::string_view id() const override { return head_.id; }
  std::string_view content_type(bool stream) const override;
  // A blank line is an error to Ollama's clients, so an idle stream sends nothing.
  std::string_view keep_alive() const override { return {}; }
  void start(const AnswerBegun& begun, std::string& out) override;
  void part(const AnswerPart& part, std::string& out) override;
  void end_choice(const AnswerEnd& end, std::string& out) override;
  void finish(const Summary& summary, std::string& out) override;
  void fail(const ApiError& error, std::string& out) override;
  std::string whole(std::span<const WholeChoice> choices, const Summary& summary) override;
  std::string refusal(const ApiError& error) const override;

  // The answer to a request without a prompt: the model is loaded.
  std::string loaded() const;

 private:
  struct Said {
    std::string content;
    std::string thinking;
    std::string calls;  // JSON objects, with commas between them.
  };
  void append_said(const Said& said, std::string& out) const;
  void append_done(const Said& said, const Summary& summary, std::string& out) const;
  static void append_call(const AnswerBlock& call, std::string& out);

  const OllamaHead head_;
  std::string line_head_;
  AnswerBlock call_;  // The call that is running.
  AnswerStop stop_ = AnswerStop::end;
};

}  // namespace stemma::server
