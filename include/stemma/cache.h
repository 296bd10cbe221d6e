// PagedCache: the KV cache of an engine that owns pages.
//
// It knows which prefix of a prompt has been computed and in which blocks, lends blocks out, keeps
// what is worth keeping, and never hands out a block whose contents do not belong to the prompt.
// The bytes are the engine's: the cache deals in block ids.
//
//   lease(scope, prompt) --> copies --> engine computes [reused, length) --> commit --> release
//
// Invariant:  what a lease reuses is a verified prefix of its prompt in the same scope, no longer
//             than what every layer group can serve, and never ends inside a unit.
// Threading:  thread-safe. Lookups walk without a lock; changes take a short one. No callback, copy
//             or fence is called under it.
// Ownership:  leases keep the innards alive; destroying the cache while leases live is fine. After
//             a move the old object answers wrong_state, or nothing.
// Memory:     a call that finds none answers out_of_memory, with nothing changed; any call that returns
//             a Result may. The others need none, or say what they do without. Nothing throws.
// Cost:       a full hit costs a few times the memcmp of the prompt and allocates nothing in steady
//             state; evicting one block costs one block's work, amortised.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stemma/events.h"
#include "stemma/lease.h"
#include "stemma/options.h"
#include "stemma/prompt.h"
#include "stemma/reclaimed.h"
#include "stemma/result.h"
#include "stemma/scope.h"
#include "stemma/stats.h"

namespace stemma {

namespace sequence {
class SegmentStore;
}  // namespace sequence

struct LookupOptions {
  uint32_t at_most = 0xFFFF'FFFFU;  // Reuse no more than this many positions.
  // Units at the prompt's end that must be evaluated; at least 1. (Drafters that read hidden states
  // need one position more than was found, wherever the match ends: see Lease::shrink_to.)
  uint32_t evaluate_at_least = 1;
  bool read = true;          // false: reuse nothing (what is computed is still cached).
  bool write = true;         // false: what is computed is not cached.
  bool allow_copy = true;    // false: reuse ends at a block border.
  bool want_logits = false;  // Nothing is evaluated when logits are anchored at the end.
};

struct LeaseOptions {
  LookupOptions lookup = {};
  TenantId tenant = kNoTenant;  // Fixed for a scope while anything of it is cached.
  Retain retain = {};
  // How many positions to draft room for now; more comes by extend() and reserve().
  uint32_t draft_tokens = kWholePrompt;
  // Not 0: the lease is there to fill in [0, fill_to) from elsewhere, where nothing is computed. It shares
  // whatever is cached of that, also where a hole or a missing checkpoint keeps it from being reused, and
  // drafts the other blocks without which fill_to could not be served: of a window group none that lie
  // behind the window. Write those of Lease::draft_table(), then commit(fill_to); recurrent groups need a
  // checkpoint there as well. Where a block did not arrive, commit() what did: a multiple of every
  // block_tokens. Until fill_to is committed the lease neither forks, shrinks nor rewinds. A multiple of every block_tokens (of 16 where there are none), within the prompt, inside no media item.
  // No copies are needed, draft_tokens does not count, and neither does the lease, as a request.
  uint32_t fill_to = 0;
  static constexpr uint32_t kWholePrompt = 0xFFFF'FFFFU;
};

// A pin with a deadline on a cached prefix. Stale ids are harmless.
enum class PinId : uint64_t {};

struct PinResult {
  PinId id{};
  uint32_t pinned_tokens = 0;  // How much of the prompt is cached and now held.
};

struct CachedPath {
  Scope scope;
  uint32_t tokens = 0;  // From the beginning to its end.
  bool held = false;    // By a lease or a pin.
};

enum class OnBusy : uint8_t { refuse, defer };

class PagedCache {
 public:
  // Error: invalid_argument naming the impossible option, out_of_memory.
  static Result<PagedCache> create(const Options& options);
  PagedCache(PagedCache&&) noexcept;
  PagedCache& operator=(PagedCache&&) noexcept;
  ~PagedCache();

  // What a lease would reuse now, without taking anything and without counting as a lookup.
  // Error: invalid_argument (tokens, media, options).
  Result<Report> lookup(const Scope& scope, const Prompt& prompt,
                        const LookupOptions& options = {}) const;

  // Looks up, pins the match, drafts the rest; all or nothing.
  // Error: invalid_argument (tokens, media, options), out_of_blocks, over_quota, out_of_memory.
  Result<Lease> lease(const Scope& scope, const Prompt& prompt, const LeaseOptions& options = {});

  // ---- Keeping --------------------------------------------------------------------------------

