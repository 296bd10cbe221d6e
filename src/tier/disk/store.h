// Store: an opened directory of a disk tier: its lock, its files, and what lies in them.
//
// open_directory() finds or makes the directory and takes its lock; scan() reads what every slot says of
// itself; rebuild() turns that into books that respect a capacity. `stemma inspect` uses the first two.
// Threading: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stemma/disk_tier.h"
#include "tier/disk/layout.h"
#include "tier/disk/page_memory.h"
#include "tier/disk/slot_books.h"

namespace stemma::tier::disk {

enum class IfMissing : uint8_t { create, refuse };

struct Store {
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  std::unique_ptr<Files> own_files;  // Unless the caller brought some.
  Files* files = nullptr;
  std::string path;
  int lock_file = -1;
  int slab = -1;
  DiskFormat format;
  std::unique_ptr<SlotBooks> books;
  uint64_t next_serial = 1;
  DiskOpening opening;

  uint64_t offset(uint32_t chunk) const noexcept { return chunk * format.chunk_bytes; }
  // Makes chunk `chunk` all zeros but for its first page, which says so many pages a slot. It takes its
  // room from then on. What lay there is gone before anything new lies there, also after a loss of
  // power. Returns 0 or -errno.
  int prepare_chunk(uint32_t chunk, uint32_t slot_pages, bool had_entries);
  // Gives a chunk's room back to the file system. Returns 0 or -errno.
  int drop_chunk(uint32_t chunk);
};

// Errors: as DiskTier::open(); with IfMissing::refuse also `stale` when there is no store.
Result<std::unique_ptr<Store>> open_directory(const DiskOptions& options, IfMissing missing);

struct FoundSlot {
  EntryHeader header;
  uint32_t chunk = 0;
  uint32_t slot = 0;
};
struct Scan {
  std::vector<ChunkHeader> chunks;  // slot_pages 0: not in use, or damaged.
  std::vector<FoundSlot> slots;     // Entries, in the order they lie.
  uint64_t slots_read = 0;
  uint64_t damaged = 0;  // First pages and headers that do not hold.
};
// Error: copy_failed (a read failed; the value is its errno), out_of_memory.
Result<Scan> scan(Store& store, uint32_t depth,
                  const std::function<void(uint64_t, uint64_t)>& progress);

// Whether the words and the payload of an entry are what its header says. `buffer` grows as needed.
enum class Payload : uint8_t { whole, damaged, unreadable };
Payload check_payload(Store& store, const FoundSlot& found, PageMemory& buffer);

// Most bytes first.
std::vector<DiskLayout> layouts_of(std::span<const FoundSlot> slots);

// Fills in store.books, next_serial and opening; gives up what is too much.
Result<void> rebuild(Store& store, const DiskOptions& options, Scan scan);

}  // namespace stemma::tier::disk
