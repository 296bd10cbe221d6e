#include "server/app.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <utility>

#include "json/json.h"
#include "server/api/openai/answer_listener.h"
#include "server/api/openai/request.h"
#include "server/api/refuse.h"
#include "stemma/version.h"

namespace stemma::server {

namespace {

// Which devices compute the model, and how many of its layers each kind has.
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

// What a client sent, so that it cannot make a line look like two, or like another.
std::string printable(std::string_view text) {
  constexpr size_t kMostBytes = 200;
  std::string safe(text.substr(0, kMostBytes));
  for (char& c : safe) {
    if (c < ' ' || c > '~' || c == '"') c = '?';
  }
  return safe;
}

constexpr uint64_t kDayNs = uint64_t{24} * 3600 * 1'000'000'000;

double milliseconds(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

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
      started_s_(unix_seconds()),
      context_tokens_(scheduler.cache().stats().context_tokens),
      recorder_(TraceRecorder::Options{.log = options.log}),
      jobs_(options.jobs) {}

void App::connect(HttpOptions& http) {
  http.admit = [this](const HttpRequest& head) { return admit(head); };
  http.answered = [this](const HttpAsked& asked, int status) { answered(asked, status); };
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

// The first route of a path, whatever its method; null: there is none.
const App::Route* App::route_of(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  // One model's card.
  if (path.starts_with("/v1/models/")) path = "/v1/models";
  const auto found = std::ranges::find(routes(), path, &Route::path);
  return found == routes().end() ? nullptr : &*found;
}

std::variant<const App::Route*, HttpRefusal> App::judge(const HttpRequest& head) const {
  const Route* const route = route_of(head.path);
  if (route == nullptr) return refusal_of(not_found(head.path));
  if (route->method != head.method && !(route->method == "GET" && head.reads())) {
    ApiError error;
    error.status = 405;
    error.message = head.path + " is called with " + std::string(route->method);
    error.code = "method_not_allowed";
    HttpRefusal refusal = refusal_of(error);
    refusal.headers.push_back({"Allow", std::string(route->method)});
    return refusal;
  }
  if (route->open) return route;
  if (!authorised(head)) return refusal_of(wrong_key());
  const bool cache = route->path.starts_with("/cache") || route->path == "/reset_prefix_cache";
  if (options_.api_key.empty() && (cache || route->method == "POST")) {
    if (const std::string why = cross_site_problem(head, options_.site); !why.empty()) {
      ApiError error;
      error.status = 403;
      error.message = std::string(route->path) + " is not for pages of other sites: " + why +
                      ". Give the server a key (--api-key-file), or name the page's origin with "
                      "--cors-origin.";
      error.code = "cross_site";
      return refusal_of(error);
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
  const Route& route = *std::get<const Route*>(verdict);
  if (route.work == Route::Work::none) {
    run(route, request, reply);
  } else {
    run_later(route, std::move(request), reply);
  }
}

void App::run_later(const Route& route, HttpRequest request, const Reply& reply) {
  const Lane lane = route.work == Route::Work::engine       ? Lane::errand
                    : request.body.size() > kSmallBodyBytes ? Lane::large
                                                            : Lane::small;
  const bool retry = is_retry(request);
  const uint64_t number = jobs_.number();
  // What it holds is let go as soon as its client is gone. It may replace this by something of its own.
  reply->on_gone([this, number] { jobs_.take_back(number); });
  auto job = [this, &route, reply, held = std::make_shared<HttpRequest>(std::move(request))] {
    if (!reply->gone()) run(route, *held, reply);
  };
  if (jobs_.push(lane, number, std::move(job))) return;
  if (!retry) ++refused_;
  refuse(*reply, overloaded("too many requests wait to be read"));
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

void App::answered(const HttpAsked& asked, int status) {
  const Route* const route = route_of(asked.path);
  {
    const std::lock_guard lock(mutex_);
    ++answers_[{route == nullptr ? "other" : route->path, status}];
  }
  // Probes and scrapers come every few seconds.
  const bool probe = status < 300 && route != nullptr && (route->open || route->path == "/metrics");
  if (asked.own_line || probe || !options_.log) return;
  std::string path = printable(asked.path);
  std::replace(path.begin(), path.end(), ' ', '?');
  std::string line = "request path=" + path + " method=" + printable(asked.method) +
                     " status=" + std::to_string(status) + " client=" + asked.peer +
                     " request_id=" + asked.id;
  if (!asked.why.empty()) line += " error=\"" + printable(asked.why) + "\"";
  options_.log(line);
}

std::vector<AnswerCount> App::answer_counts() const {
  std::vector<AnswerCount> counts;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : answers_) counts.push_back({key.first, key.second, count});
  return counts;
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
  if (reply->gone()) return;
  if (!error) error = chat_.render(decoded, true, prompt, context_tokens_);
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
  if (reply->gone()) return;
  if (!error) error = chat_.plain(decoded, prompt, context_tokens_);
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
  generation.retry = is_retry(request);
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
  answer.most_bytes = options_.answer_bytes;
  // The listener may want to end it before its number is known here.
  struct Ending {
    std::atomic<uint64_t> number = 0;
    std::atomic<bool> wanted = false;
  };
  const auto ending = std::make_shared<Ending>();
  answer.cancel = [ending, scheduler = &scheduler_] {
    ending->wanted = true;
    if (const uint64_t number = ending->number; number != 0) scheduler->cancel(number);
  };
  if (echo) answer.echo = std::move(prompt.text);
  if (options_.log) answer.ended = line_writer(request, answer.head.id, prompt_tokens);
  if (options.stream) {
    reply->keep_alive({.every = options_.keep_alive,
                       .piece = std::string(kKeepAliveComment),
                       .content_type = std::string(kEventStream),
                       .headers = event_stream_headers()});
  }
  std::shared_ptr<Listener> listener = std::make_shared<AnswerListener>(reply, std::move(answer));
  const std::shared_ptr<RecordedRequest> recorded = look(generation);
  if (recorded != nullptr) listener = tell_too(recorded, std::move(listener));
  // From here on the listener writes the line in the log.
  reply->own_line(true);
  const Result<uint64_t> number = scheduler_.submit(std::move(generation), std::move(listener));
  if (!number) return refuse_submission(reply, number.error(), prompt_tokens);
  ending->number = *number;
  if (ending->wanted) scheduler_.cancel(*number);
  if (recorded != nullptr) recorded->taken();
  cancel_when_gone(reply, *number);
}

void App::refuse_submission(const Reply& reply, const Error& why, uint32_t prompt_tokens) {
  reply->own_line(false);
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

// Writes the line of a request that was given to the scheduler.
std::function<void(int, const Summary*, const std::string&)> App::line_writer(
    const HttpRequest& request, const std::string& id, uint32_t prompt_tokens) const {
  return [log = options_.log, id, path = request.path,
          from = " client=" + request.peer + " request_id=" + request.id,
          prompt_tokens](int status, const Summary* summary, const std::string& error) {
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
                    id.c_str(), path.c_str(), status, prompt_tokens, printable(error).c_str());
    }
    log(line + from);
  };
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
  // A token takes as many bytes as this, and a comma.
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
  const ModelCard card{.id = model_id_,
                       .created_s = started_s_,
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
