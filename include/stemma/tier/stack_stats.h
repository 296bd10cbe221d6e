// What a stack of tiers counts, and what purges of it removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stemma/tier/tier.h"

namespace stemma::tier {

// What a purge removed from one level.
struct LevelPurged {
  std::string name;
  Purged purged;
};

struct LevelStats {
  std::string name;
  TierStats tier;
  uint64_t hits = 0, hit_bytes = 0;   // Entries that load() and prefetch() got from this level.
  uint64_t misses = 0;                // Entries that the level reported, but could not deliver.
  uint64_t stored = 0, promoted = 0;  // Entries queued to be put: by store(), by promotion.
  uint64_t written_back = 0;          // How many of `stored` were stored because they left memory.
  uint64_t waiting = 0;               // Puts in the queue now.
  uint64_t dropped = 0;               // Entries dropped because the queue was full.
  uint64_t lost = 0;                  // Puts that were refused, failed or late.
  uint64_t too_large = 0;             // Entries too large for this level.
  uint64_t too_slow = 0;              // Entries that the level has, but not worth loading.
  double latency_ns = 0, bytes_per_second = 0;  // As measured.
};

struct StackStats {
  std::vector<LevelStats> levels;
  uint64_t queries = 0, late_queries = 0;  // A query is late if not all levels answered in time.
  uint64_t shared_loads = 0;               // Entries that another caller was already loading.
  // Entries to be prefetched: those that were queued, and those dropped because the queue was full.
  uint64_t prefetches = 0, dropped_prefetches = 0;
  // How often a slow level was tried again, and how often a level was left alone because it had
  // not answered.
  uint64_t probes = 0, rests = 0;
  uint64_t crowded = 0;  // Payloads that found no room in the arena.
  double token_ns = 0;   // The engine's time for a token; 0: unknown.
};

}  // namespace stemma::tier
