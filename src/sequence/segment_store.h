// SegmentStore: what was saved of [0, n), in segments that all prompts with the same words share.
//
// A segment is a block of a PagedCache whose memory is a ByteStore. The tree, leases, eviction,
// pins and quotas are PagedCache's; the slot of a block holds the engine's bytes. All segments but
// the last of a path have segment_tokens positions. See docs/decisions/0012.
//
// With a listener each slot has the label of what it holds. A segment that was evicted (not one
// that was forgotten) stays whole in its slot until room is needed: the Saver of the next capture
// is told before the capture writes.
//
// Invariant:  a segment that is found was saved whole, under the words it is found by. Slots in
//             evicted() still have the bytes they were evicted with.
// Threading:  one thread at a time; reach() on any thread.
// Cost:       reach() and hold() are one lookup; capture() writes only what is not there yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sequence/part_label.h"
#include "stemma/byte_store.h"
#include "stemma/cache.h"
#include "stemma/sequence_engine.h"
#include "stemma/sequence_stats.h"

namespace stemma::sequence {

class RangeMover;
class SegmentWriter;

struct SavedSegment {
  uint32_t slot = 0;
  Range saved;   // The positions that its bytes have.
  Range wanted;  // The positions that a plan needs.
};

// Saves ranges of a sequence for a capture.
class Saver {
 public:
  virtual ~Saver() = default;
  // The most positions for one save(), if the store has a mover; 0: one segment at a time.
  virtual uint32_t most_tokens() const noexcept { return 0; }
  // Up to where a range may be read at once: after its begin, at most its end.
  virtual uint32_t reach(Range range) { return std::min(range.end, range.begin + most_tokens()); }
  // The size of a segment.
  virtual Result<uint64_t> size(Range range) = 0;
  virtual Result<uint64_t> save(Range range, std::span<uint8_t> out) = 0;
  // The bytes of a segment, if they are in memory already. Then threads copy them, if the store has
  // a mover, and save() is not called. Asked for segments in ascending order. Empty: save() is
  // called.
  virtual std::span<const uint8_t> bytes_of(Range /*segment*/) { return {}; }
  // Waits for these threads.
  virtual void wait_for(SegmentWriter& writer);
  // There is room now, and nothing was overwritten yet: evicted() is still whole. `there` are the
  // slots of what was saved before.
  virtual void prepared(std::span<const BlockId> /*there*/) {}
  // A segment lies in its slot, and is about to be found. Returns its label.
  virtual PartLabel saved(Range /*segment*/, std::span<const uint8_t> /*bytes*/) { return {}; }
};

struct Captured {
  CaptureFate fate = CaptureFate::saved;
  uint64_t bytes = 0;
};

class SegmentStore {
 public:
  struct Settings {
    uint64_t budget_bytes = 0;  // Slots and their index. A budget from 16 MiB on is never exceeded.
    uint32_t segment_tokens = 64;
    uint64_t segment_bytes = 0;  // The most bytes that segment_tokens positions take.
    uint64_t label_bytes = 0;    // Of a segment's label; 0: there are no labels, and no evicted().
    std::vector<TenantQuota> quotas = {};
    std::string policy = "lru";
    const Clock* clock = nullptr;
    // For an engine that moves ranges; both outlive the store. Null: segments go one by one.
    const SequenceEngine* engine = nullptr;
    RangeMover* mover = nullptr;
  };
  // Returns null if the budget has no room for a single segment.
  static Result<std::unique_ptr<SegmentStore>> create(const Settings& settings);
  ~SegmentStore();
  SegmentStore(const SegmentStore&) = delete;
  SegmentStore& operator=(const SegmentStore&) = delete;

  struct Reach {
    uint32_t usable = 0;
    uint32_t matched = 0;
    bool scope_known = false;
  };
  // How much of the prompt, at most `at_most` positions, is saved. Throws std::bad_alloc, as hold()
  // does.
  Reach reach(const Scope& scope, const Prompt& prompt, uint32_t at_most) const;

