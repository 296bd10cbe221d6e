#include "server/app.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "json/json.h"
#include "server/api/anthropic/error.h"
#include "server/api/anthropic/serve.h"
#include "server/api/ollama/serve.h"
#include "server/api/ollama/writer.h"
#include "server/api/openai/request.h"
#include "server/api/openai/serve_embeddings.h"
#include "server/api/refuse.h"
#include "server/api/responses/serve.h"
#include "server/service/request_line.h"
#include "stemma/version.h"

namespace stemma::server {

namespace {

constexpr std::string_view kStoredResponse = "/v1/responses/{id}";

// Writes which devices compute the model, and how many of its layers each kind has.
void append_placement(std::string& out, const engine::Placement& placement) {
  out += R"({"device":)";
  append_json_string(out, placement.gpus.empty() ? "CPU" : "GPU");
  out += R"(,"layers":)";
  append_json_number(out, uint64_t{placement.layers});
  out += R"(,"gpu_layers":)";
  append_json_number(out, uint64_t{placement.gpu_layers});
  out += R"(,"gpus":[)";
  for (size_t i = 0; i < placement.gpus.size(); ++i) {
    const engine::ComputeDevice& gpu = placement.gpus[i];
    out += i == 0 ? R"({"name":)" : R"(,{"name":)";
    append_json_string(out, gpu.name);
    out += R"(,"description":)";
    append_json_string(out, gpu.description);
    out += R"(,"free_bytes":)";
    append_json_number(out, gpu.free_bytes);
    out += R"(,"total_bytes":)";
    append_json_number(out, gpu.total_bytes);
    out += '}';
  }
  out += R"(],"why_cpu":)";
  append_json_string(out, placement.why_cpu);
  out += '}';
}

ApiError not_found(const std::string& path) {
  ApiError error;
  error.status = 404;
  error.message = "there is no " + path;
  error.code = "not_found";
  return error;
}

TranscriptOptions transcript_options(Scheduler& scheduler, const AppOptions& app) {
  TranscriptOptions options;
  options.bytes = app.transcript_bytes;
  options.tier_ns = app.transcript_tier_ns;
  options.scope = [&scheduler](const std::string& salt) { return scheduler.scope(salt); };
  if (tier::SequenceTiers* const tiers = scheduler.tiers()) {
    options.stack = &tiers->stack();
    options.layout = tiers->layout();
  }
  return options;
}

}  // namespace

std::span<const App::Route> App::routes() {
  using enum Route::Work;
  static constexpr Route kRoutes[] = {
      {"GET", "/health", &App::health, none, true},
      {"GET", "/ready", &App::ready, none, true},
      {"GET", "/v1/models", &App::models},
      {"GET", "/models", &App::models},
      {"GET", "/props", &App::props},
      {"GET", "/slots", &App::slots},
      {"GET", "/metrics", &App::metrics},
      {"POST", "/v1/chat/completions", &App::chat_completions, text},
      {"POST", "/chat/completions", &App::chat_completions, text},
      {"POST", "/v1/completions", &App::completions, text},
      {"POST", "/completions", &App::completions, text},
      {.method = "POST", .path = "/v1/responses", .work = text, .serve = &serve_responses},
      {.method = "POST", .path = "/v1/embeddings", .work = vectors, .serve = &serve_embeddings},
      {.method = "GET", .path = kStoredResponse, .serve = &serve_stored_response},
      {.method = "DELETE", .path = kStoredResponse, .serve = &serve_response_deletion},
      {.method = "GET", .path = "/api/version", .work = none, .serve = &serve_ollama_version},
      {.method = "GET", .path = "/api/tags", .work = none, .serve = &serve_ollama_tags},
      {.method = "GET", .path = "/api/ps", .work = none, .serve = &serve_ollama_ps},
      {.method = "POST", .path = "/api/show", .work = text, .serve = &serve_ollama_show},
      {.method = "POST", .path = "/api/chat", .work = text, .serve = &serve_ollama_chat},
      {.method = "POST", .path = "/api/generate", .work = text, .serve = &serve_ollama_generate},
      {.method = "POST", .path = "/v1/messages", .work = text, .serve = &serve_messages},
      {.method = "POST",
       .path = "/v1/messages/count_tokens",
       .work = text,
       .serve = &serve_count_tokens},
      {"POST", "/tokenize", &App::tokenize, text},
      {"POST", "/detokenize", &App::detokenize, text},
      {"POST", "/apply-template", &App::apply_template, text},
      {"GET", "/cache", &App::cache_stats},
      {"GET", "/cache/entries", &App::cache_entries, engine},
      {"POST", "/cache/reset", &App::cache_reset, engine},
      {"POST", "/reset_prefix_cache", &App::cache_reset, engine},
      {"POST", "/cache/save", &App::cache_save, engine},
      {"POST", "/cache/warm", &App::cache_warm, text},
      {"POST", "/cache/pin", &App::cache_pin, text},
      {"POST", "/cache/truncate", &App::cache_truncate, engine},
      {"POST", "/cache/purge", &App::cache_purge, engine},
      {"GET", "/cache/trace", &App::cache_trace},
      {"POST", "/cache/trace/end", &App::cache_trace_end},
  };
  return kRoutes;
}

App::App(engine::LanguageModel& model, Scheduler& scheduler, const Chat& chat,
         const AppOptions& options)
    : model_(model),
      scheduler_(scheduler),
      chat_(chat),
      options_(options),
      model_id_(options.alias.empty() ? model.info().name : options.alias),
      context_tokens_(scheduler.cache().stats().context_tokens),
      recorder_(TraceRecorder::Options{.log = options.log}),
      responses_(options.responses),
      transcripts_(transcript_options(scheduler, options)),
      service_(model, scheduler, chat, transcripts_, recorder_,
               {.model_id = model_id_,
                .any_model = options.any_model,
                .rules = options.rules,
                .answer_bytes = options.answer_bytes,
                .keep_alive = options.keep_alive,
                .log = options.log,
                .responses = &responses_}),
      jobs_(options.jobs) {}

void App::connect(HttpOptions& http) {
  http.admit = [this](const HttpRequest& head) { return admit(head); };
  http.refusal = &App::http_refusal;
  http.answered = [this](const HttpAsked& asked, int status) { answered(asked, status); };
}

// ---- Routing ------------------------------------------------------------------------------------

bool App::authorised(const HttpRequest& request) const {
  if (options_.api_key.empty()) return true;
  std::string_view given = request.header("authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (given.size() >= kBearer.size() &&
      equal_ignoring_case(given.substr(0, kBearer.size()), kBearer)) {
    given.remove_prefix(kBearer.size());
  } else {
    given = request.header("x-api-key");
  }
  // Takes as long for a wrong key as for the right one.
  uint32_t different = given.size() == options_.api_key.size() ? 0 : 1;
  for (size_t i = 0; i < options_.api_key.size(); ++i) {
    const char other = given.empty() ? '\0' : given[i % given.size()];
    different |= static_cast<uint8_t>(options_.api_key[i] ^ other);
  }
  return different == 0;
}

HttpRefusal App::refusal(std::string_view path, const ApiError& error) {
  if (path.starts_with("/v1/messages")) {
    HttpRefusal refusal = refusal_of(error, encode_anthropic_error(error, {}));
    refusal.status = anthropic_status(error);
    return refusal;
  }
  if (path == "/api" || path.starts_with("/api/")) {
    return refusal_of(error, encode_ollama_error(error));
  }
  return refusal_of(error);
}

HttpRefusal App::http_refusal(std::string_view path, int status, std::string_view message) {
  ApiError error;
  error.status = status;
  error.message = message;
  if (status >= 500) error.type = "server_error";
  return refusal(path, error);
}

// Returns the route of a path with this method, else the path's first route; null if there is none.
const App::Route* App::route_of(std::string_view path, std::string_view method) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  // The card of one model.
  if (path.starts_with("/v1/models/")) path = "/v1/models";
  constexpr std::string_view kResponses = "/v1/responses/";
  if (path.starts_with(kResponses) && path.find('/', kResponses.size()) == path.npos) {
    path = kStoredResponse;
  }
  const Route* first = nullptr;
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    if (route.method == method) return &route;
    if (first == nullptr) first = &route;
  }
  return first;
}

