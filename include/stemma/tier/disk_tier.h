// DiskTier: entries in a directory of this machine, kept however the process ends.
//
// The directory (0700, files 0600) belongs to one process at a time. Its slab file is a row of
// pages of 4 KiB. An entry takes one to twelve runs of pages, wherever there is room, and is never
// moved or compacted: each put writes each byte once. A table beside the slab holds a record of 256
// bytes for each entry, and a third file holds the stamps of last use. docs/formats/disk-tier.md
// draws every byte.
//
//   the tier's own thread:   queue --> decide (books, under the lock) --> I/O --> settle, end items
//
// Entries are read and written past the page cache (O_DIRECT) through io_uring, or through a few
// threads if the kernel refuses io_uring, or through the page cache if the file system supports
// nothing else. Caller's memory that begins at a multiple of 4096 is read and written directly;
// other memory is copied through the tier's buffers.
//
// Invariant:  a put stores a checksum and each read checks it: if the bytes do not match, the item
//             is `corrupt` and counted, and the entry is removed. A put cut off by a crash leaves
//             the entry whole or absent. A `remove` that is done has overwritten the entry's
//             record, so the entry stays gone after a restart. The slab never takes more than
//             capacity_bytes, from the moment open() returns. Files in the directory that are not
//             ours are left alone.
// Room:       any mix of sizes fits. An entry takes whole pages; besides the unused ends of last
//             pages, at most about a twentieth of the capacity is lost to pieces that are too
//             small. The table takes 256 bytes an entry, not counted in the capacity.
// Order:      among entries of one priority, exactly the least recently used goes first; of one
//             batch, the deepest. Neighbours of the last evicted entry go out of turn only if a
//             thirty-second of the capacity is free and still too scattered for a new entry. Order
//             and priorities survive a restart; a crash may forget the uses of its last seconds.
// Durable:    `durable` puts and removes end after an fdatasync, one for all that wait; others end
//             when the system has taken the bytes. If a sync fails, everything written since the
//             last successful one is removed, durable or not.
// Errors:     an entry that cannot be read is removed, and its place is not used again
//             (retired_bytes in stats()). If a place cannot be written, the put goes elsewhere. If
//             a page of the table cannot be read, its entries are lost. Other I/O errors end items
//             as failed, a full disk as refused, and the tier goes on; after `errors_to_break` in a
//             row it answers `failed` at once for `retry_ns`, then tries again. If its files are
//             removed while it runs, it notices at the next sync, or within about a second. It then
//             fails until it can make the directory again, which it tries every `retry_ns`; it
//             starts empty. While `queue_items` wait, further puts are refused and other items
//             fail.
// Threading:  thread-safe. submit() itself answers contains.
// Cost:       about 153 bytes of memory an entry, nothing allocated per entry in steady state; at
//             most `depth` entries are read and written at a time. open() reads 264 bytes an entry,
//             and the payloads of the newest 1024 entries, at most 256 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stemma/result.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {
class Files;  // What tiers ask of a file system; tests bring their own.
}

namespace stemma::tier::disk {

// automatic: io_uring where the kernel allows it, otherwise a few threads.
enum class IoWay : uint8_t { automatic, uring, threads };

struct DiskOptions {
  std::string path = {};                          // Created if missing; its parent must exist.
  uint64_t capacity_bytes = 0;                    // The largest size of the slab file.
  uint64_t max_entry_bytes = uint64_t{8} << 20U;  // The largest payload; at most the capacity.
  std::string policy = "lru";
  uint32_t depth = 64;
  uint32_t queue_items = 1U << 16U;
  uint32_t errors_to_break = 8;
  uint64_t retry_ns = 1'000'000'000;
  // When idle, the tier reads and checks its entries one by one, no faster than this. 0: never.
  uint64_t scrub_bytes_per_second = 0;
  IoWay way = IoWay::automatic;
  Files* files = nullptr;  // Null: the machine's. Otherwise it must outlive the tier.
  // Called now and then while open() reads the table, never after open() returns: `done` of `total`
  // records have been read.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

// The entries with one layout: of one model and its settings.
struct DiskLayout {
  uint64_t layout = 0;  // EntryInfo::layout.
  uint64_t entries = 0;
  uint64_t bytes = 0;  // Of payloads.
};

// What open() found.
struct DiskOpening {
  uint64_t entries = 0;           // Entries present now.
  uint64_t damaged = 0;           // Records or recent payloads with wrong checksums.
  uint64_t duplicates = 0;        // Older records with the key or the place of a newer one.
  uint64_t dropped = 0;           // Entries removed because the capacity is smaller now.
  uint64_t unreadable_pages = 0;  // Pages of the table that cannot be read.
  uint64_t retired_bytes = 0;     // Places in the slab that failed before.
  uint64_t foreign = 0;           // Files in the directory that are not ours.
  uint64_t records_read = 0;      // All records read, including free ones.
  uint64_t ns = 0;
  bool direct = false;  // true: reads and writes bypass the page cache.
  std::string io;       // "io_uring" or "threads".
  // The layouts of the entries, most bytes first. A directory that belonged to another model is no
  // error: its entries are not found, and are evicted like others.
  std::vector<DiskLayout> layouts;
};

class DiskTier : public Tier {
 public:
  // Error: invalid_argument (options, or the path is not a directory), busy (another process has
  // it), unsupported (a newer format), corrupt (not a store of ours), copy_failed (the system
  // refuses: the value is its errno), out_of_memory.
  static Result<std::unique_ptr<DiskTier>> open(const DiskOptions& options);

  virtual const DiskOpening& opening() const noexcept = 0;
  virtual uint64_t index_bytes() const = 0;
  // Stops the process with a description if the books do not balance.
  virtual void check_invariants() const = 0;
};

}  // namespace stemma::tier::disk