  // Holds what reach() finds, so that it stays. To hold a part of a segment takes one more slot,
  // and may evict the least wanted segment. If all slots are in use, only whole segments are held.
  struct Hold {
    Lease lease;
    uint32_t usable = 0;
    uint32_t matched = 0;
    bool scope_known = false;
  };
  Hold hold(const Scope& scope, const Prompt& prompt, uint32_t at_most, TenantId tenant,
            const Retain& retain);
  // Lists the segments of [range.begin, range.end) of what is held. Error: out_of_memory.
  Result<void> list(const Hold& hold, Range range, std::vector<SavedSegment>& out) const;
  // Error: corrupt.
  Result<std::span<const uint8_t>> read(uint32_t slot) { return bytes_->read(slot); }
  uint64_t size(uint32_t slot) const noexcept { return bytes_->size(slot); }

  // Saves all of the prompt that is not there yet. (A SegmentWriter does it bit by bit.)
  Captured capture(const Scope& scope, const Prompt& prompt, TenantId tenant, const Retain& retain,
                   Saver& saver);
  // Forgets the segments in which position `from` of the prompt is found, and all that follow them.
  // Throws std::bad_alloc.
  void forget(const Scope& scope, const Prompt& prompt, uint32_t from);

  // As PagedCache::truncate. Returns how many segments are no longer found.
  Result<uint32_t> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
    forget_evicted();
    return cache_.truncate(scope, prompt, keep);
  }
  void drop_scope(const Scope& scope) {
    forget_evicted();
    cache_.drop_scope(scope);
  }
  void drop_all() {
    forget_evicted();
    (void)cache_.reset(OnBusy::defer);
  }

  // ---- For a listener ----
  // Slots of what was evicted and is not overwritten yet. Each call that forgets empties this list
  // too, because it is not known whose these segments were.
  std::span<const BlockId> evicted() const noexcept { return evicted_; }
  void forget_evicted() noexcept;
  // The label of what a slot holds. Empty: it was saved without one, or the slot is empty.
  const PartLabel& label(uint32_t slot) const noexcept { return labels_[slot]; }
  uint32_t labels() const noexcept { return static_cast<uint32_t>(labels_.size()); }
  // Requires a label there.
  void set_rank(uint32_t slot, uint64_t rank) noexcept { labels_[slot].rank = rank; }
  bool holds(uint32_t slot) const { return cache_.holds(BlockId{slot}); }
  void end_session(SessionId session) { cache_.end_session(session); }
  // The largest prompt that fits, in positions.
  uint64_t capacity_tokens() const noexcept { return uint64_t{slots_} * tokens_; }
  uint64_t used_bytes() const;  // Of slots that are not free.
  // Positions that can be saved without evicting anything.
  uint64_t free_tokens() const;
  Stats stats() const { return cache_.stats(); }
  Result<std::vector<CachedPath>> contents() const { return cache_.contents(); }
  void check_invariants() const { cache_.check_invariants(); }

 private:
  friend class SegmentWriter;
  friend class SegmentLoader;

  SegmentStore(PagedCache cache, std::unique_ptr<ByteStore> bytes, const Settings& settings,
               uint32_t slots);
  void set_label(uint32_t slot, PartLabel label) noexcept {
    if (!labels_.empty()) labels_[slot] = std::move(label);
  }
  void forget_label(uint32_t slot) noexcept { set_label(slot, {}); }
  // The exact size of a range, for an engine that moves ranges.
  uint64_t bytes_of(Range range) const noexcept {
    return traits_.fixed_bytes + uint64_t{range.end - range.begin} * traits_.bytes_per_token;
  }

  PagedCache cache_;
  std::unique_ptr<ByteStore> bytes_;
  std::vector<uint32_t> saved_tokens_;  // By slot: how many positions its bytes have.
  std::vector<PartLabel> labels_;       // By slot; empty without a listener.
  std::vector<BlockId> evicted_;        // Filled by cache_; never grows.
  uint32_t tokens_;
  uint32_t slots_;
  uint64_t slot_bytes_;
  const Clock* clock_;
  const SequenceEngine* engine_;
  RangeMover* mover_;
  EngineTraits traits_;           // Set for an engine that moves ranges.
  uint32_t range_tokens_ = 0;     // The most that fits into a mover's buffer; whole segments.
  uint32_t writing_buffers_ = 0;  // The mover's buffers that writers have.
};

}  // namespace stemma::sequence
