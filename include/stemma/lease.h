// A Lease is a request's handle on everything it uses in a PagedCache.
//
// While it lives, the blocks it reuses neither move nor change, and only this lease may write the
// blocks it drafted. Positions move through it in one direction:
//
//   0 ........ reused ........ committed ........ length ........ capacity
//   | found in cache | written and findable | words known    | room drafted |
//
// Invariant:  reused <= committed <= length <= capacity, in positions (committed == reused until
//             the first commit; rewind() may lower all four).
//             Blocks before `committed` are read-only; the block that holds position `committed`
//             is private to this lease.
// Threading:  one thread at a time; different threads may use different leases at once. Any thread
//             may release or destroy it.
// Ownership:  move-only. Keeps the cache's internals alive, so it may outlive its PagedCache.
// Memory:     calls before the end may fail with out_of_memory; nothing has changed then: call
//             again, or end the lease. Ending it, copies_done() and adopt_canonical() need none.
// Cost:       release is O(1) for all reused blocks, plus O(1) per block that goes back.
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
class Core;
}  // namespace cache

// What a commit did.
struct Commit {
  uint32_t committed = 0;  // The number of positions that was passed in.
  uint32_t published = 0;  // Blocks that this call made findable (first group's grid).
  // Blocks that another request had already cached. The lease keeps its own copies until release,
  // or gives them up at once with adopt_canonical().
  uint32_t duplicates = 0;
};

// A saved state of a recurrent group.
struct Checkpoint {
  uint32_t depth = 0;       // The number of positions it follows; 0: there is no checkpoint.
  BlockId slot = kNoBlock;  // The slot that holds it.

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

struct ReleaseOptions {
  const Retain* retain = nullptr;  // Replaces LeaseOptions::retain.
  Fence* fence = nullptr;          // The lease's blocks are not reused before it signals.
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
  // What the lookup found and what is left to do; shrink_to() and copies_failed() update it.
  Report report() const noexcept;

  // ---- Before computing -----------------------------------------------------------------------

  // Part-blocks to copy (and recurrent states to load) before anything reads them. Their sources
  // stay untouched until copies_done(). Empty when there is nothing to copy. If the pool has no
  // room for the source and its copy, the lease may get the source itself: the block that holds
  // position `reused` then already contains the positions before `reused`. So write from `reused`
  // on, and never clear a block.
  std::span<const BlockCopy> copies() const noexcept;
  // Reports that all copies() are done; harmless if there were none. Error: wrong_state (already
  // released).
  Result<void> copies_done();
  // Reports that the copies failed: the lease steps back to what it can reuse without them; see
  // report(). Error: wrong_state (none are pending); out_of_blocks when the lease cannot get blocks
  // to replace what it gave up (it is then unchanged and its copies still pending: release it).
  Result<void> copies_failed();
  // Runs copies() through Options::block_io and waits for the outcome. If ok, the copies are done;
  // if copy_failed, the lease has stepped back. Error: unsupported, copy_failed.
  Result<void> run_copies();

  // Gives back the reused positions beyond n, so that they are computed instead. Ranks use it to
  // agree on one length. Returns how many are reused now: n, or fewer if a media item, a window or
  // a recurrent group cannot stop exactly there (so ranks compare results and shrink again to the
  // smallest).
  // Drafters that read the model's hidden states (EAGLE, MTP) use it too: no block has those of the
  // last reused position, so shrink to reused() - 1 and evaluate that position again. (If nothing
  // can be copied, shrink by a whole block.) The drafter's own layers are a group like any other.
  // Requires: nothing is committed beyond reused. Error: out_of_range (n > reused), wrong_state,
  // out_of_blocks (nothing changed).
  Result<uint32_t> shrink_to(uint32_t n);

  // The media items that `reused` does not wholly cover, as indices into Prompt::media. Valid until
  // the next call on this lease.
  std::span<const uint32_t> media_to_process() const noexcept;

  // Logits anchored at the end of the prompt, if LookupOptions::want_logits found them: nothing
  // needs to be computed. Empty otherwise, and after rewind(). A span returned earlier stays valid
  // while the lease lives.
  std::span<const float> logits() const noexcept;

  // ---- While computing ------------------------------------------------------------------------

  // Appends tokens (sampled or speculative) and drafts room for them. All or nothing.
  // Error: out_of_blocks, over_quota, invalid_argument (a token of 2^31 or more), out_of_range
  // (more than 2^31 - 1 positions).
  Result<void> extend(std::span<const Token> tokens);
  // Drafts room for positions [0, positions), even if their tokens are not known yet. All or
  // nothing. Error: out_of_blocks, over_quota, out_of_range (as extend()).
  Result<void> reserve(uint32_t positions);

