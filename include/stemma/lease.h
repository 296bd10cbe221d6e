// A Lease is a request's handle on everything it uses in a PagedCache.
//
// While it lives, the blocks it reuses stay where they are with the contents they have, and the
// blocks it drafted are its own to write. Positions move through it in one direction:
//
//   0 ........ reused ........ committed ........ length ........ capacity
//   | found in cache | written and findable | words known    | room drafted |
//
// Invariant:  reused <= committed <= length <= capacity, in positions (committed == reused until
//             the first commit; after rewind() all of them may be smaller).
//             Blocks before `committed` are read-only; the block that holds position `committed`
//             is private to this lease.
// Threading:  one thread at a time; different leases on different threads at once. May be released
//             or destroyed on any thread.
// Ownership:  move-only. Keeps the cache's innards alive, so it may outlive its PagedCache.
// Memory:     calls before the end may answer out_of_memory, with nothing changed: call again, or end
//             the lease. Ending it needs no memory, nor do copies_done() and adopt_canonical().
// Cost:       release is O(1) for what was reused, O(1) per block that goes back.
#pragma once

#include <cstdint>
#include <span>

#include "stemma/block_io.h"
#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/retention.h"
#include "stemma/stats.h"

namespace stemma {

namespace cache {
struct LeaseRecord;
class Shared;
}  // namespace cache

// What a commit did. `duplicates` blocks were already cached by somebody else: this lease keeps
// its own copy until release, or gives it up at once with adopt_canonical().
struct Commit {
  uint32_t committed = 0;  // Positions now written, as given.
  uint32_t published = 0;  // Blocks that became findable by this call (first group's grid).
  uint32_t duplicates = 0;
};

// A saved state of a recurrent group.
struct Checkpoint {
  uint32_t depth = 0;       // After exactly so many positions; 0: there is none.
  BlockId slot = kNoBlock;  // Where it is.

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

struct ReleaseOptions {
  const Retain* retain = nullptr;  // Replaces what lease() was told.
  Fence* fence = nullptr;          // Nothing is reused before it signals.
};

class Lease {
 public:
  Lease() noexcept = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();  // release() without options.

  bool active() const noexcept { return record_ != nullptr; }
  explicit operator bool() const noexcept { return active(); }

  // Positions; see the picture above. 0 when not active.
  uint32_t reused() const noexcept;
  uint32_t committed() const noexcept;
  uint32_t length() const noexcept;
  uint32_t capacity() const noexcept;
  // What the lookup found and what is left to do; kept true by shrink_to() and copies_failed().
  Report report() const noexcept;

  // ---- Before computing -----------------------------------------------------------------------

  // Part-blocks to copy (and recurrent states to load) before anything reads them. Their sources
  // stay untouched until copies_done(). Empty when nothing is to be copied. Where a pool has no room for a
  // copy beside its source, the lease may have taken the source over: the block that holds position
  // `reused` then holds the positions before it already. So write from `reused` on, and clear no block.
  std::span<const BlockCopy> copies() const noexcept;
  // All copies() are done, also where there were none. Error: wrong_state (already released).
  Result<void> copies_done();
  // The copies could not be done: the lease steps back to what holds without them; report() says.
  // Error: wrong_state (none are pending); out_of_blocks when the lease cannot get blocks in place
  // of what it gave up (the lease is then unchanged and still pending: release it).
  Result<void> copies_failed();
  // Runs copies() through Options::block_io and settles the outcome: after ok the copies are done,
  // after copy_failed the lease has stepped back. Blocks until reported. Error: unsupported.
  Result<void> run_copies();

  // Gives back what was reused beyond n (agreement between ranks): the rest is to be computed.
  // Returns what is reused now: n, or less where a media item, a window or a recurrent group cannot
  // stop exactly there (so ranks compare what they got and shrink again to the smallest).
  // Also for who drafts with the model's hidden states (EAGLE, MTP): those of the last reused
  // position are in no block, so shrink to reused() - 1 and evaluate that position again (reused()
  // less a block where nothing can be copied). The drafter's own layers are a group like any other.
  // Requires nothing committed beyond reused. Error: out_of_range (n > reused), wrong_state,
  // out_of_blocks (nothing changed).
  Result<uint32_t> shrink_to(uint32_t n);

  // Which of the prompt's media items are not wholly covered by `reused`, as indices into
  // Prompt::media. Valid until the next call on this lease.
  std::span<const uint32_t> media_to_process() const noexcept;

  // Logits anchored at the end of the prompt, when LookupOptions::want_logits found them: nothing
  // needs to be computed. Empty otherwise, and after rewind(). What it pointed to stays valid while
  // the lease lives.
  std::span<const float> logits() const noexcept;

  // ---- While computing ------------------------------------------------------------------------

  // Appends tokens (sampled, or speculative) and drafts room for them. All or nothing.
  // Error: out_of_blocks, over_quota, invalid_argument (a token of 2^31 or more).
  Result<void> extend(std::span<const Token> tokens);
  // Drafts room for positions [0, positions), words known or not (lookahead). All or nothing.
  Result<void> reserve(uint32_t positions);

