#include "server/api/anthropic/serve.h"

#include <string>
#include <utility>

#include "json/json.h"
#include "server/api/anthropic/request.h"
#include "server/api/anthropic/writer.h"
#include "server/api/random_id.h"
#include "server/api/refuse.h"

namespace stemma::server {
namespace {

std::unique_ptr<AnthropicWriter> writer_for(const AnswerService& service, const HttpRequest& http,
                                            const ChatRequest& request) {
  const std::string& asked = request.options.model;
  return std::make_unique<AnthropicWriter>(
      AnthropicHead{.id = random_id("msg_"),
                    .model = asked.empty() ? service.model_id() : asked,
                    .request_id = http.id});
}

}  // namespace

void serve_messages(AnswerService& service, const HttpRequest& http,
                    const std::shared_ptr<HttpReply>& reply) {
  ChatRequest request;
  const auto error = decode_anthropic(http.body, AnthropicBody::messages, service.rules(), request);
  auto writer = writer_for(service, http, request);
  if (error) return AnswerService::refuse(reply, *writer, *error);
  service.chat(http, reply, std::move(request), std::move(writer));
}

void serve_count_tokens(AnswerService& service, const HttpRequest& http,
                        const std::shared_ptr<HttpReply>& reply) {
  ChatRequest request;
  ChatPrompt prompt;
  auto error = decode_anthropic(http.body, AnthropicBody::count_tokens, service.rules(), request);
  if (!error) error = service.prompt_of(http, request, prompt);
  if (error) return AnswerService::refuse(reply, *writer_for(service, http, request), *error);
  std::string out = R"({"input_tokens":)";
  append_json_number(out, uint64_t{prompt.tokens.size()});
  out += '}';
  reply->respond(200, kJson, std::move(out));
}

}  // namespace stemma::server
