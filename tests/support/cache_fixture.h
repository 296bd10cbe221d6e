// The vocabulary in which tests speak about a PagedCache.
//
// PagedFixture makes caches under a clock that the test owns and, when the test is over, checks
// that their books balance and that nothing is still leased.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stemma/cache.h"
#include "support/text.h"

namespace stemma {

// How gtest shows our enums.
inline void PrintTo(Errc code, std::ostream* out) {
  *out << (code == Errc{} ? "ok" : to_string(code));
}
inline void PrintTo(Outcome outcome, std::ostream* out) {
  const char* const names[] = {"full_hit", "partial_hit", "miss", "bypassed", "refused"};
  *out << names[static_cast<uint32_t>(outcome)];
}
inline void PrintTo(MissReason reason, std::ostream* out) {
  const char* const names[] = {"none",    "unknown_scope", "first_use",  "too_short",
                               "at_most", "media",         "group_hole", "no_checkpoint",
                               "no_copy", "read_off",      "no_room",    "gave_up"};
  *out << names[static_cast<uint32_t>(reason)];
}
inline void PrintTo(BlockId block, std::ostream* out) { *out << "block " << to_index(block); }

namespace test {

inline constexpr Errc kOk{};

// The error that a call returned, or kOk.
template <class T>
Errc code(const Result<T>& result) {
  return result ? kOk : result.error().code();
}

// A call's value. Ends the test with the error's text if there is none.
template <class T>
T ok(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().to_string());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

inline Scope scope_of(const ScopeSpec& spec) { return ok(Scope::make(spec)); }

inline GroupOptions full(uint32_t capacity_blocks, uint32_t block_tokens = 16) {
  return {.attention = Attention::full,
          .block_tokens = block_tokens,
          .capacity_blocks = capacity_blocks,
          .block_bytes = 64 * uint64_t{block_tokens}};
}
inline GroupOptions window(uint32_t window_tokens, uint32_t capacity_blocks,
                           uint32_t block_tokens = 16, uint32_t sink_tokens = 0) {
  return {.attention = Attention::window,
          .block_tokens = block_tokens,
          .capacity_blocks = capacity_blocks,
          .window_tokens = window_tokens,
          .sink_tokens = sink_tokens,
          .block_bytes = 64 * uint64_t{block_tokens}};
}
inline GroupOptions recurrent(uint32_t slots) {
  return {.attention = Attention::recurrent, .capacity_blocks = slots, .block_bytes = 256};
}

inline Options grouped(std::vector<GroupOptions> groups) {
  Options options;
  options.groups = std::move(groups);
  return options;
}

// Everything a caller could see of the cache's contents, as text. If it is equal before and after a
// call, the call changed nothing. Leaves out counts of lookups, because a refused call may be
// counted.
inline std::string books(const PagedCache& cache) {
  const Stats s = cache.stats();
  std::ostringstream out;
  for (uint32_t g = 0; g < s.group_count; ++g) {
    out << "group " << g << ": " << s.groups[g].free_blocks << " free, "
        << s.groups[g].cached_blocks << " cached, " << s.groups[g].draft_blocks << " drafts\n";
  }
  out << s.leases << " leases, " << s.scopes << " scopes, " << s.evicted_blocks << " evicted, "
      << s.duplicate_blocks << " duplicates, " << s.tails_published << " tails, " << s.forks
      << " forks, " << s.rewinds << " rewinds, " << s.pinned_blocks << " pinned, "
      << s.orphaned_blocks << " orphaned, " << s.logits_bytes << " logits bytes, " << s.checkpoints
      << " checkpoints, " << s.kv_bytes_used << " KV bytes";
  return out.str();
}

// A lease's numbers, as text.
inline std::string position(const Lease& lease) {
  std::ostringstream out;
  out << lease.reused() << " reused, " << lease.committed() << " committed, " << lease.length()
      << " long, room for " << lease.capacity() << ", " << lease.block_count(0) << " blocks, "
      << lease.copies().size() << " copies";
  return out.str();
}

// The block ids of a lease, with `kNoBlock` for missing ones.
inline std::vector<BlockId> blocks_of(const Lease& lease, GroupIndex group = 0) {
  std::vector<BlockId> blocks(lease.block_count(group));
  ok(lease.block_table(group, blocks, kNoBlock));
  return blocks;
}

inline uint32_t free_blocks(const PagedCache& cache, GroupIndex group = 0) {
  return cache.stats().groups[group].free_blocks;
}
inline uint32_t cached_blocks(const PagedCache& cache, GroupIndex group = 0) {
  return cache.stats().groups[group].cached_blocks;
}
inline uint32_t draft_blocks(const PagedCache& cache, GroupIndex group = 0) {
  return cache.stats().groups[group].draft_blocks;
}

// Acts as the engine for a lease: copies, computes everything, commits it.
inline Commit compute(Lease& lease) {
  if (!lease.copies().empty()) ok(lease.copies_done());
  return ok(lease.commit(lease.length()));
}

// Saves a recurrent group's state at the depth that is committed now.
inline BlockId save_checkpoint(Lease& lease, GroupIndex group) {
  const BlockId slot = ok(lease.draft_checkpoint(group));
  ok(lease.commit_checkpoint(group, lease.committed()));
  return slot;
}

struct Shape {
  uint32_t block_tokens = 16;
  uint32_t capacity = 10;
};

class PagedFixture : public ::testing::Test {
 protected:
  PagedCache& cache_of(const Shape& shape) {
    return cache_with(grouped({full(shape.capacity, shape.block_tokens)}));
  }
  PagedCache& cache_with(Options options) {
    options.clock = &clock;
    return caches_.emplace_back(ok(PagedCache::create(options)));
  }

