// Bodies that no client should send, to the decoders of the APIs that agents use: the first byte
// chooses which. An accepted request is answered with the body's own bytes, as a stream and whole.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "input.h"
#include "json/utf8.h"
#include "server/api/anthropic/request.h"
#include "server/api/anthropic/writer.h"
#include "server/api/ollama/request.h"
#include "server/api/ollama/writer.h"
#include "server/api/openai/request.h"
#include "server/api/responses/request.h"
#include "server/api/responses/writer.h"

namespace stemma::fuzz {
namespace {

using namespace server;  // NOLINT: one file, all of it about the server

bool is_json(std::string_view text) {
  return std::holds_alternative<Json>(parse_json(text, {.depth = 250, .values = 1U << 24U}));
}

// Every refusal is one that clients can read.
bool refused(const std::optional<ApiError>& error) {
  if (!error) return false;
  FUZZ_EXPECT(error->status >= 400 && error->status < 500);
  FUZZ_EXPECT(!error->message.empty() && error->message.size() < 4096);
  FUZZ_EXPECT(is_json(encode_error(*error)) && is_json(encode_ollama_error(*error)));
  return true;
}

void check_chat(const ChatRequest& chat) {
  for (const Message& message : chat.messages) {
    FUZZ_EXPECT(!message.role.empty() && is_utf8(message.text()) && is_utf8(message.reasoning));
    for (const ToolCall& call : message.calls) FUZZ_EXPECT(!call.name.empty());
    FUZZ_EXPECT(message.role != "tool" || !message.call_id.empty());
  }
  for (const ToolSpec& tool : chat.tools) FUZZ_EXPECT(!tool.name.empty());
}

// The events of a stream are lines; data lines and bare lines are JSON.
void check_stream(std::string_view text) {
  FUZZ_EXPECT(is_utf8(text));
  while (!text.empty()) {
    const size_t end = text.find('\n');
    FUZZ_EXPECT(end != text.npos);
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty() || line.starts_with("event: ") || line == "data: [DONE]") continue;
    if (line.starts_with("data: ")) line.remove_prefix(6);
    FUZZ_EXPECT(is_json(line));
  }
}

// The bytes as an answer: text, thinking and calls, decided by the bytes.
void answer(AnswerWriter& stream, AnswerWriter& once, std::string_view bytes) {
  using Kind = AnswerBlock::Kind;
  std::string out;
  WholeChoice choice;
  stream.start({}, out);
  uint32_t calls = 0;
  for (size_t at = 0; at < bytes.size() && at < 256;) {
    const size_t size = 1 + static_cast<uint8_t>(bytes[at]) % 7;
    const std::string text = to_utf8(bytes.substr(at, size));
    const auto kind = static_cast<Kind>(static_cast<uint8_t>(bytes[at]) / 7 % 3);
    at += size;
    using dialect::EventKind;
    if (kind != Kind::call) {
      stream.part({.event = {.kind = kind == Kind::text ? EventKind::content : EventKind::reasoning,
                             .text = text}},
                  out);
      if (choice.blocks.empty() || choice.blocks.back().kind != kind) {
        choice.blocks.push_back({.kind = kind});
      }
      choice.blocks.back().text += text;
      continue;
    }
    const bool complete = size % 2 == 0;
    const std::string id = "call_" + std::to_string(calls);
    stream.part(
        {.event = {.kind = EventKind::call_begin, .call = calls, .text = "f"}, .call_id = id}, out);
    stream.part({.event = {.kind = EventKind::arguments, .call = calls, .text = text}}, out);
    stream.part({.event = {.kind = EventKind::call_end, .call = calls, .complete = complete}}, out);
    choice.blocks.push_back(
        {.kind = Kind::call, .text = text, .name = "f", .call_id = id, .complete = complete});
    ++calls;
  }
  choice.end.stop = static_cast<AnswerStop>(bytes.size() % 4);
  stream.end_choice(choice.end, out);
  stream.finish(Summary{}, out);
  check_stream(out);
  FUZZ_EXPECT(is_json(once.whole({&choice, 1}, Summary{})));
  std::string failure;
  once.fail({.message = "it failed"}, failure);
  check_stream(failure);
}

void run_responses(std::string_view body, const ApiRules& rules) {
  ResponseStore store({});
  // Something to go on with, and to refer to.
  store.put(
      "", "resp_A",
      {.head = "",
       .output =
           R"([{"type":"function_call","id":"fc_A_0","call_id":"c","name":"f","arguments":"{}"}])",
       .tail = "",
       .input = R"([{"role":"user","content":"Hi"}])",
       .previous_id = ""});
  ResponsesRequest request;
  if (refused(decode_responses(body, rules, store, request))) return;
  check_chat(request.chat);
  FUZZ_EXPECT(!request.chat.messages.empty() && is_json(request.input));
  ResponseHead head = response_head(request, "m", 1);
  const auto keep = [](const std::string&, StoredResponse response) {
    FUZZ_EXPECT(is_json(response.text()) && is_json(response.output));
  };
  ResponsesWriter stream(head, keep);
  ResponsesWriter once(std::move(head), keep);
  answer(stream, once, body);
}

void run_ollama(std::string_view body, const ApiRules& rules, OllamaKind kind) {
  OllamaRequest request;
  const auto error = kind == OllamaKind::chat ? decode_ollama_chat(body, rules, request)
                                              : decode_ollama_generate(body, rules, request);
  if (refused(error)) return;
  check_chat(request.chat);
  OllamaWriter stream({.kind = kind, .model = request.chat.options.model});
  OllamaWriter once({.kind = kind, .model = request.chat.options.model});
  answer(stream, once, body);
}

void run_anthropic(std::string_view body, const ApiRules& rules, AnthropicBody kind) {
  ChatRequest request;
  if (refused(decode_anthropic(body, kind, rules, request))) return;
  check_chat(request);
  AnthropicWriter stream({.id = "msg_1", .model = request.options.model, .request_id = "r"});
  AnthropicWriter once({.id = "msg_1", .model = request.options.model, .request_id = "r"});
  answer(stream, once, body);
}

void run(std::string_view input) {
  if (input.empty()) return;
  const ApiRules rules;
  const std::string_view body = input.substr(1);
  switch (input.front()) {
    case 'r': return run_responses(body, rules);
    case 'c': return run_ollama(body, rules, OllamaKind::chat);
    case 'g': return run_ollama(body, rules, OllamaKind::generate);
    case 'm': return run_anthropic(body, rules, AnthropicBody::messages);
    case 't': return run_anthropic(body, rules, AnthropicBody::count_tokens);
    default: break;
  }
  ChatRequest chat;
  if (!refused(decode_chat(body, rules, chat))) check_chat(chat);
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
