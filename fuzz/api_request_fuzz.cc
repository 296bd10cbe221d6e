// Bodies that no client should send, to every decoder of the server; and what was accepted, through
// streams of text and back out as answers.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "input.h"
#include "json/utf8.h"
#include "server/api/openai/answer.h"
#include "server/api/openai/request.h"
#include "server/schedule/sampler.h"
#include "server/schedule/stop.h"

namespace stemma::fuzz {
namespace {

using namespace server;  // NOLINT: one file, all of it about the server

bool is_json(std::string_view text) {
  return std::holds_alternative<Json>(parse_json(text, {.depth = 200, .values = 1U << 24U}));
}

// Every refusal is an answer that clients can read, and says what to do about which field.
bool refused(const std::optional<ApiError>& error) {
  if (!error) return false;
  FUZZ_EXPECT(error->status == 400 && error->type == "invalid_request_error");
  FUZZ_EXPECT(!error->message.empty() && !error->code.empty());
  FUZZ_EXPECT(error->message.size() < 2048 && error->param.size() < 1024);
  const std::string text = encode_error(*error);
  FUZZ_EXPECT(is_utf8(text) && is_json(text));
  return true;
}

void check_options(const RequestOptions& options, const ApiRules& rules) {
  const Sampling& sampling = options.sampling;
  FUZZ_EXPECT(options.choices >= 1 && options.choices <= rules.max_choices);
  FUZZ_EXPECT(options.stop.size() <= rules.max_stops);
  for (const std::string& stop : options.stop) {
    FUZZ_EXPECT(!stop.empty() && stop.size() <= rules.max_stop_bytes && is_utf8(stop));
  }
  FUZZ_EXPECT(!options.top_logprobs || *options.top_logprobs <= rules.max_top_logprobs);
  FUZZ_EXPECT(sampling.temperature >= 0.0F && sampling.temperature <= 2.0F);
  FUZZ_EXPECT(sampling.top_p >= 0.0F && sampling.top_p <= 1.0F);
  FUZZ_EXPECT(sampling.min_p >= 0.0F && sampling.min_p <= 1.0F);
  FUZZ_EXPECT(std::fabs(sampling.presence_penalty) <= 2.0F);
  FUZZ_EXPECT(std::fabs(sampling.frequency_penalty) <= 2.0F);
  FUZZ_EXPECT(sampling.repeat_penalty > 0.0F && sampling.repeat_penalty <= 10.0F);
  FUZZ_EXPECT(sampling.bias.size() <= rules.max_biases);
  for (const auto& [token, bias] : sampling.bias) {
    FUZZ_EXPECT(token < kTokenLimit && bias <= 100.0F);
  }
  FUZZ_EXPECT(!options.include_usage || options.stream);
  static_cast<void>(check_vocabulary(options, 1000));

  // Whatever was accepted can be sampled with.
  constexpr std::array<float, 7> kLogits = {0.5F, -3.0F, 2.0F, 2.0F, -100.0F, 90.0F, 0.0F};
  Sampler sampler(sampling, options.choices - 1, kLogits.size());
  Workspace workspace;
  sampler.prime(std::array<Token, 3>{1, 2, 1});
  for (int i = 0; i < 4; ++i) {
    const Result<Token> token = sampler.sample(kLogits, workspace);
    FUZZ_EXPECT(token ? *token < kLogits.size() : token.error().code() == Errc::out_of_range);
    if (token) sampler.accept(*token);
  }
}

// The bytes as an answer, in tokens of a few of them.
void answer(std::string_view bytes, const RequestOptions& options, AnswerKind kind) {
  AnswerWriter writer({.kind = kind,
                       .id = answer_id(kind, bytes.size(), 7),
                       .model = options.model,
                       .fingerprint = "",
                       .created_s = 1,
                       .include_usage = options.include_usage,
                       .logprobs = options.top_logprobs.has_value()});
  TextStream stream(options.stop);
  AnswerChoice whole;
  std::string out;
  for (size_t at = 0; at < bytes.size() && at < 512 && !stream.stopped();) {
    const size_t n = 1 + static_cast<uint8_t>(bytes[at]) % 5;
    Piece piece;
    stream.add(bytes.substr(at, n), piece.text);
    piece.logprobs.push_back({{1, -0.5F}, std::string(bytes.substr(at, n)), {{{2, -1.0F}, "x"}}});
    FUZZ_EXPECT(is_utf8(piece.text));
    writer.piece(piece, out);
    whole.add(std::move(piece));
    at += n;
  }
  stream.finish(whole.text);
  for (const std::string& stop : options.stop) {
    FUZZ_EXPECT(whole.text.find(stop) == std::string::npos);
  }
  const Summary summary;
  writer.begin(0, out);
  writer.end(whole.end, &summary, out);
  writer.usage(summary, out);
  AnswerWriter::done(out);
  FUZZ_EXPECT(is_utf8(out));
  const std::string text = writer.whole({&whole, 1}, summary);
  FUZZ_EXPECT(is_utf8(text) && is_json(text));
}

void run(std::string_view body) {
  const ApiRules rules;
  ChatRequest chat;
  if (!refused(decode_chat(body, rules, chat))) {
    check_options(chat.options, rules);
    FUZZ_EXPECT(!chat.messages.empty());
    for (const Message& message : chat.messages) {
      FUZZ_EXPECT(!message.role.empty() && !message.parts.empty() && is_utf8(message.text()));
    }
    std::string kwargs;
    append_json(kwargs, chat.template_kwargs);
    FUZZ_EXPECT(is_json(kwargs));
    answer(body, chat.options, AnswerKind::chat);
  }
  CompletionRequest completion;
  if (!refused(decode_completion(body, rules, completion))) {
    check_options(completion.options, rules);
    FUZZ_EXPECT(completion.prompt.empty() || completion.tokens.empty());
    for (const Token token : completion.tokens) FUZZ_EXPECT(token < kTokenLimit);
    answer(body, completion.options, AnswerKind::completion);
  }
  TokenizeRequest tokenize;
  if (!refused(decode_tokenize(body, rules, tokenize))) FUZZ_EXPECT(is_utf8(tokenize.content));
  DetokenizeRequest detokenize;
  if (!refused(decode_detokenize(body, rules, detokenize))) {
    TokenListWriter tokens(false);
    for (const Token token : detokenize.tokens) tokens.add(token);
    FUZZ_EXPECT(is_json(tokens.take()));
  }
  // What can be read can be written and read again, and is then the same.
  const auto parsed = parse_json(body);
  if (const auto* value = std::get_if<Json>(&parsed)) {
    std::string once;
    append_json(once, *value);
    const auto again = parse_json(once);
    FUZZ_EXPECT(std::holds_alternative<Json>(again));
    std::string twice;
    append_json(twice, std::get<Json>(again));
    FUZZ_EXPECT(once == twice);
  }
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
