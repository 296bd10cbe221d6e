// The routes under /cache, except those in app_forget.cc.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "json/json.h"
#include "server/api/openai/request.h"
#include "server/api/refuse.h"
#include "server/app.h"

namespace stemma::server {

namespace {

// Reports how a prefix got into the cache.
class KeepListener final : public Listener {
 public:
  explicit KeepListener(std::shared_ptr<HttpReply> reply) : reply_(std::move(reply)) {}
  void piece(Piece) override {}
  void ended(ChoiceEnd) override {}
  void done(const Summary& summary) override {
    std::string out = R"({"status":"ok","tokens":)";
    append_json_number(out, uint64_t{summary.prompt_tokens});
    out += R"(,"stemma":)";
    append_report(out, summary);
    out += '}';
    reply_->respond(200, kJson, std::move(out));
    reply_.reset();
  }
  void failed(const Error&, const std::string& message, bool overload) override {
    refuse(*reply_, overload ? overloaded(message) : internal_error(message));
    reply_.reset();
  }

 private:
  std::shared_ptr<HttpReply> reply_;
};

void append_transcripts(std::string& out, const TranscriptStats& stats) {
  out += R"(,"transcripts":{)";
  const auto number = [&](const char* name, uint64_t value) {
    if (out.back() != '{') out += ',';
    append_json_string(out, name);
    out += ':';
    append_json_number(out, value);
  };
  number("entries", stats.entries);
  number("bytes", stats.bytes);
  number("remembered", stats.remembered);
  number("spliced", stats.spliced);
  number("unfit", stats.unfit);
  number("different", stats.different);
  number("unknown", stats.unknown);
  number("evicted", stats.evicted);
  number("from_tiers", stats.from_tiers);
  out += '}';
}

}  // namespace

void App::cache_stats(const HttpRequest&, const Reply& reply) {
  const SequenceStats stats = scheduler_.cache().stats();
  std::string out = "{";
  const auto number = [&](const char* name, uint64_t value) {
    if (out.size() > 1) out += ',';
    append_json_string(out, name);
    out += ':';
    append_json_number(out, value);
  };
  const auto named = [&](const char* name, std::span<const uint64_t> values, auto name_of) {
    out += ',';
    append_json_string(out, name);
    out += ":{";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i != 0) out += ',';
      append_json_string(out, name_of(i));
      out += ':';
      append_json_number(out, values[i]);
    }
    out += '}';
  };
  number("turns", stats.turns);
  number("prompt_tokens", stats.prompt_tokens);
  number("reused_tokens", stats.reused_tokens);
  number("evaluated_tokens", stats.evaluated_tokens);
  named("outcomes", stats.outcomes, [](size_t i) { return to_string(static_cast<Outcome>(i)); });
  named("misses", stats.reasons, [](size_t i) { return to_string(static_cast<SequenceMiss>(i)); });
  named("steps", stats.steps, [](size_t i) { return to_string(static_cast<Step>(i)); });
  named("step_tokens", stats.step_tokens, [](size_t i) { return to_string(static_cast<Step>(i)); });
  named("failures", stats.failures, [](size_t i) { return to_string(static_cast<Step>(i)); });
  named("captures", stats.captures,
        [](size_t i) { return to_string(static_cast<CaptureFate>(i)); });
  number("quarantined", stats.quarantined);
  number("victims", stats.victims);
  number("dropped_idle", stats.dropped_idle);
  number("relocated", stats.relocated);
  number("restored_bytes", stats.restored_bytes);
  number("captured_bytes", stats.captured_bytes);
  number("sequences", stats.sequences);
  number("free_sequences", stats.free_sequences);
  number("idle_sequences", stats.idle_sequences);
  number("leased_sequences", stats.leased_sequences);
  number("sessions", stats.sessions);
  number("pending", stats.pending);
  number("context_tokens", stats.context_tokens);
  number("used_tokens", stats.used_tokens);
  number("saved_bytes", stats.saved_bytes);
  number("segment_bytes", stats.segment_bytes);
  number("state_bytes", stats.state_bytes);
  number("checkpoint_bytes", stats.checkpoint_bytes);
  number("logits_bytes", stats.logits_bytes);
  number("index_bytes", stats.index_bytes);
  number("segment_evictions", stats.segment_evictions);
  number("state_evictions", stats.state_evictions);
  number("compute_token_ns", stats.compute_token_ns);
  number("attention_cell_ps", stats.attention_cell_ps);
  number("answer_cell_ps", stats.answer_cell_ps);
  number("load_byte_ps", stats.move_byte_ps);
  number("load_call_ns", stats.move_call_ns);
  number("save_byte_ps", stats.save_byte_ps);
  number("save_call_ns", stats.save_call_ns);
  append_transcripts(out, transcripts_.stats());
  out += R"(,"hit_ratio":)";
  append_json_number(out, stats.hit_ratio());
  out += R"(,"policy":)";
  append_json_string(out, scheduler_.cache().policy());
  out += '}';
  reply->respond(200, kJson, std::move(out));
}

