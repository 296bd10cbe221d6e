#include "server/api/openai/serve_embeddings.h"

#include <string>
#include <utility>
#include <vector>

#include "server/api/openai/embeddings.h"
#include "server/api/refuse.h"
#include "server/service/request_line.h"

namespace stemma::server {
namespace {

ApiError no_embeddings() {
  ApiError error;
  error.message = "This server makes no embeddings. Start it with --embeddings on.";
  error.code = "embeddings_disabled";
  return error;
}

// The tokens of a text, or what is wrong with it.
std::optional<ApiError> tokens_of(const AnswerService& service, CompletionPrompt& input,
                                  std::vector<Token>& tokens) {
  const engine::LanguageModel& model = service.model();
  if (input.tokens.empty()) {
    auto made = model.tokenize(input.text, true, false);
    if (!made) return ApiError{.message = made.error().message(), .param = "input"};
    tokens = *std::move(made);
  } else {
    tokens = std::move(input.tokens);
  }
  if (auto error = check_vocabulary(tokens, "input", model.info().vocabulary)) return error;
  if (tokens.empty()) return ApiError{.message = "a text is empty", .param = "input"};
  if (tokens.size() > model.info().embedding_tokens) {
    ApiError error = context_exceeded(tokens.size(), model.info().embedding_tokens);
    error.param = "input";
    return error;
  }
  return {};
}

}  // namespace

void serve_embeddings(AnswerService& service, const HttpRequest& http,
                      const std::shared_ptr<HttpReply>& reply) {
  engine::LanguageModel& model = service.model();
  const uint32_t width = model.info().embedding_width;
  if (width == 0) return refuse(*reply, no_embeddings());
  EmbeddingsRequest request;
  auto error = decode_embeddings(http.body, service.rules(), width, request);
  if (!error) error = service.check_model(request.model);
  if (error) return refuse(*reply, *error);

  // All texts are checked before any is computed.
  std::vector<std::vector<Token>> texts(request.inputs.size());
  uint64_t counted = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (reply->gone()) return;
    if (error = tokens_of(service, request.inputs[i], texts[i]); error) {
      return refuse(*reply, *error);
    }
    counted += texts[i].size();
  }
  EmbeddingsWriter writer(request.base64);
  for (const std::vector<Token>& text : texts) {
    if (reply->gone()) return;
    const Result<std::vector<float>> vector = model.embed(text);
    if (!vector) return refuse(*reply, internal_error(vector.error().message()));
    writer.add(*vector);
    if (writer.bytes() > service.answer_bytes()) {
      return refuse(*reply, answer_too_large(service.answer_bytes(), "Send fewer inputs."));
    }
  }
  HttpHeaders headers;
  if (!request.ignored.empty()) {
    headers.push_back({"x-stemma-ignored", header_list(request.ignored)});
  }
  reply->respond(200, kJson, writer.take(service.model_id(), counted), std::move(headers));
}

}  // namespace stemma::server
