// /metrics: our own names, and on request the names that dashboards for vLLM and llama-server use.
#include <span>
#include <string>
#include <string_view>

#include "json/json.h"
#include "server/app.h"

namespace stemma::server {

namespace {

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void head(const char* name, const char* kind, const char* help) {
    out_ += "# HELP ";
    out_ += name;
    out_ += ' ';
    out_ += help;
    out_ += "\n# TYPE ";
    out_ += name;
    out_ += ' ';
    out_ += kind;
    out_ += '\n';
  }
  // Adds this label to every sample from now on.
  void label_all(const char* label, std::string_view value) { common_ = label_text(label, value); }
  static std::string label_text(const char* label, std::string_view value) {
    std::string text = label;
    text += "=\"";
    for (const char c : value) {
      if (c == '\\' || c == '"') text += '\\';
      text += c == '\n' ? ' ' : c;
    }
    return text + '"';
  }
  void value(const char* name, uint64_t value, const char* label = nullptr,
             std::string_view label_value = {}) {
    sample(name, "", label == nullptr ? "" : label_text(label, label_value));
    append_json_number(out_, value);
    out_ += '\n';
  }
  // Writes a sample whose labels are already formatted.
  void labelled(const char* name, uint64_t value, const std::string& labels) {
    sample(name, "", labels);
    append_json_number(out_, value);
    out_ += '\n';
  }
  void counter(const char* name, uint64_t count, const char* help) {
    head(name, "counter", help);
    value(name, count);
  }
  void gauge(const char* name, uint64_t level, const char* help) {
    head(name, "gauge", help);
    value(name, level);
  }
  void gauge(const char* name, double level, const char* help) {
    head(name, "gauge", help);
    number(name, "", level);
  }
  void seconds(const char* name, uint64_t ns, const char* help) {
    head(name, "counter", help);
    number(name, "", static_cast<double>(ns) * 1e-9);
  }
  void histogram(const char* name, const Histogram& values, const char* help) {
    head(name, "histogram", help);
    uint64_t below = 0;
    for (uint32_t i = 0; i <= Histogram::kBuckets; ++i) {
      below += values.in_bucket(i);
      std::string bound = "+Inf";
      if (i != Histogram::kBuckets) {
        bound.clear();
        append_json_number(bound, values.bound(i));
      }
      sample(name, "_bucket", label_text("le", bound));
      append_json_number(out_, below);
      out_ += '\n';
    }
    number(name, "_sum", values.sum());
    sample(name, "_count", "");
    append_json_number(out_, values.count());
    out_ += '\n';
  }

 private:
  void sample(const char* name, const char* suffix, const std::string& labels) {
    out_ += name;
    out_ += suffix;
    if (!common_.empty() || !labels.empty()) {
      out_ += '{';
      out_ += common_;
      if (!common_.empty() && !labels.empty()) out_ += ',';
      out_ += labels;
      out_ += '}';
    }
    out_ += ' ';
  }
  void number(const char* name, const char* suffix, double value) {
    sample(name, suffix, "");
    append_json_number(out_, value);
    out_ += '\n';
  }