std::variant<const App::Route*, HttpRefusal> App::judge(const HttpRequest& head) const {
  const Route* const route = route_of(head.path, head.method);
  const auto refused = [&](const ApiError& error) { return refusal(head.path, error); };
  if (route == nullptr) return refused(not_found(head.path));
  if (route->method != head.method && !(route->method == "GET" && head.reads())) {
    ApiError error;
    error.status = 405;
    error.message = head.path + " is called with " + std::string(route->method);
    error.code = "method_not_allowed";
    HttpRefusal wrong = refused(error);
    wrong.headers.push_back({"Allow", std::string(route->method)});
    return wrong;
  }
  if (route->open) return route;
  if (!authorised(head)) return refused(wrong_key());
  const bool cache = route->path.starts_with("/cache") || route->path == "/reset_prefix_cache";
  if (options_.api_key.empty() && (cache || route->method != "GET")) {
    if (const std::string why = cross_site_problem(head, options_.site); !why.empty()) {
      ApiError error;
      error.status = 403;
      error.message = std::string(route->path) + " is not for pages of other sites: " + why +
                      ". Give the server a key (--api-key-file), or name the page's origin with "
                      "--cors-origin.";
      error.code = "cross_site";
      return refused(error);
    }
  }
  return route;
}

std::optional<HttpRefusal> App::admit(const HttpRequest& head) const {
  auto verdict = judge(head);
  if (auto* refusal = std::get_if<HttpRefusal>(&verdict)) return std::move(*refusal);
  return {};
}

