// SlotBooks: which entry lies in which slot of which chunk, and which goes next. It decides and does
// no I/O.
//
// A record is an entry in a slot, in one of three states:
//
//   take() --> writing --publish()--> present --retire()--> dying --free()--> gone
//                 '------ retire() ----------------------------^
//
// `present` is what find() finds; `dying` is out of sight, but its slot still belongs to it: its bytes are
// being read, or its header must be zeroed before the slot can be somebody else's. Room for a new entry
// is a free slot of its class; else another chunk; else the slot of the one that the policy gives up, if
// it is of that class; else a whole chunk of another class, the one whose entries were used the longest
// ago on average, gives up its entries and changes.
//
// Invariant:  a slot has at most one record; a pinned or unfinished one is never given up; there are never
//             more chunks than max_chunks.
// Threading:  one thread at a time.
// Cost:       88 bytes a record, 4 a hash bucket (1 to 2 records each), 4 a slot, and the policy's 8
//             (13 with several priorities): about 105 bytes an entry. No allocation in steady state. A
//             chunk's change looks at every chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/index_lists.h"
#include "stemma/retention.h"
#include "stemma/tier.h"
#include "tier/disk/layout.h"

namespace stemma::tier::disk {

using RecordId = uint32_t;
inline constexpr RecordId kNoRecord = kNoCell;

struct Record {
  enum class State : uint8_t { gone, writing, present, dying };

  ContentKey chain;
  uint64_t bytes = 0;
  uint64_t layout = 0;
  uint64_t stamp = 0;  // Of its last use, by the books' own count.
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t chunk = 0;
  uint32_t slot = 0;
  RecordId next = kNoRecord;  // In its hash bucket, or among the free.
  uint16_t pins = 0;
  State state = State::gone;
  EntryKind kind = EntryKind::block;
  uint8_t group = 0;
  bool has_words = false;
  Priority priority = kDefaultPriority;

  EntryKey key() const noexcept { return {.chain = chain, .kind = kind, .group = group}; }
  EntryInfo info() const noexcept {
    return {.begin = begin,
            .end = end,
            .layout = layout,
            .bytes = bytes,
            .words = has_words ? end - begin : 0};
  }
};
static_assert(sizeof(Record) == 88);

class SlotBooks {
 public:
  struct Options {
    uint64_t chunk_bytes = 0;
    uint32_t max_chunks = 0;
    std::string_view policy = "lru";
  };
  // Error: invalid_argument (no such policy), out_of_memory.
  static Result<std::unique_ptr<SlotBooks>> create(const Options& options);

  // ---- Looking ----
  RecordId find(const EntryKey& key) const noexcept;          // Present, or kNoRecord.
  RecordId find_writing(const EntryKey& key) const noexcept;  // Being written.
  const Record& operator[](RecordId id) const noexcept { return records_[id]; }
  uint64_t offset(RecordId id) const noexcept;
  uint64_t slot_pages(RecordId id) const noexcept { return chunks_[records_[id].chunk].slot_pages; }
  uint64_t entries() const noexcept { return present_; }
  uint64_t used_bytes() const noexcept { return used_bytes_; }  // Slots and first pages of chunks.
  uint32_t chunks() const noexcept { return chunk_count_; }     // That take room.
  uint64_t evictions() const noexcept { return evictions_; }
  uint64_t evicted_bytes() const noexcept { return evicted_bytes_; }
  uint64_t stamp() const noexcept { return stamp_; }
  uint64_t bytes() const noexcept;  // Of memory.

  // ---- Room ----
  struct Room {
    enum class What : uint8_t {
      slot,    // `record` is the caller's, in state writing.
      grow,    // Make chunk `chunk` on disk, assign() it, ask again; or refuse_growth().
      change,  // Zero chunk `chunk` on disk, which is empty now; assign() it, ask again.
      none,    // Everything is in use, or newer than `not_after`.
      memory,  // The system gave none.
    };
    What what = What::none;
    RecordId record = kNoRecord;
    uint32_t chunk = 0;
    bool reused = false;  // slot: the header of an evicted entry still lies there.
  };
  // For an entry of so many pages. Nothing used after `not_after` (a stamp) is given up for it.
  Room room_for(const EntryKey& key, const EntryInfo& info, Priority priority, uint64_t now_ns,
                uint64_t not_after);
  // Chunk `chunk` has slots of so many pages from now on; it takes room. False: no memory.
  bool assign(uint32_t chunk, uint32_t slot_pages);
  // Nobody knows how it is divided on disk: it takes room and has no slots until it is assigned again, and is
  // the next to change. Requires: empty.
  void spoil(uint32_t chunk) noexcept;
  // Takes no room any more. Requires: empty.
  void release(uint32_t chunk) noexcept;
  // For now, there are to be no more chunks than there are.
  void refuse_growth(bool refused) noexcept { growth_refused_ = refused; }

