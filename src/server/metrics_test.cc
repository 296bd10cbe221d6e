// Tests /metrics: after work with known sums every series has the right value, and the text is what
// Prometheus reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/server_rig.h"

namespace stemma::server {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::completion;
using test::HttpClient;
using test::Json;
using test::letters;
using test::ServerRig;
using test::ServerRigOptions;

using Series = std::map<std::string, double>;  // name{labels} -> value

// One of our metrics: its name and its type.
struct Metric {
  const char* name;
  const char* kind;
};
constexpr Metric kOwn[] = {
    {"stemma_requests_total", "counter"},
    {"stemma_requests_ended_total", "counter"},
    {"stemma_requests_refused_total", "counter"},
    {"stemma_requests_waiting", "gauge"},
    {"stemma_requests_running", "gauge"},
    {"stemma_suspensions_total", "counter"},
    {"stemma_prompt_tokens_total", "counter"},
    {"stemma_reused_tokens_total", "counter"},
    {"stemma_evaluated_tokens_total", "counter"},
    {"stemma_generated_tokens_total", "counter"},
    {"stemma_retokenised_prompts_total", "counter"},
    {"stemma_passes_total", "counter"},
    {"stemma_failed_passes_total", "counter"},
    {"stemma_prompt_seconds_total", "counter"},
    {"stemma_answer_seconds_total", "counter"},
    {"stemma_first_token_seconds", "histogram"},
    {"stemma_request_seconds", "histogram"},
    {"stemma_queue_seconds", "histogram"},
    {"stemma_capture_wait_seconds", "histogram"},
    {"stemma_token_seconds", "histogram"},
    {"stemma_outcomes_total", "counter"},
    {"stemma_misses_total", "counter"},
    {"stemma_steps_total", "counter"},
    {"stemma_step_tokens_total", "counter"},
    {"stemma_step_failures_total", "counter"},
    {"stemma_captures_total", "counter"},
    {"stemma_quarantined_total", "counter"},
    {"stemma_victims_total", "counter"},
    {"stemma_dropped_idle_total", "counter"},
    {"stemma_relocated_total", "counter"},
    {"stemma_restored_bytes_total", "counter"},
    {"stemma_captured_bytes_total", "counter"},
    {"stemma_restore_seconds_total", "counter"},
    {"stemma_capture_seconds_total", "counter"},
    {"stemma_pinned_bytes", "gauge"},
    {"stemma_evictions_total", "counter"},
    {"stemma_sequences", "gauge"},
    {"stemma_context_tokens", "gauge"},
    {"stemma_context_tokens_used", "gauge"},
    {"stemma_saved_bytes", "gauge"},
    {"stemma_index_bytes", "gauge"},
    {"stemma_pending_captures", "gauge"},
    {"stemma_sessions", "gauge"},
    {"stemma_jobs_waiting", "gauge"},
    {"stemma_jobs_refused_total", "counter"},
    {"stemma_jobs_left_total", "counter"},
    {"stemma_transcripts", "gauge"},
    {"stemma_transcript_bytes", "gauge"},
    {"stemma_transcripts_remembered_total", "counter"},
    {"stemma_transcripts_evicted_total", "counter"},
    {"stemma_transcripts_from_tiers_total", "counter"},
    {"stemma_transcript_messages_total", "counter"},
    {"stemma_http_connections", "gauge"},
    {"stemma_http_connections_total", "counter"},
    {"stemma_http_requests_total", "counter"},
    {"stemma_http_bad_requests_total", "counter"},
    {"stemma_http_refused_total", "counter"},
    {"stemma_http_timeouts_total", "counter"},
    {"stemma_http_gone_total", "counter"},
    {"stemma_http_accept_failures_total", "counter"},
    {"stemma_http_received_bytes_total", "counter"},
    {"stemma_http_sent_bytes_total", "counter"},
    {"stemma_http_responses_total", "counter"},
};
constexpr Metric kVllm[] = {
    {"vllm:prefix_cache_queries_total", "counter"},
    {"vllm:prefix_cache_hits_total", "counter"},
    {"vllm:prompt_tokens_total", "counter"},
    {"vllm:generation_tokens_total", "counter"},
    {"vllm:request_success_total", "counter"},
    {"vllm:num_requests_running", "gauge"},
    {"vllm:num_requests_waiting", "gauge"},
    {"vllm:kv_cache_usage_perc", "gauge"},
    {"vllm:time_to_first_token_seconds", "histogram"},
    {"vllm:e2e_request_latency_seconds", "histogram"},
};
constexpr Metric kLlama[] = {
    {"llamacpp:prompt_tokens_total", "counter"},
    {"llamacpp:prompt_seconds_total", "counter"},
    {"llamacpp:tokens_predicted_total", "counter"},
    {"llamacpp:tokens_predicted_seconds_total", "counter"},
    {"llamacpp:n_decode_total", "counter"},
    {"llamacpp:requests_processing", "gauge"},
    {"llamacpp:requests_deferred", "gauge"},
    {"llamacpp:kv_cache_usage_ratio", "gauge"},
    {"llamacpp:kv_cache_tokens", "gauge"},
};

std::map<std::string, std::string> table(bool vllm, bool llama, bool http = true) {
  std::map<std::string, std::string> all;
  for (const Metric& each : kOwn) {
    if (http || !std::string_view(each.name).starts_with("stemma_http_"))
      all[each.name] = each.kind;
  }
  if (vllm) {
    for (const Metric& each : kVllm) all[each.name] = each.kind;
  }
  if (llama) {
    for (const Metric& each : kLlama) all[each.name] = each.kind;
  }
  return all;
}

// Parses the text as strictly as the format specifies, and expects exactly the table's metrics.
Series parse(const std::string& text, const std::map<std::string, std::string>& known) {
  Series series;
  std::map<std::string, std::string> kinds;
  std::set<std::string> helped;
  std::string family;  // Samples follow their header, together.
  EXPECT_TRUE(text.ends_with('\n'));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    if (line.starts_with("# ")) {
      std::string hash, what, name, rest;
      words >> hash >> what >> name;
      std::getline(words, rest);
      if (what == "HELP") {
        EXPECT_TRUE(helped.insert(name).second) << "HELP twice: " << name;
        EXPECT_GT(rest.size(), 2U) << name;
      } else {
        EXPECT_EQ(what, "TYPE") << line;
        EXPECT_TRUE(helped.contains(name)) << name;
        EXPECT_TRUE(kinds.emplace(name, rest.substr(1)).second) << "TYPE twice: " << name;
        family = name;
      }
      continue;
    }
    const size_t space = line.rfind(' ');
    if (space == std::string::npos) {
      ADD_FAILURE() << "no sample: " << line;
      continue;
    }
    const std::string key = line.substr(0, space);
    const std::string name = key.substr(0, key.find('{'));
    EXPECT_TRUE(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_:") ==
                std::string::npos)
        << name;
    if (kinds[family] == "histogram") {
      EXPECT_TRUE(name == family + "_bucket" || name == family + "_sum" ||
                  name == family + "_count")
          << line;
    } else {
      EXPECT_EQ(name, family);
    }
    if (key.find('{') != std::string::npos) {
      EXPECT_TRUE(key.ends_with("\"}") && key.find("=\"") != std::string::npos) << key;
    }
    char* end = nullptr;
    const std::string number = line.substr(space + 1);
    const double value = std::strtod(number.c_str(), &end);
    EXPECT_TRUE(!number.empty() && *end == '\0' && std::isfinite(value) && value >= 0) << line;
    EXPECT_TRUE(series.emplace(key, value).second) << "twice: " << key;
  }
  EXPECT_EQ(kinds, known);
  // Dashboards made for vLLM select by the model's name. The checks below ignore it.
  Series unnamed;
  for (const auto& [key, value] : series) {
    constexpr std::string_view kModel = "model_name=\"fake\"";
    const size_t at = key.find(kModel);
    EXPECT_EQ(at != std::string::npos, key.starts_with("vllm:")) << key;
    std::string name = key;
    if (at != std::string::npos) {
      name.erase(at, kModel.size() + (key[at + kModel.size()] == ',' ? 1 : 0));
      if (name.ends_with("{}")) name.resize(name.size() - 2);
    }
    unnamed[name] = value;
  }
  series = std::move(unnamed);
  for (const auto& [name, kind] : kinds) {
    if (kind != "histogram") continue;
    double below = 0;
    double buckets = 0;
    for (const char* bound : {"0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2",
                              "0.5", "1", "2", "5", "10", "30", "60", "120", "+Inf"}) {
      std::string key = name + "_bucket{le=\"" + bound + "\"}";
      if (!series.contains(key)) key = name + "_bucket{le=\"" + bound + ".0\"}";
      EXPECT_TRUE(series.contains(key)) << key;
      EXPECT_GE(series[key], below) << key;
      below = series[key];
      ++buckets;
    }
    EXPECT_EQ(buckets, 17);
    EXPECT_EQ(below, series[name + "_count"]) << name;
  }
  return series;
}