  // Reports that the KV of positions [0, n) is written. Whole blocks before n become findable at
  // their true positions; a part-block becomes a copy source at release. Idempotent; n need not be
  // aligned. Error: out_of_range (beyond length, or below committed), wrong_state (copies pending).
  Result<Commit> commit(uint32_t n);
  // Replaces private duplicates by the canonical blocks, which block_table() then names. Returns
  // how many duplicates it gave up.
  uint32_t adopt_canonical();

  // Returns another lease over positions [0, committed), rounded down to a whole unit. It shares
  // whole blocks and copies a part-block (see its copies()). Error: out_of_blocks, over_quota,
  // wrong_state, out_of_range (`committed` is inside a media item, and a window or recurrent group
  // cannot go back to the item's start).
  Result<Lease> fork();

  // Forgets positions from n on (rejected speculation, a retry) and gives back emptied blocks. If n
  // lies inside published blocks, the cut block is copied, as after a fork. If n is below
  // `committed`, recurrent states are loaded from a checkpoint at exactly n (see copies()).
  // Published blocks stay cached. The engine must no longer touch the blocks that are given up;
  // shrink_to() and copies_failed() require that too.
  // Error: out_of_range (n > length, inside a media item, or a window or recurrent group can no
  // longer serve n), busy (a fork still copies from the block), wrong_state (copies pending),
  // out_of_blocks; nothing changed.
  Result<void> rewind(uint32_t n);

  // ---- Anchors --------------------------------------------------------------------------------

  // Drafts a slot of a recurrent group to save the running state into. It cannot be found before
  // commit_checkpoint(). One at a time per group. Error: unsupported, out_of_blocks, wrong_state.
  Result<BlockId> draft_checkpoint(GroupIndex group);
  // Reports that the drafted slot holds the state after exactly `depth` positions. Error:
  // out_of_range (not within committed, or inside a media item), wrong_state (nothing drafted); the
  // slot then stays drafted and goes back with the lease.
  Result<void> commit_checkpoint(GroupIndex group, uint32_t depth);
  // Finds the deepest checkpoint of this lease's words that is no deeper than `at_most` and the
  // committed positions, and holds it for reading. Any lease may have saved it. The checkpoint is
  // neither evicted nor changed until the lease ends or the next call for this group. (A checkpoint
  // inside a block that the lease shares is found only if reuse ended there.) Error: unsupported.
  Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const;
  // Keeps a copy of the logits after exactly `depth` positions, replacing older ones. Counts
  // against Options::logits_bytes. Error: unsupported, out_of_range, out_of_memory (larger than the
  // budget).
  Result<void> attach_logits(uint32_t depth, std::span<const float> logits);

  // ---- The end --------------------------------------------------------------------------------

  // Ends the lease. Whole blocks stay cached, the committed part of the last block becomes a copy
  // source, and drafts go back. Error: wrong_state (already released), invalid_argument (retain);
  // nothing changed then. (A cache with content keys that has no memory to compute the part-block's
  // key does not keep the part-block.)
  Result<void> release(const ReleaseOptions& options = {});
  // The same, but the part-block is not published.
  Result<void> abandon(Fence* fence = nullptr);

  // ---- What kernels need ----------------------------------------------------------------------

  // How many blocks of `group` hold [0, capacity). 0 for a recurrent or unknown group.
  uint32_t block_count(GroupIndex group) const noexcept;
  // Writes the block ids in order, then `pad` to the end of `out`. Blocks that fell out of a window
  // are `pad` too. Returns how many entries come before the padding. The default `pad` is not a
  // block. If your kernel reads padding blocks, pass one that it may read and that no lease gets.
  // Error: out_of_range (`out` is too small), invalid_argument (no such paged group).
  Result<uint32_t> block_table(GroupIndex group, std::span<BlockId> out,
                               BlockId pad = kNoBlock) const;
  // The same, with `pad` for each block that this lease may not write. A lease that fills
  // (LeaseOptions::fill_to) writes the blocks in this table before it commits.
  Result<uint32_t> draft_table(GroupIndex group, std::span<BlockId> out,
                               BlockId pad = kNoBlock) const;
  // out[i] = block * block_tokens + offset for position begin + i; `pad` where there is no block.
  Result<void> slot_mapping(GroupIndex group, uint32_t begin, std::span<int64_t> out,
                            int64_t pad = -1) const;

 private:
  friend class PagedCache;
  friend class cache::Core;
  Lease(cache::Core* core, cache::LeaseRecord* record) noexcept : core_(core), record_(record) {}
  cache::Core* core_ = nullptr;  // Lives as long as its PagedCache or any lease.
  cache::LeaseRecord* record_ = nullptr;
};

// Writes the context lengths (committed positions) of several leases, as attention kernels need
// them. Error: out_of_range when `out` is too small.
Result<void> context_lengths(std::span<const Lease* const> leases, std::span<uint32_t> out);

}  // namespace stemma