void App::handle(HttpRequest request, Reply reply) {
  auto verdict = judge(request);
  if (auto* refusal = std::get_if<HttpRefusal>(&verdict)) {
    static_cast<void>(try_refuse(*reply, std::move(*refusal)));
    return;
  }
  request.purges = scheduler_.purges().count();
  const Route& route = *std::get<const Route*>(verdict);
  if (route.work == Route::Work::none) {
    run(route, request, reply);
  } else {
    run_later(route, std::move(request), reply);
  }
}

void App::run_later(const Route& route, HttpRequest request, const Reply& reply) {
  const Lane lane = route.work == Route::Work::engine       ? Lane::errand
                    : route.work == Route::Work::vectors    ? Lane::vector
                    : request.body.size() > kSmallBodyBytes ? Lane::large
                                                            : Lane::small;
  const bool retry = is_retry(request);
  const uint64_t number = jobs_.number();
  // Once the client is gone, the job and everything it holds are dropped. The job may replace this
  // callback with its own.
  reply->on_gone([this, number] { jobs_.take_back(number); });
  auto job = [this, &route, reply, held = std::make_shared<HttpRequest>(std::move(request))] {
    if (!reply->gone()) run(route, *held, reply);
  };
  if (jobs_.push(lane, number, std::move(job))) return;
  if (!retry) ++refused_;
  refuse_as(route.path, reply, overloaded("too many requests wait to be read"));
}

void App::run(const Route& route, const HttpRequest& request, const Reply& reply) {
  try {
    if (route.serve != nullptr) {
      route.serve(service_, request, reply);
    } else {
      (this->*route.run)(request, reply);
    }
  } catch (const std::bad_alloc&) {
    refuse_as(route.path, reply, overloaded("no memory for this request"));
  } catch (const std::exception& error) {
    if (options_.log) options_.log(std::string("a request failed: ") + error.what());
    refuse_as(route.path, reply, internal_error("the request failed"));
  }
}

void App::refuse_as(std::string_view path, const Reply& reply, const ApiError& error) {
  static_cast<void>(try_refuse(*reply, refusal(path, error)));
}

void App::answered(const HttpAsked& asked, int status) {
  const Route* const route = route_of(asked.path, asked.method);
  {
    const base::Lock lock(mutex_);
    ++answers_[{route == nullptr ? "other" : route->path, status}];
  }
  // Probes and metric scrapers come every few seconds.
  const bool probe = status < 300 && route != nullptr && (route->open || route->path == "/metrics");
  if (asked.own_line || probe || !options_.log) return;
  options_.log(answered_line(asked, status));
}

std::string_view App::route_name(std::string_view path, std::string_view method) {
  const Route* const route = route_of(path, method);
  return route == nullptr ? "other" : route->path;
}

void App::count_earlier(std::span<const AnswerCount> counts) {
  const base::Lock lock(mutex_);
  for (const AnswerCount& each : counts) answers_[{each.route, each.status}] += each.count;
}

std::vector<AnswerCount> App::answer_counts() const {
  std::vector<AnswerCount> counts;
  const base::Lock lock(mutex_);
  for (const auto& [key, count] : answers_) counts.push_back({key.first, key.second, count});
  return counts;
}

std::optional<ApiError> App::check_model(const std::string& model) const {
  return service_.check_model(model);
}

// ---- Completions --------------------------------------------------------------------------------

