// What was reused: one report per request, and the sums over all requests.
#pragma once

#include <array>
#include <cstdint>

#include "stemma/ids.h"

namespace stemma {

// Every lookup counts in exactly one class, decided after execution: reuse that was given up (a
// failed copy, a lease shrunk to 0) is not a hit.
enum class Outcome : uint8_t {
  full_hit,     // Everything allowed was reused: only the requested tail is evaluated.
  partial_hit,  // A prefix was reused.
  miss,         // Nothing was reused; the reason says why.
  bypassed,     // The caller asked not to read, or the cache is switched off.
  refused,      // The lease failed: out of blocks, over quota.
};
inline constexpr uint32_t kOutcomeCount = 5;

// Why a miss or a partial hit reused less than the prompt would allow. `none` on a full hit.
// Evicted prefixes leave no record, so they count like prefixes that never came.
enum class MissReason : uint8_t {
  none,
  unknown_scope,  // Nothing is cached under this scope: none was, or all of it is gone.
  first_use,      // The scope is known; no cached prompt has the token at `matched_tokens`.
  too_short,      // The prompt has no unit to spare beyond what must be evaluated.
  at_most,        // The caller's limit.
  media,          // Equal up to a media item whose end is not covered.
  group_hole,     // A layer group lacks a block that the depth needs.
  no_checkpoint,  // A recurrent group has no checkpoint at a usable depth.
  no_copy,        // A part-block could be reused only by copying, which was not allowed.
  read_off,       // Reading was off, so nothing was looked up.
  no_room,        // The lease was refused.
  gave_up,        // Found, but given up: a failed copy, a shrunk lease, no room to copy.
};
inline constexpr uint32_t kMissReasonCount = 12;

const char* to_string(Outcome outcome) noexcept;
const char* to_string(MissReason reason) noexcept;

// The outcome of one request. Counts are positions ("tokens").
struct Report {
  uint32_t prompt_tokens = 0;
  uint32_t matched_tokens = 0;  // Verified equal to cached words, even if they cannot be reused.
  uint32_t reused_tokens = 0;   // Available now without computing: the final n.
  uint32_t copied_tokens = 0;   // The part of reused_tokens that comes by copying a part-block.
  uint32_t to_compute_tokens = 0;
  // The depth at which a recurrent checkpoint would have allowed more reuse; 0 = none.
  uint32_t checkpoint_would_help_at = 0;
  uint32_t limiting_group = kMaxGroups;  // The group that cut the match, or kMaxGroups.
  Outcome outcome = Outcome::miss;
  MissReason reason = MissReason::none;
};

inline constexpr uint32_t kHistogramBuckets = 33;

// Bucket 0 counts zeros, bucket i counts values in [2^(i-1), 2^i), the last bucket all larger ones.
using Histogram = std::array<uint64_t, kHistogramBuckets>;

struct Counts {
  uint64_t lookups = 0;
  uint64_t queried_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t copied_tokens = 0;
  uint64_t computed_tokens = 0;  // Positions that leases committed beyond what they reused.
  std::array<uint64_t, kOutcomeCount> outcomes{};
  std::array<uint64_t, kMissReasonCount> reasons{};

  double hit_ratio() const noexcept {
    return queried_tokens == 0
               ? 0.0
               : static_cast<double>(reused_tokens) / static_cast<double>(queried_tokens);
  }
};

struct GroupStats {
  uint32_t capacity_blocks = 0;
  uint32_t free_blocks = 0;    // Without contents.
  uint32_t cached_blocks = 0;  // With contents: findable, or forgotten while leased.
  // The cached_blocks that no lease, copy or pin needs. Apart from quotas, free_blocks +
  // evictable_blocks could be drafted now. Exact; a lower bound if there is no memory to count.
  uint32_t evictable_blocks = 0;
  uint32_t draft_blocks = 0;      // Leased for writing, or waiting for a fence or a copy.
  uint32_t peak_used_blocks = 0;  // The most blocks that were ever in use at once.
  uint64_t block_bytes = 0;
};

// A consistent snapshot. Taking one costs a step for each leased block.
struct Stats {
  Counts total;
  Counts window;  // The last Options::stats_window_ns.
  uint64_t window_ns = 0;
  uint32_t group_count = 0;
  std::array<GroupStats, kMaxGroups> groups{};
  uint64_t leases = 0;  // Alive now, including those that wait for fences.
  uint64_t scopes = 0;
  uint64_t evicted_blocks = 0;    // Blocks of the first group dropped to make room.
  uint64_t duplicate_blocks = 0;  // Committed although an equal block was already cached.
  uint64_t tails_published = 0;
  uint64_t forks = 0;
  uint64_t rewinds = 0;
  uint64_t pin_expiries = 0;
  uint64_t quota_refusals = 0;
  uint64_t orphaned_blocks = 0;  // Forgotten while leased; they go at release.
  uint64_t stale_walks = 0;      // Optimistic lookups that met a concurrent change.
  uint64_t hint_repairs = 0;
  uint64_t markers_dropped = 0;  // Cells held by the policy that turned out not to be leaves.
  uint64_t exact_counts = 0;     // Times the pool had to be counted because most of it was leased.
  uint64_t pinned_blocks = 0;    // Held by pins with deadlines, shared prefixes counted per pin.
  uint64_t logits_bytes = 0;
  uint64_t checkpoints = 0;
  uint64_t index_bytes = 0;    // Everything this cache holds besides KV bytes and events.
  uint64_t event_bytes = 0;    // The events kept for slow observers.
  uint64_t kv_bytes_used = 0;  // The bytes of all blocks that are not free.
  uint64_t kv_bytes_capacity = 0;
  Histogram match_tokens{};     // matched_tokens of each lookup.
  Histogram eviction_age_us{};  // The time from a block's commit to its eviction.
};

}  // namespace stemma
