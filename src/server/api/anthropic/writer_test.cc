// Tests answers as Anthropic's clients read them.
#include "server/api/anthropic/writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/error.h"

namespace stemma::server {
namespace {

using Value = nlohmann::json;
using Kind = dialect::EventKind;

// The events of a stream: each has a name that is its type.
std::vector<Value> events_of(const std::string& stream) {
  std::vector<Value> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = stream.substr(at, end - at);
    const size_t line = event.find("\ndata: ");
    EXPECT_TRUE(event.starts_with("event: ") && line != std::string::npos) << event;
    events.push_back(Value::parse(event.substr(line + 7)));
    EXPECT_EQ(event.substr(7, line - 7), events.back()["type"]);
    at = end + 2;
  }
  return events;
}

// Joins a stream as a client does.
Value joined(const std::vector<Value>& events) {
  Value message;
  std::string json;
  bool open = false;
  for (const Value& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") {
      message = event["message"];
    } else if (type == "content_block_start") {
      EXPECT_FALSE(open);
      open = true;
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      json.clear();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(event["index"].get<size_t>() + 1, message["content"].size());
      Value& block = message["content"].back();
      const Value& delta = event["delta"];
      if (delta["type"] == "input_json_delta") {
        json += delta["partial_json"].get<std::string>();
      } else {
        const std::string field = delta["type"] == "text_delta"       ? "text"
                                  : delta["type"] == "thinking_delta" ? "thinking"
                                                                      : "signature";
        block[field] = block[field].get<std::string>() + delta[field].get<std::string>();
      }
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(open);
      open = false;
      Value& block = message["content"].back();
      const Value input = Value::parse(json, nullptr, false);
      if (block["type"] == "tool_use" && input.is_object()) block["input"] = input;
    } else if (type == "message_delta") {
      EXPECT_FALSE(open);
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
      message["stemma"] = event["stemma"];
    }
  }
  EXPECT_EQ(events.back()["type"], "message_stop");
  return message;
}

AnthropicWriter writer() {
  return AnthropicWriter({.id = "msg_1", .model = "m", .request_id = "req_1"});
}

AnswerPart part(Kind kind, const std::string& text, const std::string& id = "") {
  AnswerPart part;
  part.event = {.kind = kind, .call = 0, .text = text};
  part.call_id = id;
  return part;
}

TEST(AnthropicWriter, AStreamSaysWhatTheWholeAnswerSays) {
  const std::vector<AnswerPart> parts = {part(Kind::reasoning, "Which "),
                                         part(Kind::reasoning, "file?"),
                                         part(Kind::content, "I "),
                                         part(Kind::content, "look \"there\".\n"),
                                         part(Kind::call_begin, "read", "toolu_1"),
                                         part(Kind::arguments, R"({"path":)"),
                                         part(Kind::arguments, R"("a"})"),
                                         part(Kind::call_end, ""),
                                         part(Kind::call_begin, "list", "toolu_2"),
                                         part(Kind::arguments, "{}"),
                                         part(Kind::call_end, "")};
  std::string stream;
  AnthropicWriter streaming = writer();
  streaming.start(
      {.prompt_tokens = 100, .cached_tokens = 60, .pinned_tokens = 90, .transcript_id = "tr_1"},
      stream);
  for (const AnswerPart& each : parts) streaming.part(each, stream);
  AnswerEnd end{.choice = 0, .stop = AnswerStop::tool_calls, .stop_text = ""};
  end.transcript_id = "tr_1";
  streaming.end_choice(end, stream);
  Summary summary;
  summary.prompt_tokens = 100;
  summary.cached_tokens = 60;
  summary.pinned_tokens = 90;
  summary.generated_tokens = 25;
  summary.report.reused_tokens = 60;
  summary.report.reason = SequenceMiss::first_use;
  summary.parted_in = "messages[4]";
  streaming.finish(summary, stream);

  WholeChoice choice;
  choice.blocks = {
      {.kind = AnswerBlock::Kind::thinking, .text = "Which file?", .name = "", .call_id = ""},
      {.kind = AnswerBlock::Kind::text, .text = "I look \"there\".\n", .name = "", .call_id = ""},
      {.kind = AnswerBlock::Kind::call,
       .text = R"({"path":"a"})",
       .name = "read",
       .call_id = "toolu_1"},
      {.kind = AnswerBlock::Kind::call, .text = "{}", .name = "list", .call_id = "toolu_2"}};
  choice.end = end;
  const Value whole = Value::parse(writer().whole({&choice, 1}, summary));
  EXPECT_EQ(joined(events_of(stream)), whole);
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["content"][0]["signature"], "tr_1");
  EXPECT_EQ(whole["content"][2]["input"]["path"], "a");
  const Value& usage = whole["usage"];
  EXPECT_EQ(usage["cache_read_input_tokens"], 60);
  EXPECT_EQ(usage["cache_creation_input_tokens"], 30);
  EXPECT_EQ(usage["input_tokens"], 10);
  EXPECT_EQ(usage["output_tokens"], 25);
  // What was reused, why it was not more, and which part of the request the cache did not know.
  EXPECT_EQ(whole["stemma"]["reused_tokens"], 60);
  EXPECT_EQ(whole["stemma"]["miss"], "first_use");
  EXPECT_EQ(whole["stemma"]["parted_in"], "messages[4]");
}

