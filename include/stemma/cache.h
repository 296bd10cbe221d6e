// PagedCache: the KV cache of an engine that owns pages.
//
// It knows which prefix of a prompt has been computed and which blocks hold it. It lends blocks
// out, keeps the most useful ones, and never hands out a block whose contents do not belong to the
// prompt. The engine owns the bytes; the cache deals only in block ids.
//
//   lease(scope, prompt) --> copies --> engine computes [reused, length) --> commit --> release
//
// Invariant:  a lease reuses only a verified prefix of its prompt in the same scope. That prefix is
//             no longer than every layer group can serve, and never ends inside a unit.
// Threading:  thread-safe. Lookups walk the index without a lock; changes take a short one. No
//             callback, copy or fence is called under the lock.
// Ownership:  leases keep the internals alive, so the cache may be destroyed before its leases. A
//             moved-from cache returns wrong_state, or an empty answer.
// Memory:     any call that returns a Result may fail with out_of_memory; nothing has changed then.
//             The other calls need no memory, or their comments say what they do without it.
//             Nothing throws.
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
  // also need the last matched position, wherever it is: see Lease::shrink_to.)
  uint32_t evaluate_at_least = 1;
  bool read = true;          // false: reuse nothing; results are still cached.
  bool write = true;         // false: results are not cached.
  bool allow_copy = true;    // false: reuse ends at a block border.
  bool want_logits = false;  // true: evaluate nothing if logits are anchored at the end.
};

struct LeaseOptions {
  LookupOptions lookup = {};
  TenantId tenant = kNoTenant;  // A scope keeps its tenant while anything of it is cached.
  Retain retain = {};
  // How many positions to draft room for now; extend() and reserve() draft more.
  uint32_t draft_tokens = kWholePrompt;
  // Not 0: the lease fills [0, fill_to) with bytes from elsewhere instead of computing them. It
  // shares all cached blocks of that range, even where a hole or a missing checkpoint prevents
  // reuse. It drafts the other blocks that fill_to needs; a window group needs none behind its
  // window. Write the blocks of Lease::draft_table(), then commit(fill_to); recurrent groups also
  // need a checkpoint there. If a block did not arrive, commit() up to it: a multiple of every
  // block_tokens. Until fill_to is committed the lease cannot fork, shrink or rewind. fill_to must
  // be a multiple of every block_tokens (of 16 where there are none), within the prompt, and not
  // inside a media item. Such a lease needs no copies, ignores draft_tokens, and is not counted as
  // a request.
  uint32_t fill_to = 0;
  static constexpr uint32_t kWholePrompt = 0xFFFF'FFFFU;
};

// A pin with a deadline on a cached prefix. Stale ids are harmless.
enum class PinId : uint64_t {};

struct PinResult {
  PinId id{};
  uint32_t pinned_tokens = 0;  // The length of the cached prefix that is now held.
};

struct CachedPath {
  Scope scope;
  uint32_t tokens = 0;  // Its length from the beginning.
  bool held = false;    // Whether a lease or a pin holds it.
};

enum class OnBusy : uint8_t { refuse, defer };

class PagedCache {
 public:
  // Error: invalid_argument (the message names the bad option), out_of_memory.
  static Result<PagedCache> create(const Options& options);
  PagedCache(PagedCache&&) noexcept;
  PagedCache& operator=(PagedCache&&) noexcept;
  ~PagedCache();

  // Reports what a lease would reuse now. Takes nothing and is not counted as a lookup.
  // Error: invalid_argument (tokens, media, options).
  Result<Report> lookup(const Scope& scope, const Prompt& prompt,
                        const LookupOptions& options = {}) const;

  // Looks up the prompt, pins the match and drafts the rest; all or nothing.
  // Error: invalid_argument (tokens, media, options), out_of_blocks, over_quota, out_of_memory.
  Result<Lease> lease(const Scope& scope, const Prompt& prompt, const LeaseOptions& options = {});

  // ---- Keeping --------------------------------------------------------------------------------

