// How a PagedCache is made.
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
  recurrent,  // One state that is right at exactly one depth; blocks are slots for checkpoints.
};

struct GroupOptions {
  Attention attention = Attention::full;
  uint32_t block_tokens = 16;    // A power of two, 1 to 1024. Ignored for recurrent groups.
  uint32_t capacity_blocks = 0;  // Blocks (or checkpoint slots) the engine has memory for.
  // Window groups: how many positions before its own a position sees; at least 1. What models call
  // sliding_window counts the position itself, so this is sliding_window - 1. A larger number is
  // right too and keeps more: add what the engine may rewind() below what it has committed.
  uint32_t window_tokens = 0;
  uint32_t sink_tokens = 0;  // Window groups: leading positions that are always attended.
  uint64_t block_bytes = 0;  // KV bytes of one block; for budgets, quotas and reports.
};

struct TenantQuota {
  TenantId tenant = kNoTenant;
  uint64_t bytes = 0;  // Of KV: the tenant's drafts and cached blocks over all groups.
};

struct Options {
  // At least one, at most kMaxGroups. One model's layer groups, as the engine's memory has them.
  // The index is most compact when the first group is full attention with the smallest blocks.
  std::vector<GroupOptions> groups = {};

  bool enabled = true;  // false: leases lend blocks, nothing is ever found or kept.
  // Everything but the events kept: KV bytes of all groups, index, logits, what sessions and leases
  // that ended leave behind. (A live lease needs about 8 bytes a token more.) 0 = whatever the
  // groups add up to.
  // A group with capacity_blocks 0 gets what the budget leaves (at most one such group).
  uint64_t budget_bytes = 0;
  uint64_t logits_bytes = 0;  // For attached logits; 0 = none are kept.
  double pin_share = 0.5;     // The part of a full group's blocks that pins may hold, 0 to 1.
  std::vector<TenantQuota> quotas = {};

  // Where the first group is not full attention with the smallest blocks, the index has cells of its
  // own, each for as many positions as the smallest block (16 where there are none). A running request
  // needs one for every such piece of its whole prompt, also behind a window; cached prompts give theirs
  // up. Set it to the positions of all requests at once, in pieces. 0 = twice what the largest group's
  // blocks cover (64 for every state where there are only those), at least 65,536: 2^20 positions in
  // blocks of 16. A cell takes about 256 bytes, once it is used; with budget_bytes those 65,536 are
  // limited to an eighth of it.
  uint32_t index_cells = 0;
  bool content_keys = false;    // 32 bytes more per block; needed by events.
  uint32_t event_capacity = 0;  // Events kept for slow observers; 0 = no events.
  uint64_t stats_window_ns = 60'000'000'000;

  std::string policy = "lru";
  BlockIo* block_io = nullptr;   // Must outlive the cache and its leases.
  const Clock* clock = nullptr;  // Must outlive the cache and its leases; null = monotonic.
};

}  // namespace stemma
