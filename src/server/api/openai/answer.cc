#include "server/api/openai/answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "json/json.h"
#include "json/utf8.h"
#include "server/api/random_id.h"

namespace stemma::server {
namespace {

void append_field(std::string& out, std::string_view name, uint64_t value) {
  out += '"';
  out += name;
  out += "\":";
  append_json_number(out, value);
}

void append_field(std::string& out, std::string_view name, double value) {
  out += '"';
  out += name;
  out += "\":";
  append_json_number(out, value);
}

// A missing logprob (a prompt's first token) is null; an impossible token gets OpenAI's -9999.
void append_logprob(std::string& out, float logprob) {
  if (logprob < -9999.0F) logprob = -9999.0F;
  append_json_number(out, logprob);
}

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i != 0) out += ',';
    append_json_number(out, uint64_t{static_cast<uint8_t>(bytes[i])});
  }
  out += ']';
}

void append_chat_token(std::string& out, const TokenChance& chance, std::string_view bytes) {
  out += R"({"token":)";
  append_json_string(out, bytes);
  out += R"(,"logprob":)";
  append_logprob(out, chance.logprob);
  out += R"(,"bytes":)";
  append_bytes(out, bytes);
}

// {"content":[{"token","logprob","bytes","top_logprobs":[...]}],"refusal":null}
void append_chat_logprobs(std::string& out, std::span<const TokenLogprob> tokens) {
  out += R"({"content":)";
  append_token_logprobs(out, tokens);
  out += R"(,"refusal":null})";
}

bool continues(char byte) noexcept { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80; }

// Counts characters by their first bytes.
uint64_t characters(std::string_view text) noexcept {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); });
}

// Writes the likeliest tokens as an object. Of two with the same text, only the likelier is
// written.
void append_others(std::string& out, const TokenLogprob& token) {
  out += '{';
  for (size_t k = 0; k < token.others.size(); ++k) {
    const std::string name = to_utf8(token.others[k].second);
    const bool again =
        std::any_of(token.others.begin(), token.others.begin() + static_cast<ptrdiff_t>(k),
                    [&](const auto& other) { return to_utf8(other.second) == name; });
    if (again) continue;
    if (out.back() != '{') out += ',';
    append_json_string(out, name);
    out += ':';
    append_logprob(out, token.others[k].first.logprob);
  }
  out += '}';
}

// {"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]}. `offset` counts the
// characters before the first token; after the call, before the next one.
void append_legacy_logprobs(std::string& out, std::span<const TokenLogprob> tokens,
                            uint64_t& offset) {
  const auto list = [&](std::string_view name, auto&& append) {
    out += name;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i != 0) out += ',';
      append(tokens[i]);
    }
    out += ']';
  };
  list(R"({"tokens":[)", [&](const TokenLogprob& token) { append_json_string(out, token.bytes); });
  list(R"(,"token_logprobs":[)",
       [&](const TokenLogprob& token) { append_logprob(out, token.chosen.logprob); });
  list(R"(,"top_logprobs":[)", [&](const TokenLogprob& token) {
    if (std::isnan(token.chosen.logprob)) {
      out += "null";
    } else {
      append_others(out, token);
    }
  });
  list(R"(,"text_offset":[)", [&](const TokenLogprob& token) {
    // A token that begins inside a character has the offset of that character.
    const bool inside = !token.bytes.empty() && continues(token.bytes.front()) && offset != 0;
    append_json_number(out, offset - (inside ? 1 : 0));
    offset += characters(token.bytes);
  });
  out += '}';
}

double ms(uint64_t ns) noexcept { return static_cast<double>(ns) * 1e-6; }
double per(double value, double count) noexcept { return count > 0.0 ? value / count : 0.0; }

void append_finish(std::string& out, const AnswerEnd& end) {
  out += R"("finish_reason":")";
  out += finish_reason(end.stop);
  out += '"';
  if (end.stop == AnswerStop::stop_text) {
    // Which stop text it was, as vLLM reports it.
    out += R"(,"stop_reason":)";
    append_json_string(out, end.stop_text);
  }
}

