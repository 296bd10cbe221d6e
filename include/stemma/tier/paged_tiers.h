// PagedTiers puts a stack of tiers under a PagedCache: it stores what was computed, and brings it
// back into the cache before a request leases it.
//
//   restore(prompt) ──▶ lookup, then where() for the rest ──▶ choose a depth ──▶ load ──▶ drafted,
//                       written through BlockIo, committed ──▶ the request's own lease finds it
//   store(lease)    ──▶ which parts a level wants ──▶ read through BlockIo ──▶ queued for its tier
//   make_room(n)    ──▶ which blocks go for n positions ──▶ which does a level want ──▶ the same
//
// Each block of each layer group is stored under its own content key, and each checkpoint of a
// recurrent group under the key of the prefix whose state it is. A depth can be restored if every
// group can serve it from the cache and the tiers together:
//
//   full        every block of [0, n).
//   window      the blocks that hold a position of [n - window_tokens, n) or of the sinks. Others
//               are neither loaded nor drafted.
//   recurrent   a checkpoint at exactly n.
//
// A depth that can be restored is a multiple of the largest block (of 16 if no group has blocks):
// partial blocks, and checkpoints at other depths, are not stored. Of the stored depths, restore()
// takes the deepest that is worth loading, counting everything that must be loaded for it. It does
// not load again what the cache still has of a group.
//
// Invariant:  what becomes findable was loaded whole, for exactly these words in this scope, and
//             written without an error. If some part failed, the deepest depth that does not need
//             it comes back. If several requests want the same, one restores it, and the others
//             find it cached.
// Threading:  thread-safe; called without the caller's locks. restore() waits for the tiers, no
//             longer than computing would take, and for the engine's writes; store() waits for the
//             engine's reads.
// Ownership:  owns the stack; the cache and the BlockIo must outlive it.
// Cost:       each call computes one content key a block (about 85 ns with SHA instructions) for
//             each block size. The cache's statistics do not count these calls as requests. The one
//             exception, under write-back, is a prompt that continues from a checkpoint inside a
//             block, because only a request can hold such a checkpoint.
// Limits:     blocks behind a window are stored only if store() was called while the lease still
//             had them, and a conversation can continue only at depths whose windows and
//             checkpoints were stored: to allow more depths, an engine stores as it commits. Window
//             blocks that the cache has beyond a hole or a missing checkpoint are still asked for
//             and loaded. Write-back stores what make_room() and restore() evict ahead of a lease.
//             Blocks that a lease evicts itself are lost: because it grew beyond the room that was
//             made, saved another checkpoint or reached a quota, or because another lease took the
//             room.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "stemma/block_io.h"
#include "stemma/cache.h"
#include "stemma/result.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::tier {

struct PagedTiersOptions {
  PagedCache* cache = nullptr;
  BlockIo* io = nullptr;
  // The groups that the cache was created with. Each needs block_bytes; for a recurrent group that
  // is the size of a checkpoint.
  std::vector<GroupOptions> groups = {};
  // A fingerprint of how a block's bytes are arranged. Entries with another layout are not used.
  uint64_t layout = 0;
  bool keep_words = false;  // Store the words with the blocks: they are the prompt.
};

struct Restored {
  uint32_t cached_tokens = 0;    // Tokens that the cache had before.
  uint32_t stored_tokens = 0;    // Tokens beyond cached_tokens that some tier had.
  uint32_t restored_tokens = 0;  // How many of stored_tokens are now in the cache.
  // How many of restored_tokens came from each level.
  std::array<uint32_t, kMostLevels> level_tokens = {};
  bool shared = false;  // This request waited for another one that was restoring them.
  Lease hold;           // Keeps them until the request has its own lease; then release it.
};

class PagedTiers {
 public:
  // Error: invalid_argument (no cache, no BlockIo, a group that no cache has or without
  // block_bytes).
  static Result<std::unique_ptr<PagedTiers>> create(const PagedTiersOptions& options,
                                                    std::unique_ptr<TierStack> stack);
  virtual ~PagedTiers() = default;
  PagedTiers(const PagedTiers&) = delete;
  PagedTiers& operator=(const PagedTiers&) = delete;

  // Brings the prompt back into the cache, beyond what is cached, as deep as it is stored and worth
  // loading. Restoring nothing is not an error. Error: invalid_argument (prompt, options),
  // out_of_memory.
  virtual Result<Restored> restore(const Scope& scope, const Prompt& prompt,
                                   const LeaseOptions& options = {}) = 0;
  // Copies what is stored of the prompt up to the first level, soon; for requests that queue.
  virtual Result<void> prefetch(const Scope& scope, const Prompt& prompt) = 0;
  // Call this after the lease has committed the prompt's words. Of positions [from, committed) it
  // stores the whole blocks that the lease still holds and a level wants, and the checkpoints
  // beyond `from`, up to `committed`, that a level wants. Report each position once a request: that
  // is one sighting. Returns how many blocks and checkpoints were handed to the stack. Error:
  // copy_failed (the engine could not read), invalid_argument, out_of_memory.
  virtual Result<uint32_t> store(const Scope& scope, const Prompt& prompt, const Lease& lease,
                                 uint32_t from = 0, Priority priority = kDefaultPriority) = 0;
  // Evicts, as far as possible, until this many positions can be drafted without evicting, and
  // writes what it evicts to the levels that want it. Does nothing if no level is write-back.
  // restore() does this for its prompt. Call it before a lease grows or saves a checkpoint, and
  // with kEverything at the end to leave nothing behind. Returns how many blocks and checkpoints
  // were handed to the stack. Error: copy_failed (the number of blocks and checkpoints that the
  // engine could not read, which are lost), out_of_memory.
  static constexpr uint32_t kEverything = 0xFFFF'FFFFU;
  virtual Result<uint32_t> make_room(uint32_t positions) = 0;

  // Removes the scope's entries beyond the prefix from the tiers; with an empty prefix, all of the
  // scope's. Blocks do not say which prefix they follow, so other conversations of the scope also
  // lose everything deeper than the prefix. Returns one report a level; waits until this time on
  // Clock::monotonic(). It waits for restores and stores that have already begun, then calls
  // `drop_here`, which forgets the same in the cache (PagedCache::drop_scope()), then purges the
  // tiers. While it runs, no call brings anything into the cache or stores anything of the scope,
  // so nothing old comes back. But if a lease was taken before this call and is stored after it,
  // its blocks are stored again: end such leases first.
  virtual std::vector<LevelPurged> forget(const Scope& scope, const Prompt& prefix,
                                          uint64_t until_ns,
                                          const std::function<void()>& drop_here = {}) = 0;
  // The same for all scopes: everything with this layout.
  virtual std::vector<LevelPurged> forget_everything(
      uint64_t until_ns, const std::function<void()>& drop_here = {}) = 0;

  virtual TierStack& stack() noexcept = 0;

 protected:
  PagedTiers() = default;
};

}  // namespace stemma::tier
