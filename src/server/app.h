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
// Threading:  handle() is thread-safe and returns at once; what takes time runs on threads of its own.
// Ownership:  model, scheduler and chat outlive it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/language_model.h"
#include "server/api_answer.h"
#include "server/api_request.h"
#include "server/chat.h"
#include "server/http_message.h"
#include "server/http_server.h"
#include "server/scheduler.h"
#include "server/trace_recorder.h"

namespace stemma::server {

struct AppOptions {
  std::string alias;    // The model's id; empty: its name.
  std::string api_key;  // Empty: none is asked for.
  ApiRules rules;
  uint32_t threads = 2;  // That decode, render and tokenise.
  // A stream that says nothing for so long says that it is there, in a comment; 0: never.
  std::chrono::milliseconds keep_alive{10'000};
  bool vllm_metrics = false;
  bool llama_metrics = false;
  // One line a request, and what a person should know.
  std::function<void(std::string_view line)> log;
};

class App {
 public:
  App(engine::LanguageModel& model, Scheduler& scheduler, const Chat& chat,
      const AppOptions& options);
  ~App();

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);

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
    bool open = false;  // Without a key.
    bool slow = false;  // On a thread of ours.
  };
  static std::span<const Route> routes();

  void run(const Route& route, const HttpRequest& request, const Reply& reply);
  void work();
  bool authorised(const HttpRequest& request) const;
  // null: it has been refused.
  const Route* find(const HttpRequest& request, const Reply& reply) const;
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
  void cache_trace(const HttpRequest&, const Reply&);
  void cache_trace_end(const HttpRequest&, const Reply&);
  // null: nobody records.
  std::shared_ptr<RecordedRequest> look(const Generation& generation);
  void keep(const HttpRequest&, const Reply&, bool pin);
  std::optional<ApiError> read_prefix(const HttpRequest& request, ChatPrompt& prompt,
                                      RequestOptions& options) const;
  void cancel_when_gone(const Reply& reply, uint64_t number);

  void generate(const HttpRequest& request, const Reply& reply, const RequestOptions& options,
                ChatPrompt prompt, AnswerKind kind, bool echo);

  engine::LanguageModel& model_;
  Scheduler& scheduler_;
  const Chat& chat_;
  AppOptions options_;
  std::string model_id_;
  uint64_t started_s_;
  const HttpServer* http_ = nullptr;
  std::atomic<bool> closing_ = false;
  TraceRecorder recorder_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// What /metrics says, in Prometheus' text format.
std::string encode_metrics(const SchedulerStats& scheduler, const SequenceStats& cache,
                           const HttpCounters* http, bool vllm_names, bool llama_names);
// The same of tiers, where there are any.
std::string encode_tier_metrics(const tier::StackStats& stack,
                                const tier::SequenceTiersStats& tiers);

}  // namespace stemma::server
