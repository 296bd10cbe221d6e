#include "cache/store/store.h"

namespace stemma::cache {

void Store::fill_stats(Stats& stats) {
  const std::array<uint64_t, kMaxGroups> evictable = census.evictable_blocks();
  stats.group_count = books.group_count();
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    const pool::BlockPool& pool = books.pool_of_group(g);
    GroupStats& out = stats.groups[g];
    out.capacity_blocks = pool.capacity();
    out.free_blocks = pool.free_blocks();
    out.cached_blocks = pool.cached_blocks();
    out.draft_blocks = pool.used_blocks() - pool.cached_blocks();
    out.peak_used_blocks = pool.peak_used_blocks();
    out.evictable_blocks =
        group.loose() ? group.waiting_blocks() : static_cast<uint32_t>(evictable[g]);
    out.block_bytes = group.options().block_bytes;
    stats.kv_bytes_used += out.block_bytes * pool.used_blocks();
    stats.kv_bytes_capacity += out.block_bytes * pool.capacity();
    if (group.recurrent()) stats.checkpoints += pool.cached_blocks();
  }
  stats.leases = holds.live().size();
  stats.scopes = books.scopes.size();
  stats.evicted_blocks = books.tally.evicted;
  stats.duplicate_blocks = books.tally.duplicates;
  stats.tails_published = books.tally.tails;
  stats.forks = books.tally.forks;
  stats.rewinds = books.tally.rewinds;
  stats.pin_expiries = books.tally.pin_expiries;
  stats.quota_refusals = books.tally.quota_refusals;
  stats.orphaned_blocks = books.tally.orphaned;
  stats.stale_walks = books.tally.stale_walks;
  stats.hint_repairs = books.tally.hint_repairs;
  stats.markers_dropped = books.tally.markers;
  stats.exact_counts = books.tally.exact_counts;
  stats.pinned_blocks = books.pins.depth_sum();
  stats.logits_bytes = books.logits.bytes();
  stats.index_bytes = bytes();
  stats.event_bytes = books.events.bytes();
  stats.total = books.counters.total();
  stats.window = books.counters.window(books.now_ns);
  stats.window_ns = books.options().stats_window_ns;
  stats.match_tokens = books.counters.match_tokens();
  stats.eviction_age_us = books.counters.eviction_age_us();
}

}  // namespace stemma::cache
