// Books: the pages of each entry, the record of the table that describes it, and the order of
// eviction. They decide and do no I/O.
//
// A record's number is its place in the table. It is in one of these states:
//
//   room_for() --> writing --publish()--> present --retire()--> dying --recycle()--> gone
//                     '------ retire() -----------------------------^
//                                           present --evicted--> stale --take_stale()--> dying
//
// find() finds `present` records. A `dying` one is hidden: its record on disk must be overwritten
// with zeros before its number is reused, and its pages are free once nobody reads them. A `stale`
// one was evicted: other entries already have its pages. Its record on disk is overwritten by the
// next put, or with zeros when there is time, or before a removal of its key is done. Pages that
// cannot be read or written stay with their record, which is `retired` then.
//
// Room is a free run of pages, or up to kMostExtents runs if none is large enough, or new pages at
// the end of the slab, or pages of entries that the policy evicts. If the free pages are enough but
// too scattered, neighbours of the last evicted entry go too, the longer unused first.
//
// Invariant:  a page has at most one record; a record being read or written, or newer than asked
//             for, is never evicted; records have at most max_pages pages together.
// Threading:  one thread at a time.
// Cost:       104 bytes a record, 28 a run of pages, 2 to 4 for the hash, 8 for the free records
//             and the policy's 8 (18 with several priorities): about 153 bytes an entry of one run.
//             No allocation in steady state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/index_lists.h"
#include "stemma/retention.h"
#include "stemma/tier/tier.h"
#include "tier/disk/page_runs.h"

namespace stemma::tier::disk {

using RecordId = uint32_t;
inline constexpr RecordId kNoRecord = kNoCell;

struct Record {
  enum class State : uint8_t { gone, writing, present, dying, stale, retired };

  ContentKey chain;
  uint64_t bytes = 0;
  uint64_t layout = 0;
  uint64_t sum = 0;
  uint64_t parent = 0;  // EntryInfo::parent.
  uint64_t stamp = 0;   // Of its last use, in the books' own count.
  uint32_t begin = 0;
  uint32_t end = 0;
  RecordId next = kNoRecord;  // In its hash bucket.
  RunId run = kNoRun;         // The first of its pages.
  uint32_t epoch = 0;         // The tier's: the syncs between which it was written.
  uint16_t pins = 0;
  uint16_t bad_runs = 0;  // One bit each.
  State state = State::gone;
  EntryKind kind = EntryKind::block;
  uint8_t group = 0;
  bool has_words : 1 = false;
  bool recycled : 1 = false;  // Overwritten on disk while still being read.
  Priority priority = kDefaultPriority;

  EntryKey key() const noexcept { return {.chain = chain, .kind = kind, .group = group}; }
  EntryInfo info() const noexcept {
    return {.begin = begin,
            .end = end,
            .layout = layout,
            .bytes = bytes,
            .words = has_words ? end - begin : 0,
            .parent = parent};
  }
};
static_assert(sizeof(Record) <= 104);

class Books {
 public:
  struct Options {
    uint64_t max_pages = 0;
    std::string_view policy = "lru";
  };
  // Error: invalid_argument (no such policy), out_of_memory.
  static Result<std::unique_ptr<Books>> create(const Options& options);

  // ---- Looking ----
  RecordId find(const EntryKey& key) const noexcept { return look(key, Record::State::present); }
  RecordId find_writing(const EntryKey& key) const noexcept {
    return look(key, Record::State::writing);
  }
  RecordId find_stale(const EntryKey& key) const noexcept {
    return look(key, Record::State::stale);
  }
  const Record& operator[](RecordId id) const noexcept { return records_[id]; }
  // The extents of its body, in order; returns how many. `only`: those with these bits.
  uint32_t extents(RecordId id, std::span<Extent, kMostExtents> out,
                   uint32_t only = ~0U) const noexcept;
  uint64_t entries() const noexcept { return present_; }
  uint64_t used_bytes() const noexcept { return used_pages_ * kPage; }  // Without retired ones.
  uint64_t retired_bytes() const noexcept { return retired_pages_ * kPage; }
  uint64_t pages() const noexcept { return runs_.pages(); }  // Of the slab.
  uint64_t evictions() const noexcept { return evictions_; }
  uint64_t evicted_bytes() const noexcept { return evicted_bytes_; }
  uint64_t stamp() const noexcept { return stamp_; }
  uint64_t next_stamp() noexcept { return ++stamp_; }
  RecordId records() const noexcept { return static_cast<RecordId>(records_.size()); }
  uint64_t bytes() const noexcept;  // Of memory.

  // ---- Room ----
  struct Room {
    enum class What : uint8_t {
      taken,   // `record` is the caller's, in state writing.
      grow,    // Add `pages` to the slab, call grown(), ask again; or refuse_growth().
      none,    // All is in use, or newer than `not_after`.
      memory,  // No memory.
    };
    What what = What::none;
    RecordId record = kNoRecord;
    uint32_t pages = 0;
  };
  // Evicts nothing used after `not_after` (a stamp).
  Room room_for(const EntryKey& key, const EntryInfo& info, Priority priority, uint64_t now_ns,
                uint64_t not_after);
  // False: no memory.
  bool grown(uint32_t pages);
  // For now, the slab must not grow.
  void refuse_growth(bool refused) noexcept { growth_refused_ = refused; }

