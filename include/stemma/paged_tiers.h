// PagedTiers puts a stack of tiers under a PagedCache: what was computed is stored, and what is stored
// comes back into the cache before a request leases it.
//
//   restore(prompt) ──▶ lookup, then where() for all that is beyond ──▶ choose a depth ──▶ load ──▶ drafted,
//                       written through BlockIo, committed ──▶ the request's own lease finds it
//   store(lease)    ──▶ what of it does a level want ──▶ read through BlockIo ──▶ queued for its tier
//   make_room(n)    ──▶ what goes for n positions ──▶ does a level want it ──▶ the same
//
// Blocks are stored one by one under their content keys, layer group by layer group, and so are the
// checkpoints of recurrent groups, under the key of the prefix they are the state of. A depth can be
// restored when all groups can serve it, out of the cache and the tiers together:
//
//   full        every block of [0, n).
//   window      the blocks that hold a position of [n - window_tokens, n) or of the sinks. Those behind are
//               neither loaded nor drafted.
//   recurrent   a checkpoint at exactly n.
//
// It is a multiple of the largest block (of 16 where no group has blocks): parts of blocks are not stored,
// nor are checkpoints elsewhere. Of the depths that are somewhere the deepest worth loading is taken; all
// that has to be loaded for it counts. What the cache still has of a group is not loaded again.
//
// Invariant:  what becomes findable was loaded whole, for exactly these words in this scope, and written
//             without an error; where something was not, the deepest depth that does without it comes
//             back. Of several requests that want the same, one restores it, and the others find it cached.
// Threading:  thread-safe; called without the caller's locks. restore() and store() wait: restore() for the
//             tiers, within what computing would take, and for the engine's writes; store() for its reads.
// Ownership:  owns the stack; cache and BlockIo outlive it.
// Cost:       a content key a block (about 85 ns with SHA instructions) for each call and size of block.
//             Nothing of it counts as a request in the cache's statistics, but for one case: write-back, and
//             a prompt that goes on from a checkpoint inside a block, which only a request can hold.
// Limits:     blocks behind a window are stored only if store() was called while the lease still had them,
//             and a conversation is continued at the depths whose windows and checkpoints were stored: an
//             engine that wants others too stores as it commits. Window blocks that the cache has beyond a
//             hole or a missing checkpoint are asked for, and loaded, all the same. Write-back sees what
//             make_room() and restore() evict ahead of a lease: what a lease still has to evict itself (it
//             grew beyond the room, saved another checkpoint, another took the room, a quota) is lost.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "stemma/block_io.h"
#include "stemma/cache.h"
#include "stemma/result.h"
#include "stemma/tier_stack.h"

namespace stemma::tier {

struct PagedTiersOptions {
  PagedCache* cache = nullptr;
  BlockIo* io = nullptr;
  // As the cache was made with, block_bytes included (of a recurrent group: of a checkpoint).
  std::vector<GroupOptions> groups = {};
  // Fingerprint of how a block's bytes are arranged; others' are not believed.
  uint64_t layout = 0;
  bool keep_words = false;  // Store the words with the blocks: they are the prompt.
};

struct Restored {
  uint32_t cached_tokens = 0;                           // The cache had them.
  uint32_t stored_tokens = 0;                           // Beyond, some tier had them.
  uint32_t restored_tokens = 0;                         // Of those, what is now in the cache.
  std::array<uint32_t, kMostLevels> level_tokens = {};  // Of those, where they came from.
  bool shared = false;  // Somebody else was restoring them; this request waited for it.
  Lease hold;           // Keeps them until the request has its own lease; then let it go.
};

class PagedTiers {
 public:
  // Error: invalid_argument (no cache, no BlockIo, a group that no cache has or without block_bytes).
  static Result<std::unique_ptr<PagedTiers>> create(const PagedTiersOptions& options,
                                                    std::unique_ptr<TierStack> stack);
  virtual ~PagedTiers() = default;
  PagedTiers(const PagedTiers&) = delete;
  PagedTiers& operator=(const PagedTiers&) = delete;

  // Brings the prompt beyond what is cached back into the cache, as deep as it is stored and worth it.
  // Nothing restored is an answer, not an error. Error: invalid_argument (prompt, options), out_of_memory.
  virtual Result<Restored> restore(const Scope& scope, const Prompt& prompt,
                                   const LeaseOptions& options = {}) = 0;
  // Brings what is stored of the prompt up to the first level, some time soon; for requests that queue.
  virtual Result<void> prefetch(const Scope& scope, const Prompt& prompt) = 0;
  // The lease, whose words the prompt is, has committed them: stores what a level wants of the whole blocks
  // of positions [from, committed) that the lease still holds, and of the checkpoints at depths beyond
  // `from`, up to `committed`. Tell each position once a request: that is one sighting. Returns how many
  // blocks and checkpoints were handed to the stack. Error: copy_failed (the engine could not read),
  // invalid_argument, out_of_memory.
  virtual Result<uint32_t> store(const Scope& scope, const Prompt& prompt, const Lease& lease,
                                 uint32_t from = 0, Priority priority = kDefaultPriority) = 0;
  // Evicts until so many positions can be drafted without evicting, as far as that is possible, and writes
  // what goes back to the levels that want it; where none is write-back, nothing happens. restore() does it
  // for its prompt; call it before a lease grows or saves a checkpoint, and with kEverything to leave nothing behind at the end.
  // Returns how many blocks and checkpoints were handed to the stack. Error: copy_failed (the engine could
  // not read so many, which are lost), out_of_memory.
  static constexpr uint32_t kEverything = 0xFFFF'FFFFU;
  virtual Result<uint32_t> make_room(uint32_t positions) = 0;

  // Removes what the tiers have of the scope beyond the prefix; all of the scope for an empty one.
  // Blocks do not say which prefix they go on from, so other conversations of the scope lose what
  // is deeper than the prefix, too. Returns one report a level; waits until this time on
  // Clock::monotonic(). First `drop_here` is called, to forget the same in the cache
  // (PagedCache::drop_scope()); then the tiers are purged. From its beginning to its end nothing is
  // brought into the cache, nothing of the scope is stored, and what had begun before is waited
  // for: so nothing of the past comes back. A lease that was taken before and is stored
  // afterwards stores what it has: end such leases first.
  virtual std::vector<LevelPurged> forget(const Scope& scope, const Prompt& prefix,
                                          uint64_t until_ns,
                                          const std::function<void()>& drop_here = {}) = 0;
  // The same of all scopes: everything that has this layout.
  virtual std::vector<LevelPurged> forget_everything(
      uint64_t until_ns, const std::function<void()>& drop_here = {}) = 0;

  virtual TierStack& stack() noexcept = 0;

 protected:
  PagedTiers() = default;
};

}  // namespace stemma::tier