AnswerHead App::answer_head(AnswerKind kind, const RequestOptions& options) const {
  return {.kind = kind,
          .id = answer_id(kind),
          .model = model_id_,
          .fingerprint = AnswerService::fingerprint(),
          .created_s = AnswerService::unix_seconds(),
          .choices = options.choices,
          .include_usage = options.include_usage,
          .logprobs = options.top_logprobs.has_value()};
}

void App::chat_completions(const HttpRequest& request, const Reply& reply) {
  ChatRequest decoded;
  if (auto error = decode_chat(request.body, options_.rules, decoded)) {
    return refuse(*reply, *error);
  }
  auto writer = std::make_unique<OpenaiWriter>(answer_head(AnswerKind::chat, decoded.options));
  service_.chat(request, reply, std::move(decoded), std::move(writer));
}

void App::completions(const HttpRequest& request, const Reply& reply) {
  CompletionRequest decoded;
  if (auto error = decode_completion(request.body, options_.rules, decoded)) {
    return refuse(*reply, *error);
  }
  service_.complete(
      request, reply, decoded,
      std::make_unique<OpenaiWriter>(answer_head(AnswerKind::completion, decoded.options)));
}

void App::cancel_when_gone(const Reply& reply, uint64_t number) {
  reply->on_gone([scheduler = &scheduler_, number] { scheduler->cancel(number); });
}

// ---- Words --------------------------------------------------------------------------------------

void App::tokenize(const HttpRequest& request, const Reply& reply) {
  TokenizeRequest decoded;
  auto error = decode_tokenize(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.model);
  if (error) return refuse(*reply, *error);
  if (decoded.content.size() > options_.text_bytes) {
    ApiError large;
    large.status = 413;
    large.message = "'content' has " + std::to_string(decoded.content.size()) + " bytes; at most " +
                    std::to_string(options_.text_bytes) +
                    " are tokenised at once. Send it in parts.";
    large.param = "content";
    large.code = "text_too_large";
    return refuse(*reply, large);
  }
  if (reply->gone()) return;
  const Result<std::vector<Token>> tokens =
      model_.tokenize(decoded.content, decoded.add_special, decoded.parse_special);
  if (!tokens) {
    ApiError failure;
    failure.message = tokens.error().message();
    failure.param = "content";
    return refuse(*reply, failure);
  }
  const auto too_large = [&] {
    return refuse(*reply, answer_too_large(options_.answer_bytes, "Send the text in parts."));
  };
  // The least that a token takes: one digit and a comma.
  constexpr uint64_t kLeastBytes = 2;
  if (tokens->size() * kLeastBytes > options_.answer_bytes) return too_large();
  TokenListWriter writer(decoded.with_pieces);
  std::string piece;
  for (const Token token : *tokens) {
    piece.clear();
    if (decoded.with_pieces) model_.append_text(token, true, piece);
    writer.add(token, piece);
    if (writer.bytes() > options_.answer_bytes) return too_large();
  }
  reply->respond(200, kJson, writer.take());
}

void App::detokenize(const HttpRequest& request, const Reply& reply) {
  DetokenizeRequest decoded;
  auto error = decode_detokenize(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.model);
  if (!error) error = check_vocabulary(decoded.tokens, "tokens", model_.info().vocabulary);
  if (error) return refuse(*reply, *error);
  std::string text;
  for (const Token token : decoded.tokens) {
    model_.append_text(token, true, text);
    if (text.size() > options_.answer_bytes) {
      return refuse(*reply, answer_too_large(options_.answer_bytes, "Send the tokens in parts."));
    }
  }
  reply->respond(200, kJson, encode_content(text));
}

void App::apply_template(const HttpRequest& request, const Reply& reply) {
  ChatRequest decoded;
  ChatPrompt prompt;
  auto error = decode_apply_template(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.options.model);
  if (!error) error = chat_.render(decoded, false, prompt);
  if (!error && prompt.text.size() > options_.answer_bytes) {
    error = answer_too_large(options_.answer_bytes, "Send fewer messages.");
  }
  if (error) return refuse(*reply, *error);
  reply->respond(200, kJson, encode_prompt(prompt.text));
}

// ---- Status -------------------------------------------------------------------------------------

void App::health(const HttpRequest&, const Reply& reply) {
  reply->respond(200, kJson, R"({"status":"ok"})");
}

void App::ready(const HttpRequest&, const Reply& reply) {
  if (closing_) {
    reply->respond(503, kJson, R"({"status":"ending"})", {{"Retry-After", "1"}});
  } else {
    reply->respond(200, kJson, R"({"status":"ready"})");
  }
}