  std::string& out_;
  std::string common_;
};

void write_requests(Writer& write, const SchedulerStats& requests) {
  write.counter("stemma_requests_total", requests.requests, "Requests taken.");
  write.head("stemma_requests_ended_total", "counter", "Requests that ended, by how.");
  write.value("stemma_requests_ended_total", requests.completed, "how", "completed");
  write.value("stemma_requests_ended_total", requests.cancelled, "how", "cancelled");
  write.value("stemma_requests_ended_total", requests.failed, "how", "failed");
  write.counter("stemma_requests_refused_total", requests.refused,
                "Requests for which the queue was full.");
  write.gauge("stemma_requests_waiting", uint64_t{requests.waiting}, "Requests in the queue.");
  write.gauge("stemma_requests_running", uint64_t{requests.running}, "Choices under way.");
  write.counter("stemma_suspensions_total", requests.suspensions,
                "Answers that gave way because the context was full.");
  write.counter("stemma_prompt_tokens_total", requests.prompt_tokens, "Tokens of prompts.");
  write.counter("stemma_reused_tokens_total", requests.cached_tokens,
                "Tokens of prompts that were not computed.");
  write.counter("stemma_evaluated_tokens_total", requests.evaluated_tokens,
                "Tokens of prompts that were computed.");
  write.counter("stemma_generated_tokens_total", requests.generated_tokens, "Tokens of answers.");
  write.counter("stemma_retokenised_prompts_total", requests.retokenised,
                "Prompts that repeat an earlier answer as the same text in other tokens.");
  write.counter("stemma_passes_total", requests.passes, "Forward passes.");
  write.counter("stemma_failed_passes_total", requests.failed_passes,
                "Forward passes that failed.");
  write.seconds("stemma_prompt_seconds_total", requests.prompt_ns, "Time computing prompts.");
  write.seconds("stemma_answer_seconds_total", requests.answer_ns, "Time computing answers.");
  write.histogram("stemma_first_token_seconds", requests.first_token_seconds,
                  "From a request's arrival to its first token.");
  write.histogram("stemma_request_seconds", requests.request_seconds,
                  "From a request's arrival to its end.");
  write.histogram("stemma_queue_seconds", requests.queue_seconds,
                  "From a request's arrival to its beginning.");
  write.histogram("stemma_capture_wait_seconds", requests.saving_seconds,
                  "How long requests waited for captures before their prompt began.");
  write.histogram("stemma_token_seconds", requests.token_seconds,
                  "Between two tokens of an answer.");
}

void write_cache(Writer& write, const SequenceStats& cache) {
  const auto each = [&](const char* name, const char* label, const char* help,
                        std::span<const uint64_t> values, auto name_of) {
    write.head(name, "counter", help);
    for (size_t i = 0; i < values.size(); ++i) write.value(name, values[i], label, name_of(i));
  };
  each("stemma_outcomes_total", "outcome", "Turns, by how much of the prompt was reused.",
       cache.outcomes, [](size_t i) { return to_string(static_cast<Outcome>(i)); });
  each("stemma_misses_total", "reason",
       "Turns, by the reason why not more of the prompt was reused.", cache.reasons,
       [](size_t i) { return to_string(static_cast<SequenceMiss>(i)); });
  each("stemma_steps_total", "step", "Turns in which a prefix came this way.", cache.steps,
       [](size_t i) { return to_string(static_cast<Step>(i)); });
  each("stemma_step_tokens_total", "step", "Tokens that came this way.", cache.step_tokens,
       [](size_t i) { return to_string(static_cast<Step>(i)); });
  each("stemma_step_failures_total", "step", "Steps that failed and were replaced by others.",
       cache.failures, [](size_t i) { return to_string(static_cast<Step>(i)); });
  each("stemma_captures_total", "fate",
       "Captures (state that was to be saved), by what became of them.", cache.captures,
       [](size_t i) { return to_string(static_cast<CaptureFate>(i)); });
  write.counter("stemma_quarantined_total", cache.quarantined,
                "Saved entries given up because they were bad.");
  write.counter("stemma_victims_total", cache.victims, "Idle sequences emptied for others.");
  write.counter("stemma_dropped_idle_total", cache.dropped_idle,
                "Idle sequences emptied because computing beside them was slow.");
  write.counter("stemma_relocated_total", cache.relocated,
                "Prompts moved to the cells of idle sequences that were dropped.");
  write.counter("stemma_restored_bytes_total", cache.restored_bytes,
                "Bytes loaded into sequences.");
  write.counter("stemma_captured_bytes_total", cache.captured_bytes, "Bytes saved.");
  write.seconds("stemma_restore_seconds_total", cache.restore_ns,
                "Time of the engine's thread in loading what was saved.");
  write.seconds("stemma_capture_seconds_total", cache.capture_ns,
                "Time of the engine's thread in saving.");
  write.gauge("stemma_pinned_bytes", cache.pinned_bytes,
              "Memory that the driver of a device has pinned, for moving what is saved.");
  write.head("stemma_evictions_total", "counter", "Saved entries evicted to make room.");
  write.value("stemma_evictions_total", cache.segment_evictions, "kind", "segment");
  write.value("stemma_evictions_total", cache.state_evictions, "kind", "state");
  write.head("stemma_sequences", "gauge", "Sequences of the engine, by state.");
  write.value("stemma_sequences", cache.free_sequences, "state", "free");
  write.value("stemma_sequences", cache.idle_sequences, "state", "idle");
  write.value("stemma_sequences", cache.leased_sequences, "state", "leased");
  write.value("stemma_sequences", cache.broken_sequences, "state", "broken");
  write.gauge("stemma_context_tokens", cache.context_tokens,
              "Positions that the engine has memory for.");
  write.gauge("stemma_context_tokens_used", cache.used_tokens,
              "Positions that are taken; shared positions count once.");
  write.head("stemma_saved_bytes", "gauge", "Bytes that are saved, by kind.");
  write.value("stemma_saved_bytes", cache.segment_bytes, "kind", "segment");
  write.value("stemma_saved_bytes", cache.state_bytes, "kind", "state");
  write.value("stemma_saved_bytes", cache.checkpoint_bytes, "kind", "checkpoint");
  write.value("stemma_saved_bytes", cache.logits_bytes, "kind", "logits");
  write.gauge("stemma_index_bytes", cache.index_bytes, "Memory of the index.");
  write.gauge("stemma_pending_captures", uint64_t{cache.pending}, "Captures that wait.");
  write.gauge("stemma_sessions", uint64_t{cache.sessions}, "Conversations that are remembered.");
}

void write_http(Writer& write, const HttpCounters& http, std::span<const AnswerCount> answers) {
  write.gauge("stemma_http_connections", http.connections_open, "Connections that are open.");
  write.counter("stemma_http_connections_total", http.connections_total, "Connections taken.");
  write.counter("stemma_http_requests_total", http.requests, "Whole HTTP requests.");
  write.counter("stemma_http_bad_requests_total", http.bad_requests,
                "Requests that were not HTTP, too large or too slow.");
  write.counter("stemma_http_refused_total", http.refused, "Connections refused for want of room.");
  write.counter("stemma_http_timeouts_total", http.timeouts, "Clients that were too slow.");
  write.counter("stemma_http_gone_total", http.gone,
                "Clients that left before their answer was complete.");
  write.counter("stemma_http_accept_failures_total", http.accept_failures,
                "Times a client could not be accepted.");
  write.counter("stemma_http_received_bytes_total", http.bytes_in, "Bytes received.");
  write.counter("stemma_http_sent_bytes_total", http.bytes_out, "Bytes sent.");
  write.head("stemma_http_responses_total", "counter",
             "Answers by route and status; 499: the client did not wait for its answer.");
  for (const AnswerCount& each : answers) {
    write.labelled("stemma_http_responses_total", each.count,
                   Writer::label_text("route", each.route) + "," +
                       Writer::label_text("status", std::to_string(each.status)));
  }
}

void write_lanes(Writer& write, std::span<const LaneStats> lanes) {
  const auto each = [&](const char* name, const char* kind, const char* help, auto field) {
    write.head(name, kind, help);
    for (uint32_t i = 0; i < lanes.size(); ++i) {
      write.value(name, field(lanes[i]), "lane", to_string(static_cast<Lane>(i)));
    }
  };
  each("stemma_jobs_waiting", "gauge", "Requests that wait to be read and tokenised, by lane.",
       [](const LaneStats& lane) { return uint64_t{lane.waiting}; });
  each("stemma_jobs_refused_total", "counter", "Requests refused because their lane was full.",
       [](const LaneStats& lane) { return lane.refused; });
  each("stemma_jobs_left_total", "counter", "Requests whose clients left before their turn came.",
       [](const LaneStats& lane) { return lane.taken_back; });
}

void write_transcripts(Writer& write, const TranscriptStats& stats) {
  write.gauge("stemma_transcripts", stats.entries, "Answers whose sampled tokens are remembered.");
  write.gauge("stemma_transcript_bytes", stats.bytes, "Memory that the remembered answers take.");
  write.counter("stemma_transcripts_remembered_total", stats.remembered, "Answers remembered.");
  write.counter("stemma_transcripts_evicted_total", stats.evicted,
                "Answers forgotten to make room.");
  write.counter("stemma_transcripts_from_tiers_total", stats.from_tiers,
                "Answers that tiers still knew.");
  const char* const name = "stemma_transcript_messages_total";
  write.head(name, "counter",
             "Answers that clients sent back: spliced, as they were sampled; unfit, written in "
             "another form by the template; different, edited; unknown, not remembered.");
  write.value(name, stats.spliced, "fate", "spliced");
  write.value(name, stats.unfit, "fate", "unfit");
  write.value(name, stats.different, "fate", "different");
  write.value(name, stats.unknown, "fate", "unknown");
}

double used_share(const SequenceStats& cache) {
  if (cache.context_tokens == 0) return 0.0;
  return static_cast<double>(cache.used_tokens) / static_cast<double>(cache.context_tokens);
}

void write_vllm(Writer& write, const SchedulerStats& requests, double used) {
  write.counter("vllm:prefix_cache_queries_total", requests.prompt_tokens, "Tokens of prompts.");
  write.counter("vllm:prefix_cache_hits_total", requests.cached_tokens,
                "Tokens of prompts that were not computed.");
  write.counter("vllm:prompt_tokens_total", requests.prompt_tokens, "Tokens of prompts.");
  write.counter("vllm:generation_tokens_total", requests.generated_tokens, "Tokens of answers.");
  write.counter("vllm:request_success_total", requests.completed, "Requests completed.");
  write.gauge("vllm:num_requests_running", uint64_t{requests.running}, "Choices under way.");
  write.gauge("vllm:num_requests_waiting", uint64_t{requests.waiting}, "Requests in the queue.");
  write.gauge("vllm:kv_cache_usage_perc", used, "Part of the context that is taken.");
  write.histogram("vllm:time_to_first_token_seconds", requests.first_token_seconds,
                  "To the first token.");
  write.histogram("vllm:e2e_request_latency_seconds", requests.request_seconds, "To the end.");
}

void write_llama(Writer& write, const SchedulerStats& requests, const SequenceStats& cache,
                 double used) {
  write.counter("llamacpp:prompt_tokens_total", requests.evaluated_tokens,
                "Tokens of prompts that were computed.");
  write.seconds("llamacpp:prompt_seconds_total", requests.prompt_ns, "Time computing prompts.");
  write.counter("llamacpp:tokens_predicted_total", requests.generated_tokens, "Tokens of answers.");
  write.seconds("llamacpp:tokens_predicted_seconds_total", requests.answer_ns,
                "Time computing answers.");
  write.counter("llamacpp:n_decode_total", requests.passes, "Forward passes.");
  write.gauge("llamacpp:requests_processing", uint64_t{requests.running}, "Choices under way.");
  write.gauge("llamacpp:requests_deferred", uint64_t{requests.waiting}, "Requests in the queue.");
  write.gauge("llamacpp:kv_cache_usage_ratio", used, "Part of the context that is taken.");
  write.gauge("llamacpp:kv_cache_tokens", cache.used_tokens, "Positions that are taken.");
}

}  // namespace