// ---- Every field, under its name ----------------------------------------------------------------

TEST(Metrics, EverySeriesTellsItsOwnField) {
  uint64_t next = 1000;
  Series right;
  const auto field = [&](auto& value, const std::string& key) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(++next);
    right[key] = static_cast<double>(next);
  };
  SchedulerStats requests;
  field(requests.requests, "stemma_requests_total");
  field(requests.completed, "stemma_requests_ended_total{how=\"completed\"}");
  field(requests.cancelled, "stemma_requests_ended_total{how=\"cancelled\"}");
  field(requests.failed, "stemma_requests_ended_total{how=\"failed\"}");
  field(requests.refused, "stemma_requests_refused_total");
  field(requests.waiting, "stemma_requests_waiting");
  field(requests.running, "stemma_requests_running");
  field(requests.suspensions, "stemma_suspensions_total");
  field(requests.prompt_tokens, "stemma_prompt_tokens_total");
  field(requests.cached_tokens, "stemma_reused_tokens_total");
  field(requests.evaluated_tokens, "stemma_evaluated_tokens_total");
  field(requests.generated_tokens, "stemma_generated_tokens_total");
  field(requests.retokenised, "stemma_retokenised_prompts_total");
  field(requests.passes, "stemma_passes_total");
  field(requests.failed_passes, "stemma_failed_passes_total");
  requests.prompt_ns = 1'500'000'000;
  requests.answer_ns = 2'500'000'000;
  right["stemma_prompt_seconds_total"] = 1.5;
  right["stemma_answer_seconds_total"] = 2.5;
  const auto times = [&](Histogram& values, const std::string& name, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) values.add(0.25);
    right[name + "_count"] = count;
    right[name + "_sum"] = 0.25 * count;
    right[name + "_bucket{le=\"0.2\"}"] = 0;
    right[name + "_bucket{le=\"0.5\"}"] = count;
  };
  times(requests.first_token_seconds, "stemma_first_token_seconds", 3);
  times(requests.request_seconds, "stemma_request_seconds", 4);
  times(requests.queue_seconds, "stemma_queue_seconds", 5);
  times(requests.token_seconds, "stemma_token_seconds", 6);
  times(requests.saving_seconds, "stemma_capture_wait_seconds", 7);

  SequenceStats cache;
  const auto each = [&](auto& values, const char* name, const char* label, auto name_of) {
    for (uint32_t i = 0; i < values.size(); ++i) {
      field(values[i], std::string(name) + "{" + label + "=\"" + name_of(i) + "\"}");
    }
  };
  const auto step = [](uint32_t i) { return std::string(to_string(static_cast<Step>(i))); };
  each(cache.outcomes, "stemma_outcomes_total", "outcome",
       [](uint32_t i) { return std::string(to_string(static_cast<Outcome>(i))); });
  each(cache.reasons, "stemma_misses_total", "reason",
       [](uint32_t i) { return std::string(to_string(static_cast<SequenceMiss>(i))); });
  each(cache.steps, "stemma_steps_total", "step", step);
  each(cache.step_tokens, "stemma_step_tokens_total", "step", step);
  each(cache.failures, "stemma_step_failures_total", "step", step);
  each(cache.captures, "stemma_captures_total", "fate",
       [](uint32_t i) { return std::string(to_string(static_cast<CaptureFate>(i))); });
  field(cache.quarantined, "stemma_quarantined_total");
  field(cache.victims, "stemma_victims_total");
  field(cache.dropped_idle, "stemma_dropped_idle_total");
  field(cache.relocated, "stemma_relocated_total");
  field(cache.restored_bytes, "stemma_restored_bytes_total");
  field(cache.captured_bytes, "stemma_captured_bytes_total");
  field(cache.pinned_bytes, "stemma_pinned_bytes");
  cache.restore_ns = 3'500'000'000;
  cache.capture_ns = 4'500'000'000;
  right["stemma_restore_seconds_total"] = 3.5;
  right["stemma_capture_seconds_total"] = 4.5;
  field(cache.segment_evictions, "stemma_evictions_total{kind=\"segment\"}");
  field(cache.state_evictions, "stemma_evictions_total{kind=\"state\"}");
  field(cache.free_sequences, "stemma_sequences{state=\"free\"}");
  field(cache.idle_sequences, "stemma_sequences{state=\"idle\"}");
  field(cache.leased_sequences, "stemma_sequences{state=\"leased\"}");
  field(cache.broken_sequences, "stemma_sequences{state=\"broken\"}");
  field(cache.used_tokens, "stemma_context_tokens_used");
  cache.context_tokens = 2 * cache.used_tokens;
  right["stemma_context_tokens"] = static_cast<double>(cache.context_tokens);
  field(cache.segment_bytes, "stemma_saved_bytes{kind=\"segment\"}");
  field(cache.state_bytes, "stemma_saved_bytes{kind=\"state\"}");
  field(cache.checkpoint_bytes, "stemma_saved_bytes{kind=\"checkpoint\"}");
  field(cache.logits_bytes, "stemma_saved_bytes{kind=\"logits\"}");
  field(cache.index_bytes, "stemma_index_bytes");
  field(cache.pending, "stemma_pending_captures");
  field(cache.sessions, "stemma_sessions");

  HttpCounters http;
  field(http.connections_open, "stemma_http_connections");
  field(http.connections_total, "stemma_http_connections_total");
  field(http.requests, "stemma_http_requests_total");
  field(http.bad_requests, "stemma_http_bad_requests_total");
  field(http.refused, "stemma_http_refused_total");
  field(http.timeouts, "stemma_http_timeouts_total");
  field(http.gone, "stemma_http_gone_total");
  field(http.accept_failures, "stemma_http_accept_failures_total");
  field(http.bytes_in, "stemma_http_received_bytes_total");
  field(http.bytes_out, "stemma_http_sent_bytes_total");

  const std::pair<const char*, const char*> same[] = {
      {"vllm:prefix_cache_queries_total", "stemma_prompt_tokens_total"},
      {"vllm:prefix_cache_hits_total", "stemma_reused_tokens_total"},
      {"vllm:prompt_tokens_total", "stemma_prompt_tokens_total"},
      {"vllm:generation_tokens_total", "stemma_generated_tokens_total"},
      {"vllm:request_success_total", "stemma_requests_ended_total{how=\"completed\"}"},
      {"vllm:num_requests_running", "stemma_requests_running"},
      {"vllm:num_requests_waiting", "stemma_requests_waiting"},
      {"vllm:time_to_first_token_seconds_count", "stemma_first_token_seconds_count"},
      {"vllm:time_to_first_token_seconds_sum", "stemma_first_token_seconds_sum"},
      {"vllm:e2e_request_latency_seconds_count", "stemma_request_seconds_count"},
      {"vllm:e2e_request_latency_seconds_sum", "stemma_request_seconds_sum"},
      {"llamacpp:prompt_tokens_total", "stemma_evaluated_tokens_total"},
      {"llamacpp:prompt_seconds_total", "stemma_prompt_seconds_total"},
      {"llamacpp:tokens_predicted_total", "stemma_generated_tokens_total"},
      {"llamacpp:tokens_predicted_seconds_total", "stemma_answer_seconds_total"},
      {"llamacpp:n_decode_total", "stemma_passes_total"},
      {"llamacpp:requests_processing", "stemma_requests_running"},
      {"llamacpp:requests_deferred", "stemma_requests_waiting"},
      {"llamacpp:kv_cache_tokens", "stemma_context_tokens_used"}};
  for (const auto& [alias, own] : same) right[alias] = right.at(own);
  right["vllm:kv_cache_usage_perc"] = 0.5;
  right["llamacpp:kv_cache_usage_ratio"] = 0.5;

  MetricsInput input{.requests = requests,
                     .cache = cache,
                     .http = &http,
                     .model = "fake",
                     .vllm_names = true,
                     .llama_names = true};
  for (uint32_t i = 0; i < kLanes; ++i) {
    const std::string lane = std::string("{lane=\"") + to_string(static_cast<Lane>(i)) + "\"}";
    field(input.lanes[i].waiting, "stemma_jobs_waiting" + lane);
    field(input.lanes[i].refused, "stemma_jobs_refused_total" + lane);
    field(input.lanes[i].taken_back, "stemma_jobs_left_total" + lane);
  }
  field(input.transcripts.entries, "stemma_transcripts");
  field(input.transcripts.bytes, "stemma_transcript_bytes");
  field(input.transcripts.remembered, "stemma_transcripts_remembered_total");
  field(input.transcripts.evicted, "stemma_transcripts_evicted_total");
  field(input.transcripts.from_tiers, "stemma_transcripts_from_tiers_total");
  field(input.transcripts.spliced, "stemma_transcript_messages_total{fate=\"spliced\"}");
  field(input.transcripts.unfit, "stemma_transcript_messages_total{fate=\"unfit\"}");
  field(input.transcripts.different, "stemma_transcript_messages_total{fate=\"different\"}");
  field(input.transcripts.unknown, "stemma_transcript_messages_total{fate=\"unknown\"}");
  input.answers = {{"/cache", 200, 0}, {"/cache", 403, 0}, {"other", 404, 0}};
  for (AnswerCount& answers : input.answers) {
    field(answers.count, "stemma_http_responses_total{route=\"" + std::string(answers.route) +
                             "\",status=\"" + std::to_string(answers.status) + "\"}");
  }
  Series said = parse(encode_metrics(input), table(true, true));
  for (const auto& [key, value] : right) {
    ASSERT_TRUE(said.contains(key)) << key;
    EXPECT_EQ(said[key], value) << key;
    said.erase(key);
  }
  for (const auto& [key, value] : said) {
    EXPECT_NE(key.find("_bucket{"), std::string::npos) << "nobody knows what it should be: " << key;
  }
}

