// BlockTiers does the work of PagedTiers over any cache that implements CachePort: a PagedCache, or
// a cache on the other side of the C ABI.
//
// Invariant, Threading, Cost: as PagedTiers says. Only the call that was given a port uses it.
// Ownership: the stack, the BlockIo and all ports must outlive the calls that use them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/lock.h"
#include "stemma/block_io.h"
#include "stemma/cache.h"
#include "stemma/result.h"
#include "stemma/tier/tier_stack.h"
#include "tier/restore_plan.h"

namespace stemma::tier {

// A lease, the caller's or our own; our own ends with the port.
class LeasePort {
 public:
  virtual ~LeasePort() = default;
  virtual uint32_t reused() const = 0;
  virtual uint32_t committed() const = 0;
  // Makes [0, n) findable; blocks that were findable before replace the lease's own duplicates.
  virtual Result<void> commit(uint32_t n) = 0;
  // The group's block table, or the part that the lease may write; empty if it is unavailable.
  virtual std::vector<BlockId> blocks(GroupIndex group) const = 0;
  virtual std::vector<BlockId> drafts(GroupIndex group) const = 0;
  // As in Lease.
  virtual Result<BlockId> draft_checkpoint(GroupIndex group) = 0;
  virtual Result<void> commit_checkpoint(GroupIndex group, uint32_t depth) = 0;
  virtual Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const = 0;
};

// A block evicted to make room, as in Reclaimed.
struct Outgoing {
  GroupIndex group = 0;
  BlockId block = kNoBlock;
  uint32_t end = 0;
  ContentKey key{};
  std::span<const Token> words = {};  // Empty if its path has media.
};

class CachePort {
 public:
  virtual ~CachePort() = default;
  virtual Result<Report> lookup(const Scope& scope, const Prompt& prompt,
                                const LookupOptions& options) = 0;
  virtual Result<std::unique_ptr<LeasePort>> lease(const Scope& scope, const Prompt& prompt,
                                                   const LeaseOptions& options) = 0;
  // As PagedCache::reclaim(). If blocks were evicted, `save` is called once, and they are held
  // while it reads them. Returns how much was evicted.
  using Save = std::function<void(std::span<const Outgoing>)>;
  virtual Result<uint32_t> reclaim(uint32_t positions, uint32_t most, const Save& save) = 0;
};

struct BlockTiersOptions {
  BlockIo* io = nullptr;
  std::vector<GroupOptions> groups = {};
  uint64_t layout = 0;
  bool keep_words = false;
};

struct RestoredBlocks {
  uint32_t cached_tokens = 0;
  uint32_t stored_tokens = 0;
  uint32_t restored_tokens = 0;
  std::array<uint32_t, kMostLevels> level_tokens = {};
  bool shared = false;
  std::unique_ptr<LeasePort> hold;  // Null: nothing was restored.
};

class BlockTiers {
 public:
  // Fails for the options that PagedTiers::create() refuses.
  static Result<void> check(const BlockTiersOptions& options);
  // Requires options that pass check().
  BlockTiers(const BlockTiersOptions& options, TierStack& stack);

  Result<RestoredBlocks> restore(CachePort& cache, const Scope& scope, const Prompt& prompt,
                                 const LeaseOptions& options);
  Result<void> prefetch(CachePort& cache, const Scope& scope, const Prompt& prompt);
  Result<uint32_t> store(const Scope& scope, const Prompt& prompt, const LeasePort& lease,
                         uint32_t from, Priority priority);
  Result<uint32_t> make_room(CachePort& cache, uint32_t positions);

  // As in PagedTiers. They throw std::bad_alloc.
  std::vector<LevelPurged> forget(const Purge& what, uint64_t until_ns,
                                  const std::function<void()>& drop_here);
  // The purge of what follows the prefix; for an empty prefix, of all the scope.
  static Purge what_follows(const Scope& scope, const Prompt& prefix);
  Purge everything() const { return {.layout = options_.layout}; }

