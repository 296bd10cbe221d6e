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

// What went from each tier, and whether all of it did.
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

// What a client learns at a glance. What is incomplete can be asked for again.
std::string_view status_of(std::span<const tier::LevelPurged> tiers) {
  return is_complete(tiers) ? "ok" : "incomplete";
}

void drop_everything(SequenceCache& cache) {
  if (const auto contents = cache.contents()) {
    std::vector<Scope> scopes;
    for (const SequenceContent& entry : *contents) {
      if (std::ranges::find(scopes, entry.scope) == scopes.end()) scopes.push_back(entry.scope);
    }
    for (const Scope& scope : scopes) cache.drop_scope(scope);
  }
  cache.drop_saved();
}

}  // namespace

void App::cache_reset(const HttpRequest&, const Reply& reply) {
  const Scheduler::Forgotten forgotten =
      scheduler_.forget(nullptr, {}, until_ns(), drop_everything);
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
  const Scheduler::Forgotten forgotten = scheduler_.forget(
      &*scope, {}, until_ns(), [&](SequenceCache& cache) { cache.drop_scope(*scope); });
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
