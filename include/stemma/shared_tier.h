// SharedTier: entries as files of one directory that many processes on many machines use at once: NFS,
// Lustre, or a local disk.
//
// One file an entry, named after its key, in folders of its scope (docs/formats/shared-tier.md). There is no index and
// no lock on disk, and no process is told of another: files appear whole, by link(2), and go by unlink(2).
// What lies there each process learns by scans, at open(), now and then, and after it has put much itself.
//
//   submit() --> queue --> a few threads: look, make room, write, link --> items end
//                  '--- watcher: deadlines, cancellations, stalls    keeper: scans, leftovers, is it back?
//
// Invariant:  what get() gives was summed when it was put and is summed again: what does not hold is
//             `corrupt`, counted, and removed. An entry is there whole or not at all, whoever is killed when.
//             Two who put one key both succeed, and it is one entry. What is named otherwise than by us, or is
//             of a newer format, is left alone; so is an entry of another layout, which is `absent`.
// Capacity:   with one process, used_bytes never exceeds it. With n processes the directory takes at most
//             capacity_bytes + (n - 1) * slack_bytes (or the largest entry, if that is more): a process puts
//             no more than that before it has scanned again. Counted are files, in multiples of 4096 bytes.
// Order:      lower priority first, then least recently used; of one batch the deepest. A file's time of
//             modification says when it was used, to `touch_ns`; for other processes, and after a restart, it
//             is all that is known: priorities are not kept.
// Durable:    `durable` puts end after fdatasync of the file and fsync of its folder; flush() syncs the file
//             system. Others end when the file is closed, which over NFS means that its server has it.
// Errors:     I/O errors end items as failed, a full disk as refused. After `errors_to_break` in a row, or when
//             all threads have waited `stall_ns` for the file system, all ends as failed at once, one line is
//             logged, and every `retry_ns` it is seen whether the directory is back. If it was removed it is
//             made again, but never on another device than before: that is a mount that is gone. When somebody
//             removes a temporary file or its folder during a put, this one item fails, and nothing else.
// Purge:      also takes what others put, and a put that has begun, of whatever process, can no longer land:
//             its temporary file goes, too, and those of the killed. A put that another process has not begun
//             yet may land afterwards: stop the tenant's requests there first, or purge again. A scope's purge
//             takes as long as the scope is large, whatever else lies there. Files of earlier versions go with every
//             purge, whosever they are.
// Deadlines:  hold while the file system stalls: the item ends as late, and what a thread still does for it
//             touches no memory of the caller's. Bytes are copied for that, 4 MiB at a time.
// Threading:  thread-safe. The destructor waits `stop_ns` for threads that are stuck; then it leaves them.
// Cost:       per entry about 250 bytes of memory, and for a put 6 calls of the file system, a get 4, contains 1.
//             A scan lists all folders, up to 16 for each scope, and asks for the size of every file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/result.h"
#include "stemma/tier.h"

namespace stemma::tier::shared {

class FileSystem;  // What the tier asks of a file system; tests bring their own.

struct SharedOptions {
  std::string path = {};        // Made if it is not there; what it lies in must be.
  uint64_t capacity_bytes = 0;  // Of all processes together: they should all say the same.
  uint64_t max_entry_bytes = uint64_t{1} << 30U;
  uint64_t slack_bytes = 0;  // 0: a sixteenth of the capacity.
  uint32_t threads = 8;
  uint32_t queue_items = 1U << 16U;
  bool always_durable = false;
  uint32_t errors_to_break = 8;
  uint64_t retry_ns = 1'000'000'000;
  uint64_t stall_ns = 10'000'000'000;
  uint64_t stop_ns = 5'000'000'000;
  uint64_t scan_ns = 300'000'000'000;  // A scan at least so often.
  uint64_t touch_ns = 60'000'000'000;  // A file's time is at most so much older than its last use.
  uint64_t leftover_ns = 3'600'000'000'000;  // Temporaries that are older are nobody's.
  std::shared_ptr<FileSystem> files = {};    // Null: the machine's.
};

// What open() found.
struct SharedOpening {
  uint64_t entries = 0;    // That are there now.
  uint64_t dropped = 0;    // Removed because the capacity is smaller.
  uint64_t leftovers = 0;  // Temporaries removed.
  uint64_t foreign = 0;    // Files in its folders that are not ours.
  uint64_t ns = 0;
};

class SharedTier : public Tier {
 public:
  // Error: invalid_argument (options, or no directory), corrupt (something else lies there), unsupported (a
  // newer version), copy_failed (the system refuses: the value is its errno), out_of_memory.
  static Result<std::unique_ptr<SharedTier>> open(const SharedOptions& options);

  virtual const SharedOpening& opening() const noexcept = 0;
  // Scans now; for tests. False: the directory cannot be read.
  virtual bool scan() = 0;
};

}  // namespace stemma::tier::shared
