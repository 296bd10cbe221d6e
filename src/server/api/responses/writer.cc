#include "server/api/responses/writer.h"

#include <algorithm>
#include <utility>

#include "json/json.h"
#include "server/api/openai/answer.h"
#include "server/api/random_id.h"

namespace stemma::server {
namespace {

std::string_view item_prefix(const AnswerBlock& block) {
  switch (block.kind) {
    case AnswerBlock::Kind::text: return "msg_";
    case AnswerBlock::Kind::thinking: return "rs_";
    case AnswerBlock::Kind::call: break;
  }
  return block.custom ? "ctc_" : "fc_";
}

// Returns the event type of an item's deltas.
std::string_view delta_type(const AnswerBlock& block, bool summary) {
  switch (block.kind) {
    case AnswerBlock::Kind::text: return "response.output_text";
    case AnswerBlock::Kind::thinking:
      return summary ? "response.reasoning_summary_text" : "response.reasoning_text";
    case AnswerBlock::Kind::call: break;
  }
  return block.custom ? "response.custom_tool_call_input" : "response.function_call_arguments";
}

void append_text_field(std::string_view name, std::string_view value, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_string(out, value);
}

void append_text_or_null(std::string_view name, std::string_view value, std::string& out) {
  if (!value.empty()) return append_text_field(name, value, out);
  out += ",\"";
  out += name;
  out += "\":null";
}

void append_index(std::string_view name, uint64_t value, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_number(out, value);
}

void append_json_text(std::string_view name, std::string_view json, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  out += json;
}

void append_response_usage(const Summary& summary, uint32_t thinking_tokens, std::string& out) {
  out += R"({"input_tokens":)";
  append_json_number(out, uint64_t{summary.prompt_tokens});
  out += R"(,"input_tokens_details":{"cached_tokens":)";
  append_json_number(out, uint64_t{summary.cached_tokens});
  out += R"(},"output_tokens":)";
  append_json_number(out, uint64_t{summary.generated_tokens});
  out += R"(,"output_tokens_details":{"reasoning_tokens":)";
  append_json_number(out, uint64_t{std::min(thinking_tokens, summary.generated_tokens)});
  out += R"(},"total_tokens":)";
  append_json_number(out, uint64_t{summary.prompt_tokens} + summary.generated_tokens);
  out += '}';
}

}  // namespace

ResponseHead response_head(const ResponsesRequest& request, std::string model, uint64_t created_s) {
  const RequestOptions& options = request.chat.options;
  return {.key = random_id(""),
          .model = std::move(model),
          .created_s = created_s,
          .previous_response_id = request.previous_response_id,
          .store = request.store,
          .summary = request.summary,
          .encrypted_content = request.encrypted_content,
          .logprobs = options.top_logprobs.has_value(),
          .parallel_calls = request.chat.parallel_calls,
          .top_logprobs = options.top_logprobs.value_or(0),
          .max_tokens = options.max_tokens,
          .temperature = options.sampling.temperature,
          .top_p = options.sampling.top_p,
          .session = options.session,
          .namespaced = request.namespaced,
          .input = request.input,
          .echo = request.echo};
}

ResponsesWriter::ResponsesWriter(ResponseHead head, Keep keep)
    : head_(std::move(head)),
      id_(std::string(kResponsePrefix) + head_.key),
      keep_(std::move(keep)) {}

std::string_view ResponsesWriter::content_type(bool stream) const {
  return stream ? "text/event-stream" : "application/json";
}

// ---- Events -------------------------------------------------------------------------------------

void ResponsesWriter::begin_event(std::string_view type, std::string& out) {
  out += "event: ";
  out += type;
  out += R"(
data: {"type":")";
  out += type;
  out += R"(","sequence_number":)";
  append_json_number(out, next_event_++);
}

void ResponsesWriter::end_event(std::string& out) { out += "}\n\n"; }

void ResponsesWriter::begin_item_event(std::string_view type, const Item& item, std::string& out) {
  begin_event(type, out);
  append_text_field("item_id", item.id, out);
  append_index("output_index", items_.size() - 1, out);
}

void ResponsesWriter::begin_part_event(std::string_view type, const Item& item, std::string& out) {
  begin_item_event(type, item, out);
  if (item.block.kind == AnswerBlock::Kind::call) return;
  const bool summary = item.block.kind == AnswerBlock::Kind::thinking && head_.summary;
  append_index(summary ? "summary_index" : "content_index", 0, out);
}

void ResponsesWriter::item_event(std::string_view type, const Item& item, std::string& out) {
  begin_event(type, out);
  append_index("output_index", items_.size() - 1, out);
  out += R"(,"item":)";
  append_item(item, out);
  end_event(out);
}

void ResponsesWriter::response_event(std::string_view type, std::string_view status,
                                     const Summary* summary, std::string& out) {
  begin_event(type, out);
  out += R"(,"response":)";
  append_before_output(status, out);
  append_output(out);
  append_after_output(summary, out);
  end_event(out);
}

void ResponsesWriter::start(const AnswerBegun& begun, std::string& out) {
  started_ = true;
  transcript_id_ = begun.transcript_id;
  response_event("response.created", "in_progress", nullptr, out);
  response_event("response.in_progress", "in_progress", nullptr, out);
}

// ---- Items --------------------------------------------------------------------------------------

bool ResponsesWriter::is_open(AnswerBlock::Kind kind) const {
  return !items_.empty() && !items_.back().done && items_.back().block.kind == kind;
}

ResponsesWriter::Item& ResponsesWriter::open(AnswerBlock block, std::string& out) {
  close(true, out);
  std::string id =
      std::string(item_prefix(block)) + head_.key + "_" + std::to_string(items_.size());
  Item& item = items_.emplace_back(Item{.block = std::move(block), .id = std::move(id)});
  if (!writes_events_) return item;
  item_event("response.output_item.added", item, out);
  if (item.block.kind == AnswerBlock::Kind::call) return item;
  const bool summary = item.block.kind == AnswerBlock::Kind::thinking && head_.summary;
  begin_part_event(
      summary ? "response.reasoning_summary_part.added" : "response.content_part.added", item, out);
  out += R"(,"part":)";
  append_part(item, "", out);
  end_event(out);
  return item;
}

void ResponsesWriter::append_text(std::string_view text, std::span<const TokenLogprob> logprobs,
                                  std::string& out) {
  Item& item = items_.back();
  item.block.text += text;
  const bool with_logprobs = item.block.kind == AnswerBlock::Kind::text && head_.logprobs;
  if (with_logprobs) item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
  if (!writes_events_ || (text.empty() && (!with_logprobs || logprobs.empty()))) return;
  begin_part_event(std::string(delta_type(item.block, head_.summary)) + ".delta", item, out);
  append_text_field("delta", text, out);
  if (item.block.kind == AnswerBlock::Kind::text) {
    out += R"(,"logprobs":)";
    append_token_logprobs(out, with_logprobs ? logprobs : std::span<const TokenLogprob>{});
  }
  end_event(out);
}

void ResponsesWriter::close(bool complete, std::string& out) {
  if (items_.empty() || items_.back().done) return;
  Item& item = items_.back();
  item.done = true;
  item.block.complete = complete;
  if (!writes_events_) return;
  const bool call = item.block.kind == AnswerBlock::Kind::call;
  const bool summary = item.block.kind == AnswerBlock::Kind::thinking && head_.summary;
  begin_part_event(std::string(delta_type(item.block, head_.summary)) + ".done", item, out);
  append_text_field(!call               ? "text"
                    : item.block.custom ? "input"
                                        : "arguments",
                    item.block.text, out);
  if (call && !item.block.custom) append_text_field("name", item.block.name, out);
  if (item.block.kind == AnswerBlock::Kind::text) {
    out += R"(,"logprobs":)";
    append_token_logprobs(out, item.logprobs);
  }
  end_event(out);
  if (!call) {
    begin_part_event(
        summary ? "response.reasoning_summary_part.done" : "response.content_part.done", item, out);
    out += R"(,"part":)";
    append_part(item, item.block.text, out);
    end_event(out);
  }
  item_event("response.output_item.done", item, out);
}

void ResponsesWriter::part(const AnswerPart& part, std::string& out) {
  using dialect::EventKind;
  using Kind = AnswerBlock::Kind;
  const dialect::Event& event = part.event;
  switch (event.kind) {
    case EventKind::content:
    case EventKind::reasoning: {
      const Kind kind = event.kind == EventKind::content ? Kind::text : Kind::thinking;
      if (!is_open(kind)) {
        if (event.text.empty()) return;
        open({.kind = kind}, out);
      }
      append_text(event.text, part.logprobs, out);
      break;
    }
    case EventKind::call_begin:
      open({.kind = Kind::call, .name = event.text, .call_id = part.call_id, .custom = part.custom},
           out);
      break;
    case EventKind::arguments:
      if (is_open(Kind::call)) append_text(event.text, {}, out);
      break;
    case EventKind::call_end: close(event.complete, out); break;
  }
}

void ResponsesWriter::end_choice(const AnswerEnd& end, std::string& out) {
  close(end.stop != AnswerStop::length, out);
  // Clients look for a message if nothing was called.
  if (items_.empty()) {
    open({.kind = AnswerBlock::Kind::text}, out);
    close(end.stop != AnswerStop::length, out);
  }
  end_ = end;
}

void ResponsesWriter::finish(const Summary& summary, std::string& out) {
  keep(summary);
  const std::string type = "response." + std::string(status());
  response_event(type, status(), &summary, out);
}

void ResponsesWriter::fail(const ApiError& error, std::string& out) {
  if (!started_) {
    // No response exists that could have failed.
    begin_event("error", out);
    append_text_or_null("code", error.code.empty() ? error.type : error.code, out);
    append_text_field("message", error.message, out);
    append_text_or_null("param", error.param, out);
    return end_event(out);
  }
  close(false, out);
  error_ = error;
  response_event("response.failed", "failed", nullptr, out);
}

std::string ResponsesWriter::whole(std::span<const WholeChoice> choices, const Summary& summary) {
  writes_events_ = false;
  std::string out;
  for (const WholeChoice& choice : choices) {
    transcript_id_ = choice.end.transcript_id;
    const auto texts =
        std::ranges::count(choice.blocks, AnswerBlock::Kind::text, &AnswerBlock::kind);
    for (const AnswerBlock& block : choice.blocks) {
      AnswerBlock head = block;
      head.text.clear();
      open(std::move(head), out);
      const bool all = texts == 1 && block.kind == AnswerBlock::Kind::text;
      append_text(block.text, all ? choice.logprobs : std::span<const TokenLogprob>{}, out);
      close(block.complete, out);
    }
    // If the answer was cut off, its last item is incomplete.
    if (!items_.empty() && choice.end.stop == AnswerStop::length &&
        items_.back().block.kind != AnswerBlock::Kind::call) {
      items_.back().block.complete = false;
    }
    end_choice(choice.end, out);
  }
  keep(summary);
  append_before_output(status(), out);
  append_output(out);
  append_after_output(&summary, out);
  return out;
}

std::string ResponsesWriter::refusal(const ApiError& error) const { return encode_error(error); }

// ---- What it is made of -------------------------------------------------------------------------

void ResponsesWriter::append_part(const Item& item, std::string_view text, std::string& out) const {
  if (item.block.kind == AnswerBlock::Kind::thinking) {
    out += head_.summary ? R"({"type":"summary_text")" : R"({"type":"reasoning_text")";
    append_text_field("text", text, out);
  } else {
    out += R"({"type":"output_text")";
    append_text_field("text", text, out);
    out += R"(,"annotations":[],"logprobs":)";
    append_token_logprobs(out, item.logprobs);
  }
  out += '}';
}

void ResponsesWriter::append_call(const Item& item, std::string& out) const {
  const AnswerBlock& block = item.block;
  out += block.custom ? R"("type":"custom_tool_call")" : R"("type":"function_call")";
  append_text_field("call_id", block.call_id, out);
  const auto inside = std::ranges::find(head_.namespaced, block.name, &NamespacedTool::offered);
  if (inside == head_.namespaced.end()) {
    append_text_field("name", block.name, out);
  } else {
    append_text_field("name", inside->name, out);
    append_text_field("namespace", inside->name_space, out);
  }
  append_text_field(block.custom ? "input" : "arguments", block.text, out);
}

void ResponsesWriter::append_item(const Item& item, std::string& out) const {
  out += R"({"id":)";
  append_json_string(out, item.id);
  out += ',';
  const bool said = item.done;  // An item that begins has no text yet.
  switch (item.block.kind) {
    case AnswerBlock::Kind::call: append_call(item, out); break;
    case AnswerBlock::Kind::text:
      out += R"("type":"message","role":"assistant","content":[)";
      if (said) append_part(item, item.block.text, out);
      out += ']';
      break;
    case AnswerBlock::Kind::thinking:
      out += R"("type":"reasoning","summary":[)";
      if (said && head_.summary) append_part(item, item.block.text, out);
      out += head_.summary ? "]" : R"(],"content":[)";
      if (said && !head_.summary) append_part(item, item.block.text, out);
      if (!head_.summary) out += ']';
      if (head_.encrypted_content) {
        append_text_or_null("encrypted_content", transcript_id_, out);
      }
      break;
  }
  append_text_field("status",
                    !said                 ? "in_progress"
                    : item.block.complete ? "completed"
                                          : "incomplete",
                    out);
  out += '}';
}

void ResponsesWriter::append_output(std::string& out) const {
  out += '[';
  for (size_t i = 0; i < items_.size(); ++i) {
    if (i != 0) out += ',';
    append_item(items_[i], out);
  }
  out += ']';
}

std::string_view ResponsesWriter::status() const {
  switch (end_.stop) {
    case AnswerStop::length: return "incomplete";
    case AnswerStop::cancelled: return "cancelled";
    case AnswerStop::failed: return "failed";
    default: return "completed";
  }
}

void ResponsesWriter::append_before_output(std::string_view status, std::string& out) const {
  out += R"({"id":)";
  append_json_string(out, id_);
  out += R"(,"object":"response")";
  append_index("created_at", head_.created_s, out);
  append_text_field("status", status, out);
  out += R"(,"background":false,"error":)";
  if (error_.message.empty()) {
    out += "null";
  } else {
    out += R"({"code":)";
    append_json_string(out, error_.code.empty() ? error_.type : error_.code);
    append_text_field("message", error_.message, out);
    out += '}';
  }
  out += status == "incomplete" ? R"(,"incomplete_details":{"reason":"max_output_tokens"})"
                                : R"(,"incomplete_details":null)";
  append_text_field("model", head_.model, out);
  out += R"(,"output":)";
}

void ResponsesWriter::append_after_output(const Summary* summary, std::string& out) const {
  const ResponseEcho& echo = head_.echo;
  append_json_text("instructions", echo.instructions, out);
  if (head_.max_tokens) {
    append_index("max_output_tokens", *head_.max_tokens, out);
  } else {
    out += R"(,"max_output_tokens":null)";
  }
  out += R"(,"max_tool_calls":null,"parallel_tool_calls":)";
  out += head_.parallel_calls ? "true" : "false";
  append_text_or_null("previous_response_id", head_.previous_response_id, out);
  append_text_or_null("prompt_cache_key", head_.session, out);
  append_json_text("reasoning", echo.reasoning, out);
  out += R"(,"service_tier":"default","store":)";
  out += head_.store ? "true" : "false";
  out += R"(,"temperature":)";
  append_json_number(out, head_.temperature);
  append_json_text("text", echo.text, out);
  append_json_text("tool_choice", echo.tool_choice, out);
  append_json_text("tools", echo.tools, out);
  append_index("top_logprobs", head_.top_logprobs, out);
  out += R"(,"top_p":)";
  append_json_number(out, head_.top_p);
  append_json_text("truncation", echo.truncation, out);
  append_json_text("user", echo.user, out);
  append_json_text("metadata", echo.metadata, out);
  out += R"(,"usage":)";
  if (summary == nullptr) {
    out += "null}";
    return;
  }
  append_response_usage(*summary, end_.thinking_tokens, out);
  out += R"(,"timings":)";
  append_timings(out, *summary);
  out += R"(,"stemma":)";
  append_report(out, *summary);
  out += '}';
}

void ResponsesWriter::keep(const Summary& summary) {
  if (!head_.store || !keep_) return;
  StoredResponse stored;
  append_before_output(status(), stored.head);
  append_output(stored.output);
  append_after_output(&summary, stored.tail);
  stored.input = head_.input;
  stored.previous_id = head_.previous_response_id;
  keep_(id_, std::move(stored));
}

}  // namespace stemma::server
