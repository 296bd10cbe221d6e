// Forgetting on request, in memory and in tiers.
#include <algorithm>
#include <vector>

#include "server/schedule/scheduler_stream.h"

namespace stemma::server {

// Turns that it begins from now on neither find nor leave anything.
void Scheduler::save_nothing(Request& request) {
  request.purged = true;
  request.asked.reuse = false;
  if (request.fetch != nullptr) request.fetch->cancel();
  request.fetch = nullptr;
}

void Scheduler::keep_nothing(const Scope* scope, std::vector<Scope>& scopes) {
  const base::Lock lock(mutex_);
  for (const auto& [number, request] : requests_) {
    if (scope != nullptr && request->scope != *scope) continue;
    save_nothing(*request);
    if (std::ranges::find(scopes, request->scope) == scopes.end()) {
      scopes.push_back(request->scope);
    }
  }
}

Scheduler::Forgotten Scheduler::purge(const Scope* scope, uint64_t until_ns) {
  return forget(scope, {}, until_ns, [&](SequenceCache& cache) {
    // Turns that have computed nothing yet are not among the contents, but their requests are here.
    std::vector<Scope> scopes;
    keep_nothing(scope, scopes);
    if (scope != nullptr) {
      cache.drop_scope(*scope);
      return;
    }
    if (const auto contents = cache.contents()) {
      for (const SequenceContent& entry : *contents) {
        if (std::ranges::find(scopes, entry.scope) == scopes.end()) scopes.push_back(entry.scope);
      }
    }
    for (const Scope& each : scopes) cache.drop_scope(each);
    cache.drop_saved();
  });
}

Scheduler::Forgotten Scheduler::forget(const Scope* scope, const Prompt& prefix, uint64_t until_ns,
                                       const std::function<void(SequenceCache&)>& drop) {
  Forgotten forgotten;
  const auto drop_here = [&] {
    forgotten.ran = run([&](SequenceCache& cache) {
      drop(cache);
      // Answers contain the client's words, too.
      std::erase_if(answered_, [&](const Answered& answer) {
        if (scope != nullptr && answer.scope != *scope) return false;
        answered_tokens_ -= answer.tokens.size();
        return true;
      });
    });
  };
  tier::SequenceTiers* const tiers = options_.tiers;
  if (tiers == nullptr) {
    drop_here();
  } else if (scope == nullptr) {
    forgotten.tiers = tiers->forget_everything(until_ns, drop_here);
  } else {
    forgotten.tiers = tiers->forget(*scope, prefix, until_ns, drop_here);
  }
  return forgotten;
}

}  // namespace stemma::server
