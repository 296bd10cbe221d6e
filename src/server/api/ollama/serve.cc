#include "server/api/ollama/serve.h"

#include <cstdio>
#include <string>
#include <utility>

#include "dialect/format.h"
#include "json/json.h"
#include "server/api/body.h"
#include "server/api/ollama/request.h"
#include "server/api/ollama/writer.h"
#include "server/api/random_id.h"
#include "server/api/refuse.h"

namespace stemma::server {
namespace {

// The version of Ollama's API that we implement: clients use it to learn what they may send.
constexpr std::string_view kApiVersion = "0.13.5";

void refuse_ollama(HttpReply& reply, const ApiError& error) {
  static_cast<void>(try_refuse(reply, refusal_of(error, encode_ollama_error(error))));
}

// Formats 7241732096 as "7.2B".
std::string size_name(uint64_t parameters) {
  const double count = static_cast<double>(parameters);
  char text[32];
  if (parameters >= 1'000'000'000) {
    std::snprintf(text, sizeof text, "%.1fB", count * 1e-9);
  } else if (parameters >= 1'000'000) {
    std::snprintf(text, sizeof text, "%.0fM", count * 1e-6);
  } else {
    std::snprintf(text, sizeof text, "%.0fK", count * 1e-3);
  }
  return text;
}

void append_ollama(std::string& out, std::string_view name, std::string_view value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, name);
  out += ':';
  append_json_string(out, value);
}

void append_ollama(std::string& out, std::string_view name, uint64_t value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, name);
  out += ':';
  append_json_number(out, value);
}

void append_details(std::string& out, const engine::ModelInfo& info) {
  out += R"("details":{)";
  append_ollama(out, "parent_model", "");
  append_ollama(out, "format", "gguf");
  append_ollama(out, "family", info.architecture);
  out += R"(,"families":[)";
  append_json_string(out, info.architecture);
  out += ']';
  append_ollama(out, "parameter_size", size_name(info.parameters));
  append_ollama(out, "quantization_level", "");
  out += '}';
}

// Identifies the weights; clients show its first letters.
std::string digest_of(AnswerService& service) {
  std::string text;
  const Result<Scope> scope = service.scheduler().scope("");
  if (!scope) return std::string(64, '0');
  for (const uint8_t byte : scope->digest()) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    text += hex;
  }
  return text;
}

// Writes a model's fields that /api/tags and /api/ps share.
void append_model(std::string& out, AnswerService& service) {
  const engine::ModelInfo& info = service.model().info();
  append_ollama(out, "name", service.model_id());
  append_ollama(out, "model", service.model_id());
  append_ollama(out, "size", info.file_bytes);
  append_ollama(out, "digest", digest_of(service));
  out += ',';
  append_details(out, info);
}

std::unique_ptr<OllamaWriter> ollama_writer(AnswerService& service, OllamaKind kind) {
  return std::make_unique<OllamaWriter>(
      OllamaHead{.kind = kind,
                 .id = random_id("ollama-"),
                 .model = service.model_id(),
                 .created_at = ollama_time(AnswerService::unix_seconds())});
}

void answer(AnswerService& service, const HttpRequest& request,
            const std::shared_ptr<HttpReply>& reply, OllamaRequest decoded, OllamaKind kind) {
  auto writer = ollama_writer(service, kind);
  if (decoded.load_only) {
    if (const auto error = service.check(decoded.chat.options)) {
      return refuse_ollama(*reply, *error);
    }
    reply->respond(200, kJson, writer->loaded());
  } else if (decoded.raw) {
    service.complete(request, reply, decoded.plain, std::move(writer));
  } else {
    service.chat(request, reply, std::move(decoded.chat), std::move(writer));
  }
}

}  // namespace

void serve_ollama_version(AnswerService&, const HttpRequest&,
                          const std::shared_ptr<HttpReply>& reply) {
  std::string out = "{";
  append_ollama(out, "version", kApiVersion);
  append_ollama(out, "server", AnswerService::fingerprint());
  reply->respond(200, kJson, out + "}");
}

void serve_ollama_tags(AnswerService& service, const HttpRequest&,
                       const std::shared_ptr<HttpReply>& reply) {
  std::string out = R"({"models":[{)";
  append_model(out, service);
  append_ollama(out, "modified_at", ollama_time(service.started_s()));
  reply->respond(200, kJson, out + "}]}");
}

void serve_ollama_ps(AnswerService& service, const HttpRequest&,
                     const std::shared_ptr<HttpReply>& reply) {
  const engine::Placement& placement = service.model().info().placement;
  const uint64_t bytes = service.model().info().file_bytes;
  std::string out = R"({"models":[{)";
  append_model(out, service);
  // The model is never unloaded.
  append_ollama(out, "expires_at", "9999-12-31T23:59:59Z");
  append_ollama(out, "size_vram",
                placement.layers == 0 ? 0 : bytes / placement.layers * placement.gpu_layers);
  append_ollama(out, "context_length", service.context_tokens());
  reply->respond(200, kJson, out + "}]}");
}

void serve_ollama_show(AnswerService& service, const HttpRequest& request,
                       const std::shared_ptr<HttpReply>& reply) {
  RequestOptions options;
  const auto error = decode_body(request.body, service.rules(), [&](Fields& fields, Failure&) {
    auto name = fields.string("model", service.rules().max_name_bytes);
    if (!name) name = fields.string("name", service.rules().max_name_bytes);
    if (!name || name->empty()) fields.fail_missing("model");
    options.model = ollama_model_name(name.value_or(""));
    fields.pass_over_rest(options.ignored);
  });
  if (error) return refuse_ollama(*reply, *error);
  if (const auto unknown = service.check(options)) return refuse_ollama(*reply, *unknown);
  const engine::ModelInfo& info = service.model().info();
  std::string out = "{";
  append_ollama(out, "license", "");
  append_ollama(out, "modelfile", "FROM " + service.model_id());
  append_ollama(out, "parameters", "");
  append_ollama(out, "template", service.templates().source());
  append_ollama(out, "modified_at", ollama_time(service.started_s()));
  out += ',';
  append_details(out, info);
  out += R"(,"model_info":{)";
  append_ollama(out, "general.architecture", info.architecture);
  append_ollama(out, "general.basename", info.name);
  append_ollama(out, "general.parameter_count", info.parameters);
  append_ollama(out, info.architecture + ".context_length", service.context_tokens());
  append_ollama(out, info.architecture + ".vocab_size", info.vocabulary);
  out += R"(},"capabilities":["completion")";
  const dialect::Format& format = service.templates().format();
  if (dialect::supports_tools(format)) out += R"(,"tools")";
  if (!format.thinking.opener.empty()) out += R"(,"thinking")";
  reply->respond(200, kJson, out + "]}");
}

void serve_ollama_chat(AnswerService& service, const HttpRequest& request,
                       const std::shared_ptr<HttpReply>& reply) {
  OllamaRequest decoded;
  if (const auto error = decode_ollama_chat(request.body, service.rules(), decoded)) {
    return refuse_ollama(*reply, *error);
  }
  answer(service, request, reply, std::move(decoded), OllamaKind::chat);
}

void serve_ollama_generate(AnswerService& service, const HttpRequest& request,
                           const std::shared_ptr<HttpReply>& reply) {
  OllamaRequest decoded;
  if (const auto error = decode_ollama_generate(request.body, service.rules(), decoded)) {
    return refuse_ollama(*reply, *error);
  }
  answer(service, request, reply, std::move(decoded), OllamaKind::generate);
}

}  // namespace stemma::server
