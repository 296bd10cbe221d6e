// App: the routes of the server. It turns HTTP requests into generations, and what a Scheduler says of
// them into answers.
//
//   /v1/chat/completions /v1/completions /v1/models     as OpenAI's
//   /tokenize /detokenize /apply-template /props /slots as llama-server's
//   /health /ready /metrics                             for whoever runs it
//   /cache ...                                          what is cached, and what may be done with it
//
// app.cc has the routes and completions, app_cache.cc what is under /cache.
//
// Who may call a route is decided from a request's head alone: a server that connect()s to it refuses before it takes a
// body. What takes time waits in lanes (job_queue.h), so that a small request does not wait behind large ones; a lane
// that is full is answered 503, and work for clients that have left is not done. No answer is larger than answer_bytes.
//
// Threading:  handle() is thread-safe and returns at once; what takes time runs on threads of its own.
// Ownership:  model, scheduler and chat outlive it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/language_model.h"
#include "server/api/openai/answer.h"
#include "server/api/request.h"
#include "server/chat/chat.h"
#include "server/http/cross_site.h"
#include "server/http/message.h"
#include "server/http/server.h"
#include "server/job_queue.h"
#include "server/schedule/scheduler.h"
#include "server/trace/recorder.h"

namespace stemma::server {

struct AppOptions {
  std::string alias;    // The model's id; empty: its name.
  std::string api_key;  // Empty: none is asked for.
  ApiRules rules;
  JobQueue::Options jobs;
  SiteRules site;  // Whose pages may call /cache, where there is no key.
  uint64_t answer_bytes = uint64_t{64} << 20U;  // Of one answer that is not streamed.
  uint64_t text_bytes = uint64_t{16} << 20U;    // That /tokenize takes.
  // A stream that says nothing for so long says that it is there, in a comment; 0: never.
  std::chrono::milliseconds keep_alive{10'000};
  bool vllm_metrics = false;
  bool llama_metrics = false;
  // One line a request, and what a person should know.
  std::function<void(std::string_view line)> log;
};

// How often a route was answered with a status.
struct AnswerCount {
  std::string_view route = {};  // Its path; "other" for what is no route.
  int status = 0;
  uint64_t count = 0;
};

class App {
 public:
  App(engine::LanguageModel& model, Scheduler& scheduler, const Chat& chat,
      const AppOptions& options);

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  // Has a server that is made with these options ask who is let in, and tell how requests were answered.
  void connect(HttpOptions& http);
  // Decides what a head alone decides. Nothing: the body is wanted.
  std::optional<HttpRefusal> admit(const HttpRequest& head) const;
  // Counts an answer, and writes its line in the log.
  void answered(const HttpAsked& asked, int status);

  // Whose counters /metrics tells, if any. Before the first request.
  void watch(const HttpServer* http) noexcept { http_ = http; }
  // /ready says no from now on.
  void close() noexcept { closing_ = true; }
  // All requests have ended: streams that last as long as the server do, too. No recording begins after it.
  void end_streams() { recorder_.end_all(); }

  const std::string& model_id() const noexcept { return model_id_; }

 private:
  using Reply = std::shared_ptr<HttpReply>;
  struct Route {
    std::string_view method;  // "GET", "POST"
    std::string_view path;
    void (App::*run)(const HttpRequest&, const Reply&);
    enum class Work : uint8_t { none, text, engine } work = Work::none;  // What takes time in it.
    bool open = false;                                                   // Without a key.
  };
  static std::span<const Route> routes();

  static const Route* route_of(std::string_view path);
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
  // null: nobody records.
  std::shared_ptr<RecordedRequest> look(const Generation& generation);
  void keep(const HttpRequest&, const Reply&, bool pin);
  std::optional<ApiError> read_prefix(const HttpRequest& request, ChatPrompt& prompt,
                                      RequestOptions& options) const;
  void cancel_when_gone(const Reply& reply, uint64_t number);
  std::function<void(int status, const Summary* summary, const std::string& error)> line_writer(
      const HttpRequest& request, const std::string& id, uint32_t prompt_tokens) const;
  static void refuse_submission(const Reply& reply, const Error& why, uint32_t prompt_tokens);

  void generate(const HttpRequest& request, const Reply& reply, const RequestOptions& options,
                ChatPrompt prompt, AnswerKind kind, bool echo);

  engine::LanguageModel& model_;
  Scheduler& scheduler_;
  const Chat& chat_;
  AppOptions options_;
  std::string model_id_;
  uint64_t started_s_;
  uint64_t context_tokens_;
  const HttpServer* http_ = nullptr;
  std::atomic<bool> closing_ = false;
  TraceRecorder recorder_;

  mutable std::mutex mutex_;
  std::map<std::pair<std::string_view, int>, uint64_t> answers_;  // By route and status.
  std::atomic<uint64_t> refused_ = 0;  // Requests for which a lane was full.
  JobQueue jobs_;                      // Last: its threads use the others.
};

// Everything that /metrics tells of, except tiers.
struct MetricsInput {
  SchedulerStats requests = {};
  SequenceStats cache = {};
  const HttpCounters* http = nullptr;  // null: none of HTTP's.
  std::vector<AnswerCount> answers = {};
  std::array<LaneStats, kLanes> lanes = {};
  std::string model = {};  // vLLM's names have it as model_name.
  bool vllm_names = false;
  bool llama_names = false;
};
// What /metrics says, in Prometheus' text format.
std::string encode_metrics(const MetricsInput& input);
// The same of tiers, where there are any.
std::string encode_tier_metrics(const tier::StackStats& stack,
                                const tier::SequenceTiersStats& tiers);

}  // namespace stemma::server