TEST(AnthropicWriter, ArgumentsAreThoseOfTheStreamWhateverTheirDepthAndNames) {
  const std::string deep = R"({"a":)" + std::string(33, '[') + std::string(33, ']') + "}";
  for (const std::string& arguments : {deep, std::string(R"({"a":1,"a":2})")}) {
    std::string stream;
    AnthropicWriter streaming = writer();
    streaming.start({}, stream);
    streaming.part(part(Kind::call_begin, "f", "toolu_1"), stream);
    streaming.part(part(Kind::arguments, arguments), stream);
    streaming.part(part(Kind::call_end, ""), stream);
    streaming.end_choice({.stop = AnswerStop::tool_calls}, stream);
    streaming.finish({}, stream);
    WholeChoice choice;
    choice.blocks = {{.kind = AnswerBlock::Kind::call, .text = arguments, .name = "f"}};
    const std::string whole = writer().whole({&choice, 1}, {});
    EXPECT_NE(whole.find(R"("input":)" + arguments), std::string::npos) << whole;
    EXPECT_EQ(Value::parse(whole)["content"][0]["input"],
              joined(events_of(stream))["content"][0]["input"]);
  }
}

TEST(AnthropicWriter, UsageAddsUpWhateverIsPinned) {
  for (const uint32_t cached : {0U, 50U, 100U}) {
    for (const uint32_t pinned : {0U, 40U, 70U, 100U, 200U}) {
      std::string out;
      append_anthropic_usage(out,
                             {.prompt_tokens = 100,
                              .cached_tokens = cached,
                              .pinned_tokens = pinned,
                              .transcript_id = ""},
                             1);
      const Value usage = Value::parse(out);
      EXPECT_EQ(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>() +
                    usage["cache_creation_input_tokens"].get<int>(),
                100);
      EXPECT_EQ(usage["cache_read_input_tokens"], cached);
      EXPECT_GE(usage["input_tokens"].get<int>(), 0);
    }
  }
}

TEST(AnthropicWriter, EveryEndHasItsWord) {
  EXPECT_EQ(anthropic_stop_reason(AnswerStop::end), "end_turn");
  EXPECT_EQ(anthropic_stop_reason(AnswerStop::length), "max_tokens");
  EXPECT_EQ(anthropic_stop_reason(AnswerStop::tool_calls), "tool_use");
  WholeChoice choice;
  choice.blocks.push_back(
      {.kind = AnswerBlock::Kind::text, .text = "a", .name = "", .call_id = ""});
  choice.end.stop = AnswerStop::stop_text;
  choice.end.stop_text = "END";
  const Value whole = Value::parse(writer().whole({&choice, 1}, Summary()));
  EXPECT_EQ(whole["stop_reason"], "stop_sequence");
  EXPECT_EQ(whole["stop_sequence"], "END");
}

TEST(AnthropicWriter, AnAnswerWithoutAnythingHasNoBlocks) {
  std::string stream;
  AnthropicWriter streaming = writer();
  streaming.start({}, stream);
  streaming.part(part(Kind::content, ""), stream);
  streaming.end_choice({}, stream);
  streaming.finish({}, stream);
  EXPECT_EQ(joined(events_of(stream))["content"], Value::array());
}

TEST(AnthropicWriter, ACallThatWasCutOffIsClosed) {
  std::string stream;
  AnthropicWriter streaming = writer();
  streaming.start({}, stream);
  streaming.part(part(Kind::call_begin, "read", "toolu_1"), stream);
  streaming.part(part(Kind::arguments, R"({"pa)"), stream);
  AnswerEnd end{.choice = 0, .stop = AnswerStop::length, .stop_text = ""};
  streaming.end_choice(end, stream);
  streaming.finish({}, stream);
  const Value message = joined(events_of(stream));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["content"][0]["input"], Value::object());
  WholeChoice choice;
  choice.blocks.push_back({.kind = AnswerBlock::Kind::call,
                           .text = R"({"pa)",
                           .name = "read",
                           .call_id = "toolu_1",
                           .custom = false,
                           .complete = false});
  choice.end = end;
  EXPECT_EQ(Value::parse(writer().whole({&choice, 1}, Summary()))["content"], message["content"]);
}

TEST(AnthropicWriter, AThoughtThatIsNotRememberedIsSignedAllTheSame) {
  std::string stream;
  AnthropicWriter streaming = writer();
  streaming.start({}, stream);
  streaming.part(part(Kind::reasoning, "Hm"), stream);
  streaming.end_choice({}, stream);
  streaming.finish({}, stream);
  EXPECT_EQ(joined(events_of(stream))["content"][0]["signature"], "msg_1");
}

TEST(AnthropicWriter, ErrorsHaveTheirTypes) {
  const std::pair<int, const char*> types[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {405, "invalid_request_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    ApiError error;
    error.status = status;
    error.message = "no \"way\"";
    const Value body = Value::parse(writer().refusal(error));
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], type) << status;
    EXPECT_EQ(body["error"]["message"], "no \"way\"");
    EXPECT_EQ(body["request_id"], "req_1");
    EXPECT_EQ(writer().refusal_status(error), status == 503 ? 529 : status);
  }
  std::string out;
  writer().fail(overloaded("full"), out);
  EXPECT_EQ(events_of(out).at(0)["error"]["type"], "overloaded_error");
  // Clients that send threads look for this code, and then send whole conversations.
  ApiError thread;
  thread.code = kThreadUnsupported;
  EXPECT_EQ(
      Value::parse(writer().refusal(thread))["error"]["details"],
      Value::parse(R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})"));
  EXPECT_TRUE(Value::parse(encode_anthropic_error(wrong_key(), {}))["request_id"].is_null());
  EXPECT_EQ(events_of(std::string(writer().keep_alive())).at(0)["type"], "ping");
}

}  // namespace
}  // namespace stemma::server