// Writes {"id","type","function":{"name","arguments"}}, or for a custom tool
// {"id","type","custom":{"name","input"}}.
void append_call(std::string& out, const AnswerBlock& call) {
  out += R"({"id":)";
  append_json_string(out, call.call_id);
  out += call.custom ? R"(,"type":"custom","custom":{"name":)"
                     : R"(,"type":"function","function":{"name":)";
  append_json_string(out, call.name);
  out += call.custom ? R"(,"input":)" : R"(,"arguments":)";
  append_json_string(out, call.text);
  out += "}}";
}

// Joins the texts of all blocks of a kind.
std::string joined(std::span<const AnswerBlock> blocks, AnswerBlock::Kind kind) {
  std::string text;
  for (const AnswerBlock& block : blocks) {
    if (block.kind == kind) text += block.text;
  }
  return text;
}

void append_message(std::string& out, std::span<const AnswerBlock> blocks) {
  const std::string text = joined(blocks, AnswerBlock::Kind::text);
  const std::string thinking = joined(blocks, AnswerBlock::Kind::thinking);
  bool calls = false;
  for (const AnswerBlock& block : blocks) calls |= block.kind == AnswerBlock::Kind::call;
  out += R"({"role":"assistant","content":)";
  if (text.empty() && calls) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
  if (!thinking.empty()) {
    out += R"(,"reasoning_content":)";
    append_json_string(out, thinking);
  }
  if (calls) {
    out += R"(,"tool_calls":[)";
    for (const AnswerBlock& block : blocks) {
      if (block.kind != AnswerBlock::Kind::call) continue;
      if (out.back() != '[') out += ',';
      append_call(out, block);
    }
    out += ']';
  }
  out += R"(,"refusal":null})";
}

void append_extras(std::string& out, const Summary& summary) {
  out += R"(,"timings":)";
  append_timings(out, summary);
  out += R"(,"stemma":)";
  append_report(out, summary);
}

void append_head(std::string& out, const AnswerHead& head, std::string_view object) {
  out += R"({"id":)";
  append_json_string(out, head.id);
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  append_json_number(out, head.created_s);
  out += R"(,"model":)";
  append_json_string(out, head.model);
  if (!head.fingerprint.empty()) {
    out += R"(,"system_fingerprint":)";
    append_json_string(out, head.fingerprint);
  }
  out += R"(,"choices":[)";
}

}  // namespace

void append_token_logprobs(std::string& out, std::span<const TokenLogprob> tokens) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i != 0) out += ',';
    append_chat_token(out, tokens[i].chosen, tokens[i].bytes);
    out += R"(,"top_logprobs":[)";
    for (size_t k = 0; k < tokens[i].others.size(); ++k) {
      if (k != 0) out += ',';
      append_chat_token(out, tokens[i].others[k].first, tokens[i].others[k].second);
      out += '}';
    }
    out += "]}";
  }
  out += ']';
}

std::string answer_id(AnswerKind kind) {
  return random_id(kind == AnswerKind::chat ? "chatcmpl-" : "cmpl-");
}

std::string_view finish_reason(AnswerStop stop) noexcept {
  switch (stop) {
    case AnswerStop::end:
    case AnswerStop::stop_text: return "stop";
    case AnswerStop::length: return "length";
    case AnswerStop::tool_calls: return "tool_calls";
    case AnswerStop::cancelled: return "abort";
    case AnswerStop::failed: break;
  }
  return "error";
}

OpenaiWriter::OpenaiWriter(AnswerHead head) : head_(std::move(head)), choices_(head_.choices) {
  event_head_ = "data: ";
  append_head(event_head_, head_,
              head_.kind == AnswerKind::chat ? "chat.completion.chunk" : "text_completion");
}

