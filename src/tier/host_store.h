// The books of the host tier: its entries, and the chunks of the arena that hold each.
//
// An entry is a cell, and a cell is in exactly one state:
//
//   free --reserve()--> filling --publish()--> listed --unlist()--> going --last unpin()--> free
//                          '------ drop() -------> free               '-- nobody reads --> free
//
// A listed cell is evictable once it was touch()ed; a cell being filled, going or read is not.
//
// Invariant:  chunks in cells + free chunks == chunks; memory_bytes() <= capacity_bytes.
// Threading:  one thread at a time, except pieces(): the chunks of a cell being filled or read do
//             not change, whatever happens to others.
// Cost:       reserve() and freeing are O(chunks), all else O(1); nothing is allocated after
//             create().
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/slab.h"
#include "stemma/retention.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/tier.h"
#include "tier/counters.h"

namespace stemma::tier {

class HostStore {
 public:
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;

  // Error: invalid_argument, out_of_memory.
  static Result<std::unique_ptr<HostStore>> create(const HostTierOptions& options,
                                                   Counters& counters);
  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  uint64_t most_bytes() const noexcept { return uint64_t{chunks_} * chunk_bytes_; }
  uint64_t used_bytes() const noexcept;
  // What the system gave, in whole pages.
  uint64_t memory_bytes() const noexcept;
  uint32_t entries() const noexcept { return listed_; }

  uint32_t find(const EntryKey& key) const noexcept;
  // A cell with room for this many bytes, evicting others if needed. kNone: even that was not
  // enough.
  uint32_t reserve(uint64_t bytes);
  void drop(uint32_t cell) noexcept;
  // Lists a filled cell, and unlists the cell listed under its key before.
  void publish(uint32_t cell, const EntryKey& key, const EntryInfo& info, uint64_t sum,
               Priority priority) noexcept;
  void unlist(uint32_t cell) noexcept;
  void pin(uint32_t cell) noexcept { ++cells_[cell].readers; }
  void unpin(uint32_t cell) noexcept;
  // Notes a use: of all evictable cells, it now goes last.
  void touch(uint32_t cell) noexcept;

  const EntryKey& key(uint32_t cell) const noexcept { return cells_[cell].key; }
  EntryInfo info(uint32_t cell) const noexcept { return cells_[cell].info; }
  uint64_t sum(uint32_t cell) const noexcept { return cells_[cell].sum; }
  bool listed(uint32_t cell) const noexcept { return cells_[cell].state == State::listed; }

  // `visit` may unlist the cell it gets.
  template <class Visit>
  void each_listed(Visit&& visit) {
    for (uint32_t cell = 0; cell < fresh_cell_; ++cell) {
      if (cells_[cell].state == State::listed) visit(cell);
    }
  }

  // Calls visit(memory, bytes) for `bytes` bytes of the cell, in order, in runs of adjacent chunks.
  template <class Visit>
  void pieces(uint32_t cell, uint64_t bytes, Visit&& visit) const {
    uint32_t chunk = cells_[cell].first;
    while (bytes != 0) {
      uint32_t end = chunk + 1;
      uint64_t run = chunk_bytes_;
      while (run < bytes && links_[end - 1] == end) {
        ++end;
        run += chunk_bytes_;
      }
      const uint64_t size = run < bytes ? run : bytes;
      visit(arena_.data() + uint64_t{chunk} * chunk_bytes_, static_cast<size_t>(size));
      bytes -= size;
      chunk = links_[end - 1];
    }
  }

  void check_invariants() const;

 private:
  enum class State : uint8_t { free, filling, listed, going };
  struct Cell {
    EntryKey key;
    State state;
    Priority priority;
    uint32_t first;
    EntryInfo info;
    uint64_t sum;
    uint32_t last, chunks;
    uint32_t next;  // In its bucket, or among the free.
    uint32_t readers;
  };
  static_assert(sizeof(Cell) <= 104);

  HostStore(const HostTierOptions& options, Counters& counters);
  Result<void> take_memory(const HostTierOptions& options);
  // Bytes of fixed size: the policy's queues, and the pages at the ends of every slab.
  static constexpr uint64_t kFixedBytes = 96U << 10U;

  bool grow_cells();
  bool grow_chunks();
  bool evict_one();
  void free_cell(uint32_t cell) noexcept;
  uint32_t& bucket(const EntryKey& key) const noexcept;

  Counters& counters_;
  const uint64_t chunk_bytes_;
  const uint64_t book_bytes_;  // Per chunk: link, cell, two buckets of index, the policy's.
  const uint64_t fixed_bytes_;
  uint32_t chunks_ = 0;
  uint64_t bucket_mask_ = 0;
  HostMemoryHook* hook_ = nullptr;
  std::unique_ptr<RetentionPolicy> policy_;
  base::Slab<uint8_t> arena_;
  base::Slab<uint32_t> links_;  // The chunk after it, in its entry or among the free.
  base::Slab<Cell> cells_;
  base::Slab<uint32_t> buckets_;  // Cell + 1, so that fresh memory is empty.
  base::Growth cell_growth_, chunk_growth_;
  uint32_t fresh_cell_ = 0, fresh_chunk_ = 0;  // From here on never used.
  uint32_t free_cell_ = kNone, free_chunk_ = kNone;
  uint32_t free_chunks_ = 0;  // In the free list.
  uint32_t used_chunks_ = 0;
  uint32_t listed_ = 0;
};

}  // namespace stemma::tier
