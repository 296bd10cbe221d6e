#include "server/api/responses/serve.h"

#include <string>
#include <utility>

#include "server/api/refuse.h"
#include "server/api/responses/request.h"
#include "server/api/responses/store.h"
#include "server/api/responses/writer.h"

namespace stemma::server {
namespace {

struct Named {
  std::string id;
  std::string salt;
};

Named named_in(const HttpRequest& request) {
  std::string id = request.path.substr(request.path.rfind('/') + 1);
  return {.id = std::move(id), .salt = request.parameter("cache_salt").value_or("")};
}

ApiError unknown_response(const std::string& id) {
  return {.status = 404,
          .message = "Response with id '" + id.substr(0, 64) +
                     "' not found: it was not stored, was forgotten to make room, or is another "
                     "salt's.",
          .param = "id",
          .code = "response_not_found"};
}

}  // namespace

void serve_responses(AnswerService& service, const HttpRequest& request,
                     const std::shared_ptr<HttpReply>& reply) {
  ResponsesRequest decoded;
  ResponseStore& store = service.responses();
  if (const auto error = decode_responses(request.body, service.rules(), store, decoded)) {
    return refuse(*reply, *error);
  }
  const std::string& salt = decoded.chat.options.salt;
  ResponsesWriter::Keep keep = [&store, salt, may_save = service.may_save(request, salt)](
                                   const std::string& id, StoredResponse response) {
    store.put(salt, id, std::move(response), may_save);
  };
  auto writer = std::make_unique<ResponsesWriter>(
      response_head(decoded, service.model_id(), AnswerService::unix_seconds()), std::move(keep));
  service.chat(request, reply, std::move(decoded.chat), std::move(writer));
}

void serve_stored_response(AnswerService& service, const HttpRequest& request,
                           const std::shared_ptr<HttpReply>& reply) {
  const Named named = named_in(request);
  const ResponseStore::Entry found = service.responses().find(named.salt, named.id);
  if (found == nullptr) return refuse(*reply, unknown_response(named.id));
  reply->respond(200, kJson, found->text());
}

void serve_response_deletion(AnswerService& service, const HttpRequest& request,
                             const std::shared_ptr<HttpReply>& reply) {
  const Named named = named_in(request);
  if (!service.responses().erase(named.salt, named.id)) {
    return refuse(*reply, unknown_response(named.id));
  }
  std::string out = R"({"id":)";
  append_json_string(out, named.id);
  out += R"(,"object":"response","deleted":true})";
  reply->respond(200, kJson, std::move(out));
}

}  // namespace stemma::server