  // Holds the cached part of a prompt until `ttl_ns` from now, whatever the pressure. Error:
  // over_pin_share, invalid_argument.
  Result<PinResult> pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns);
  // Error: stale when it has expired or was never given.
  Result<void> unpin(PinId id);
  // The conversation is over: what it used last, if nobody used it since, goes early. (Without memory
  // to note who used what last, a session is forgotten: then nothing happens.)
  void end_session(SessionId session);
  // Error: invalid_argument for a tenant without a quota at creation.
  Result<void> set_quota(TenantId tenant, uint64_t bytes);
  uint64_t tenant_bytes(TenantId tenant) const;
  // Who pays for a scope; none when nothing of it is cached.
  std::optional<TenantId> tenant_of(const Scope& scope) const;

  // ---- Forgetting -----------------------------------------------------------------------------

  // Forgets the cached continuation of the prompt from the block that holds position `keep` on,
  // with everything that follows it; with `keep` at the prompt's end, however it continues.
  // A lease that runs goes on as before: its blocks stay where they are until it ends, tables and
  // counts do not change. Of a lease that had published beyond the cut nothing from there on is
  // found any more, what it commits later included. One that stands before the cut, or that copied
  // a part-block from behind it, publishes what it computes as always: who distrusts the contents
  // abandons those leases.
  // Returns the number of blocks (of the first group's grid) no longer findable.
  Result<uint32_t> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  // Forgets a whole scope: adapter unloaded, weights changed. Returns blocks no longer findable.
  uint32_t drop_scope(const Scope& scope);
  // Forgets everything. With leases alive: refuse = error busy, nothing changed; defer = what is
  // leased goes at release.
  Result<void> reset(OnBusy on_busy = OnBusy::refuse);
  // Evicts `blocks` blocks of a full group's grid by the policy's choice; returns how many went.
  uint32_t evict(uint32_t blocks);
  // Evicts by the policy's choice until leases could draft so many positions without evicting (of a window
  // group no more than a window, of a recurrent one a slot), at most `most` blocks of the index's grid and
  // of such groups, and holds what went so that it can be saved.
  // Until the answer is let go its blocks are not free: ask for few at a time. Error: out_of_memory, and
  // then what went is gone.
  Result<Reclaimed> reclaim(uint32_t positions, uint32_t most);

  // ---- Watching -------------------------------------------------------------------------------

  Stats stats() const;
  // Depths of the prompt's cached path at which cached prompts part; ascending.
  Result<std::vector<uint32_t>> branch_points(const Scope& scope, const Prompt& prompt) const;
  // What is cached, by where it ends: every path to a block without successor. O(everything).
  Result<std::vector<CachedPath>> contents() const;
  // Copies events from `from` on into `out`, at most `limit`; returns the next sequence number to
  // ask for. When `from` is no longer kept the first event copied shows the gap by its number; when
  // there was never such an event the answer is smaller than `from`: this is another cache. Copies
  // fewer when there is no memory for more.
  uint64_t events(uint64_t from, uint32_t limit, std::vector<Event>& out) const;
  // Without memory: no events, to be continued from 0, so that nothing is missed unseen.
  EventDump event_dump() const;
  // Settles releases whose fences have signalled. lease(), extend() and reserve() do it too when
  // they are short of blocks. Returns how many leases were settled.
  uint32_t poll();

  // ---- Dump and load --------------------------------------------------------------------------

  // The whole index, self-describing and checksummed (docs/formats/index-dump.md). No KV bytes.
  // Empty when there is no memory for it; load() does not take that for a dump.
  std::vector<uint8_t> dump() const;
  // Loads a dump into this cache, which must be empty and equally configured: the same prompts get
  // the same answers, with the same block ids (where larger blocks of another group end inside one,
  // any of several equal part-blocks may be named as the source of a copy). Error: corrupt,
  // invalid_argument (other configuration), wrong_state (not empty), out_of_memory; nothing changed.
  Result<void> load(std::span<const uint8_t> bytes);

  // Stops the process with a description if the books do not balance. For tests; O(everything). Looks
  // at less when there is no memory.
  void check_invariants() const;

 private:
  friend class sequence::SegmentStore;
  // One that is a part of something else: its making is not logged. Its first group has full attention and
  // the smallest blocks.
  static Result<PagedCache> create_part(const Options& options);
  // Adds the blocks that are evicted from now on (no others that go), while there is capacity; null: no
  // more. Read it between calls.
  void note_evicted(std::vector<BlockId>* into);
  // Whether this block of the first group is found by anybody.
  bool holds(BlockId block) const;
  explicit PagedCache(cache::Shared* shared) noexcept : shared_(shared) {}
  cache::Shared* shared_;
};

}  // namespace stemma
