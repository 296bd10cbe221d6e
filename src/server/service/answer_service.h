// AnswerService: the one way from a decoded request of any API to its answer.
//
//   ChatRequest, CompletionRequest --Chat--> prompt --Scheduler--> AnswerListener --AnswerWriter--> reply
//
// An API decodes its bodies, makes its writer and calls chat() or complete(). The writer encodes
// every refusal in the API's own shape.
//
// Threading:  immutable; thread-safe.
// Ownership:  model, scheduler, chat, transcripts and recorder outlive it.
// Cost:       rendering and tokenising; the answer is computed on the scheduler's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/language_model.h"
#include "server/api/answer_listener.h"
#include "server/api/answer_writer.h"
#include "server/api/request.h"
#include "server/chat/chat.h"
#include "server/http/message.h"
#include "server/rules/rule_maker.h"
#include "server/schedule/joined_answers.h"
#include "server/schedule/scheduler.h"
#include "server/trace/recorder.h"

namespace stemma::server {

class ResponseStore;  // Of one API: the service only hands it to that API.

class AnswerService {
 public:
  using Reply = std::shared_ptr<HttpReply>;
  struct Options {
    std::string model_id;
    bool any_model = false;  // Requests may name any model.
    ApiRules rules;
    uint64_t answer_bytes = uint64_t{64} << 20U;  // Limit for an answer that is not streamed.
    std::chrono::milliseconds keep_alive{10'000};
    std::function<void(std::string_view line)> log;  // Gets one line per request.
    ResponseStore* responses = nullptr;              // Outlives the service.
  };
  AnswerService(engine::LanguageModel& model, Scheduler& scheduler, const Chat& chat,
                Transcripts& transcripts, TraceRecorder& recorder, Options options);

  // Checks a request's model and tokens. Returns nothing if they are valid.
  std::optional<ApiError> check(const RequestOptions& options) const;
  std::optional<ApiError> check_model(const std::string& model) const;

  // Check the request, then answer it.
  void chat(const HttpRequest& http, const Reply& reply, ChatRequest request,
            std::unique_ptr<AnswerWriter> writer) const;
  void complete(const HttpRequest& http, const Reply& reply, const CompletionRequest& request,
                std::unique_ptr<AnswerWriter> writer) const;
  // Answers with the error, in the writer's shape.
  static void refuse(const Reply& reply, const AnswerWriter& writer, const ApiError& error);

  // Finds the transcripts of a conversation's answers and completes the messages with them.
  Recall recall(const RequestOptions& options, std::vector<Message>& messages) const;
  // Makes the prompt of a conversation, for callers that only count its tokens. Sets the request's
  // session, and blanks header values that change without a meaning (chat/steady_header.h).
  std::optional<ApiError> prompt_of(const HttpRequest& http, ChatRequest& request,
                                    ChatPrompt& prompt) const;
  // Returns a function that says whether the request may save something: true until its salt is
  // purged. It must not outlive the scheduler.
  std::function<bool()> may_save(const HttpRequest& http, const std::string& salt) const;

  engine::LanguageModel& model() const noexcept { return model_; }
  Scheduler& scheduler() const noexcept { return scheduler_; }
  const Chat& templates() const noexcept { return chat_; }
  const std::string& model_id() const noexcept { return options_.model_id; }
  const ApiRules& rules() const noexcept { return options_.rules; }
  uint64_t context_tokens() const noexcept { return context_tokens_; }
  ResponseStore& responses() const noexcept { return *options_.responses; }
  uint64_t answer_bytes() const noexcept { return options_.answer_bytes; }
  uint64_t started_s() const noexcept { return started_s_; }
  static uint64_t unix_seconds();
  // "stemma-" and the version, for system_fingerprint.
  static std::string fingerprint();

 private:
  struct Job;  // A prompt, and what the client wants of it.
  void run(const HttpRequest& http, const Reply& reply, Job job) const;
  Generation generation_of(const HttpRequest& http, Job& job) const;
  AnswerListener::Options listening(const HttpRequest& http, const Reply& reply, Job& job,
                                    uint32_t prompt_tokens) const;
  std::optional<ApiError> read_prompt(const CompletionRequest& request, ChatPrompt& prompt) const;
  std::shared_ptr<RecordedRequest> recorded(const Generation& generation) const;
  // Submits all generations; their answers are joined into one.
  void submit_all(const Reply& reply, const AnswerWriter& writer,
                  std::vector<Generation> generations, const std::shared_ptr<JoinedAnswers>& joined,
                  uint32_t prompt_tokens) const;
  void remember_answers(const HttpRequest& http, std::string before, const std::string& salt,
                        AnswerListener::Options& answer) const;
  void refuse_submission(const Reply& reply, const AnswerWriter& writer, const Error& why,
                         uint32_t prompt_tokens) const;
  std::function<void(int status, const Summary* summary, const std::string& error)> line_writer(
      const HttpRequest& http, const std::string& id, uint32_t prompt_tokens) const;

  engine::LanguageModel& model_;
  Scheduler& scheduler_;
  const Chat& chat_;
  Transcripts& transcripts_;
  TraceRecorder& recorder_;
  const Options options_;
  const uint64_t context_tokens_;
  const uint64_t started_s_ = unix_seconds();
  mutable RuleMaker rule_maker_;
};

// The session that an agent named in its headers; empty: none.
std::string session_of(const HttpRequest& request, const RequestOptions& options,
                       uint32_t max_bytes);

}  // namespace stemma::server
