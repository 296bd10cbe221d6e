// SharedTier: entries as files of one directory that many processes on many machines use at once:
// NFS, Lustre, or a local disk.
//
// One file an entry, named after its key, in folders of its scope (docs/formats/shared-tier.md).
// There is no index and no lock on disk, and processes do not know of each other: files appear
// whole, by link(2), and go by unlink(2). Each process learns what is there by scans: at open(),
// now and then, and after it has put much itself.
//
//   submit() --> queue --> a few threads: look, make room, write, link --> items end
//                  '--- watcher: deadlines, cancellations, stalls
//   keeper: scans, removes leftovers, checks whether a lost directory is back
//
// Invariant:  a put stores a checksum and each get checks it: an entry that does not match is
//             `corrupt`, counted, and removed. An entry is whole or absent, whichever process is
//             killed at whatever time. If two processes put one key, both succeed, and there is one
//             entry. Files with names that are not ours, or of a newer format, are left alone. So
//             are entries of another layout, which are `absent`.
// Capacity:   with one process, used_bytes never exceeds it. With n processes the directory takes
//             at most capacity_bytes + (n - 1) * slack_bytes (or the largest entry, if that is
//             more): a process puts no more than that before it scans again. Files count in
//             multiples of 4096 bytes.
// Order:      lower priority first, then least recently used; of one batch the deepest. A file's
//             modification time says when it was used, to within `touch_ns`. Other processes, and a
//             restarted one, know nothing else: priorities are not stored.
// Durable:    `durable` puts end after fdatasync of the file and fsync of its folder; flush() syncs
//             the file system. Others end when the file is closed: over NFS the server has it then.
//             After a sync that failed, what this process put since the last good one is removed,
//             because the next sync would not report that it is missing on the disk.
// Errors:     I/O errors end items as failed, a full disk as refused. After `errors_to_break` in a
//             row, or when all threads have waited `stall_ns` for the file system, all items fail
//             at once and one line is logged; every `retry_ns` the tier checks whether the
//             directory is back. A directory that was removed is made again, but never on another
//             device than before: then a mount is gone. If somebody removes a temporary file or its
//             folder during a put, only this one item fails.
// Purge:      also removes what other processes put. A put that any process has begun can no longer
//             land: the purge removes its temporary file too, and those of killed processes. A put
//             that another process has not begun yet may land afterwards: stop the tenant's
//             requests there first, or purge again. A scope's purge takes time in proportion to the
//             scope, whatever else is there. Files of earlier versions go with every purge,
//             whatever their scope.
// Deadlines:  hold even while the file system stalls: the item ends as late, and a thread still
//             busy with it does not touch the caller's memory. For that, bytes are copied, 4 MiB at
//             a time.
// Threading:  thread-safe. The destructor waits `stop_ns` for stuck threads, then leaves them.
// Cost:       about 250 bytes of memory an entry. A put takes 6 calls of the file system, a get 4,
//             contains 1. A scan lists all folders, up to 16 for each scope, and asks for the size
//             of every file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/result.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {
class Files;  // What tiers ask of a file system; tests bring their own.
}

namespace stemma::tier::shared {

struct SharedOptions {
  std::string path = {};        // Created if missing; its parent must exist.
  uint64_t capacity_bytes = 0;  // For all processes together; give each the same value.
  uint64_t max_entry_bytes = uint64_t{1} << 30U;
  uint64_t slack_bytes = 0;  // 0: a sixteenth of the capacity.
  uint32_t threads = 8;
  uint32_t queue_items = 1U << 16U;
  bool always_durable = false;
  uint32_t errors_to_break = 8;
  uint64_t retry_ns = 1'000'000'000;
  uint64_t stall_ns = 10'000'000'000;
  uint64_t stop_ns = 5'000'000'000;
  uint64_t scan_ns = 300'000'000'000;        // Scans at least this often.
  uint64_t touch_ns = 60'000'000'000;        // How far a file's time may lag behind its last use.
  uint64_t leftover_ns = 3'600'000'000'000;  // Temporary files older than this are abandoned ones.
  // When idle, the tier reads and checks its entries one by one, no faster than this, and removes
  // damaged ones. 0: never. Each process reads all of them.
  uint64_t scrub_bytes_per_second = 0;
  std::shared_ptr<Files> files = {};  // Null: the machine's.
};

// What open() found.
struct SharedOpening {
  uint64_t entries = 0;    // Entries present now.
  uint64_t dropped = 0;    // Entries removed because the capacity is smaller.
  uint64_t leftovers = 0;  // Temporary files that were abandoned, and now removed.
  uint64_t foreign = 0;    // Files in its folders that are not ours.
  uint64_t ns = 0;
};

class SharedTier : public Tier {
 public:
  // Error: invalid_argument (options, or no directory), corrupt (something else lies there),
  // unsupported (a newer version), copy_failed (the system refuses: the value is its errno),
  // out_of_memory.
  static Result<std::unique_ptr<SharedTier>> open(const SharedOptions& options);

  virtual const SharedOpening& opening() const noexcept = 0;
  // Scans now; for tests. Returns false if the directory cannot be read.
  virtual bool scan() = 0;
};

}  // namespace stemma::tier::shared