 private:
  // While one lives, its entries are on their way into the cache or the stack. Forgetting waits for
  // those that began before it.
  class Passage {
   public:
    explicit Passage(BlockTiers& tiers);
    ~Passage();
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;

   private:
    BlockTiers& tiers_;
    std::set<uint64_t>::iterator place_;
  };
  bool is_forgetting(uint64_t owner) const;
  // A prompt that one thread restores while others wait.
  struct Restoring {
    base::WaitMutex mutex;
    base::Condition ended;
    bool over STEMMA_GUARDED_BY(mutex) = false;
  };
  // A restore under way.
  struct Job {
    CachePort& cache;
    const Scope& scope;
    const Prompt& prompt;
    const LeaseOptions& options;
    const RestorePlan& plan;
    uint64_t forgets = 0;               // The count of forgets when it began.
    uint32_t reused = 0;                // From the cache alone.
    std::vector<LevelMask> there = {};  // For each entry, the levels still believed to have it.
    std::vector<Loaded> loaded = {};
  };
  struct Choice {
    uint32_t depth = 0;             // 0: no depth is worth loading.
    uint64_t patience_ns = kNever;  // How long loading may take.
  };
  struct Capture;

  // Reads all and hands those that could be read to the stack. Returns how many; bad: the first
  // that could not be read.
  uint32_t hand_over(std::span<const Capture> captures, size_t& bad);
  // The deepest depth that a request could use.
  uint32_t last_depth(std::span<const key::MediaSpan> units, uint32_t length,
                      const LookupOptions& lookup) const;
  // Null: the caller restores it, and then calls end_restore(). Otherwise: a restore to wait for.
  std::shared_ptr<Restoring> begin_restore(const EntryKey& key);
  void end_restore(const EntryKey& key) noexcept;
  void make_room_for(CachePort& cache, const Scope& scope, const Prompt& prompt,
                     const LeaseOptions& options, uint32_t reused);
  Result<void> bring_in(Job& job, RestoredBlocks& restored);
  Choice choose(const Job& job);
  // What the depth needs that was not loaded.
  static std::vector<uint32_t> missing(const Job& job, uint32_t depth);
  // Returns whether all were loaded. The others count as stored nowhere from now on.
  bool load(Job& job, std::span<const uint32_t> indices, uint64_t patience_ns);
  // Writes what was loaded into a lease and commits it. False: the engine could not write some of
  // it, which counts as stored nowhere from now on.
  Result<bool> put_in(Job& job, uint32_t depth, RestoredBlocks& restored);
  // What was loaded, and where it goes. False: some of it was not written, and counts as stored
  // nowhere from now on.
  struct Write {
    uint32_t index;
    BlockId target;
  };
  bool write(Job& job, std::span<const Write> writes);
  void credit(const Job& job, uint32_t depth, std::span<const uint32_t> needed,
              RestoredBlocks& restored) const;

  // The lease's blocks, and its checkpoints, that a level wants.
  Result<std::vector<Capture>> captures(const Prompt& prompt, PromptKeys& keys,
                                        const LeasePort& lease, uint32_t from, uint32_t end,
                                        Priority priority);
  Result<uint32_t> store_checkpoints(GroupIndex group, PromptKeys& keys, const LeasePort& lease,
                                     uint32_t from, uint32_t end, Priority priority);

  const BlockTiersOptions options_;
  const BlockGrid grid_;
  TierStack& stack_;
  bool writes_back_ = false;
  mutable base::WaitMutex mutex_;  // Guards everything below.
  base::Condition passed_;
  std::unordered_map<EntryKey, std::shared_ptr<Restoring>> restoring_ STEMMA_GUARDED_BY(mutex_);
  std::vector<Purge> forgetting_ STEMMA_GUARDED_BY(mutex_);
  uint64_t forgets_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> passages_ STEMMA_GUARDED_BY(mutex_);
  uint64_t numbers_ STEMMA_GUARDED_BY(mutex_) = 0;
};

}  // namespace stemma::tier