  // ---- A record's life ----
  // For open(): a record in a slot that was found in use. kNoRecord: no memory.
  // Free slots are known, and all of the above is allowed, after end_adopting().
  RecordId adopt(const EntryKey& key, const EntryInfo& info, uint32_t chunk, uint32_t slot);
  void end_adopting() noexcept;
  void publish(RecordId id, uint64_t now_ns) noexcept;
  void touch(RecordId id, uint64_t now_ns) noexcept;
  void pin(RecordId id) noexcept;
  void unpin(RecordId id) noexcept;
  void retire(RecordId id) noexcept;
  // Its slot can be used again. Requires: dying, not pinned.
  void free(RecordId id) noexcept;
  // Its slot is not to be used for now: it could not be written. Requires as free().
  void lose(RecordId id) noexcept;
  uint64_t lost() const noexcept { return lost_; }  // Slots.
  // Lost slots are free again.
  void restore_lost() noexcept;

  // ---- For open() and inspect ----
  // Gives up every entry of the chunk whose entries were used the longest ago. kNoRecord: none can.
  uint32_t empty_oldest_chunk() noexcept;
  uint32_t chunk_places() const noexcept { return static_cast<uint32_t>(chunks_.size()); }
  bool in_use(uint32_t chunk) const noexcept { return chunks_[chunk].slot_pages != 0; }
  template <class Visit>
  void each_present(Visit&& visit) const {
    for (const Record& record : records_) {
      if (record.state == Record::State::present) visit(record);
    }
  }

  // Stops the process with a description when the books do not balance.
  void check_invariants() const;

 private:
  struct Chunk {
    uint32_t slot_pages = 0;      // 0: takes no room.
    uint32_t free = kNone;        // First of the free slots.
    uint32_t live = 0;            // Records, in any state but gone.
    uint32_t busy = 0;            // Of these: writing, dying or pinned.
    uint64_t stamps = 0;          // Sum of the stamps of the present.
    std::vector<uint32_t> slots;  // Record, or kFreeBit | next free slot.
  };
  static constexpr uint32_t kNone = 0x7FFF'FFFFU;
  static constexpr uint32_t kFreeBit = 0x8000'0000U;
  static constexpr uint32_t kLost = 0x7FFF'FFFEU;
  static constexpr uint32_t kNoChunk = 0xFFFF'FFFFU;
  static constexpr uint32_t kSpoiled = 0xFFFF'FFFFU;  // As slot_pages.

  SlotBooks() = default;
  size_t bucket(const EntryKey& key) const noexcept;
  RecordId look(const EntryKey& key, Record::State state) const noexcept;
  void hash_in(RecordId id) noexcept;
  void hash_out(RecordId id) noexcept;
  RecordId take_record();
  bool grow_hash();
  void link_free_chunk(uint32_t chunk);
  void unlink_free_chunk(uint32_t chunk) noexcept;
  uint32_t chunk_with_room(uint32_t slot_pages) const noexcept;
  RecordId occupy(uint32_t chunk, uint32_t slot, const EntryKey& key, const EntryInfo& info,
                  Priority priority);
  void forget(RecordId id) noexcept;  // Out of hash and policy.
  void evict(RecordId id) noexcept;   // The slot becomes free.
  RecordId victim(uint64_t now_ns) noexcept;
  RecordId oldest_in_class(uint32_t slot_pages) const noexcept;
  uint32_t cheapest_chunk(uint32_t not_slot_pages) const noexcept;
  uint32_t unused_chunk() const noexcept;
  void empty(uint32_t chunk) noexcept;
  void forget_slots(Chunk& chunk) noexcept;

  uint64_t chunk_bytes_ = 0;
  uint32_t max_chunks_ = 0;
  uint32_t chunk_count_ = 0;  // In use.
  uint32_t empty_count_ = 0;  // Of these, without a record.
  bool growth_refused_ = false;
  std::unique_ptr<RetentionPolicy> policy_;
  std::vector<Record> records_;
  RecordId free_record_ = kNoRecord;
  std::vector<RecordId> buckets_;
  std::vector<Chunk> chunks_;
  // Classes with chunks that have free slots, by slot_pages; few.
  struct Class {
    uint32_t slot_pages = 0;
    std::vector<uint32_t> with_room;  // Chunks; the last is used first.
  };
  std::vector<Class> classes_;
  uint64_t stamp_ = 0;
  uint64_t present_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t lost_ = 0;
  uint64_t evictions_ = 0, evicted_bytes_ = 0;
};

}  // namespace stemma::tier::disk
