// A conversation: each turn reuses what the turn before generated, to the token.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

int main() {
  Options options;
  options.groups = {{.block_tokens = 16, .capacity_blocks = 256}};
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});
  std::vector<Token> history;

  for (uint32_t turn = 1; turn <= 3; ++turn) {
    for (Token i = 0; i < 30; ++i) history.push_back(turn * 1000 + i);  // The user speaks.

    LeaseOptions ask;
    ask.retain.session = SessionId{7};
    ask.retain.phase = SessionPhase::active;
    Lease lease = *cache.lease(scope, {.tokens = history}, ask);
    // Here the engine would carry out lease.copies().
    lease.copies_done().value();

    // Prefill in chunks: whole blocks are findable as soon as they are committed.
    while (lease.committed() < lease.length()) {
      const uint32_t chunk = std::min(lease.length() - lease.committed(), 32U);
      lease.commit(lease.committed() + chunk).value();
    }
    // Decode: a sampled token is a word first and has KV only after the next step has read it.
    for (uint32_t step = 0; step < 20; ++step) {
      const Token token = 5000 + lease.length();  // Really: sampled.
      history.push_back(token);
      lease.extend({&token, 1}).value();
      if (step + 1 < 20) lease.commit(lease.length()).value();
    }
    const Report report = lease.report();
    std::printf("turn %u: %u prompt tokens, %u reused, %u of them by copying; %u committed\n", turn,
                report.prompt_tokens, report.reused_tokens, report.copied_tokens,
                lease.committed());
    lease.release().value();
  }
  cache.end_session(SessionId{7});

  const Stats stats = cache.stats();
  std::printf("%.0f %% of all prompt tokens were reused; %llu tails published, %u blocks cached\n",
              100 * stats.total.hit_ratio(), static_cast<unsigned long long>(stats.tails_published),
              stats.groups[0].cached_blocks);
}