void App::cache_entries(const HttpRequest&, const Reply& reply) {
  const Result<std::vector<SequenceContent>> entries = scheduler_.cache().contents();
  if (!entries) return refuse(*reply, overloaded(entries.error().message()));
  std::string out = R"({"entries":[)";
  bool first = true;
  for (const SequenceContent& entry : *entries) {
    static constexpr const char* kKinds[] = {"live", "segments", "state", "checkpoint", "logits"};
    if (!first) out += ',';
    first = false;
    out += R"({"kind":)";
    append_json_string(out, kKinds[static_cast<uint32_t>(entry.kind)]);
    out += R"(,"scope":")";
    for (uint32_t i = 0; i < 8; ++i) {
      char hex[3];
      std::snprintf(hex, sizeof hex, "%02x", entry.scope.digest()[i]);
      out += hex;
    }
    out += R"(","tokens":)";
    append_json_number(out, uint64_t{entry.depth});
    out += R"(,"bytes":)";
    append_json_number(out, entry.bytes);
    if (entry.kind == SequenceContent::Kind::live) {
      out += R"(,"sequence":)";
      append_json_number(out, uint64_t{to_index(entry.sequence)});
    }
    out += R"(,"in_use":)";
    out += entry.leased ? "true}" : "false}";
  }
  out += "]}";
  reply->respond(200, kJson, std::move(out));
}

void App::cache_save(const HttpRequest&, const Reply& reply) {
  constexpr uint64_t kPatienceNs = 30'000'000'000;
  const Scheduler::Kept kept =
      scheduler_.keep_everything(Clock::monotonic().now_ns() + kPatienceNs);
  if (!kept.ran) return refuse(*reply, overloaded("the server is ending"));
  std::string out = R"({"saved":)";
  append_json_number(out, uint64_t{kept.drained.saved});
  out += R"(,"bytes":)";
  append_json_number(out, kept.drained.bytes);
  if (scheduler_.tiers() != nullptr) {
    out += R"(,"written_back":)";
    append_json_number(out, uint64_t{kept.written_back.parts});
    out += R"(,"written_back_bytes":)";
    append_json_number(out, kept.written_back.bytes);
    out += R"(,"in_tiers":)";
    out += kept.in_tiers ? "true" : "false";
    out += R"(,"tiers":[)";
    for (const Scheduler::KeptTier& tier : kept.tiers) {
      if (out.back() != '[') out += ',';
      out += R"({"name":)";
      append_json_string(out, tier.name);
      out += R"(,"stored":)";
      append_json_number(out, tier.stored);
      out += R"(,"waiting":)";
      append_json_number(out, tier.waiting);
      out += R"(,"lost":)";
      append_json_number(out, tier.lost);
      out += R"(,"too_large":)";
      append_json_number(out, tier.too_large);
      out += '}';
    }
    out += ']';
  }
  out += '}';
  reply->respond(200, kJson, std::move(out));
}

// Reads a conversation without its answer, or a text.
std::optional<ApiError> App::read_prefix(const HttpRequest& request, ChatPrompt& prompt,
                                         RequestOptions& options) const {
  const auto parsed = parse_json(request.body, options_.rules.json);
  const auto* json = std::get_if<Json>(&parsed);
  std::optional<ApiError> error;
  if (json != nullptr && json->find("messages") != nullptr) {
    ChatRequest chat;
    error = decode_chat(request.body, options_.rules, chat);
    if (json->find("add_generation_prompt") == nullptr) chat.add_generation_prompt = false;
    if (!error) {
      const Recall known = service_.recall(chat.options, chat.messages);
      error = chat_.render(chat, true, prompt, context_tokens_, &known);
    }
    options = chat.options;
  } else {
    CompletionRequest text;
    error = decode_completion(request.body, options_.rules, text);
    if (!error) error = check_vocabulary(text.tokens, "prompt", model_.info().vocabulary);
    // An empty prompt does not even get a first token.
    if (!error && !(text.tokens.empty() && text.prompt.empty()))
      error = chat_.plain(text, prompt, context_tokens_);
    options = text.options;
  }
  if (!error) error = check_model(options.model);
  return error;
}

