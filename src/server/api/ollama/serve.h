// The routes of Ollama's API that have a meaning here. There is one model, so nothing can be
// pulled, created or removed.
//
//   GET  /api/version /api/tags /api/ps     POST /api/show /api/chat /api/generate
//
// Threading: thread-safe.
#pragma once

#include <memory>

#include "server/http/message.h"
#include "server/service/answer_service.h"

namespace stemma::server {

void serve_ollama_version(AnswerService& service, const HttpRequest& request,
                          const std::shared_ptr<HttpReply>& reply);
void serve_ollama_tags(AnswerService& service, const HttpRequest& request,
                       const std::shared_ptr<HttpReply>& reply);
void serve_ollama_ps(AnswerService& service, const HttpRequest& request,
                     const std::shared_ptr<HttpReply>& reply);
void serve_ollama_show(AnswerService& service, const HttpRequest& request,
                       const std::shared_ptr<HttpReply>& reply);
void serve_ollama_chat(AnswerService& service, const HttpRequest& request,
                       const std::shared_ptr<HttpReply>& reply);
void serve_ollama_generate(AnswerService& service, const HttpRequest& request,
                           const std::shared_ptr<HttpReply>& reply);

}  // namespace stemma::server