TEST(Metrics, EveryTierTellsItsOwnFields) {
  tier::StackStats stack;
  uint64_t next = 100;
  std::vector<std::pair<std::string, uint64_t>> expected;
  for (const char* name : {"disk", "redis"}) {
    tier::LevelStats level;
    level.name = name;
    const auto is = [&](const char* series, uint64_t& field) {
      field = next++;
      expected.emplace_back(std::string(series) + "{tier=\"" + name + "\"}", field);
    };
    is("stemma_tier_entries", level.tier.entries);
    is("stemma_tier_used_bytes", level.tier.used_bytes);
    is("stemma_tier_hits_total", level.hits);
    is("stemma_tier_hit_bytes_total", level.hit_bytes);
    is("stemma_tier_misses_total", level.misses);
    is("stemma_tier_stored_total", level.stored);
    is("stemma_tier_written_back_total", level.written_back);
    is("stemma_tier_promoted_total", level.promoted);
    is("stemma_tier_stored_bytes_total", level.tier.put_bytes);
    is("stemma_tier_waiting", level.waiting);
    is("stemma_tier_dropped_total", level.dropped);
    is("stemma_tier_lost_total", level.lost);
    is("stemma_tier_too_large_total", level.too_large);
    is("stemma_tier_slower_total", level.too_slow);
    is("stemma_tier_corrupt_total", level.tier.corrupt);
    is("stemma_tier_failed_total", level.tier.failed);
    is("stemma_tier_late_total", level.tier.late);
    is("stemma_tier_touched_total", level.tier.touched);
    is("stemma_tier_retired_bytes", level.tier.retired_bytes);
    is("stemma_tier_evictions_total", level.tier.evictions);
    level.tier.reachable = level.name == "disk";
    expected.emplace_back(std::string("stemma_tier_up{tier=\"") + name + "\"}",
                          level.tier.reachable ? 1 : 0);
    stack.levels.push_back(level);
  }
  tier::SequenceTiersStats tiers;
  const auto is = [&](const char* series, uint64_t& field) {
    field = next++;
    expected.emplace_back(series, field);
  };
  is("stemma_tier_fetches_total", tiers.fetches);
  is("stemma_tier_fetches_found_total", tiers.found);
  is("stemma_tier_fetches_loaded_total", tiers.loaded);
  is("stemma_tier_fetches_slower_total", tiers.not_worth_it);
  is("stemma_tier_fetches_failed_total", tiers.not_to_be_had);
  is("stemma_tier_loaded_tokens_total", tiers.loaded_tokens);
  is("stemma_tier_heard_bytes_total", tiers.heard_bytes);
  is("stemma_tier_written_back_bytes_total", tiers.written_back_bytes);
  const std::string said = encode_tier_metrics(stack, tiers);
  for (const auto& [series, value] : expected) {
    EXPECT_NE(said.find("\n" + series + " " + std::to_string(value) + "\n"), std::string::npos)
        << series;
  }
  // There are no other lines.
  const auto lines = static_cast<size_t>(std::ranges::count(said, '\n'));
  const size_t series = 8 + 21;
  EXPECT_EQ(lines, 2 * series + expected.size());
}

