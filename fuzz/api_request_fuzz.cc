// Sends bodies that no client should send to every decoder of the server. Accepted ones are
// answered, as streams of text and as whole answers.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "input.h"
#include "json/utf8.h"
#include "server/api/openai/answer.h"
#include "server/api/openai/embeddings.h"
#include "server/api/openai/request.h"
#include "server/schedule/sampler.h"
#include "server/schedule/stop.h"

namespace stemma::fuzz {
namespace {

using namespace server;  // NOLINT: one file, all of it about the server

bool is_json(std::string_view text) {
  return std::holds_alternative<Json>(parse_json(text, {.depth = 200, .values = 1U << 24U}));
}

// Every refusal is an answer that clients can read. It names the field and what to do about it.
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

// The bytes as an answer, in tokens of a few of them. Some of them are thinking and calls.
void answer(std::string_view bytes, const RequestOptions& options, AnswerKind kind) {
  using EventKind = dialect::EventKind;
  OpenaiWriter writer({.kind = kind,
                       .id = answer_id(kind),
                       .model = options.model,
                       .fingerprint = "",
                       .created_s = 1,
                       .include_usage = options.include_usage,
                       .logprobs = options.top_logprobs.has_value()});
  TextStream stream(options.stop);
  WholeChoice whole;
  std::string text;
  std::string out;
  writer.start({}, out);
  for (size_t at = 0; at < bytes.size() && at < 512 && !stream.stopped();) {
    const auto first = static_cast<uint8_t>(bytes[at]);
    const size_t n = 1 + first % 5;
    AnswerPart part;
    stream.add(bytes.substr(at, n), part.event.text);
    text += part.event.text;
    part.logprobs.push_back({{1, -0.5F}, std::string(bytes.substr(at, n)), {{{2, -1.0F}, "x"}}});
    FUZZ_EXPECT(is_utf8(part.event.text));
    if (kind == AnswerKind::chat) part.event.kind = static_cast<EventKind>(first / 5 % 5);
    part.custom = first % 2 == 0;
    writer.part(part, out);
    whole.logprobs.insert(whole.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
    whole.blocks.push_back({.kind = static_cast<AnswerBlock::Kind>(first % 3),
                            .text = part.event.text,
                            .custom = part.custom});
    at += n;
  }
  stream.finish(text);
  for (const std::string& stop : options.stop) FUZZ_EXPECT(text.find(stop) == std::string::npos);
  const Summary summary;
  writer.end_choice(whole.end, out);
  writer.finish(summary, out);
  FUZZ_EXPECT(is_utf8(out));
  const std::string all = writer.whole({&whole, 1}, summary);
  FUZZ_EXPECT(is_utf8(all) && is_json(all));
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
  EmbeddingsRequest embeddings;
  if (!refused(decode_embeddings(body, rules, 2, embeddings))) {
    FUZZ_EXPECT(!embeddings.inputs.empty());
    EmbeddingsWriter writer(embeddings.base64);
    for (const CompletionPrompt& input : embeddings.inputs) {
      FUZZ_EXPECT(is_utf8(input.text) && (input.text.empty() || input.tokens.empty()));
      writer.add(std::array<float, 2>{static_cast<float>(input.text.size()), -1.0F});
    }
    FUZZ_EXPECT(is_json(writer.take(embeddings.model, 1)));
  }
  TokenizeRequest tokenize;
  if (!refused(decode_tokenize(body, rules, tokenize))) FUZZ_EXPECT(is_utf8(tokenize.content));
  DetokenizeRequest detokenize;
  if (!refused(decode_detokenize(body, rules, detokenize))) {
    TokenListWriter tokens(false);
    for (const Token token : detokenize.tokens) tokens.add(token);
    FUZZ_EXPECT(is_json(tokens.take()));
  }
  // A value that can be read stays the same when it is written and read again.
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
