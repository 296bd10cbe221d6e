// Files: everything that tiers ask of a file system, behind an interface with which a test can
// fail, delay, tear or forget any call.
//
// Calls are named after what they do and return the system's result, or -errno: error numbers are
// used only here. A disk tier's bulk reads and writes go through an IoQueue, many at a time. Every
// other call may block for as long as the file system likes.
// Threading:  Files is thread-safe. An IoQueue belongs to one thread, except wake().
// Ownership:  a queue must end before its Files; the memory that an Io names must live until the Io
//             ends.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::tier {

// One read, write or sync. If the file is open past the page cache, offset, sizes and memory are
// multiples of kPage.
inline constexpr uint32_t kPage = 4096;

struct Io {
  enum class Kind : uint8_t { read, write, sync };
  Kind kind = Kind::read;
  int file = -1;
  uint64_t offset = 0;
  std::array<iovec, 3> parts = {};  // Consecutive, from `offset` on.
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
  // Begins one, in wait() at the latest. At most as many at a time as the queue was made for.
  virtual void start(Io& io) = 0;
  // Sleeps until an Io ends, wake() is called or the time is over (0: does not sleep). Returns how
  // many of `ended` it filled in.
  virtual size_t wait(std::span<Io*> ended, uint64_t timeout_ns) = 0;
  virtual void wake() noexcept = 0;
  virtual std::string_view name() const noexcept = 0;  // For logs: "io_uring", "threads".
};

// None of these follows a symbolic link at the end of the path, or waits for a pipe.
enum class OpenAs : uint8_t {
  existing,         // To read and write.
  created,          // The same, created if missing (0600).
  made_new,         // To write; created (0600). -EEXIST: the path exists.
  created_direct,   // The same, past the page cache: -EINVAL: the file system cannot.
  existing_direct,  // To read and write past the page cache.
  read_only,
};

struct FileStat {
  bool regular = false, directory = false;
  uint64_t device = 0, inode = 0;
  uint64_t bytes = 0;
  uint64_t modified_ns = 0;  // Since 1970.

  friend bool operator==(const FileStat&, const FileStat&) = default;
};

class Files {
 public:
  virtual ~Files() = default;

  // ---- An open file -----------------------------------------------------------------------------

  // -ELOOP: not a plain file, but a link, a pipe or the like.
  virtual int open(const std::string& path, OpenAs as) = 0;
  // Over NFS, the bytes reach the server, or fail to, in this call.
  virtual int close(int file) = 0;
  virtual int64_t read(int file, uint64_t offset, std::span<uint8_t> into) = 0;
  virtual int64_t write(int file, uint64_t offset, std::span<const uint8_t> from) = 0;
  virtual int datasync(int file) = 0;
  virtual int stat(int file, FileStat& out) = 0;
  virtual int set_time(int file, uint64_t modified_ns) = 0;
  // Locks it for this process until closed; -EWOULDBLOCK: another process has it.
  virtual int lock(int file) = 0;
  virtual int64_t size(int file) = 0;
  virtual int truncate(int file, uint64_t bytes) = 0;
  // The range then exists, has its room, and reads as before, or as zeros if it is new.
  virtual int allocate(int file, uint64_t offset, uint64_t bytes) = 0;
  // The range then reads as zeros and keeps its room. -EOPNOTSUPP: use punch().
  virtual int zero(int file, uint64_t offset, uint64_t bytes) = 0;
  // The range then reads as zeros and frees its room; the file's size stays.
  virtual int punch(int file, uint64_t offset, uint64_t bytes) = 0;
  // Whether `path` names this open file: 1, or 0 if it was removed, moved or replaced.
  virtual int is_at(int file, const std::string& path) = 0;

  // ---- Names ------------------------------------------------------------------------------------

  virtual int stat(const std::string& path, FileStat& out) = 0;  // Of a link, the link itself.
  virtual int touch(const std::string& path, uint64_t modified_ns) = 0;
  virtual int link(const std::string& from, const std::string& to) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& path) = 0;

  // ---- Directories ------------------------------------------------------------------------------

  virtual int make_directory(const std::string& path) = 0;    // 0700. -EEXIST: the path exists.
  virtual int remove_directory(const std::string& path) = 0;  // -ENOTEMPTY: it is not empty.
  virtual int sync_directory(const std::string& path) = 0;
  virtual int sync_all(const std::string& path) = 0;  // The whole file system that it lies on.
  // The names in it, without "." and "..", in the order that finds their files fastest.
  virtual int list(const std::string& path, std::vector<std::string>& out) = 0;

  // A queue for at most `depth` at a time. Null: no memory, or these Files have no queues.
  virtual std::unique_ptr<IoQueue> queue(uint32_t depth) = 0;
};

inline bool is_full(int64_t result) noexcept { return result == -ENOSPC || result == -EDQUOT; }
// This place cannot be read or written, but others may. Disks report that in several ways.
inline bool is_bad_place(int64_t result) noexcept {
  return result == -EIO || result == -ENODATA || result == -EILSEQ || result == -EBADMSG ||
         result == -EUCLEAN;
}

using MakeQueue = std::function<std::unique_ptr<IoQueue>(uint32_t depth)>;

// The machine's own. Without `queues`, queue() gives none.
std::unique_ptr<Files> make_system_files(MakeQueue queues = {});

}  // namespace stemma::tier