TEST(Metrics, NamesOfOthersAreThereForWhoAsksForThem) {
  const HttpCounters http;
  for (const bool vllm : {false, true}) {
    for (const bool llama : {false, true}) {
      MetricsInput input{.model = "fake", .vllm_names = vllm, .llama_names = llama};
      parse(encode_metrics(input), table(vllm, llama, false));
      input.http = &http;
      parse(encode_metrics(input), table(vllm, llama));
    }
  }
}

// ---- Work whose sums are known ------------------------------------------------------------------

TEST(Metrics, AfterKnownWorkEverySumIsKnown) {
  ServerRigOptions options;
  options.scheduler.queue = 1;
  options.app.vllm_metrics = true;
  options.app.llama_metrics = true;
  ServerRig rig(options);
  const auto ask = [&](const Json& body) { return rig.post("/v1/completions", body).status; };
  // No two of these texts begin alike.
  const auto text = [](uint32_t count, uint32_t seed) {
    return std::string(1, static_cast<char>('A' + seed)) + letters(count - 1, seed);
  };
  const auto plain = [&](uint32_t letter_count, uint32_t seed, uint32_t tokens, Json more = {}) {
    more["ignore_eos"] = true;
    return completion(text(letter_count, seed), tokens, more);
  };

  // 1. 100 tokens in passes of 64 and 36, which yield the first of 5 answer tokens; 4 passes for
  // the others.
  ASSERT_EQ(ask(plain(99, 1, 5)), 200);
  // 2. The same and one token more: 100 of 101 are cached. 3 answer tokens in 3 passes.
  Json longer = plain(99, 1, 3, {{"prompt_cache_key", "somebody"}});
  longer["prompt"] = text(99, 1) + "!";
  ASSERT_EQ(ask(longer), 200);
  // 3. 50 tokens; the pass fails, and succeeds when it is tried again.
  rig.model.failing_passes = 1;
  ASSERT_EQ(ask(plain(49, 2, 1)), 200);
  // 4. 30 tokens; both passes fail.
  rig.model.failing_passes = 2;
  ASSERT_EQ(ask(plain(29, 3, 1)), 500);
  // 5. Two choices of 40 tokens: one pass for the prompt, one for both second tokens.
  ASSERT_EQ(ask(plain(39, 4, 2, {{"n", 2}})), 200);
  // 6. 4 tokens and 8 special answer tokens in 8 passes; then the same text in other tokens: 28, of
  // which 4 are cached.
  ASSERT_EQ(ask(completion("abc", 8, {{"logit_bias", {{"257", 100}}}})), 200);
  Json spelled = plain(1, 0, 1);
  spelled["prompt"] = Json{256, 97, 98, 99};
  for (const char c : std::string("<|im_start|><|im_start|>"))
    spelled["prompt"].push_back(static_cast<int>(c));
  ASSERT_EQ(ask(spelled), 200);
  // 7. During a pass of 20 tokens, one request of 25 waits and one is refused. Then the first
  // client leaves, after one answer token, and the second gets its own.
  const uint64_t before = rig.scheduler->stats().requests;
  const uint64_t gone = rig.http->counters().gone;
  test::FakeModel::Hold pass(rig.model);
  HttpClient leaving = rig.client();
  leaving.send(test::request_text("POST", "/v1/completions", plain(19, 5, 900).dump()));
  ASSERT_TRUE(pass.wait());
  HttpClient waiting = rig.client();
  waiting.send(test::request_text("POST", "/v1/completions", plain(24, 6, 1).dump()));
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().requests == before + 2; }));
  EXPECT_EQ(rig.scheduler->stats().waiting, 1U);
  ASSERT_EQ(ask(plain(10, 7, 1)), 503);
  leaving.abort();
  ASSERT_TRUE(becomes_true([&] { return rig.http->counters().gone == gone + 1; }));
  pass.let_go();
  ASSERT_EQ(waiting.read_answer().status, 200);
  // 8. A request that is not HTTP, and an unknown route.
  HttpClient wrong = rig.client();
  wrong.send("nonsense\r\n\r\n");
  wrong.read_all();
  ASSERT_EQ(rig.get("/nowhere").status, 404);

  waiting.close();
  wrong.close();
  ASSERT_EQ(rig.post("/cache/save", Json::object()).status, 200);
  rig.expect_quiet();
  ASSERT_TRUE(becomes_true([&] { return rig.http->counters().connections_open == 0; }));
  const test::HttpAnswer answer = rig.get("/metrics");
  Series said = parse(answer.body, table(true, true));

  constexpr double kPrompts = 100 + 101 + 50 + 30 + 40 + 4 + 28 + 20 + 25;
  constexpr double kReused = 100 + 1 + 1 + 1 + 1 + 4 + 1 + 1;  // All prompts share the BOS.
  constexpr double kGenerated = 5 + 3 + 1 + 0 + 4 + 8 + 1 + 1 + 1;
  constexpr double kPasses = 6 + 3 + 2 + 2 + 2 + 8 + 1 + 1 + 1;
  const Series right = {
      {"stemma_requests_total", 9},
      {"stemma_requests_ended_total{how=\"completed\"}", 7},
      {"stemma_requests_ended_total{how=\"cancelled\"}", 1},
      {"stemma_requests_ended_total{how=\"failed\"}", 1},
      {"stemma_requests_refused_total", 1},
      {"stemma_requests_waiting", 0},
      {"stemma_requests_running", 0},
      {"stemma_suspensions_total", 0},
      {"stemma_prompt_tokens_total", kPrompts},
      {"stemma_reused_tokens_total", kReused},
      {"stemma_evaluated_tokens_total", kPrompts - kReused - 29},  // Those of the failed request.
      {"stemma_generated_tokens_total", kGenerated},
      {"stemma_retokenised_prompts_total", 1},
      {"stemma_passes_total", kPasses},
      {"stemma_failed_passes_total", 3},
      {"stemma_first_token_seconds_count", 8},  // All requests but the failed one.
      {"stemma_request_seconds_count", 7},
      {"stemma_queue_seconds_count", 9},
      {"stemma_capture_wait_seconds_count", 9},
      {"stemma_token_seconds_count", kGenerated - 9},  // Between the tokens of nine choices.
      {"stemma_quarantined_total", 0},
      {"stemma_restored_bytes_total", 0},
      {"stemma_evictions_total{kind=\"segment\"}", 0},
      {"stemma_evictions_total{kind=\"state\"}", 0},
      {"stemma_sequences{state=\"free\"}", 0},
      {"stemma_sequences{state=\"idle\"}", 4},
      {"stemma_sequences{state=\"leased\"}", 0},
      {"stemma_sequences{state=\"broken\"}", 0},
      {"stemma_context_tokens", 1024},
      {"stemma_saved_bytes{kind=\"state\"}", 0},
      {"stemma_saved_bytes{kind=\"checkpoint\"}", 0},
      {"stemma_saved_bytes{kind=\"logits\"}", 0},
      {"stemma_pending_captures", 0},
      {"stemma_sessions", 1},
      {"stemma_http_connections", 1},
      {"stemma_http_connections_total", 14},
      {"stemma_http_requests_total", 13},
      {"stemma_http_bad_requests_total", 1},
      {"stemma_http_refused_total", 0},
      {"stemma_http_timeouts_total", 0},
      {"stemma_http_gone_total", 1},
      {"stemma_http_accept_failures_total", 0},
      {"vllm:prefix_cache_queries_total", kPrompts},
      {"vllm:prefix_cache_hits_total", kReused},
      {"vllm:generation_tokens_total", kGenerated},
      {"vllm:request_success_total", 7},
      {"vllm:time_to_first_token_seconds_count", 8},
      {"vllm:e2e_request_latency_seconds_count", 7},
      {"llamacpp:prompt_tokens_total", kPrompts - kReused - 29},
      {"llamacpp:tokens_predicted_total", kGenerated},
      {"llamacpp:n_decode_total", kPasses},
  };
  for (const auto& [key, value] : right) {
    ASSERT_TRUE(said.contains(key)) << key;
    EXPECT_EQ(said[key], value) << key;
  }
  for (const char* some :
       {"stemma_prompt_seconds_total", "stemma_answer_seconds_total",
        "stemma_first_token_seconds_sum", "stemma_request_seconds_sum", "stemma_queue_seconds_sum",
        "stemma_token_seconds_sum", "stemma_captured_bytes_total", "stemma_context_tokens_used",
        "stemma_index_bytes", "stemma_saved_bytes{kind=\"segment\"}",
        "stemma_http_received_bytes_total", "stemma_http_sent_bytes_total",
        "vllm:kv_cache_usage_perc"}) {
    EXPECT_GT(said[some], 0) << some;
  }
  // Eleven turns began: those of nine requests, one of them with two choices, and two that were
  // tried again.
  const auto sum = [&](const std::string& name) {
    double all = 0;
    for (const auto& [key, value] : said) all += key.starts_with(name + "{") ? value : 0;
    return all;
  };
  const SequenceStats cache = rig.scheduler->cache().stats();
  EXPECT_EQ(sum("stemma_outcomes_total"), static_cast<double>(cache.turns));
  EXPECT_EQ(sum("stemma_misses_total"), static_cast<double>(cache.turns));
  EXPECT_EQ(cache.turns, 12U);
  EXPECT_EQ(sum("stemma_step_failures_total"), 0);
  EXPECT_EQ(sum("stemma_step_tokens_total"), static_cast<double>(cache.reused_tokens));
  EXPECT_EQ(said["stemma_context_tokens_used"], static_cast<double>(cache.used_tokens));
  EXPECT_EQ(said["stemma_captures_total{fate=\"failed\"}"], 0);
}

}  // namespace
}  // namespace stemma::server
