#include "server/app.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <utility>

#include "server/answer_listener.h"
#include "server/json.h"
#include "server/refuse.h"
#include "stemma/version.h"

namespace stemma::server {

namespace {

uint64_t unix_seconds() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

ApiError not_found(const std::string& path) {
  ApiError error;
  error.status = 404;
  error.message = "there is no " + path;
  error.code = "not_found";
  return error;
}

uint64_t random_bits() {
  thread_local std::mt19937_64 bits{std::random_device{}()};
  return bits();
}

// "fork 120, segments 64": what made up what was reused.
std::string sources(const SequenceReport& report) {
  std::string text;
  for (uint32_t step = 0; step < kStepCount; ++step) {
    if (report.steps[step] == 0) continue;
    if (!text.empty()) text += '+';
    text += to_string(static_cast<Step>(step));
  }
  return text.empty() ? "none" : text;
}

constexpr uint64_t kDayNs = uint64_t{24} * 3600 * 1'000'000'000;

double milliseconds(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

std::span<const App::Route> App::routes() {
  static constexpr Route kRoutes[] = {
      {"GET", "/health", &App::health, true},
      {"GET", "/ready", &App::ready, true},
      {"GET", "/v1/models", &App::models},
      {"GET", "/models", &App::models},
      {"GET", "/props", &App::props},
      {"GET", "/slots", &App::slots},
      {"GET", "/metrics", &App::metrics},
      {"POST", "/v1/chat/completions", &App::chat_completions, false, true},
      {"POST", "/chat/completions", &App::chat_completions, false, true},
      {"POST", "/v1/completions", &App::completions, false, true},
      {"POST", "/completions", &App::completions, false, true},
      {"POST", "/tokenize", &App::tokenize, false, true},
      {"POST", "/detokenize", &App::detokenize, false, true},
      {"POST", "/apply-template", &App::apply_template, false, true},
      {"GET", "/cache", &App::cache_stats},
      {"GET", "/cache/entries", &App::cache_entries, false, true},
      {"POST", "/cache/reset", &App::cache_reset, false, true},
      {"POST", "/reset_prefix_cache", &App::cache_reset, false, true},
      {"POST", "/cache/save", &App::cache_save, false, true},
      {"POST", "/cache/warm", &App::cache_warm, false, true},
      {"POST", "/cache/pin", &App::cache_pin, false, true},
      {"POST", "/cache/truncate", &App::cache_truncate, false, true},
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
      started_s_(unix_seconds()),
      recorder_(TraceRecorder::Options{.log = options.log}) {
  for (uint32_t i = 0; i < std::max(1U, options_.threads); ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

App::~App() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void App::work() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

// ---- Which route ---------------------------------------------------------------------------------------

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
  // As long for a wrong key as for the right one.
  uint32_t different = given.size() == options_.api_key.size() ? 0 : 1;
  for (size_t i = 0; i < options_.api_key.size(); ++i) {
    const char other = given.empty() ? '\0' : given[i % given.size()];
    different |= static_cast<uint8_t>(options_.api_key[i] ^ other);
  }
  return different == 0;
}

const App::Route* App::find(const HttpRequest& request, const Reply& reply) const {
  std::string_view path = request.path;
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  // One model's card.
  if (path.starts_with("/v1/models/")) path = "/v1/models";
  std::string allowed;
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    if (route.method == request.method || (route.method == "GET" && request.reads())) return &route;
    allowed = route.method;
  }
  if (allowed.empty()) {
    refuse(*reply, not_found(request.path));
  } else {
    ApiError error;
    error.status = 405;
    error.message = request.path + " is called with " + allowed;
    error.code = "method_not_allowed";
    reply->respond(405, kJson, encode_error(error), {{"Allow", allowed}});
  }
  return nullptr;
}

void App::handle(HttpRequest request, Reply reply) {
  const Route* route = find(request, reply);
  if (route == nullptr) return;
  if (!route->open && !authorised(request)) {
    refuse(*reply, wrong_key());
    return;
  }
  if (!route->slow) {
    run(*route, request, reply);
    return;
  }
  auto job = [this, route, reply, request = std::make_shared<HttpRequest>(std::move(request))] {
    run(*route, *request, reply);
  };
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  wake_.notify_one();
}

void App::run(const Route& route, const HttpRequest& request, const Reply& reply) {
  try {
    (this->*route.run)(request, reply);
  } catch (const std::bad_alloc&) {
    refuse(*reply, overloaded("no memory for this request"));
  } catch (const std::exception& error) {
    if (options_.log) options_.log(std::string("a request failed: ") + error.what());
    refuse(*reply, internal_error("the request failed"));
  }
}

std::optional<ApiError> App::check_model(const std::string& model) const {
  if (model.empty() || model == model_id_) return {};
  return unknown_model(model);
}

// ---- Completions ---------------------------------------------------------------------------------------

void App::chat_completions(const HttpRequest& request, const Reply& reply) {
  ChatRequest decoded;
  ChatPrompt prompt;
  auto error = decode_chat(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.options.model);
  if (!error) error = check_vocabulary(decoded.options, model_.info().vocabulary);
  if (!error) error = chat_.render(decoded, true, prompt);
  if (error) return refuse(*reply, *error);
  generate(request, reply, decoded.options, std::move(prompt), AnswerKind::chat, false);
}

void App::completions(const HttpRequest& request, const Reply& reply) {
  CompletionRequest decoded;
  ChatPrompt prompt;
  auto error = decode_completion(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.options.model);
  if (!error) error = check_vocabulary(decoded.options, model_.info().vocabulary);
  if (!error) error = check_vocabulary(decoded.tokens, "prompt", model_.info().vocabulary);
  if (!error) error = chat_.plain(decoded, prompt);
  if (error) return refuse(*reply, *error);
  if (decoded.echo && prompt.text.empty()) {
    for (const Token token : prompt.tokens) model_.append_text(token, false, prompt.text);
  }
  generate(request, reply, decoded.options, std::move(prompt), AnswerKind::completion,
           decoded.echo);
}

void App::generate(const HttpRequest& request, const Reply& reply, const RequestOptions& options,
                   ChatPrompt prompt, AnswerKind kind, bool echo) {
  if (prompt.tokens.empty()) {
    ApiError error;
    error.message = "the prompt is empty";
    error.param = kind == AnswerKind::chat ? "messages" : "prompt";
    return refuse(*reply, error);
  }
  Generation generation = options.generation();
  const auto prompt_tokens = static_cast<uint32_t>(prompt.tokens.size());
  generation.prompt = std::move(prompt.tokens);
  generation.message_ends = std::move(prompt.message_ends);
  generation.pinned = std::move(prompt.pinned);
  generation.prompt_logprobs = echo && options.top_logprobs;
  if (options.retention == CacheRetention::day) {
    generation.priority = kPinnedPriority;
    generation.priority_ns = kDayNs;
  }

  AnswerListener::Options answer;
  answer.head.kind = kind;
  answer.head.id = answer_id(kind, random_bits(), random_bits());
  answer.head.model = model_id_;
  answer.head.fingerprint = std::string("stemma-") + version_string();
  answer.head.created_s = unix_seconds();
  answer.head.include_usage = options.include_usage;
  answer.head.logprobs = options.top_logprobs.has_value();
  answer.stream = options.stream;
  answer.choices = generation.choices;
  if (echo) answer.echo = std::move(prompt.text);
  if (options_.log) {
    answer.ended = [log = options_.log, id = answer.head.id, path = request.path, prompt_tokens,
                    session = options.session](int status, const Summary* summary,
                                               const std::string& error) {
      char line[512];
      if (summary != nullptr) {
        const SequenceReport& report = summary->report;
        std::snprintf(
            line, sizeof line,
            "request id=%s path=%s status=%d prompt=%u reused=%u evaluated=%u generated=%u "
            "source=%s miss=%s%s queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f",
            id.c_str(), path.c_str(), status, prompt_tokens, report.reused_tokens,
            report.evaluated_tokens, summary->generated_tokens, sources(report).c_str(),
            summary->retokenised_at != 0 ? "retokenised@" : to_string(report.reason),
            summary->retokenised_at != 0 ? std::to_string(summary->retokenised_at).c_str() : "",
            milliseconds(summary->timings.queued_ns),
            milliseconds(summary->timings.queued_ns + summary->timings.prompt_ns),
            milliseconds(summary->timings.queued_ns + summary->timings.prompt_ns +
                         summary->timings.generated_ns));
      } else {
        std::snprintf(line, sizeof line, "request id=%s path=%s status=%d prompt=%u error=\"%s\"",
                      id.c_str(), path.c_str(), status, prompt_tokens, error.c_str());
      }
      log(line);
    };
  }
  if (options.stream) {
    reply->keep_alive({.every = options_.keep_alive,
                       .piece = std::string(kKeepAliveComment),
                       .content_type = std::string(kEventStream),
                       .headers = event_stream_headers()});
  }
  std::shared_ptr<Listener> listener = std::make_shared<AnswerListener>(reply, std::move(answer));
  const std::shared_ptr<RecordedRequest> recorded = look(generation);
  if (recorded != nullptr) listener = tell_too(recorded, std::move(listener));
  const Result<uint64_t> number = scheduler_.submit(std::move(generation), std::move(listener));
  if (!number) {
    const Error& why = number.error();
    switch (why.code()) {
      case Errc::out_of_range: return refuse(*reply, context_exceeded(prompt_tokens, why.value()));
      case Errc::busy: return refuse(*reply, overloaded(why.message()));
      default: {
        ApiError error;
        error.message = why.to_string();
        return refuse(*reply, error);
      }
    }
  }
  if (recorded != nullptr) recorded->taken();
  cancel_when_gone(reply, *number);
}

void App::cancel_when_gone(const Reply& reply, uint64_t number) {
  reply->on_gone([scheduler = &scheduler_, number] { scheduler->cancel(number); });
}

// ---- Words ---------------------------------------------------------------------------------------------

void App::tokenize(const HttpRequest& request, const Reply& reply) {
  TokenizeRequest decoded;
  auto error = decode_tokenize(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.model);
  if (error) return refuse(*reply, *error);
  const Result<std::vector<Token>> tokens =
      model_.tokenize(decoded.content, decoded.add_special, decoded.parse_special);
  if (!tokens) {
    ApiError failure;
    failure.message = tokens.error().message();
    failure.param = "content";
    return refuse(*reply, failure);
  }
  if (!decoded.with_pieces) {
    reply->respond(200, kJson, encode_tokens(*tokens));
    return;
  }
  std::vector<std::pair<Token, std::string>> pieces;
  for (const Token token : *tokens) {
    pieces.emplace_back(token, "");
    model_.append_text(token, true, pieces.back().second);
  }
  reply->respond(200, kJson, encode_pieces(pieces));
}

void App::detokenize(const HttpRequest& request, const Reply& reply) {
  DetokenizeRequest decoded;
  auto error = decode_detokenize(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.model);
  if (!error) error = check_vocabulary(decoded.tokens, "tokens", model_.info().vocabulary);
  if (error) return refuse(*reply, *error);
  std::string text;
  for (const Token token : decoded.tokens) model_.append_text(token, true, text);
  reply->respond(200, kJson, encode_content(text));
}

void App::apply_template(const HttpRequest& request, const Reply& reply) {
  ChatRequest decoded;
  ChatPrompt prompt;
  auto error = decode_apply_template(request.body, options_.rules, decoded);
  if (!error) error = check_model(decoded.options.model);
  if (!error) error = chat_.render(decoded, false, prompt);
  if (error) return refuse(*reply, *error);
  reply->respond(200, kJson, encode_prompt(prompt.text));
}

// ---- How it is -----------------------------------------------------------------------------------------

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
  const ModelCard card{
      .id = model_id_,
      .created_s = started_s_,
      .context_tokens = static_cast<uint32_t>(scheduler_.cache().stats().context_tokens),
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
  std::string text = encode_metrics(scheduler_.stats(), scheduler_.cache().stats(),
                                    http_ != nullptr ? &counters : nullptr, options_.vllm_metrics,
                                    options_.llama_metrics);
  if (tier::SequenceTiers* tiers = scheduler_.tiers(); tiers != nullptr) {
    text += encode_tier_metrics(tiers->stack().stats(), tiers->stats());
  }
  reply->respond(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

}  // namespace stemma::server
