// App: the routes of the server. It turns HTTP requests into generations for a Scheduler, and the
// Scheduler's results into answers.
//
//   /v1/chat/completions /v1/completions /v1/models     as OpenAI's
//   /v1/responses /v1/embeddings                        as OpenAI's
//   /api/chat /api/generate /api/tags ...               as Ollama's
//   /tokenize /detokenize /apply-template /props /slots as llama-server's
//   /health /ready /metrics                             for operators
//   /cache ...                                          inspecting and managing the cache
//
// app.cc has the routes and completions, app_cache.cc the routes under /cache.
//
// A request's head alone decides whether it may call a route, so a server that is connect()ed
// refuses before it takes a body. Slow work waits in lanes (job_queue.h), so that a small request
// does not wait behind large ones. A request whose lane is full gets 503, and work for clients that
// have left is not done. No answer is larger than answer_bytes.
//
// Threading:  handle() is thread-safe and returns at once; slow work runs on the App's own threads.
// Ownership:  model, scheduler and chat outlive the App.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/lock.h"
#include "engine/language_model.h"
#include "server/api/openai/answer.h"
#include "server/api/request.h"
#include "server/api/responses/store.h"
#include "server/chat/chat.h"
#include "server/chat/transcripts.h"
#include "server/http/cross_site.h"
#include "server/http/message.h"
#include "server/http/server.h"
#include "server/job_queue.h"
#include "server/schedule/scheduler.h"
#include "server/service/answer_service.h"
#include "server/trace/recorder.h"

namespace stemma::server {

struct AppOptions {
  std::string alias;       // The model's id; empty: the model's name.
  std::string api_key;     // Empty: clients need no key.
  bool any_model = false;  // Requests may name any model.
  ApiRules rules;
  ResponseStore::Options responses;
  JobQueue::Options jobs;
  SiteRules site;  // Which web pages may call /cache if there is no key.
  uint64_t answer_bytes = uint64_t{64} << 20U;      // Limit for an answer that is not streamed.
  uint64_t text_bytes = uint64_t{16} << 20U;        // Limit for the text that /tokenize takes.
  uint64_t transcript_bytes = uint64_t{64} << 20U;  // Memory for transcripts; 0: no transcripts.
  // The longest that a request waits for transcripts from tiers. One that comes later costs its
  // answer, and everything behind it, a computation.
  uint64_t transcript_tier_ns = 200'000'000;
  // An idle stream sends a comment after this long; 0: never.
  std::chrono::milliseconds keep_alive{10'000};
  bool vllm_metrics = false;
  bool llama_metrics = false;
  // Gets one line per request, and warnings for the operator.
  std::function<void(std::string_view line)> log;
};

// How many answers of a route had a status.
struct AnswerCount {
  std::string_view route = {};  // Its path; "other" for unknown paths.
  int status = 0;
  uint64_t count = 0;
};

class App {
 public:
  App(engine::LanguageModel& model, Scheduler& scheduler, const Chat& chat,
      const AppOptions& options);

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  // Makes a server with these options ask admit() about each request and report to answered().
  void connect(HttpOptions& http);
  // An error in the shape and with the status of the API that the path belongs to, whether or not
  // there is such a route.
  static HttpRefusal refusal(std::string_view path, const ApiError& error);
  // The same for what the HTTP server refuses itself.
  static HttpRefusal http_refusal(std::string_view path, int status, std::string_view message);
  // Judges a request by its head. Returns nothing if the body is wanted.
  std::optional<HttpRefusal> admit(const HttpRequest& head) const;
  // Counts an answer and logs its line.
  void answered(const HttpAsked& asked, int status);
  // Adds answers that were given before this App existed. Their routes come from route_name().
  void count_earlier(std::span<const AnswerCount> counts);
  // The path of a request's route; "other" if there is none.
  static std::string_view route_name(std::string_view path, std::string_view method);

  // Makes /metrics report this server's counters. Call it before the first request.
  void watch(const HttpServer* http) noexcept { http_ = http; }
  // From now on /ready answers that the server is not ready.
  void close() noexcept { closing_ = true; }
  // Ends the streams that last as long as the server (recordings), once all requests have ended.
  // No recording begins afterwards.
  void end_streams() { recorder_.end_all(); }

  const std::string& model_id() const noexcept { return model_id_; }

