// Files: everything that the disk tier asks of a file system, so that a test can fail, delay, tear or
// forget any of it.
//
// Calls are named after what they do and return what the system would, or -errno: this is the one
// place where numbers of errors are spoken. What is read and written in bulk goes through an IoQueue,
// many at a time; the rest is rare and waits.
// Threading:  Files is thread-safe. An IoQueue belongs to one thread, but for wake().
// Ownership:  a queue must end before its Files; the memory that an Io names must live until it ended.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/disk_tier.h"

namespace stemma::tier::disk {

// One read, write or sync. Where the file is open past the page cache, offset, sizes and memory are
// multiples of kPage.
inline constexpr uint32_t kPage = 4096;

struct Io {
  enum class Kind : uint8_t { read, write, sync };
  Kind kind = Kind::read;
  int file = -1;
  uint64_t offset = 0;
  std::array<iovec, 3> parts = {};  // One after the other from `offset` on.
  uint32_t part_count = 0;
  int64_t result = 0;  // Bytes moved, perhaps too few, or -errno; written before it ends.

  uint64_t bytes() const noexcept {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < part_count; ++i) sum += parts[i].iov_len;
    return sum;
  }
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;  // Waits for what is under way.
  // Begins one, soon: at the latest in wait(). At most as many at a time as the queue was made for.
  virtual void start(Io& io) = 0;
  // Sleeps until something ended, wake() was called or the time is over (0: only looks). Returns how
  // many of `ended` were filled in.
  virtual size_t wait(std::span<Io*> ended, uint64_t timeout_ns) = 0;
  virtual void wake() noexcept = 0;
  virtual std::string_view name() const noexcept = 0;  // For logs: "io_uring", "threads".
};

enum class OpenAs : uint8_t {
  existing,         // To read and write.
  created,          // The same, made if it is not there (0600).
  created_direct,   // The same, past the page cache: -EINVAL where the file system cannot.
  existing_direct,  // To read and write past the page cache.
  read_only,
};

class Files {
 public:
  virtual ~Files() = default;
  // -ELOOP: it is no plain file, but a link, a pipe or the like; those are not followed.
  virtual int open(const std::string& path, OpenAs as) = 0;
  virtual int close(int file) = 0;
  virtual int lock(
      int file) = 0;  // For this process alone until closed; -EWOULDBLOCK: another has.
  virtual int64_t size(int file) = 0;
  virtual int truncate(int file, uint64_t bytes) = 0;
  // The range exists, takes its room now, and reads as before, or as zeros where nothing was.
  virtual int allocate(int file, uint64_t offset, uint64_t bytes) = 0;
  // The range reads as zeros and keeps its room. -EOPNOTSUPP: only punch() will do.
  virtual int zero(int file, uint64_t offset, uint64_t bytes) = 0;
  // The range reads as zeros and gives its room back; the size stays.
  virtual int punch(int file, uint64_t offset, uint64_t bytes) = 0;
  virtual int64_t read(int file, uint64_t offset, std::span<uint8_t> into) = 0;
  virtual int64_t write(int file, uint64_t offset, std::span<const uint8_t> from) = 0;
  virtual int datasync(int file) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& path) = 0;
  virtual int make_directory(const std::string& path) = 0;  // 0700. -EEXIST: something is there.
  // Whether `path` names this open file: 1, or 0 when it was removed, moved or replaced.
  virtual int is_at(int file, const std::string& path) = 0;
  virtual int sync_directory(const std::string& path) = 0;
  // The names in it, without "." and "..".
  virtual int list(const std::string& path, std::vector<std::string>& out) = 0;
  // For at most `depth` at a time. Null: no memory.
  virtual std::unique_ptr<IoQueue> queue(uint32_t depth) = 0;
};

inline bool is_full(int64_t result) noexcept { return result == -ENOSPC || result == -EDQUOT; }
// The place cannot be read or written; others may. Disks say so in several ways.
inline bool is_bad_place(int64_t result) noexcept {
  return result == -EIO || result == -ENODATA || result == -EILSEQ || result == -EBADMSG ||
         result == -EUCLEAN;
}

// The machine's own.
std::unique_ptr<Files> make_system_files(IoWay way = IoWay::automatic);

}  // namespace stemma::tier::disk
