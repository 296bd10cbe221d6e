// BlockTiers: what PagedTiers does, over a cache of which it knows no more than a CachePort says. So it
// serves a PagedCache, and a cache on the other side of the C ABI as well.
//
// Invariant, Threading, Cost: as PagedTiers says. A port is used by the call that was given it alone.
// Ownership: the stack, the BlockIo and all ports outlive the calls that use them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "stemma/block_io.h"
#include "stemma/cache.h"
#include "stemma/result.h"
#include "stemma/tier_stack.h"
#include "tier/restore_plan.h"

namespace stemma::tier {

// A lease, somebody's or our own; our own ends with the port.
class LeasePort {
 public:
  virtual ~LeasePort() = default;
  virtual uint32_t reused() const = 0;
  virtual uint32_t committed() const = 0;
  // Makes [0, n) findable, and uses what was findable before instead of doubles of its own.
  virtual Result<void> commit(uint32_t n) = 0;
  // The group's block table, or what of it is the lease's own to write; empty when it cannot be had.
  virtual std::vector<BlockId> blocks(GroupIndex group) const = 0;
  virtual std::vector<BlockId> drafts(GroupIndex group) const = 0;
  // As a Lease has them.
  virtual Result<BlockId> draft_checkpoint(GroupIndex group) = 0;
  virtual Result<void> commit_checkpoint(GroupIndex group, uint32_t depth) = 0;
  virtual Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const = 0;
};

// A block that went to make room: as a Reclaimed has it.
struct Outgoing {
  GroupIndex group = 0;
  BlockId block = kNoBlock;
  uint32_t end = 0;
  ContentKey key{};
  std::span<const Token> words = {};  // None where media stand on its path.
};

class CachePort {
 public:
  virtual ~CachePort() = default;
  virtual Result<Report> lookup(const Scope& scope, const Prompt& prompt,
                                const LookupOptions& options) = 0;
  virtual Result<std::unique_ptr<LeasePort>> lease(const Scope& scope, const Prompt& prompt,
                                                   const LeaseOptions& options) = 0;
  // As PagedCache::reclaim(); the blocks that went are held while `save` looks at them, which is called once
  // if there are any. Returns how much went.
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
  // What PagedTiers::create() refuses.
  static Result<void> check(const BlockTiersOptions& options);
  // Requires what check() lets pass.
  BlockTiers(const BlockTiersOptions& options, TierStack& stack);

  Result<RestoredBlocks> restore(CachePort& cache, const Scope& scope, const Prompt& prompt,
                                 const LeaseOptions& options);
  Result<void> prefetch(CachePort& cache, const Scope& scope, const Prompt& prompt);
  Result<uint32_t> store(const Scope& scope, const Prompt& prompt, const LeasePort& lease,
                         uint32_t from, Priority priority);
  Result<uint32_t> make_room(CachePort& cache, uint32_t positions);

  // As PagedTiers has them. Throw std::bad_alloc.
  std::vector<LevelPurged> forget(const Purge& what, uint64_t until_ns,
                                  const std::function<void()>& drop_here);
  // What follows the prefix; all of the scope for an empty one.
  static Purge what_follows(const Scope& scope, const Prompt& prefix);
  Purge everything() const { return {.layout = options_.layout}; }

 private:
  // While one lives, what it is about is on its way into the cache or into the stack. Forgetting
  // waits for those that had begun before.
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
  struct Turn {
    std::mutex mutex;
    std::condition_variable ended;
    bool over = false;
  };
  // A restore on its way.
  struct Job {
    CachePort& cache;
    const Scope& scope;
    const Prompt& prompt;
    const LeaseOptions& options;
    const RestorePlan& plan;
    uint64_t forgets = 0;               // How often something was forgotten before it began.
    uint32_t reused = 0;                // By the cache alone.
    std::vector<LevelMask> there = {};  // Which levels still count as having each entry.
    std::vector<Loaded> loaded = {};
  };
  struct Choice {
    uint32_t depth = 0;             // 0: none is worth it.
    uint64_t patience_ns = kNever;  // How long loading may take.
  };
  struct Capture;

  // Reads all and hands them to the stack, but for those that cannot be read. Returns how many went well;
  // bad: the first that did not.
  uint32_t hand_over(std::span<const Capture> captures, size_t& bad);
  // The deepest depth that a request could use.
  uint32_t last_depth(std::span<const key::MediaSpan> units, uint32_t length,
                      const LookupOptions& lookup) const;
  // Null: it is ours, until end_turn().
  std::shared_ptr<Turn> take_turn(const EntryKey& key);
  void end_turn(const EntryKey& key) noexcept;
  void make_room_for(CachePort& cache, const Scope& scope, const Prompt& prompt,
                     const LeaseOptions& options, uint32_t reused);
  Result<void> bring_in(Job& job, RestoredBlocks& restored);
  Choice choose(const Job& job);
  // What the depth needs and was not loaded.
  static std::vector<uint32_t> missing(const Job& job, uint32_t depth);
  // Whether all of them are there now. What is not counts as nowhere from now on.
  bool load(Job& job, std::span<const uint32_t> indices, uint64_t patience_ns);
  // Writes what was loaded into a lease and commits it. False: the engine could not write some of it, which
  // counts as nowhere from now on.
  Result<bool> put_in(Job& job, uint32_t depth, RestoredBlocks& restored);
  void credit(const Job& job, uint32_t depth, std::span<const uint32_t> needed,
              RestoredBlocks& restored) const;

  // What a level wants of the lease's blocks, and of its checkpoints.
  Result<std::vector<Capture>> captures(const Prompt& prompt, PromptKeys& keys,
                                        const LeasePort& lease, uint32_t from, uint32_t end,
                                        Priority priority);
  Result<uint32_t> store_checkpoints(GroupIndex group, PromptKeys& keys, const LeasePort& lease,
                                     uint32_t from, uint32_t end, Priority priority);

  const BlockTiersOptions options_;
  const BlockGrid grid_;
  TierStack& stack_;
  bool writes_back_ = false;
  mutable std::mutex mutex_;  // Guards everything below.
  std::condition_variable passed_;
  std::unordered_map<EntryKey, std::shared_ptr<Turn>> turns_;
  std::vector<Purge> forgetting_;
  uint64_t forgets_ = 0;
  std::set<uint64_t> passages_;
  uint64_t numbers_ = 0;
};

}  // namespace stemma::tier
