// Forgetting on request, in memory and in tiers.
#include "server/schedule/scheduler.h"

namespace stemma::server {

Scheduler::Forgotten Scheduler::forget(const Scope* scope, const Prompt& prefix, uint64_t until_ns,
                                       const std::function<void(SequenceCache&)>& drop) {
  Forgotten forgotten;
  const auto drop_here = [&] {
    forgotten.ran = run([&](SequenceCache& cache) {
      drop(cache);
      // Answers are words, too.
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