  // Says that the KV of positions [0, n) is written. Whole blocks before n become findable under
  // their true positions; a part-block becomes a copy source at release. Idempotent; n never has to
  // be aligned. Error: out_of_range (beyond length, or below committed), wrong_state (copies
  // pending).
  Result<Commit> commit(uint32_t n);
  // Gives up private duplicates in favour of the canonical blocks; afterwards block_table() names
  // those. Returns how many were given up.
  uint32_t adopt_canonical();

  // Another lease over the same positions [0, committed), down to a whole unit: whole blocks are
  // shared, a part-block is copied (see the new lease's copies()). Error: out_of_blocks, over_quota,
  // wrong_state, out_of_range (committed inside a media item to whose start a window or recurrent
  // group cannot go back).
  Result<Lease> fork();

  // Forgets positions from n on (rejected speculation, a retry). Blocks emptied by it go back.
  // Below `committed` the cut block is copied, as after a fork, and recurrent states are loaded from
  // a checkpoint at exactly n (see copies()); what was committed stays cached. Requires: no work of
  // the engine still touches what is given up; the same goes for shrink_to() and copies_failed().
  // Error: out_of_range (n > length, inside a media item, or a window or recurrent group can no
  // longer serve n), busy (a fork still copies from the block), wrong_state (copies pending),
  // out_of_blocks; nothing changed.
  Result<void> rewind(uint32_t n);

  // ---- Anchors --------------------------------------------------------------------------------

  // A slot of a recurrent group to save the running state into; not findable before
  // commit_checkpoint(). One at a time per group. Error: unsupported, out_of_blocks, wrong_state.
  Result<BlockId> draft_checkpoint(GroupIndex group);
  // The drafted slot now holds the state after exactly `depth` positions. Error: out_of_range (not
  // within committed, or inside a media item), wrong_state (nothing drafted); the slot stays drafted
  // then, and goes back with the lease.
  Result<void> commit_checkpoint(GroupIndex group, uint32_t depth);
  // The deepest checkpoint of this lease's words at or below `at_most` and committed positions, its own or
  // another's, to be read: it is held, and so neither goes nor changes, until the lease ends or the next
  // call for this group. (One inside a block that the lease shares is not found, unless reuse ended
  // there.) Error: unsupported.
  Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const;
  // Keeps the logits after exactly `depth` positions, replacing older ones. Copied; counted against
  // Options::logits_bytes. Error: unsupported, out_of_range, out_of_memory (larger than the budget).
  Result<void> attach_logits(uint32_t depth, std::span<const float> logits);

  // ---- The end --------------------------------------------------------------------------------

  // Whole blocks stay cached, the committed part of the last block becomes a copy source, drafts go
  // back. Error: wrong_state (already released), invalid_argument (retain); nothing changed then.
  // (A cache with content keys that has no memory to make the part-block's goes without it.)
  Result<void> release(const ReleaseOptions& options = {});
  // The same, but the part-block is not published.
  Result<void> abandon(Fence* fence = nullptr);

  // ---- What kernels need ----------------------------------------------------------------------

  // Blocks of `group` that hold [0, capacity). 0 for a recurrent or unknown group.
  uint32_t block_count(GroupIndex group) const noexcept;
  // Writes the block ids in order, then `pad` to the end of `out`; positions that fell out of a
  // window are `pad` too. Returns how many were written before padding. The default is no block:
  // for a kernel that reads what stands under padding, give one that it may read and that no lease
  // gets.
  // Error: out_of_range (`out` is too small), invalid_argument (no such paged group).
  Result<uint32_t> block_table(GroupIndex group, std::span<BlockId> out,
                               BlockId pad = kNoBlock) const;
  // The same, with `pad` wherever the block is not this lease's own to write. What a lease that fills
  // (LeaseOptions::fill_to) has to write before it commits.
  Result<uint32_t> draft_table(GroupIndex group, std::span<BlockId> out,
                               BlockId pad = kNoBlock) const;
  // out[i] = block * block_tokens + offset for position begin + i; `pad` where there is no block.
  Result<void> slot_mapping(GroupIndex group, uint32_t begin, std::span<int64_t> out,
                            int64_t pad = -1) const;

 private:
  friend class PagedCache;
  friend class cache::Shared;
  Lease(cache::Shared* shared, cache::LeaseRecord* record) noexcept
      : shared_(shared), record_(record) {}
  cache::Shared* shared_ = nullptr;  // Lives as long as its PagedCache or any lease.
  cache::LeaseRecord* record_ = nullptr;
};

// Writes the context lengths (committed positions) of several leases, as attention kernels want
// them. Error: out_of_range when `out` is too small.
Result<void> context_lengths(std::span<const Lease* const> leases, std::span<uint32_t> out);

}  // namespace stemma