std::string encode_tier_metrics(const tier::StackStats& stack,
                                const tier::SequenceTiersStats& tiers) {
  std::string out;
  Writer write(out);
  write.counter("stemma_tier_fetches_total", tiers.fetches, "Prompts looked for in the tiers.");
  write.counter("stemma_tier_fetches_found_total", tiers.found,
                "Prompts of which tiers had more than this server.");
  write.counter("stemma_tier_fetches_loaded_total", tiers.loaded,
                "Prompts of which state was loaded from tiers.");
  write.counter("stemma_tier_fetches_slower_total", tiers.not_worth_it,
                "Prompts faster to compute than to load from tiers.");
  write.counter("stemma_tier_fetches_failed_total", tiers.not_to_be_had,
                "Prompts whose state in tiers was lost on the way, or came too late.");
  write.counter("stemma_tier_loaded_tokens_total", tiers.loaded_tokens,
                "Positions loaded from tiers.");
  write.counter("stemma_tier_heard_bytes_total", tiers.heard_bytes,
                "Bytes that were saved and offered to the tiers.");
  write.counter("stemma_tier_written_back_bytes_total", tiers.written_back_bytes,
                "Bytes that left memory and were offered to write-back tiers.");
  using Field = uint64_t (*)(const tier::LevelStats&);
  struct Series {
    const char* name;
    const char* kind;
    const char* help;
    Field field;
  };
  static constexpr Series kSeries[] = {
      {"stemma_tier_entries", "gauge", "Entries, where the tier knows.",
       [](const tier::LevelStats& l) { return l.tier.entries; }},
      {"stemma_tier_used_bytes", "gauge", "Bytes taken, where the tier knows.",
       [](const tier::LevelStats& l) { return l.tier.used_bytes; }},
      {"stemma_tier_up", "gauge", "1, or 0 while it is not asked because it fails.",
       [](const tier::LevelStats& l) { return uint64_t{l.tier.reachable}; }},
      {"stemma_tier_hits_total", "counter", "Entries loaded.",
       [](const tier::LevelStats& l) { return l.hits; }},
      {"stemma_tier_hit_bytes_total", "counter", "Bytes loaded.",
       [](const tier::LevelStats& l) { return l.hit_bytes; }},
      {"stemma_tier_misses_total", "counter", "Entries reported but not delivered.",
       [](const tier::LevelStats& l) { return l.misses; }},
      {"stemma_tier_stored_total", "counter", "Entries given to the tier to store.",
       [](const tier::LevelStats& l) { return l.stored; }},
      {"stemma_tier_written_back_total", "counter",
       "Entries given to the tier because they left memory.",
       [](const tier::LevelStats& l) { return l.written_back; }},
      {"stemma_tier_promoted_total", "counter", "Entries given to it that a lower tier had.",
       [](const tier::LevelStats& l) { return l.promoted; }},
      {"stemma_tier_stored_bytes_total", "counter", "Bytes that the tier stored.",
       [](const tier::LevelStats& l) { return l.tier.put_bytes; }},
      {"stemma_tier_waiting", "gauge", "Entries that wait to be given to it, or are on their way.",
       [](const tier::LevelStats& l) { return l.waiting; }},
      {"stemma_tier_dropped_total", "counter", "Entries dropped because too many waited.",
       [](const tier::LevelStats& l) { return l.dropped; }},
      {"stemma_tier_lost_total", "counter", "Entries that it refused or failed to store.",
       [](const tier::LevelStats& l) { return l.lost; }},
      {"stemma_tier_too_large_total", "counter", "Entries too large for the tier.",
       [](const tier::LevelStats& l) { return l.too_large; }},
      {"stemma_tier_slower_total", "counter", "Entries that were faster to compute.",
       [](const tier::LevelStats& l) { return l.too_slow; }},
      {"stemma_tier_corrupt_total", "counter", "Entries that were damaged.",
       [](const tier::LevelStats& l) { return l.tier.corrupt; }},
      {"stemma_tier_failed_total", "counter", "Items that failed.",
       [](const tier::LevelStats& l) { return l.tier.failed; }},
      {"stemma_tier_late_total", "counter", "Items whose deadline passed.",
       [](const tier::LevelStats& l) { return l.tier.late; }},
      {"stemma_tier_touched_total", "counter", "Entries reported to it as used in memory.",
       [](const tier::LevelStats& l) { return l.tier.touched; }},
      {"stemma_tier_retired_bytes", "gauge", "Storage that failed and is not used any more.",
       [](const tier::LevelStats& l) { return l.tier.retired_bytes; }},
      {"stemma_tier_evictions_total", "counter", "Entries evicted to make room.",
       [](const tier::LevelStats& l) { return l.tier.evictions; }},
  };
  for (const Series& series : kSeries) {
    write.head(series.name, series.kind, series.help);
    for (const tier::LevelStats& level : stack.levels) {
      write.value(series.name, series.field(level), "tier", level.name.c_str());
    }
  }
  return out;
}

std::string encode_metrics(const MetricsInput& input) {
  std::string out;
  Writer write(out);
  write_requests(write, input.requests);
  write_cache(write, input.cache);
  write_lanes(write, input.lanes);
  write_transcripts(write, input.transcripts);
  if (input.http != nullptr) write_http(write, *input.http, input.answers);
  const double used = used_share(input.cache);
  if (input.llama_names) write_llama(write, input.requests, input.cache, used);
  if (input.vllm_names) {
    write.label_all("model_name", input.model);
    write_vllm(write, input.requests, used);
  }
  return out;
}

}  // namespace stemma::server
