#include "server/api/anthropic/writer.h"

#include <algorithm>
#include <utility>

#include "json/json.h"
#include "server/api/anthropic/error.h"
#include "server/api/openai/answer.h"
#include "server/api/refuse.h"

namespace stemma::server {
namespace {

void append_number(std::string& out, std::string_view name, uint64_t value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, name);
  out += ':';
  append_json_number(out, value);
}

void append_text(std::string& out, std::string_view name, std::string_view value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, name);
  out += ':';
  append_json_string(out, value);
}

void append_stop(std::string& out, const AnswerEnd& end) {
  append_text(out, "stop_reason", anthropic_stop_reason(end.stop));
  if (end.stop == AnswerStop::stop_text) {
    append_text(out, "stop_sequence", end.stop_text);
  } else {
    out += R"(,"stop_sequence":null)";
  }
}

// Writes arguments as an object. A call that was cut off has no readable arguments.
void append_input(std::string& out, const std::string& arguments) {
  if (!append_json_object_text(out, arguments)) out += "{}";
}

}  // namespace

std::string_view anthropic_stop_reason(AnswerStop stop) noexcept {
  switch (stop) {
    case AnswerStop::stop_text: return "stop_sequence";
    case AnswerStop::length: return "max_tokens";
    case AnswerStop::tool_calls: return "tool_use";
    case AnswerStop::end:
    case AnswerStop::cancelled:
    case AnswerStop::failed: break;
  }
  return "end_turn";
}

void append_anthropic_usage(std::string& out, const AnswerBegun& begun, uint32_t output_tokens) {
  const uint32_t read = std::min(begun.cached_tokens, begun.prompt_tokens);
  const uint32_t pinned = std::clamp(begun.pinned_tokens, read, begun.prompt_tokens);
  out += '{';
  append_number(out, "input_tokens", begun.prompt_tokens - pinned);
  append_number(out, "cache_creation_input_tokens", pinned - read);
  append_number(out, "cache_read_input_tokens", read);
  append_number(out, "output_tokens", output_tokens);
  out += '}';
}

std::string_view AnthropicWriter::content_type(bool stream) const {
  return stream ? std::string_view("text/event-stream") : kJson;
}

std::string_view AnthropicWriter::signature(std::string_view transcript_id) const {
  // Without a transcript this id is found nowhere, which does no harm.
  return transcript_id.empty() ? std::string_view(head_.id) : transcript_id;
}

void AnthropicWriter::start(const AnswerBegun& begun, std::string& out) {
  begun_ = begun;
  out += "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{";
  append_text(out, "id", head_.id);
  out += R"(,"type":"message","role":"assistant")";
  append_text(out, "model", head_.model);
  out += R"(,"content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
  append_anthropic_usage(out, begun, 0);
  out += "}}\n\n";
}

void AnthropicWriter::begin_delta(std::string_view type, std::string_view field,
                                  std::string& out) const {
  out += "event: content_block_delta\ndata: {\"type\":\"content_block_delta\"";
  append_number(out, "index", blocks_ - 1);
  out += R"(,"delta":{)";
  append_text(out, "type", type);
  out += ',';
  append_json_string(out, field);
  out += ':';
}

void AnthropicWriter::open(Kind kind, std::string& out) {
  if (open_ == kind && kind != Kind::call) return;
  close(out);
  open_ = kind;
  out += "event: content_block_start\ndata: {\"type\":\"content_block_start\"";
  append_number(out, "index", blocks_++);
  out += R"(,"content_block":{)";
}

void AnthropicWriter::close(std::string& out) {
  if (!open_) return;
  if (*open_ == Kind::thinking) {
    begin_delta("signature_delta", "signature", out);
    append_json_string(out, signature(begun_.transcript_id));
    out += "}}\n\n";
  }
  open_.reset();
  out += "event: content_block_stop\ndata: {\"type\":\"content_block_stop\"";
  append_number(out, "index", blocks_ - 1);
  out += "}\n\n";
}

void AnthropicWriter::part(const AnswerPart& part, std::string& out) {
  using Event = dialect::EventKind;
  const std::string& text = part.event.text;
  switch (part.event.kind) {
    case Event::content:
    case Event::reasoning: {
      if (text.empty()) return;
      const bool thinking = part.event.kind == Event::reasoning;
      const Kind kind = thinking ? Kind::thinking : Kind::text;
      if (open_ != kind) {
        open(kind, out);
        out += thinking ? R"("type":"thinking","thinking":"","signature":"")"
                        : R"("type":"text","text":"")";
        out += "}}\n\n";
      }
      begin_delta(thinking ? "thinking_delta" : "text_delta", thinking ? "thinking" : "text", out);
      append_json_string(out, text);
      out += "}}\n\n";
      return;
    }
    case Event::call_begin:
      open(Kind::call, out);
      append_text(out, "type", "tool_use");
      append_text(out, "id", part.call_id);
      append_text(out, "name", text);
      out += ",\"input\":{}}}\n\n";
      return;
    case Event::arguments:
      if (open_ != Kind::call || text.empty()) return;
      begin_delta("input_json_delta", "partial_json", out);
      append_json_string(out, text);
      out += "}}\n\n";
      return;
    case Event::call_end:
      if (open_ == Kind::call) close(out);
      return;
  }
}

void AnthropicWriter::end_choice(const AnswerEnd& end, std::string& out) {
  close(out);
  end_ = end;
}

void AnthropicWriter::finish(const Summary& summary, std::string& out) {
  out += "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{";
  append_stop(out, end_);
  out += R"(},"usage":)";
  append_anthropic_usage(out, begun_, summary.generated_tokens);
  out += R"(,"stemma":)";
  append_report(out, summary);
  out += "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
}

void AnthropicWriter::fail(const ApiError& error, std::string& out) {
  out += "event: error\ndata: " + refusal(error) + "\n\n";
}

std::string AnthropicWriter::whole(std::span<const WholeChoice> choices, const Summary& summary) {
  const WholeChoice& choice = choices.front();
  std::string out = "{";
  append_text(out, "id", head_.id);
  out += R"(,"type":"message","role":"assistant")";
  append_text(out, "model", head_.model);
  out += R"(,"content":[)";
  for (const AnswerBlock& block : choice.blocks) {
    if (out.back() != '[') out += ',';
    out += '{';
    switch (block.kind) {
      case Kind::text:
        append_text(out, "type", "text");
        append_text(out, "text", block.text);
        break;
      case Kind::thinking:
        append_text(out, "type", "thinking");
        append_text(out, "thinking", block.text);
        append_text(out, "signature", signature(choice.end.transcript_id));
        break;
      case Kind::call:
        append_text(out, "type", "tool_use");
        append_text(out, "id", block.call_id);
        append_text(out, "name", block.name);
        out += R"(,"input":)";
        append_input(out, block.text);
        break;
    }
    out += '}';
  }
  out += "],";
  std::string stop = "{";
  append_stop(stop, choice.end);
  out += stop.substr(1);
  out += R"(,"usage":)";
  append_anthropic_usage(out,
                         {.prompt_tokens = summary.prompt_tokens,
                          .cached_tokens = summary.cached_tokens,
                          .pinned_tokens = summary.pinned_tokens,
                          .transcript_id = {}},
                         summary.generated_tokens);
  out += R"(,"stemma":)";
  append_report(out, summary);
  out += '}';
  return out;
}

std::string AnthropicWriter::refusal(const ApiError& error) const {
  return encode_anthropic_error(error, head_.request_id);
}

int AnthropicWriter::refusal_status(const ApiError& error) const { return anthropic_status(error); }

}  // namespace stemma::server
