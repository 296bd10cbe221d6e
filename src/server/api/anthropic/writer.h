// AnthropicWriter: writes an answer in the format of Anthropic's Messages API, whole and as events.
//
//   message_start
//   for each block: content_block_start, content_block_delta ..., content_block_stop
//   message_delta (stop_reason, usage, stemma), message_stop          or: error
//
// Blocks are text, thinking and tool_use. A thinking block ends with its signature, which is the id
// of the answer's transcript: with it the server finds the sampled tokens when the client sends the
// answer back.
//
// usage: cache_read_input_tokens were not computed; cache_creation_input_tokens were computed and
// lie before the last cache_control; input_tokens are the others. The three add up to the prompt.
// `stemma` is our own: what was reused, and why it was not more, as in the other APIs.
//
// Invariant:  indices of blocks ascend from 0, one block is open at a time, and all are closed
//             before message_delta. The events, joined, have the same contents as whole().
// Threading:  one thread at a time.
// Cost:       a few appends an event.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api/answer_writer.h"

namespace stemma::server {

struct AnthropicHead {
  std::string id;          // "msg_..."
  std::string model;       // As the client named it.
  std::string request_id;  // The HTTP request's; for errors.
};

class AnthropicWriter final : public AnswerWriter {
 public:
  explicit AnthropicWriter(AnthropicHead head) : head_(std::move(head)) {}

  std::string_view id() const override { return head_.id; }
  std::string_view content_type(bool stream) const override;
  std::string_view keep_alive() const override {
    return "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  }
  std::string_view call_prefix() const override { return "toolu_"; }

  void start(const AnswerBegun& begun, std::string& out) override;
  void part(const AnswerPart& part, std::string& out) override;
  void end_choice(const AnswerEnd& end, std::string& out) override;
  void finish(const Summary& summary, std::string& out) override;
  void fail(const ApiError& error, std::string& out) override;

  std::string whole(std::span<const WholeChoice> choices, const Summary& summary) override;
  std::string refusal(const ApiError& error) const override;
  int refusal_status(const ApiError& error) const override;

 private:
  using Kind = AnswerBlock::Kind;
  void open(Kind kind, std::string& out);
  void close(std::string& out);
  void begin_delta(std::string_view type, std::string_view field, std::string& out) const;
  // The signature of thinking: opaque, and never empty.
  std::string_view signature(std::string_view transcript_id) const;

  const AnthropicHead head_;
  AnswerBegun begun_;
  std::optional<Kind> open_;
  uint32_t blocks_ = 0;  // Blocks that have begun.
  AnswerEnd end_;
};

// end_turn, max_tokens, stop_sequence or tool_use.
std::string_view anthropic_stop_reason(AnswerStop stop) noexcept;

// Appends the object `usage`.
void append_anthropic_usage(std::string& out, const AnswerBegun& begun, uint32_t output_tokens);

}  // namespace stemma::server