  // Holds the cached part of a prompt for `ttl_ns` from now, however short room is. Error:
  // over_pin_share, invalid_argument.
  Result<PinResult> pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns);
  // Error: stale when the pin has expired or never existed.
  Result<void> unpin(PinId id);
  // Ends a conversation: the path that it used last is evicted early, unless another request has
  // used that path since. (Does nothing if there was no memory to note the session's last use.)
  void end_session(SessionId session);
  // Error: invalid_argument for a tenant that was given no quota at creation.
  Result<void> set_quota(TenantId tenant, uint64_t bytes);
  uint64_t tenant_bytes(TenantId tenant) const;
  // The tenant that pays for a scope; nullopt when nothing of it is cached.
  std::optional<TenantId> tenant_of(const Scope& scope) const;

  // ---- Forgetting -----------------------------------------------------------------------------

  // Forgets the cached prompt from the block that holds position `keep` on, with everything that
  // follows it. If `keep` is the prompt's end, forgets every continuation.
  // Running leases go on as before: their blocks stay in place until they end, and their tables and
  // counts do not change. If a lease had published positions beyond the cut, later lookups find
  // none of its positions from the cut on, not even those it commits later. If a lease has
  // committed only positions before the cut, or copied a part-block from behind it, it still
  // publishes what it computes: abandon such leases if you distrust the contents.
  // Returns how many blocks (of the first group's grid) can no longer be found.
  Result<uint32_t> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  // Forgets a whole scope, for example because its adapter was unloaded or the weights changed.
  // Returns how many blocks can no longer be found.
  uint32_t drop_scope(const Scope& scope);
  // Forgets everything. While leases live, `refuse` fails with busy and changes nothing; `defer`
  // lets leased blocks go when they are released.
  Result<void> reset(OnBusy on_busy = OnBusy::refuse);
  // Evicts `blocks` blocks of a full group's grid; the policy chooses. Returns how many it evicted.
  uint32_t evict(uint32_t blocks);
  // Evicts until leases could draft `positions` positions without evicting; the policy chooses.
  // (Window groups need no more than a window, recurrent groups one slot.) Evicts at most `most`
  // blocks of the index's grid and of window and recurrent groups together. The result holds them
  // so that they can be saved; they are not free until it is destroyed, so ask for few at a time.
  // Error: out_of_memory; the blocks evicted so far are then lost.
  Result<Reclaimed> reclaim(uint32_t positions, uint32_t most);

  // ---- Watching -------------------------------------------------------------------------------

  Stats stats() const;
  // Depths of the prompt's cached path at which cached prompts diverge; ascending.
  Result<std::vector<uint32_t>> branch_points(const Scope& scope, const Prompt& prompt) const;
  // Every cached path that ends at a block without successor. O(everything).
  Result<std::vector<CachedPath>> contents() const;
  // Copies at most `limit` events into `out`, starting with number `from`. Returns the sequence
  // number to ask for next. If `from` is no longer kept, the number of the first event copied shows
  // the gap. A return value smaller than `from` means that there was never such an event: this is
  // another cache. Copies fewer events if there is no memory for more.
  uint64_t events(uint64_t from, uint32_t limit, std::vector<Event>& out) const;
  // If memory is short: no events and next_sequence 0, so that the caller cannot overlook the loss.
  EventDump event_dump() const;
  // Finishes releases whose fences have signalled. lease(), extend() and reserve() do so too when
  // they are short of blocks. Returns how many leases were finished.
  uint32_t poll();

  // ---- Dump and load --------------------------------------------------------------------------

  // The whole index, self-describing and checksummed (docs/formats/index-dump.md). No KV bytes.
  // Returns nothing if memory is short; load() does not accept that as a dump.
  std::vector<uint8_t> dump() const;
  // Loads a dump into this cache, which must be empty and equally configured. The same prompts then
  // get the same answers with the same block ids (where larger blocks of another group end inside
  // one, any of several equal part-blocks may be named as the source of a copy). Error: corrupt,
  // invalid_argument (other configuration), wrong_state (not empty), out_of_memory; nothing
  // changed.
  Result<void> load(std::span<const uint8_t> bytes);

  // Stops the process with a description if the books do not balance. For tests; O(everything).
  // Checks less when memory is short.
  void check_invariants() const;

 private:
  friend class sequence::SegmentStore;
  // Makes a cache that is part of something else: its creation is not logged. Its first group has
  // full attention and the smallest blocks.
  static Result<PagedCache> create_part(const Options& options);
  // From now on appends each evicted block (not those that go for other reasons) to `into`, while
  // it has capacity; null stops that. Read it between calls.
  void note_evicted(std::vector<BlockId>* into);
  // Whether a lookup can find this block of the first group.
  bool holds(BlockId block) const;
  explicit PagedCache(cache::Core* core) noexcept : core_(core) {}
  cache::Core* core_;
};

}  // namespace stemma
