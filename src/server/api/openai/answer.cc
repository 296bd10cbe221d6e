#include "server/api/openai/answer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "json/json.h"
#include "json/utf8.h"

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

// What has no logprob (the first token of a prompt) is null; what cannot be has OpenAI's -9999.
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
  out += R"({"content":[)";
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
  out += R"(],"refusal":null})";
}

bool continues(char byte) noexcept { return (static_cast<uint8_t>(byte) & 0xC0U) == 0x80; }

// Characters, counted by their first bytes.
uint64_t characters(std::string_view text) noexcept {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); });
}

// The likeliest tokens as an object. Two that read alike would be one name twice: the likelier one stays.
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

// {"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]}. `offset`: characters before the
// first of them; after the call, before the next.
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
    // A token inside a character stands where that character began.
    const bool inside = !token.bytes.empty() && continues(token.bytes.front()) && offset != 0;
    append_json_number(out, offset - (inside ? 1 : 0));
    offset += characters(token.bytes);
  });
  out += '}';
}

double ms(uint64_t ns) noexcept { return static_cast<double>(ns) * 1e-6; }
double per(double value, double count) noexcept { return count > 0.0 ? value / count : 0.0; }

void append_finish(std::string& out, const ChoiceEnd& end) {
  out += R"("finish_reason":")";
  out += finish_reason(end.cause);
  out += '"';
  if (end.cause == StopCause::stop_text) {
    // Which one, as vLLM says it.
    out += R"(,"stop_reason":)";
    append_json_string(out, end.stop_text);
  }
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

std::string answer_id(AnswerKind kind, uint64_t random_high, uint64_t random_low) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id = kind == AnswerKind::chat ? "chatcmpl-" : "cmpl-";
  for (uint64_t bits : {random_high, random_low}) {
    // 62^11 > 2^64.
    for (uint32_t i = 0; i < 11; ++i, bits /= kLetters.size())
      id += kLetters[bits % kLetters.size()];
  }
  return id;
}

std::string_view finish_reason(StopCause cause) noexcept {
  switch (cause) {
    case StopCause::eos:
    case StopCause::stop_text: return "stop";
    case StopCause::length: return "length";
    case StopCause::cancelled: return "abort";
    case StopCause::failed: break;
  }
  return "error";
}

void AnswerChoice::add(Piece piece) {
  text += piece.text;
  std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(logprobs));
}

AnswerWriter::AnswerWriter(AnswerHead head) : head_(std::move(head)) {
  event_head_ = "data: ";
  append_head(event_head_, head_,
              head_.kind == AnswerKind::chat ? "chat.completion.chunk" : "text_completion");
}

void AnswerWriter::open(uint32_t choice, std::string& out) const {
  out += event_head_;
  out += R"({"index":)";
  append_json_number(out, uint64_t{choice});
}

void AnswerWriter::close(std::string& out) const {
  // OpenAI's clients tell the last event by its usage.
  out += head_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

void AnswerWriter::begin(uint32_t choice, std::string& out) const {
  if (head_.kind != AnswerKind::chat) return;
  open(choice, out);
  out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";
  close(out);
}

void AnswerWriter::piece(const Piece& piece, std::string& out) {
  if (piece.text.empty() && piece.logprobs.empty()) return;
  open(piece.choice, out);
  const bool chat = head_.kind == AnswerKind::chat;
  out += chat ? R"(,"delta":{"content":")" : R"(,"text":")";
  append_json_escaped(out, piece.text);
  out += chat ? R"("},"logprobs":)" : R"(","logprobs":)";
  if (!head_.logprobs) {
    out += "null";
  } else if (chat) {
    append_chat_logprobs(out, piece.logprobs);
  } else {
    if (text_offsets_.size() <= piece.choice) text_offsets_.resize(piece.choice + size_t{1});
    append_legacy_logprobs(out, piece.logprobs, text_offsets_[piece.choice]);
  }
  out += R"(,"finish_reason":null})";
  close(out);
}

void AnswerWriter::end(const ChoiceEnd& end, const Summary* summary, std::string& out) const {
  open(end.choice, out);
  out += head_.kind == AnswerKind::chat ? R"(,"delta":{},"logprobs":null,)"
                                        : R"(,"text":"","logprobs":null,)";
  append_finish(out, end);
  out += "}]";
  if (head_.include_usage) out += R"(,"usage":null)";
  if (summary != nullptr) append_extras(out, *summary);
  out += "}\n\n";
}

void AnswerWriter::usage(const Summary& summary, std::string& out) const {
  if (!head_.include_usage) return;
  out += event_head_;
  out += R"(],"usage":)";
  append_usage(out, summary);
  append_extras(out, summary);
  out += "}\n\n";
}

void AnswerWriter::done(std::string& out) { out += "data: [DONE]\n\n"; }

std::string AnswerWriter::whole(std::span<const AnswerChoice> choices,
                                const Summary& summary) const {
  std::string out;
  const bool chat = head_.kind == AnswerKind::chat;
  append_head(out, head_, chat ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < choices.size(); ++i) {
    const AnswerChoice& choice = choices[i];
    out += i == 0 ? R"({"index":)" : R"(,{"index":)";
    append_json_number(out, uint64_t{choice.end.choice});
    out += chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)";
    append_json_string(out, choice.text);
    out += chat ? R"(,"refusal":null},"logprobs":)" : R"(,"logprobs":)";
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
  out += R"(],"usage":)";
  append_usage(out, summary);
  append_extras(out, summary);
  out += '}';
  return out;
}

void append_usage(std::string& out, const Summary& summary) {
  out += '{';
  append_field(out, "prompt_tokens", uint64_t{summary.prompt_tokens});
  out += ',';
  append_field(out, "completion_tokens", uint64_t{summary.generated_tokens});
  out += ',';
  append_field(out, "total_tokens", uint64_t{summary.prompt_tokens} + summary.generated_tokens);
  out += R"(,"prompt_tokens_details":{)";
  append_field(out, "cached_tokens", uint64_t{summary.cached_tokens});
  out += "}}";
}

void append_timings(std::string& out, const Summary& summary) {
  // As llama-server has them: prompt_n is what had to be computed.
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