 private:
  using Reply = std::shared_ptr<HttpReply>;
  struct Route {
    std::string_view method;  // "GET", "POST"
    std::string_view path;
    void (App::*run)(const HttpRequest&, const Reply&) = nullptr;
    enum class Work : uint8_t { none, text, engine, vectors } work = Work::none;  // What is slow.
    bool open = false;                                                            // Needs no key.
    // For an API with its own folder: answers instead of `run`.
    void (*serve)(AnswerService&, const HttpRequest&, const Reply&) = nullptr;
  };
  static std::span<const Route> routes();

  static const Route* route_of(std::string_view path, std::string_view method);
  void run(const Route& route, const HttpRequest& request, const Reply& reply);
  void run_later(const Route& route, HttpRequest request, const Reply& reply);
  bool authorised(const HttpRequest& request) const;
  std::variant<const Route*, HttpRefusal> judge(const HttpRequest& head) const;
  std::vector<AnswerCount> answer_counts() const;
  std::optional<ApiError> check_model(const std::string& model) const;

  void health(const HttpRequest&, const Reply&);
  void ready(const HttpRequest&, const Reply&);
  void models(const HttpRequest&, const Reply&);
  void props(const HttpRequest&, const Reply&);
  void slots(const HttpRequest&, const Reply&);
  void metrics(const HttpRequest&, const Reply&);
  void chat_completions(const HttpRequest&, const Reply&);
  void completions(const HttpRequest&, const Reply&);
  void tokenize(const HttpRequest&, const Reply&);
  void detokenize(const HttpRequest&, const Reply&);
  void apply_template(const HttpRequest&, const Reply&);
  void cache_stats(const HttpRequest&, const Reply&);
  void cache_entries(const HttpRequest&, const Reply&);
  void cache_reset(const HttpRequest&, const Reply&);
  void cache_save(const HttpRequest&, const Reply&);
  void cache_warm(const HttpRequest&, const Reply&);
  void cache_pin(const HttpRequest&, const Reply&);
  void cache_truncate(const HttpRequest&, const Reply&);
  void cache_purge(const HttpRequest&, const Reply&);
  void cache_trace(const HttpRequest&, const Reply&);
  void cache_trace_end(const HttpRequest&, const Reply&);
  // Answers with the error, in the shape of the path's API.
  static void refuse_as(std::string_view path, const Reply& reply, const ApiError& error);
  // Returns null while nobody records.
  std::shared_ptr<RecordedRequest> look(const Generation& generation);
  void keep(const HttpRequest&, const Reply&, bool pin);
  std::optional<ApiError> read_prefix(const HttpRequest& request, ChatPrompt& prompt,
                                      RequestOptions& options) const;
  void cancel_when_gone(const Reply& reply, uint64_t number);
  AnswerHead answer_head(AnswerKind kind, const RequestOptions& options) const;

  engine::LanguageModel& model_;
  Scheduler& scheduler_;
  const Chat& chat_;
  AppOptions options_;
  std::string model_id_;
  uint64_t context_tokens_;
  const HttpServer* http_ = nullptr;
  std::atomic<bool> closing_ = false;
  TraceRecorder recorder_;
  ResponseStore responses_;
  Transcripts transcripts_;
  AnswerService service_;

  mutable base::WaitMutex mutex_;
  std::map<std::pair<std::string_view, int>, uint64_t> answers_
      STEMMA_GUARDED_BY(mutex_);       // By route and status.
  std::atomic<uint64_t> refused_ = 0;  // Requests whose lane was full.
  JobQueue jobs_;                      // Last: its threads use the other members.
};

// Everything that /metrics reports, except tiers.
struct MetricsInput {
  SchedulerStats requests = {};
  SequenceStats cache = {};
  const HttpCounters* http = nullptr;  // null: no HTTP counters.
  std::vector<AnswerCount> answers = {};
  TranscriptStats transcripts = {};
  std::array<LaneStats, kLanes> lanes = {};
  std::string model = {};  // The label model_name of vLLM's metrics.
  bool vllm_names = false;
  bool llama_names = false;
};
// The text of /metrics, in Prometheus' format.
std::string encode_metrics(const MetricsInput& input);
// The same for tiers, if there are any.
std::string encode_tier_metrics(const tier::StackStats& stack,
                                const tier::SequenceTiersStats& tiers);

}  // namespace stemma::server
