// ResponsesWriter: writes an answer in the format of OpenAI's Responses API, whole and as events.
//
//   response.created, response.in_progress
//   for each item: response.output_item.added, its contents in deltas, response.output_item.done
//   response.completed | response.incomplete | response.failed
//
// Items are messages, reasoning, and calls of functions and custom tools. Thinking is sent as
// reasoning text, or as the summary if the request asks for one; it is never shortened. Ids of
// items share the letters of the response's id (store.h). encrypted_content is the transcript's id:
// when the client sends it back, the server finds the sampled tokens.
//
// Invariant:  sequence_number counts all events from 0. Every item that was added is done before
//             the response is. The last event has the same response as whole().
// Threading:  one thread at a time.
// Cost:       a few appends an event. The answer is held once, because the last event has all of
//             it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer_writer.h"
#include "server/api/responses/request.h"
#include "server/api/responses/store.h"

namespace stemma::server {

// What a writer needs to know about its request.
struct ResponseHead {
  std::string key;  // The letters of its ids: random_id("").
  std::string model = {};
  uint64_t created_s = 0;  // Since 1970.
  std::string previous_response_id = {};
  bool store = true;
  bool summary = false;
  bool encrypted_content = false;
  bool logprobs = false;
  bool parallel_calls = true;
  uint32_t top_logprobs = 0;
  std::optional<uint32_t> max_tokens = {};
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::string session = {};  // prompt_cache_key
  std::vector<NamespacedTool> namespaced = {};
  std::string input = "[]";  // For the store.
  ResponseEcho echo = {};
};
ResponseHead response_head(const ResponsesRequest& request, std::string model, uint64_t created_s);

class ResponsesWriter final : public AnswerWriter {
 public:
  using Keep = std::function<void(const std::string& id, StoredResponse response)>;
  // `keep` gets the complete response if the request wants it stored. May be empty.
  ResponsesWriter(ResponseHead head, Keep keep);

  std::string_view id() const override { return id_; }
  std::string_view content_type(bool stream) const override;
  void start(const AnswerBegun& begun, std::string& out) override;
  void part(const AnswerPart& part, std::string& out) override;
  void end_choice(const AnswerEnd& end, std::string& out) override;
  void finish(const Summary& summary, std::string& out) override;
  void fail(const ApiError& error, std::string& out) override;
  std::string whole(std::span<const WholeChoice> choices, const Summary& summary) override;
  std::string refusal(const ApiError& error) const override;

 private:
  struct Item {
    AnswerBlock block;
    std::string id;
    bool done = false;
    std::vector<TokenLogprob> logprobs = {};
  };
  // Numbered events.
  void begin_event(std::string_view type, std::string& out);
  static void end_event(std::string& out);
  void begin_item_event(std::string_view type, const Item& item, std::string& out);
  void begin_part_event(std::string_view type, const Item& item, std::string& out);
  void response_event(std::string_view type, std::string_view status, const Summary* summary,
                      std::string& out);
  void item_event(std::string_view type, const Item& item, std::string& out);

  Item& open(AnswerBlock block, std::string& out);
  void append_text(std::string_view text, std::span<const TokenLogprob> logprobs, std::string& out);
  void close(bool complete, std::string& out);
  bool is_open(AnswerBlock::Kind kind) const;

  // Parts of responses and items.
  void append_item(const Item& item, std::string& out) const;
  void append_part(const Item& item, std::string_view text, std::string& out) const;
  void append_call(const Item& item, std::string& out) const;
  void append_output(std::string& out) const;
  void append_before_output(std::string_view status, std::string& out) const;
  void append_after_output(const Summary* summary, std::string& out) const;
  std::string_view status() const;
  void keep(const Summary& summary);

  const ResponseHead head_;
  const std::string id_;
  const Keep keep_;
  std::vector<Item> items_;
  AnswerEnd end_;
  std::string transcript_id_;  // encrypted_content
  ApiError error_;             // If it has a message, the response failed.
  uint64_t next_event_ = 0;
  bool started_ = false;
  bool writes_events_ = true;  // False while a whole answer is put together.
};

}  // namespace stemma::server