void App::cache_warm(const HttpRequest& request, const Reply& reply) {
  keep(request, reply, false);
}
void App::cache_pin(const HttpRequest& request, const Reply& reply) { keep(request, reply, true); }

void App::keep(const HttpRequest& request, const Reply& reply, bool pin) {
  ChatPrompt prompt;
  RequestOptions options;
  if (const auto error = read_prefix(request, prompt, options)) {
    return refuse(*reply, *error);
  }
  if (prompt.tokens.empty()) {
    ApiError empty;
    empty.message = "the prompt is empty";
    empty.param = "prompt";
    return refuse(*reply, empty);
  }
  Generation generation = options.generation();
  const auto length = static_cast<uint32_t>(prompt.tokens.size());
  generation.prompt = std::move(prompt.tokens);
  generation.message_ends = std::move(prompt.message_ends);
  generation.pinned = std::move(prompt.pinned);
  generation.max_tokens = 0;
  generation.choices = 1;
  generation.retry = is_retry(request);
  generation.purges = request.purges;
  if (pin && generation.pinned.empty()) {
    generation.pinned.push_back({.begin = 0,
                                 .end = PriorityRange::kOpenEnd,
                                 .priority = kPinnedPriority,
                                 .ttl_ns = CacheControl{}.ttl_ns});
  }
  const Result<uint64_t> number =
      scheduler_.submit(std::move(generation), std::make_shared<KeepListener>(reply));
  if (!number) {
    refuse(*reply, number.error().code() == Errc::out_of_range
                       ? context_exceeded(length, number.error().value())
                       : overloaded(number.error().message()));
    return;
  }
  cancel_when_gone(reply, *number);
}

// ---- Recording requests -------------------------------------------------------------------------

std::shared_ptr<RecordedRequest> App::look(const Generation& generation) {
  if (!recorder_.records()) return nullptr;
  const Result<Scope> scope = scheduler_.scope(generation.salt);
  return scope ? recorder_.look(*scope, generation.prompt, generation.session) : nullptr;
}

void App::cache_trace(const HttpRequest& request, const Reply& reply) {
  uint32_t block_tokens = 512;
  if (const auto wanted = request.parameter("block_tokens")) {
    const char* const end = wanted->data() + wanted->size();
    const auto [after, error] = std::from_chars(wanted->data(), end, block_tokens);
    if (error != std::errc() || after != end || block_tokens < TraceRecorder::kLeastBlockTokens ||
        block_tokens > TraceRecorder::kMostBlockTokens) {
      ApiError wrong;
      wrong.message = "block_tokens is a whole number from " +
                      std::to_string(TraceRecorder::kLeastBlockTokens) + " to " +
                      std::to_string(TraceRecorder::kMostBlockTokens);
      wrong.param = "block_tokens";
      wrong.code = "invalid_value";
      return refuse(*reply, wrong);
    }
  }
  if (request.method == "HEAD") {
    reply->respond(200, kTraceType, "");
    return;
  }
  reply->keep_alive({.every = options_.keep_alive,
                     .piece = std::string(kTraceKeepAlive),
                     .content_type = std::string(kTraceType)});
  if (recorder_.begin(reply, block_tokens)) return;
  refuse(*reply,
         overloaded(closing_ ? "the server is ending"
                             : "as many recordings are under way as there may be; end one"));
}

void App::cache_trace_end(const HttpRequest& request, const Reply& reply) {
  const auto name = request.parameter("recording");
  uint64_t number = 0;
  if (name) std::from_chars(name->data(), name->data() + name->size(), number);
  if (!recorder_.end(number)) {
    ApiError error;
    error.status = 404;
    error.message =
        "there is no such recording; ?recording=N names the one whose stream began with the header "
        "Stemma-Recording: N";
    error.param = "recording";
    error.code = "not_found";
    return refuse(*reply, error);
  }
  reply->respond(200, kJson, R"({"status":"ok"})");
}

}  // namespace stemma::server
