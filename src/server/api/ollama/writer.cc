#include "server/api/ollama/writer.h"

#include <cstdio>
#include <ctime>
#include <utility>

#include "json/json.h"
#include "server/api/openai/answer.h"

namespace stemma::server {
namespace {

void append_amount(std::string_view name, uint64_t value, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_number(out, value);
}

std::string_view done_reason(AnswerStop stop) noexcept {
  switch (stop) {
    case AnswerStop::length: return "length";
    case AnswerStop::cancelled: return "abort";
    case AnswerStop::failed: return "error";
    default: return "stop";
  }
}

}  // namespace

std::string encode_ollama_error(const ApiError& error) {
  std::string out = R"({"error":)";
  append_json_string(out, error.message);
  out += '}';
  return out;
}

std::string ollama_time(uint64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

OllamaWriter::OllamaWriter(OllamaHead head) : head_(std::move(head)) {
  line_head_ = R"({"model":)";
  append_json_string(line_head_, head_.model);
  line_head_ += R"(,"created_at":)";
  append_json_string(line_head_, head_.created_at);
}

std::string_view OllamaWriter::content_type(bool stream) const {
  return stream ? "application/x-ndjson" : "application/json";
}

void OllamaWriter::start(const AnswerBegun& /*begun*/, std::string& /*out*/) {}

void OllamaWriter::append_said(const Said& said, std::string& out) const {
  out += line_head_;
  const bool chat = head_.kind == OllamaKind::chat;
  out += chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"response":)";
  append_json_string(out, said.content);
  if (!said.thinking.empty()) {
    out += R"(,"thinking":)";
    append_json_string(out, said.thinking);
  }
  if (!said.calls.empty()) {
    out += R"(,"tool_calls":[)";
    out += said.calls;
    out += ']';
  }
  if (chat) out += '}';
}

void OllamaWriter::append_call(const AnswerBlock& call, std::string& out) {
  if (!call.complete) return;
  std::string arguments;
  if (!append_json_object_text(arguments, call.text)) return;
  if (!out.empty()) out += ',';
  out += R"({"id":)";
  append_json_string(out, call.call_id);
  out += R"(,"function":{"name":)";
  append_json_string(out, call.name);
  out += R"(,"arguments":)";
  out += arguments;
  out += "}}";
}

void OllamaWriter::part(const AnswerPart& part, std::string& out) {
  using dialect::EventKind;
  Said said;
  switch (part.event.kind) {
    case EventKind::content: said.content = part.event.text; break;
    case EventKind::reasoning: said.thinking = part.event.text; break;
    case EventKind::call_begin:
      call_ = {.kind = AnswerBlock::Kind::call, .name = part.event.text, .call_id = part.call_id};
      return;
    case EventKind::arguments: call_.text += part.event.text; return;
    case EventKind::call_end:
      call_.complete = part.event.complete;
      append_call(call_, said.calls);
      break;
  }
  if (said.content.empty() && said.thinking.empty() && said.calls.empty()) return;
  append_said(said, out);
  out += ",\"done\":false}\n";
}

void OllamaWriter::end_choice(const AnswerEnd& end, std::string& /*out*/) { stop_ = end.stop; }

void OllamaWriter::append_done(const Said& said, const Summary& summary, std::string& out) const {
  const Timings& timings = summary.timings;
  append_said(said, out);
  out += R"(,"done":true,"done_reason":")";
  out += done_reason(stop_);
  out += '"';
  append_amount("total_duration", timings.queued_ns + timings.prompt_ns + timings.generated_ns,
                out);
  append_amount("load_duration", timings.queued_ns, out);
  append_amount("prompt_eval_count", summary.prompt_tokens, out);
  append_amount("prompt_eval_duration", timings.prompt_ns, out);
  append_amount("eval_count", summary.generated_tokens, out);
  append_amount("eval_duration", timings.generated_ns, out);
  out += R"(,"stemma":)";
  append_report(out, summary);
  out += '}';
}

void OllamaWriter::finish(const Summary& summary, std::string& out) {
  append_done({}, summary, out);
  out += '\n';
}

void OllamaWriter::fail(const ApiError& error, std::string& out) {
  out += encode_ollama_error(error);
  out += '\n';
}

std::string OllamaWriter::whole(std::span<const WholeChoice> choices, const Summary& summary) {
  Said said;
  for (const WholeChoice& choice : choices) {
    stop_ = choice.end.stop;
    for (const AnswerBlock& block : choice.blocks) {
      switch (block.kind) {
        case AnswerBlock::Kind::text: said.content += block.text; break;
        case AnswerBlock::Kind::thinking: said.thinking += block.text; break;
        case AnswerBlock::Kind::call: append_call(block, said.calls); break;
      }
    }
  }
  std::string out;
  append_done(said, summary, out);
  return out;
}

std::string OllamaWriter::refusal(const ApiError& error) const {
  return encode_ollama_error(error);
}

std::string OllamaWriter::loaded() const {
  std::string out;
  append_said({}, out);
  out += R"(,"done":true,"done_reason":"load"})";
  return out;
}

}  // namespace stemma::server