  // ---- A record's life ----
  void publish(RecordId id, uint64_t sum, uint32_t epoch, uint64_t now_ns) noexcept;
  void touch(RecordId id, uint64_t now_ns) noexcept;
  void pin(RecordId id) noexcept { ++records_[id].pins; }
  void unpin(RecordId id) noexcept;
  // `bad_runs`: bits of the extents that must not be used again.
  void retire(RecordId id, uint32_t bad_runs = 0) noexcept;
  // Retired pages may be used again; the record is dying. Returns whether it was recycled before
  // and must be overwritten again.
  bool restore(RecordId id) noexcept;
  // Its record on disk now is zeros, or names its retired extents. Requires: dying.
  void recycle(RecordId id) noexcept;
  // Its page of the table must not be used for other records.
  void lose_table_page(RecordId id) noexcept;
  // Returns an evicted record whose record on disk should become zeros; it is dying now. `id`: only
  // this one.
  RecordId take_stale(RecordId id = kNoRecord) noexcept;

  // ---- Purging ----
  // Hides what the purge takes: present records are retired, evicted ones taken. Each is pinned, so
  // that it keeps its pages until they are overwritten, and listed in `out`. Tells how many entries
  // and bytes were present. Throws std::bad_alloc, with nothing changed.
  Purged condemn(const Purge& what, std::vector<RecordId>& out);
  // All free runs of pages. Throws std::bad_alloc.
  std::vector<Extent> free_extents() const;

  // ---- Uses ----
  // A page of stamps that changed since this last returned it. False: there is none.
  bool take_uses(uint32_t& page, Uses& out) noexcept;

  // ---- For open() ----
  struct Adopted {
    RecordId record = kNoRecord;
    EntryKey key;
    EntryInfo info;
    uint64_t sum = 0;
    uint64_t stamp = 0;
    Priority priority = kDefaultPriority;
  };
  struct Placed {
    Extent extent;
    RecordId record = kNoRecord;
    uint32_t index = 0;  // Among its extents.
    RunId run = kNoRun;
  };
  // Records [0, count) are in the table. Throws std::bad_alloc; false: no memory.
  bool begin_adopting(RecordId count, std::vector<bool> bad_table_pages);
  // Call in any order; find() finds nothing before end_adopting(). Requires: no such key was
  // adopted.
  void adopt(const Adopted& entry) noexcept;
  void adopt_stale(RecordId id, const EntryKey& key) noexcept;
  void adopt_retired(RecordId id) noexcept;
  // All extents of adopted records, in a slab of this many pages; no two overlap. Throws
  // std::bad_alloc.
  void place(std::vector<Placed>& all, uint64_t pages);
  // In order of eviction, first to last.
  void end_adopting(std::span<const RecordId> order) noexcept;
  // Evicts entries beyond max_pages, then gives up pages until the slab has no more than that
  // either. Adds the pages that must become holes. Throws std::bad_alloc.
  void fit_into_capacity(std::vector<Extent>& holes);

  template <class Visit>
  void each_present(Visit&& visit) const {
    for (RecordId id = 0; id < records_.size(); ++id) {
      if (records_[id].state == Record::State::present) visit(id, records_[id]);
    }
  }
  // Stops the process with a description if the books do not balance.
  void check_invariants() const;

 private:
  enum List : uint32_t { kStale, kClean };
  static constexpr uint32_t kMostRecords = 1U << 27U;

  Books() = default;
  static Touch as_touch(uint64_t now_ns, Priority priority) noexcept {
    Touch touch;
    touch.now_ns = now_ns;
    touch.priority = priority;
    return touch;
  }
  size_t bucket(const EntryKey& key) const noexcept;
  RecordId look(const EntryKey& key, Record::State state) const noexcept;
  void hash_in(RecordId id) noexcept;
  void hash_out(RecordId id) noexcept;
  void grow_hash();
  bool add_record();
  RecordId take_record(const EntryKey& key);
  bool usable(RecordId id) const noexcept;
  void describe(RecordId id, const EntryKey& key, const EntryInfo& info) noexcept;
  RunId release_pages(RecordId id) noexcept;
  void forget(RecordId id) noexcept;  // From hash and policy.
  RunId evict(RecordId id) noexcept;
  RecordId victim(uint64_t now_ns) noexcept;
  RecordId neighbour(RunId place, uint64_t not_after, Priority most) const noexcept;
  bool may_grow() const noexcept { return !growth_refused_ && runs_.pages() < max_pages_; }
  void mark_use(RecordId id) noexcept { uses_changed_[id / kUsesInPage] = true; }

  uint64_t max_pages_ = 0;
  bool growth_refused_ = false;
  std::unique_ptr<RetentionPolicy> policy_;
  std::vector<Record> records_;
  base::IndexLists free_;  // Stale records, and those with zeros on disk.
  std::vector<RecordId> buckets_;
  PageRuns runs_;
  std::vector<bool> bad_table_pages_;
  std::vector<bool> uses_changed_;
  uint32_t uses_next_ = 0;
  uint64_t stamp_ = 0;
  uint64_t present_ = 0;
  uint64_t used_pages_ = 0, retired_pages_ = 0;
  uint64_t evictions_ = 0, evicted_bytes_ = 0;
};

}  // namespace stemma::tier::disk
