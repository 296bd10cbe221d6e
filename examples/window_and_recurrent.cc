// A hybrid model: one cache serves full attention, a sliding window and a recurrent layer.
#include <cstdio>
#include <vector>

#include "stemma/cache.h"

using namespace stemma;

int main() {
  Options options;
  options.groups = {
      {.attention = Attention::full, .block_tokens = 16, .capacity_blocks = 256},
      {.attention = Attention::window,
       .block_tokens = 16,
       .capacity_blocks = 64,
       .window_tokens = 64},
      {.attention = Attention::recurrent, .capacity_blocks = 8},  // Slots for saved states.
  };
  PagedCache cache = *PagedCache::create(options);
  const Scope scope = *Scope::make({.model = "digest of the weights"});

  std::vector<Token> prompt(200);
  for (uint32_t i = 0; i < 200; ++i) prompt[i] = i;
  Lease lease = *cache.lease(scope, {.tokens = prompt});
  // A later prompt may share only the system prompt, so the running state is saved at its end.
  lease.commit(150).value();
  const BlockId slot = *lease.draft_checkpoint(2);
  // Here the engine would write its state after 150 positions to that slot.
  lease.commit_checkpoint(2, 150).value();
  lease.commit(200).value();
  std::vector<BlockId> table(lease.block_count(1));
  lease.block_table(1, table, kNoBlock).value();
  uint32_t behind = 0;
  for (const BlockId block : table) behind += block == kNoBlock ? 1 : 0;
  std::printf("at 200 the window group holds %zu blocks; %u are behind its window\n",
              table.size() - behind, behind);
  lease.release().value();

  for (const uint32_t shared : {180U, 120U}) {
    std::vector<Token> other(prompt.begin(), prompt.begin() + shared);
    other.resize(210, 4242);
    Lease next = *cache.lease(scope, {.tokens = other});
    const Report report = next.report();
    std::printf("shares %u: %u reused", shared, report.reused_tokens);
    if (report.reason == MissReason::no_checkpoint) {
      std::printf("; a checkpoint at %u would have helped", report.checkpoint_would_help_at);
    }
    for (const BlockCopy& copy : next.copies()) {
      if (copy.target == kNoBlock) {
        std::printf("; load the state of slot %u (saved in %u)", to_index(copy.source),
                    to_index(slot));
      } else {
        std::printf("; group %u: copy %u positions", copy.group, copy.tokens);
      }
    }
    std::printf("\n");
  }
}
