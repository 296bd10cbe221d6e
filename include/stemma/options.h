// The options that create a PagedCache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stemma/block_io.h"
#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/retention.h"

namespace stemma {

// How a group of layers reads its past.
enum class Attention : uint8_t {
  full,       // All positions before n are needed to continue at n.
  window,     // Only [n - window_tokens, n), and the first sink_tokens.
  recurrent,  // One state, valid at exactly one depth; blocks are slots for checkpoints.
};

struct GroupOptions {
  Attention attention = Attention::full;
  uint32_t block_tokens = 16;    // A power of two, 1 to 1024. Ignored for recurrent groups.
  uint32_t capacity_blocks = 0;  // Blocks (or checkpoint slots) the engine has memory for.
  // Window groups: how many earlier positions a position sees; at least 1. A model's sliding_window
  // counts the position itself, so this is sliding_window - 1. A larger number is also correct and
  // keeps more: add the number of committed positions that the engine may rewind().
  uint32_t window_tokens = 0;
  uint32_t sink_tokens = 0;  // Window groups: leading positions that are always attended.
  uint64_t block_bytes = 0;  // KV bytes of one block; for budgets, quotas and reports.
};

struct TenantQuota {
  TenantId tenant = kNoTenant;
  uint64_t bytes = 0;  // KV bytes of the tenant's drafts and cached blocks in all groups.
};

struct Options {
  // One model's layer groups, as the engine's memory has them; 1 to kMaxGroups. The index is most
  // compact when the first group is full attention with the smallest blocks.
  std::vector<GroupOptions> groups = {};

  bool enabled = true;  // false: leases lend blocks, but nothing is found or kept.
  // Limits everything except kept events: KV bytes of all groups, the index, logits, and the
  // records of sessions and ended leases. (A live lease needs about 8 more bytes a token.) 0 = the
  // sum of the groups. At most one group may have capacity_blocks 0: it gets the rest of the
  // budget.
  uint64_t budget_bytes = 0;
  uint64_t logits_bytes = 0;  // Room for attached logits; 0 = keep none.
  double pin_share = 0.5;     // The share of a full group's blocks that pins may hold, 0 to 1.
  std::vector<TenantQuota> quotas = {};

  // If the first group is not full attention with the smallest blocks, the index has cells of its
  // own. Each covers as many positions as the smallest block (16 if there are no blocks). A running
  // request needs cells for its whole prompt, even behind a window; cached prompts give theirs up.
  // So set this to the positions of all concurrent requests, divided by a cell's positions.
  // 0 = twice what the largest group's blocks cover (64 per state if there are only states), at
  // least 65,536, which is 2^20 positions in blocks of 16. A cell takes about 256 bytes once it is
  // used; with budget_bytes, those 65,536 are limited to an eighth of the budget.
  uint32_t index_cells = 0;
  bool content_keys = false;    // 32 more bytes per block; events need them.
  uint32_t event_capacity = 0;  // How many events to keep for slow observers; 0 = no events.
  uint64_t stats_window_ns = 60'000'000'000;

  // Which unused block goes first: a name that make_policy() knows (stemma/retention.h).
  std::string policy = "lru";
  BlockIo* block_io = nullptr;   // Must outlive the cache and its leases.
  const Clock* clock = nullptr;  // Must outlive the cache and its leases; null = monotonic.
};

}  // namespace stemma
