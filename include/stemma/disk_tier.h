// DiskTier: entries in a directory of this machine, which stay when the process ends, however it ends.
//
// The directory (0700, files 0600) belongs to one process at a time. Its slab file is a row of
// pages of 4 KiB. An entry lies in one run of pages or in up to twelve, wherever there is room, and
// is never moved or compacted: a byte is written once for each time it is put. A table beside the
// slab has a record of 256 bytes for each entry; open() reads the table and nothing else, and a
// third file has the stamps of last use. docs/formats/disk-tier.md draws every byte.
//
//   a thread of the tier's own:   queue --> decide (books, under the lock) --> I/O --> settle, end items
//
// I/O of entries goes past the page cache (O_DIRECT) through io_uring, or through a few threads
// where that is refused, or through the page cache where the file system knows no other way.
// Memory of the caller's that begins at a multiple of 4096 is read and written directly; other memory is
// copied through buffers that the tier keeps.
//
// Invariant:  what is read was summed when it was put and is summed again: bytes that do not hold are
//             `corrupt`, counted, and the entry is removed. A put that was cut off by a crash
//             leaves the entry whole or not there. `remove` has overwritten the entry's record when
//             it is done, so the entry is not there after a restart either. The slab never takes
//             more than capacity_bytes, which open() sees to before it returns. What it does not
//             know in its directory it leaves alone.
// Room:       any mix of sizes fits. An entry takes whole pages; besides the ends of last pages no
//             more than about a twentieth of the capacity is lost to pieces that are too small. The
//             table takes 256 bytes an entry, which the capacity does not include.
// Order:      least recently used goes first, exactly, among entries of one priority; of one batch,
//             the deepest first. Only when a thirty-second of the capacity is free and still too
//             scattered for an entry do neighbours of the last one go out of turn. Order and
//             priorities survive a restart; uses of the last seconds before a crash may be
//             forgotten.
// Durable:    `durable` puts and removes end after an fdatasync, one for all that wait; others when the
//             system has taken the bytes. When a sync fails, everything written since the last one
//             that succeeded is removed, whether it was durable or not.
// Errors:     an entry that cannot be read is removed, and its place is not used again
//             (retired_bytes in stats()); a put whose place cannot be written goes elsewhere; a
//             page of the table that cannot be read loses its entries. Other I/O errors end items
//             as failed, a full disk as refused, and the tier goes on; after `errors_to_break` in a
//             row it answers `failed` at once for `retry_ns`, then tries again. When its files are
//             removed while it runs, it notices with the next sync, or within about a second, and
//             fails until it could make the directory again, which it tries every `retry_ns`; it is
//             empty then. Beyond `queue_items` waiting items further ones are refused (puts) or
//             failed.
// Threading:  thread-safe. contains is answered inside submit().
// Cost:       about 145 bytes of memory an entry, nothing allocated per entry in steady state; at
//             most `depth` entries are read and written at a time. open() reads 264 bytes an entry,
//             and the payloads of the newest 1024 entries, at most 256 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stemma/result.h"
#include "stemma/tier.h"

namespace stemma::tier::disk {

class Files;  // What the tier asks of a file system; tests bring their own.

// automatic: io_uring where the kernel allows it, otherwise a few threads.
enum class IoWay : uint8_t { automatic, uring, threads };

struct DiskOptions {
  std::string path = {};        // Made if it is not there; what it lies in must be.
  uint64_t capacity_bytes = 0;  // Of the slab file.
  uint64_t max_entry_bytes = uint64_t{8} << 20U;  // Of a payload; at most the capacity.
  std::string policy = "lru";
  uint32_t depth = 64;
  uint32_t queue_items = 1U << 16U;
  uint32_t errors_to_break = 8;
  uint64_t retry_ns = 1'000'000'000;
  // While nothing else is to be done, entries are read and checked one after the other, no faster
  // than this. 0: they are not.
  uint64_t scrub_bytes_per_second = 0;
  IoWay way = IoWay::automatic;
  Files* files = nullptr;  // Null: the machine's. Otherwise it must outlive the tier.
  // Called while open() reads the table, now and then, and not after it has returned: so many records of so many.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

// Entries that were arranged alike: of one model and its settings.
struct DiskLayout {
  uint64_t layout = 0;  // As EntryInfo has it.
  uint64_t entries = 0;
  uint64_t bytes = 0;  // Of payloads.
};

// What open() found.
struct DiskOpening {
  uint64_t entries = 0;           // That are there now.
  uint64_t damaged = 0;           // Records or recent payloads that did not hold.
  uint64_t duplicates = 0;        // Older of two with one key, or in one place.
  uint64_t dropped = 0;           // Given up because the capacity is smaller now.
  uint64_t unreadable_pages = 0;  // Of the table.
  uint64_t retired_bytes = 0;     // Of the slab, which could not be read or written before.
  uint64_t foreign = 0;           // Files in the directory that are not ours.
  uint64_t records_read = 0;      // Free ones too.
  uint64_t ns = 0;
  bool direct = false;  // Past the page cache.
  std::string io;       // "io_uring", "threads".
  // Whose they are, most bytes first. A directory that was another model's is no error: its entries are not
  // found, and go as others do.
  std::vector<DiskLayout> layouts;
};

class DiskTier : public Tier {
 public:
  // Error: invalid_argument (options, or the path is not a directory), busy (another process has it),
  // unsupported (a newer format), corrupt (not a store of ours), copy_failed (the system refuses: the
  // value is its errno), out_of_memory.
  static Result<std::unique_ptr<DiskTier>> open(const DiskOptions& options);

  virtual const DiskOpening& opening() const noexcept = 0;
  virtual uint64_t index_bytes() const = 0;
  // Stops the process with a description when the books do not balance.
  virtual void check_invariants() const = 0;
};

}  // namespace stemma::tier::disk
