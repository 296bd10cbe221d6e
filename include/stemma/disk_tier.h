// DiskTier: entries in a directory of this machine, which stay when the process ends, however it ends.
//
// The directory (0700, files 0600) belongs to one process at a time. Its slab file is divided into
// chunks, preallocated, and a chunk into slots of one size; an entry lies in one slot and is overwritten
// in place: nothing is ever moved or compacted, so a byte is written once for each time it is put.
// docs/formats/disk-tier.md draws every byte. There is no index on disk: open() reads the headers.
//
//   a thread of the tier's own:   queue --> decide (books, under the lock) --> I/O --> settle, end items
//
// I/O goes past the page cache (O_DIRECT) through io_uring, or through a few threads where that is
// refused, or through the page cache where the file system knows no other way; which, is logged once.
// Memory of the caller's that begins at a multiple of 4096 is read and written directly; other memory is
// copied through buffers that the tier keeps.
//
// Invariant:  what is read was summed when it was put and is summed again: bytes that do not hold are
//             `corrupt`, counted, and their slot is freed. A put that was cut off by a crash leaves the old
//             entry of its slot, itself whole, or neither. `remove` has zeroed the header when it is done,
//             so the entry is not there after a restart either. The slab never takes more than
//             capacity_bytes, which open() sees to before it returns. What it does not know in its
//             directory it leaves alone.
// Order:      least recently used goes first, exactly, among entries of one size class and priority; of
//             one batch, the deepest first. When another class needs room a whole chunk goes, the one
//             used the longest ago on average. After a restart the order is that of the puts: what was
//             read since is not written down, and all have the default priority.
// Durable:    `durable` puts and removes end after an fdatasync, one for all that wait; others when the
//             system has taken the bytes.
// Errors:     I/O errors end items as failed, a full disk as refused, and the tier goes on; after
//             `errors_to_break` in a row it answers `failed` at once for `retry_ns`, then tries again.
//             Beyond `queue_items` waiting items further ones are refused (puts) or failed.
// Threading:  thread-safe. contains is answered inside submit().
// Cost:       about 105 bytes of memory an entry, nothing allocated per entry in steady state; at most
//             `depth` reads and writes at a time. open() reads one page per slot.
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
  // Of a payload. A new store's chunks are made for it; one that is there keeps its own, and may have
  // to say less (traits().max_entry_bytes).
  uint64_t max_entry_bytes = uint64_t{8} << 20U;
  uint64_t chunk_bytes = 0;  // For a new store; 0: as many as suit the two above.
  std::string policy = "lru";
  uint32_t depth = 64;
  uint32_t queue_items = 1U << 16U;
  uint32_t errors_to_break = 8;
  uint64_t retry_ns = 1'000'000'000;
  IoWay way = IoWay::automatic;
  Files* files = nullptr;  // Null: the machine's. Otherwise it must outlive the tier.
  // Called while open() reads headers, now and then: so many slots of so many.
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
  uint64_t entries = 0;     // That are there now.
  uint64_t damaged = 0;     // Headers or recent payloads that did not hold.
  uint64_t duplicates = 0;  // Older of two with one key.
  uint64_t dropped = 0;     // Given up because the capacity is smaller now.
  uint64_t foreign = 0;     // Files in the directory that are not ours.
  uint64_t slots_read = 0;
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
