#include "server/service/answer_service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "server/api/random_id.h"
#include "server/api/refuse.h"
#include "server/chat/steady_header.h"
#include "server/service/request_line.h"
#include "stemma/version.h"

namespace stemma::server {
namespace {

constexpr uint64_t kDayNs = uint64_t{24} * 3600 * 1'000'000'000;

}  // namespace

struct AnswerService::Job {
  const RequestOptions& options;
  ChatPrompt prompt;
  std::unique_ptr<AnswerWriter> writer;
  std::shared_ptr<const AnswerRules> rules = {};
  std::vector<std::string> unenforced = {};
  bool echoes = false;
  std::vector<ChatPrompt> more = {};  // Further prompts.
  std::optional<std::string> answers =
      {};  // The question's text; if missing, the answer is not remembered.
};

std::string session_of(const HttpRequest& request, const RequestOptions& options,
                       uint32_t max_bytes) {
  if (!options.session.empty()) return options.session;
  for (const char* name : {"x-claude-code-session-id", "session-id", "x-session-id"}) {
    const std::string_view said = request.header(name);
    if (!said.empty() && said.size() <= max_bytes) return std::string(said);
  }
  return options.user_session;
}

AnswerService::AnswerService(engine::LanguageModel& model, Scheduler& scheduler, const Chat& chat,
                             Transcripts& transcripts, TraceRecorder& recorder, Options options)
    : model_(model),
      scheduler_(scheduler),
      chat_(chat),
      transcripts_(transcripts),
      recorder_(recorder),
      options_(std::move(options)),
      context_tokens_(scheduler.cache().stats().context_tokens),
      rule_maker_(model, chat) {}

std::string AnswerService::fingerprint() { return std::string("stemma-") + version_string(); }

uint64_t AnswerService::unix_seconds() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

std::optional<ApiError> AnswerService::check_model(const std::string& model) const {
  if (options_.any_model || model.empty() || model == options_.model_id) return {};
  return unknown_model(model);
}

std::optional<ApiError> AnswerService::check(const RequestOptions& options) const {
  if (auto error = check_model(options.model)) return error;
  return check_vocabulary(options, model_.info().vocabulary);
}

void AnswerService::refuse(const Reply& reply, const AnswerWriter& writer, const ApiError& error) {
  HttpRefusal refusal = refusal_of(error, writer.refusal(error));
  refusal.status = writer.refusal_status(error);
  static_cast<void>(try_refuse(*reply, std::move(refusal)));
}

std::optional<ApiError> AnswerService::prompt_of(const HttpRequest& http, ChatRequest& request,
                                                 ChatPrompt& prompt) const {
  if (auto error = check(request.options)) return error;
  request.options.session = session_of(http, request.options, options_.rules.max_name_bytes);
  for (Message& message : request.messages) {
    if (message.role != "system" && message.role != "developer") continue;
    for (ContentPart& part : message.parts) steady_header(part.text);
  }
  const Recall known = recall(request.options, request.messages);
  return chat_.render(request, true, prompt, context_tokens_, &known);
}

Recall AnswerService::recall(const RequestOptions& options, std::vector<Message>& messages) const {
  Recall known{.transcripts = transcripts_, .found = transcripts_.find(options.salt, messages)};
  put_back(known.found, messages);
  return known;
}

void AnswerService::chat(const HttpRequest& http, const Reply& reply, ChatRequest request,
                         std::unique_ptr<AnswerWriter> writer) const {
  if (reply->gone()) return;
  ChatPrompt prompt;
  if (auto error = prompt_of(http, request, prompt)) return refuse(reply, *writer, *error);
  RequestOptions& options = request.options;
  options.ignored.insert(options.ignored.end(), prompt.ignored.begin(), prompt.ignored.end());
  auto made = rule_maker_.make(request, prompt.text);
  if (auto* error = std::get_if<ApiError>(&made)) return refuse(reply, *writer, *error);
  auto& rules = std::get<RuleMaker::Made>(made);
  Job job{.options = options,
          .prompt = std::move(prompt),
          .writer = std::move(writer),
          .rules = std::move(rules.rules),
          .unenforced = std::move(rules.unenforced)};
  for (const ToolSpec& tool : request.tools) {
    if (!tool.unenforced.empty()) job.unenforced.push_back(tool.unenforced);
  }
  // Clients return an answer and its continuation as one message.
  if (!request.continue_final_message) job.answers = request.messages.back().text();
  run(http, reply, std::move(job));
}

std::optional<ApiError> AnswerService::read_prompt(const CompletionRequest& request,
                                                   ChatPrompt& prompt) const {
  auto error = check_vocabulary(request.tokens, "prompt", model_.info().vocabulary);
  if (!error) error = chat_.plain(request, prompt, context_tokens_);
  if (!error && prompt.tokens.empty()) {
    error = ApiError{.message = "the prompt is empty", .param = "prompt"};
  }
  if (error || !request.echo || !prompt.text.empty()) return error;
  for (const Token token : prompt.tokens) model_.append_text(token, false, prompt.text);
  return {};
}

void AnswerService::complete(const HttpRequest& http, const Reply& reply,
                             const CompletionRequest& request,
                             std::unique_ptr<AnswerWriter> writer) const {
  if (reply->gone()) return;
  Job job{.options = request.options, .prompt = {}, .writer = std::move(writer)};
  job.echoes = request.echo;
  auto error = check(request.options);
  if (!error) error = read_prompt(request, job.prompt);
  for (size_t i = 0; i < request.more.size() && !error && !reply->gone(); ++i) {
    CompletionRequest one;
    one.echo = request.echo;
    one.prompt = request.more[i].text;
    one.tokens = request.more[i].tokens;
    error = read_prompt(one, job.more.emplace_back());
  }
  if (error) return refuse(reply, *job.writer, *error);
  run(http, reply, std::move(job));
}

// Makes the generation of the first prompt; those of the others differ only in their tokens.
Generation AnswerService::generation_of(const HttpRequest& http, Job& job) const {
  const RequestOptions& options = job.options;
  Generation generation = options.generation();
  generation.session = session_of(http, options, options_.rules.max_name_bytes);
  generation.printed = std::move(job.prompt.answer.printed);
  generation.end_tokens = std::move(job.prompt.answer.end_tokens);
  generation.end_texts = std::move(job.prompt.answer.end_texts);
  generation.parts = std::move(job.prompt.parts);
  generation.rules = std::move(job.rules);
  generation.prompt = std::move(job.prompt.tokens);
  generation.message_ends = std::move(job.prompt.message_ends);
  generation.pinned = std::move(job.prompt.pinned);
  generation.prompt_logprobs = job.echoes && options.top_logprobs;
  generation.retry = is_retry(http);
  generation.purges = http.purges;
  if (options.retention == CacheRetention::day) {
    generation.priority = kPinnedPriority;
    generation.priority_ns = kDayNs;
  }
  return generation;
}

AnswerListener::Options AnswerService::listening(const HttpRequest& http, const Reply& reply,
                                                 Job& job, uint32_t prompt_tokens) const {
  const RequestOptions& options = job.options;
  AnswerListener::Options answer;
  answer.stream = options.stream;
  answer.choices = options.choices * (1 + static_cast<uint32_t>(job.more.size()));
  answer.reading = std::move(job.prompt.reading);
  answer.reading.call_prefix = job.writer->call_prefix();
  answer.most_bytes = options_.answer_bytes;
  if (job.answers) remember_answers(http, *std::move(job.answers), options.salt, answer);
  if (!options.ignored.empty()) {
    answer.headers.push_back({"x-stemma-ignored", header_list(options.ignored)});
  }
  if (!job.unenforced.empty()) {
    answer.headers.push_back({"x-stemma-unenforced", header_list(job.unenforced)});
  }
  const AnswerWriter& writer = *job.writer;
  if (options_.log) answer.ended = line_writer(http, std::string(writer.id()), prompt_tokens);
  if (options.stream && !writer.keep_alive().empty()) {
    reply->keep_alive({.every = options_.keep_alive,
                       .piece = std::string(writer.keep_alive()),
                       .content_type = std::string(writer.content_type(true)),
                       .headers = stream_headers(answer.headers)});
  }
  return answer;
}

std::shared_ptr<RecordedRequest> AnswerService::recorded(const Generation& generation) const {
  if (!recorder_.records()) return nullptr;
  const Result<Scope> scope = scheduler_.scope(generation.salt);
  return scope ? recorder_.look(*scope, generation.prompt, generation.session) : nullptr;
}

void AnswerService::run(const HttpRequest& http, const Reply& reply, Job job) const {
  if (job.prompt.tokens.empty()) {
    return refuse(reply, *job.writer, {.message = "the prompt is empty", .param = "messages"});
  }
  size_t prompt_tokens = job.prompt.tokens.size();
  // One position is for the answer. Check all prompts before any is submitted.
  const uint64_t most = context_tokens_ - (job.options.max_tokens == 0U ? 0 : 1);
  for (const ChatPrompt& each : job.more) {
    prompt_tokens += each.tokens.size();
    const size_t longest = std::max(job.prompt.tokens.size(), each.tokens.size());
    if (longest > most) return refuse(reply, *job.writer, context_exceeded(longest, most));
  }
  const auto counted = static_cast<uint32_t>(std::min<size_t>(prompt_tokens, UINT32_MAX));
  AnswerListener::Options answer = listening(http, reply, job, counted);
  // The listener may cancel before the requests have numbers.
  const auto ending = std::make_shared<std::weak_ptr<JoinedAnswers>>();
  answer.cancel = [ending] {
    if (const auto joined = ending->lock()) joined->cancel();
  };
  JoinedAnswers::Options joining{
      .prompts = 1 + static_cast<uint32_t>(job.more.size()),
      .choices = job.options.choices,
      .echoes = {},
      .cancel = [scheduler = &scheduler_](uint64_t number) { scheduler->cancel(number); }};
  if (job.echoes) {
    joining.echoes.push_back(std::move(job.prompt.text));
    for (ChatPrompt& each : job.more) joining.echoes.push_back(std::move(each.text));
  }
  std::vector<Generation> generations = {generation_of(http, job)};
  for (ChatPrompt& each : job.more) {
    generations.push_back(generations.front());
    generations.back().prompt = std::move(each.tokens);
    generations.back().message_ends = std::move(each.message_ends);
  }
  const AnswerWriter& writer = *job.writer;
  const auto listener =
      std::make_shared<AnswerListener>(reply, std::move(job.writer), std::move(answer));
  const auto joined = std::make_shared<JoinedAnswers>(listener, std::move(joining));
  *ending = joined;
  // From here on the listener writes the log line.
  reply->own_line(true);
  submit_all(reply, writer, std::move(generations), joined, counted);
}

void AnswerService::submit_all(const Reply& reply, const AnswerWriter& writer,
                               std::vector<Generation> generations,
                               const std::shared_ptr<JoinedAnswers>& joined,
                               uint32_t prompt_tokens) const {
  for (uint32_t i = 0; i < generations.size(); ++i) {
    std::shared_ptr<Listener> listener = joined->member(i);
    const std::shared_ptr<RecordedRequest> record = recorded(generations[i]);
    if (record != nullptr) listener = tell_too(record, std::move(listener));
    const Result<uint64_t> number =
        scheduler_.submit(std::move(generations[i]), std::move(listener));
    if (!number) {
      // Nothing was submitted, and the reply has not begun. Later the listener reports this.
      if (i == 0) return refuse_submission(reply, writer, number.error(), prompt_tokens);
      joined->refused(static_cast<uint32_t>(generations.size()) - i, number.error(),
                      number.error().code() == Errc::busy);
      break;
    }
    joined->submitted(*number);
    if (record != nullptr) record->taken();
  }
  reply->on_gone([joined] { joined->cancel(); });
}

std::function<bool()> AnswerService::may_save(const HttpRequest& http,
                                              const std::string& salt) const {
  return [&log = scheduler_.purges(), purges = http.purges, salt] {
    return !log.purged_since(purges, salt);
  };
}

// Lets the sampled message be remembered before the client can send it back.
void AnswerService::remember_answers(const HttpRequest& http, std::string before,
                                     const std::string& salt,
                                     AnswerListener::Options& answer) const {
  answer.reading.keep_message = true;
  answer.transcript_id = random_id("tr_");
  answer.look = [transcripts = &transcripts_, before = std::move(before), salt,
                 may_save = may_save(http, salt),
                 id = answer.transcript_id](const ChoiceEnd& end, const AnswerReader& reader) {
    AnswerListener::Facts facts;
    if (end.cause == StopCause::cancelled || end.cause == StopCause::failed) return facts;
    facts.transcript_id = end.choice == 0 ? id : id + "-" + std::to_string(end.choice);
    Transcript transcript;
    transcript.tokens = end.tokens;
    transcript.message = reader.message();
    transcript.call_ids = reader.call_ids();
    transcript.before = before;
    transcripts->remember(salt, facts.transcript_id, std::move(transcript), may_save);
    return facts;
  };
}

void AnswerService::refuse_submission(const Reply& reply, const AnswerWriter& writer,
                                      const Error& why, uint32_t prompt_tokens) const {
  reply->own_line(false);
  switch (why.code()) {
    case Errc::out_of_range:
      return refuse(reply, writer, context_exceeded(prompt_tokens, why.value()));
    case Errc::busy: return refuse(reply, writer, overloaded(why.message()));
    default: {
      ApiError error;
      error.message = why.to_string();
      return refuse(reply, writer, error);
    }
  }
}

// Writes the log line of a request that was submitted to the scheduler.
std::function<void(int, const Summary*, const std::string&)> AnswerService::line_writer(
    const HttpRequest& http, const std::string& id, uint32_t prompt_tokens) const {
  return [log = options_.log, line = RequestLine{.id = id,
                                                 .path = http.path,
                                                 .client = http.peer,
                                                 .request_id = http.id,
                                                 .prompt_tokens = prompt_tokens}](
             int status, const Summary* summary, const std::string& error) {
    log(line.text(status, summary, error));
  };
}

}  // namespace stemma::server