std::string_view OpenaiWriter::content_type(bool stream) const {
  return stream ? "text/event-stream" : "application/json";
}

void OpenaiWriter::start(const AnswerBegun&, std::string&) {}

// Writes an event up to the choice's content. A chat's choice begins with its role.
OpenaiWriter::Choice& OpenaiWriter::open(uint32_t choice, std::string& out) {
  if (choices_.size() <= choice) choices_.resize(choice + size_t{1});
  Choice& at = choices_[choice];
  const auto head = [&] {
    out += event_head_;
    out += R"({"index":)";
    append_json_number(out, uint64_t{choice});
  };
  if (!std::exchange(at.begun, true) && head_.kind == AnswerKind::chat) {
    head();
    out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";
    close(out);
  }
  head();
  return at;
}

void OpenaiWriter::close(std::string& out) const {
  // OpenAI's clients recognise the last event by its usage.
  out += head_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

// Writes a part as a member of a delta.
void OpenaiWriter::append_delta(const AnswerPart& part, std::string& out) const {
  using Kind = dialect::EventKind;
  const dialect::Event& event = part.event;
  switch (event.kind) {
    case Kind::content:
    case Kind::reasoning:
      out += event.kind == Kind::content ? R"("content":)" : R"("reasoning_content":)";
      append_json_string(out, event.text);
      return;
    case Kind::call_begin:
    case Kind::arguments:
      out += R"("tool_calls":[{"index":)";
      append_json_number(out, uint64_t{event.call});
      if (event.kind == Kind::call_begin) {
        out += R"(,"id":)";
        append_json_string(out, part.call_id);
        out += part.custom ? R"(,"type":"custom","custom":{"name":)"
                           : R"(,"type":"function","function":{"name":)";
        append_json_string(out, event.text);
        out += part.custom ? R"(,"input":""}}])" : R"(,"arguments":""}}])";
      } else {
        out += part.custom ? R"(,"custom":{"input":)" : R"(,"function":{"arguments":)";
        append_json_string(out, event.text);
        out += "}}]";
      }
      return;
    case Kind::call_end: return;  // Only its logprobs are written.
  }
}

void OpenaiWriter::part(const AnswerPart& part, std::string& out) {
  const bool call = part.event.kind == dialect::EventKind::call_begin;
  const bool says = part.event.kind != dialect::EventKind::call_end && !part.event.text.empty();
  if (!call && !says && (part.logprobs.empty() || !head_.logprobs)) return;
  Choice& choice = open(part.choice, out);
  const bool chat = head_.kind == AnswerKind::chat;
  if (chat) {
    out += R"(,"delta":{)";
    append_delta(part, out);
    out += R"(},"logprobs":)";
  } else {
    out += R"(,"text":)";
    append_json_string(out, part.event.text);
    out += R"(,"logprobs":)";
  }
  if (!head_.logprobs) {
    out += "null";
  } else if (chat) {
    append_chat_logprobs(out, part.logprobs);
  } else {
    append_legacy_logprobs(out, part.logprobs, choice.text_offset);
  }
  out += R"(,"finish_reason":null})";
  close(out);
}

void OpenaiWriter::append_end(const AnswerEnd& end, const Summary* summary,
                              std::string& out) const {
  out += head_.kind == AnswerKind::chat ? R"(,"delta":{},"logprobs":null,)"
                                        : R"(,"text":"","logprobs":null,)";
  append_finish(out, end);
  out += "}]";
  if (head_.include_usage) out += R"(,"usage":null)";
  if (summary != nullptr) append_extras(out, *summary);
  out += "}\n\n";
}

void OpenaiWriter::end_choice(const AnswerEnd& end, std::string& out) {
  thinking_tokens_ += end.thinking_tokens;
  // The last choice waits for the summary.
  if (++ended_ >= head_.choices) {
    last_end_ = end;
    return;
  }
  open(end.choice, out);
  append_end(end, nullptr, out);
}

void OpenaiWriter::finish(const Summary& summary, std::string& out) {
  if (last_end_) {
    open(last_end_->choice, out);
    append_end(*last_end_, &summary, out);
  }
  if (head_.include_usage) {
    out += event_head_;
    out += R"(],"usage":)";
    append_usage(out, summary, thinking_tokens_);
    append_extras(out, summary);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void OpenaiWriter::fail(const ApiError& error, std::string& out) {
  out += encode_error_event(error);
}

std::string OpenaiWriter::refusal(const ApiError& error) const { return encode_error(error); }

void OpenaiWriter::append_choice(const WholeChoice& choice, std::string& out) const {
  const bool chat = head_.kind == AnswerKind::chat;
  out += R"({"index":)";
  append_json_number(out, uint64_t{choice.end.choice});
  if (chat) {
    out += R"(,"message":)";
    append_message(out, choice.blocks);
  } else {
    out += R"(,"text":)";
    append_json_string(out, joined(choice.blocks, AnswerBlock::Kind::text));
  }
  out += R"(,"logprobs":)";
  uint64_t offset = 0;
  if (!head_.logprobs) {
    out += "null";
  } else if (chat) {
    append_chat_logprobs(out, choice.logprobs);
  } else {
    append_legacy_logprobs(out, choice.logprobs, offset);
  }
  out += ',';
  append_finish(out, choice.end);
  out += '}';
}

std::string OpenaiWriter::whole(std::span<const WholeChoice> choices, const Summary& summary) {
  std::string out;
  append_head(out, head_, head_.kind == AnswerKind::chat ? "chat.completion" : "text_completion");
  uint32_t thinking_tokens = 0;
  for (const WholeChoice& choice : choices) {
    if (&choice != choices.data()) out += ',';
    append_choice(choice, out);
    thinking_tokens += choice.end.thinking_tokens;
  }
  out += R"(],"usage":)";
  append_usage(out, summary, thinking_tokens);
  append_extras(out, summary);
  out += '}';
  return out;
}

void append_usage(std::string& out, const Summary& summary, uint32_t thinking_tokens) {
  out += '{';
  append_field(out, "prompt_tokens", uint64_t{summary.prompt_tokens});
  out += ',';
  append_field(out, "completion_tokens", uint64_t{summary.generated_tokens});
  out += ',';
  append_field(out, "total_tokens", uint64_t{summary.prompt_tokens} + summary.generated_tokens);
  out += R"(,"prompt_tokens_details":{)";
  append_field(out, "cached_tokens", uint64_t{summary.cached_tokens});
  if (thinking_tokens != 0) {
    out += R"(},"completion_tokens_details":{)";
    append_field(out, "reasoning_tokens", uint64_t{thinking_tokens});
  }
  out += "}}";
}

void append_timings(std::string& out, const Summary& summary) {
  // As in llama-server: prompt_n counts the tokens that had to be computed.
  const uint64_t prompt_n =
      summary.prompt_tokens - std::min(summary.prompt_tokens, summary.cached_tokens);
  const uint64_t predicted_n = summary.generated_tokens;
  const double prompt_ms = ms(summary.timings.prompt_ns);
  const double predicted_ms = ms(summary.timings.generated_ns);
  out += '{';
  append_field(out, "cache_n", uint64_t{summary.cached_tokens});
  const auto part = [&](std::string_view name, uint64_t count, double took_ms) {
    const std::string prefix(name);
    out += ',';
    append_field(out, prefix + "_n", count);
    out += ',';
    append_field(out, prefix + "_ms", took_ms);
    out += ',';
    append_field(out, prefix + "_per_token_ms", per(took_ms, static_cast<double>(count)));
    out += ',';
    append_field(out, prefix + "_per_second", per(1e3 * static_cast<double>(count), took_ms));
  };
  part("prompt", prompt_n, prompt_ms);
  part("predicted", predicted_n, predicted_ms);
  out += '}';
}

void append_report(std::string& out, const Summary& summary) {
  const SequenceReport& report = summary.report;
  out += '{';
  append_field(out, "reused_tokens", uint64_t{report.reused_tokens});
  out += ',';
  append_field(out, "evaluated_tokens", uint64_t{report.evaluated_tokens});
  out += ',';
  append_field(out, "matched_tokens", uint64_t{report.matched_tokens});
  out += R"(,"outcome":)";
  append_json_string(out, to_string(report.outcome));
  out += R"(,"steps":{)";
  bool first = true;
  for (uint32_t i = 0; i < kStepCount; ++i) {
    if (report.steps[i] == 0) continue;
    if (!first) out += ',';
    first = false;
    append_field(out, to_string(static_cast<Step>(i)), uint64_t{report.steps[i]});
  }
  out += R"(},"miss":)";
  append_json_string(
      out, to_string(report.reason == SequenceMiss::unknown_scope ? SequenceMiss::first_use
                                                                  : report.reason));
  out += R"(,"retokenised_at":)";
  if (summary.retokenised_at == 0) {
    out += "null";
  } else {
    append_json_number(out, uint64_t{summary.retokenised_at});
  }
  if (!summary.parted_in.empty()) {
    out += R"(,"parted_in":)";
    append_json_string(out, summary.parted_in);
  }
  out += ',';
  append_field(out, "queued_ms", ms(summary.timings.queued_ns));
  out += ',';
  append_field(out, "sequence", uint64_t{static_cast<uint32_t>(summary.sequence)});
  if (!summary.tier.empty()) {
    out += R"(,"tier":{"name":)";
    append_json_string(out, summary.tier);
    out += ',';
    append_field(out, "tokens", uint64_t{summary.tier_tokens});
    out += ',';
    append_field(out, "bytes", summary.tier_bytes);
    out += ',';
    append_field(out, "ms", ms(summary.tier_ns));
    out += '}';
  }
  out += '}';
}

std::string encode_model(const ModelCard& model) {
  std::string out = R"({"id":)";
  append_json_string(out, model.id);
  out += R"(,"object":"model","created":)";
  append_json_number(out, model.created_s);
  out += R"(,"owned_by":"stemma","meta":{)";
  append_field(out, "n_vocab", uint64_t{model.info.vocabulary});
  out += ',';
  append_field(out, "n_ctx", uint64_t{model.context_tokens});
  out += ',';
  append_field(out, "n_ctx_train", uint64_t{model.info.trained_tokens});
  out += ',';
  append_field(out, "n_params", model.info.parameters);
  out += ',';
  append_field(out, "size", model.info.file_bytes);
  out += R"(,"architecture":)";
  append_json_string(out, model.info.architecture);
  out += R"(,"description":)";
  append_json_string(out, model.info.description);
  out += "}}";
  return out;
}

std::string encode_models(std::span<const ModelCard> models) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    if (i != 0) out += ',';
    out += encode_model(models[i]);
  }
  out += "]}";
  return out;
}

void TokenListWriter::add(Token token, std::string_view piece) {
  if (!first_) out_ += ',';
  first_ = false;
  if (!pieces_) return append_json_number(out_, uint64_t{token});
  out_ += R"({"id":)";
  append_json_number(out_, uint64_t{token});
  out_ += R"(,"piece":)";
  if (is_utf8(piece)) {
    append_json_string(out_, piece);
  } else {
    append_bytes(out_, piece);
  }
  out_ += '}';
}

std::string TokenListWriter::take() {
  out_ += "]}";
  return std::move(out_);
}

std::string encode_content(std::string_view content) {
  std::string out = R"({"content":)";
  append_json_string(out, content);
  out += '}';
  return out;
}

std::string encode_prompt(std::string_view prompt) {
  std::string out = R"({"prompt":)";
  append_json_string(out, prompt);
  out += '}';
  return out;
}

}  // namespace stemma::server
