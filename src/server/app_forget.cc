// Forgetting: /cache/reset, /cache/truncate and /cache/purge.
#include <algorithm>
#include <string>
#include <utility>

#include "json/json.h"
#include "server/api/openai/request.h"
#include "server/api/refuse.h"
#include "server/app.h"

namespace stemma::server {

namespace {

uint64_t until_ns() {
  constexpr uint64_t kPatienceNs = 30'000'000'000;
  return Clock::monotonic().now_ns() + kPatienceNs;
}

// Writes what each tier removed, and whether it removed everything.
void append_purged(std::string& out, std::span<const tier::LevelPurged> tiers) {
  out += R"("tiers":[)";
  for (const tier::LevelPurged& tier : tiers) {
    if (out.back() != '[') out += ',';
    out += R"({"name":)";
    append_json_string(out, tier.name);
    out += R"(,"entries":)";
    append_json_number(out, tier.purged.entries);
    out += R"(,"bytes":)";
    append_json_number(out, tier.purged.bytes);
    out += R"(,"unsure":)";
    append_json_number(out, tier.purged.unsure);
    out += tier.purged.complete ? R"(,"complete":true,"error":)" : R"(,"complete":false,"error":)";
    if (tier.purged.error.empty()) {
      out += "null";
    } else {
      append_json_string(out, tier.purged.error);
    }
    out += '}';
  }
  out += ']';
}

bool is_complete(std::span<const tier::LevelPurged> tiers) {
  return std::ranges::all_of(tiers, [](const auto& tier) { return tier.purged.complete; });
}

// A short answer for the client. If incomplete, the client can ask again.
std::string_view status_of(std::span<const tier::LevelPurged> tiers) {
  return is_complete(tiers) ? "ok" : "incomplete";
}

}  // namespace

void App::cache_reset(const HttpRequest&, const Reply& reply) {
  scheduler_.purges().add_all();
  responses_.forget_all();
  transcripts_.forget_all();
  const Scheduler::Forgotten forgotten = scheduler_.purge(nullptr, until_ns());
  transcripts_.forget_all();  // Those that requests found in tiers meanwhile.
  if (!forgotten.ran) return refuse(*reply, overloaded("the server is ending"));
  std::string out = R"({"status":)";
  append_json_string(out, status_of(forgotten.tiers));
  out += ',';
  append_purged(out, forgotten.tiers);
  out += '}';
  reply->respond(200, kJson, std::move(out));
}

void App::cache_purge(const HttpRequest& request, const Reply& reply) {
  PurgeRequest asked;
  auto error = decode_purge(request.body, options_.rules, asked);
  if (!error) error = check_model(asked.model);
  if (error) return refuse(*reply, *error);
  const Result<Scope> scope = scheduler_.scope(asked.salt);
  if (!scope) return refuse(*reply, internal_error(scope.error().to_string()));
  scheduler_.purges().add(asked.salt);
  responses_.forget(asked.salt);
  transcripts_.forget(asked.salt);
  const Scheduler::Forgotten forgotten = scheduler_.purge(&*scope, until_ns());
  transcripts_.forget(asked.salt);  // Those that requests found in tiers meanwhile.
  if (!forgotten.ran) return refuse(*reply, overloaded("the server is ending"));
  std::string out = R"({"status":)";
  append_json_string(out, status_of(forgotten.tiers));
  out += ',';
  append_purged(out, forgotten.tiers);
  out += '}';
  reply->respond(200, kJson, std::move(out));
}

void App::cache_truncate(const HttpRequest& request, const Reply& reply) {
  ChatPrompt prompt;
  RequestOptions options;
  if (const auto error = read_prefix(request, prompt, options)) {
    return refuse(*reply, *error);
  }
  const auto keep = static_cast<uint32_t>(prompt.tokens.size());
  const Result<Scope> scope = scheduler_.scope(options.generation().salt);
  if (!scope) return refuse(*reply, internal_error(scope.error().to_string()));
  // We cannot tell which transcripts follow the prefix.
  transcripts_.forget(options.generation().salt);
  Result<Truncated> done = Error(Errc::busy, "the server is ending");
  const Scheduler::Forgotten forgotten =
      scheduler_.forget(&*scope, {.tokens = prompt.tokens}, until_ns(), [&](SequenceCache& cache) {
        done = cache.truncate(*scope, {.tokens = prompt.tokens}, keep);
      });
  if (!done) return refuse(*reply, overloaded(done.error().message()));
  std::string out = R"({"status":)";
  append_json_string(out, status_of(forgotten.tiers));
  out += R"(,"tokens":)";
  append_json_number(out, uint64_t{keep});
  out += R"(,"forgotten":{)";
  const auto number = [&](const char* name, uint64_t value) {
    if (out.back() != '{') out += ',';
    append_json_string(out, name);
    out += ':';
    append_json_number(out, value);
  };
  number("sequences", done->sequences);
  number("live_tokens", done->live_tokens);
  number("segments", done->segments);
  number("states", done->states);
  number("checkpoints", done->checkpoints);
  number("logits", done->logits);
  out += R"(},"in_use":)";
  append_json_number(out, uint64_t{done->in_use});
  out += ',';
  append_purged(out, forgotten.tiers);
  out += '}';
  reply->respond(200, kJson, std::move(out));
}

}  // namespace stemma::server