  Lease take(PagedCache& cache, const Text& text, const LeaseOptions& options = {}) const {
    return ok(cache.lease(scope, text, options));
  }
  // Takes a lease only for what is cached, without drafting.
  Lease hold(PagedCache& cache, const Text& text) const {
    LeaseOptions options;
    options.draft_tokens = 0;
    options.lookup.allow_copy = false;
    return take(cache, text, options);
  }
  // A whole request: lease, compute, release.
  Report fill(PagedCache& cache, const Text& text, const Retain& retain = {}) const {
    return fill(cache, scope, text, retain);
  }
  Report fill(PagedCache& cache, const Scope& in, const Text& text,
              const Retain& retain = {}) const {
    LeaseOptions options;
    options.retain = retain;
    Lease lease = ok(cache.lease(in, text, options));
    compute(lease);
    const Report report = lease.report();
    ok(lease.release());
    return report;
  }
  // What a request for this prompt would reuse now.
  Report look(const PagedCache& cache, const Text& text, const LookupOptions& options = {}) const {
    return ok(cache.lookup(scope, text, options));
  }
  uint32_t hit(const PagedCache& cache, const Text& text, const LookupOptions& options = {}) const {
    return look(cache, text, options).reused_tokens;
  }
  uint32_t hit(const PagedCache& cache, const Scope& in, const Text& text) const {
    return ok(cache.lookup(in, text)).reused_tokens;
  }
  // How much of exactly this text is cached, including its last position.
  uint32_t kept(const PagedCache& cache, const Text& text) const {
    return hit(cache, text + of({kTokenLimit - 1}));
  }
  // How much of it is shared in place, without copying a part-block.
  uint32_t in_place(const PagedCache& cache, const Text& text) const {
    LookupOptions options;
    options.allow_copy = false;
    return hit(cache, text + of({kTokenLimit - 1}), options);
  }

  void TearDown() override {
    for (const PagedCache& cache : caches_) {
      cache.check_invariants();
      const Stats stats = cache.stats();
      EXPECT_EQ(stats.leases, 0U) << "a lease was left behind";
      for (uint32_t g = 0; g < stats.group_count; ++g) {
        const GroupStats& group = stats.groups[g];
        EXPECT_EQ(group.draft_blocks, 0U) << "group " << g << " lost blocks";
        EXPECT_EQ(group.free_blocks + group.cached_blocks, group.capacity_blocks) << "group " << g;
      }
    }
  }

  ManualClock clock;
  Scope scope = scope_of({.model = "a model"});

 private:
  std::deque<PagedCache> caches_;
};

}  // namespace test
}  // namespace stemma