void App::models(const HttpRequest& request, const Reply& reply) {
  const ModelCard card{.id = model_id_,
                       .created_s = service_.started_s(),
                       .context_tokens = static_cast<uint32_t>(context_tokens_),
                       .info = model_.info()};
  constexpr std::string_view kOne = "/v1/models/";
  if (request.path.starts_with(kOne) && request.path.size() > kOne.size()) {
    const std::string wanted = request.path.substr(kOne.size());
    if (auto error = check_model(wanted)) return refuse(*reply, *error);
    reply->respond(200, kJson, encode_model(card));
    return;
  }
  reply->respond(200, kJson, encode_models({&card, 1}));
}

void App::props(const HttpRequest&, const Reply& reply) {
  const engine::ModelInfo& info = model_.info();
  const SequenceStats stats = scheduler_.cache().stats();
  std::string out = R"({"default_generation_settings":{"n_ctx":)";
  append_json_number(out, stats.context_tokens);
  out += R"(},"total_slots":)";
  append_json_number(out, uint64_t{stats.sequences});
  out += R"(,"model_alias":)";
  append_json_string(out, model_id_);
  out += R"(,"model_description":)";
  append_json_string(out, info.description);
  out += R"(,"chat_template":)";
  append_json_string(out, chat_.source());
  out += R"(,"bos_token":)";
  append_json_string(out, info.bos_text);
  out += R"(,"eos_token":)";
  append_json_string(out, info.eos_text);
  out += R"(,"placement":)";
  append_placement(out, info.placement);
  out += R"(,"build_info":)";
  append_json_string(out, std::string("stemma ") + version_string());
  out += "}";
  reply->respond(200, kJson, std::move(out));
}

void App::slots(const HttpRequest&, const Reply& reply) {
  const SequenceCache& cache = scheduler_.cache();
  const std::vector<Scheduler::Running> running = scheduler_.running();
  const uint32_t sequences = cache.stats().sequences;
  std::string out = "[";
  for (uint32_t id = 0; id < sequences; ++id) {
    const SequenceInfo info = cache.sequence(SequenceId{id});
    if (id != 0) out += ',';
    out += R"({"id":)";
    append_json_number(out, uint64_t{id});
    out += R"(,"state":)";
    static constexpr const char* kStates[] = {"free", "idle", "leased", "broken"};
    append_json_string(out, kStates[static_cast<uint32_t>(info.state)]);
    out += R"(,"is_processing":)";
    out += info.state == SequenceState::leased ? "true" : "false";
    out += R"(,"n_tokens":)";
    append_json_number(out, uint64_t{info.length});
    out += R"(,"unsaved_tokens":)";
    append_json_number(out, uint64_t{info.unsaved_tokens});
    out += R"(,"generation":)";
    append_json_number(out, info.generation);
    const auto task = std::ranges::find(running, SequenceId{id}, &Scheduler::Running::sequence);
    if (task != running.end()) {
      out += R"(,"id_task":)";
      append_json_number(out, task->request);
      out += R"(,"prompt_tokens":)";
      append_json_number(out, uint64_t{task->prompt_tokens});
      out += R"(,"cached_tokens":)";
      append_json_number(out, uint64_t{task->cached_tokens});
      out += R"(,"generated_tokens":)";
      append_json_number(out, uint64_t{task->generated_tokens});
    }
    out += '}';
  }
  out += ']';
  reply->respond(200, kJson, std::move(out));
}

void App::metrics(const HttpRequest&, const Reply& reply) {
  HttpCounters counters;
  if (http_ != nullptr) counters = http_->counters();
  MetricsInput input{.requests = scheduler_.stats(),
                     .cache = scheduler_.cache().stats(),
                     .http = http_ != nullptr ? &counters : nullptr,
                     .answers = answer_counts(),
                     .transcripts = transcripts_.stats(),
                     .lanes = jobs_.stats(),
                     .model = model_id_,
                     .vllm_names = options_.vllm_metrics,
                     .llama_names = options_.llama_metrics};
  input.requests.refused += refused_;
  std::string text = encode_metrics(input);
  if (tier::SequenceTiers* tiers = scheduler_.tiers(); tiers != nullptr) {
    text += encode_tier_metrics(tiers->stack().stats(), tiers->stats());
  }
  reply->respond(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

}  // namespace stemma::server
