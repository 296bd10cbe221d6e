// Store: an open directory of a disk tier: its lock, its files and their contents.
//
// open_directory() finds or makes the directory and takes its lock; read_table() reads the table;
// rebuild() turns it into books that respect a capacity. `stemma inspect` uses the first two.
// Threading: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "stemma/tier/disk_tier.h"
#include "tier/disk/books.h"
#include "tier/disk/layout.h"
#include "tier/disk/page_memory.h"

namespace stemma::tier::disk {

enum class IfMissing : uint8_t { create, refuse };

struct Store {
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  std::unique_ptr<Files> own_files;  // Unless the caller gave some.
  Files* files = nullptr;
  std::string path;
  int lock_file = -1;
  int slab = -1;  // Past the page cache if possible; the others are not.
  int table = -1;
  int uses = -1;
  std::unique_ptr<Books> books;
  uint64_t next_serial = 1;
  DiskOpening opening;

  std::string file(std::string_view name) const { return path + "/" + std::string(name); }
  // Adds `pages` to the slab after its first `from`, with room reserved. Returns 0 or -errno.
  int grow(uint64_t from, uint64_t pages);
  // Whether the directory still names the files that are open here.
  bool in_place();
  // Overwrites a record of the table, or frees it. Returns 0 or -errno.
  int write_slot(RecordId id, const TableRecord& record);
  int wipe_slot(RecordId id);
  // Makes these pages of the slab read as zeros. Returns 0 or -errno.
  int erase(const Extent& pages);

 private:
  int write_bytes(RecordId id, const std::array<uint8_t, kRecordBytes>& bytes);
};

// Errors: as DiskTier::open(); with IfMissing::refuse also `stale` if there is no store.
Result<std::unique_ptr<Store>> open_directory(const DiskOptions& options, IfMissing missing);
// The same, with books.
Result<std::unique_ptr<Store>> open_store(const DiskOptions& options);

// A record as found in the table.
struct Found {
  EntryHeader header;
  uint64_t used = 0;
  RecordId record = kNoRecord;
  uint32_t first_extent = 0, extent_count = 0;  // In Scan::extents.
  TableRecord::Kind kind = TableRecord::Kind::entry;
  Priority priority = kDefaultPriority;
};
struct Scan {
  std::vector<Found> found;  // In the order of their places.
  std::vector<Extent> extents;
  RecordId records = 0;                // Places for records.
  std::vector<RecordId> damaged;       // Records that are corrupt or name missing pages.
  std::vector<bool> unreadable_pages;  // Of the table.
  uint64_t slab_pages = 0;

  std::span<const Extent> places(const Found& one) const noexcept {
    return std::span(extents).subspan(one.first_extent, one.extent_count);
  }
};
// Unreadable pages count as lost. Error: copy_failed (the size is unknown; the value is the errno),
// out_of_memory.
Result<Scan> read_table(Store& store, const std::function<void(uint64_t, uint64_t)>& progress);
// The stamps of last use by record, if readable.
std::vector<uint64_t> read_all_uses(Store& store, RecordId records);

// Whether an entry's words and payload match its header. `buffer` grows as needed. unreadable:
// `bad` has the bits of the extents that could not be read.
enum class Payload : uint8_t { whole, damaged, unreadable };
Payload check_payload(Store& store, const EntryHeader& header, std::span<const Extent> places,
                      PageMemory& buffer, uint32_t& bad);

// Adds up entries by their layout. sorted(): most bytes first.
class LayoutCounts {
 public:
  void add(uint64_t layout, uint64_t bytes);
  std::vector<DiskLayout> sorted() const;

 private:
  std::unordered_map<uint64_t, DiskLayout> all_;
};

// Fills in store.books, next_serial and opening; evicts what exceeds the capacity.
Result<void> rebuild(Store& store, const DiskOptions& options, Scan scan);

}  // namespace stemma::tier::disk
