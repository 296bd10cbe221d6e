// FileSystem: everything that the shared tier asks of a file system, so that a test can fail, stall or
// forget any of it. Calls return what the system would, or -errno.
// Threading: thread-safe. Any call may block for as long as the file system likes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stemma::tier::shared {

struct FileStat {
  bool regular = false, directory = false;
  uint64_t device = 0, inode = 0;
  uint64_t bytes = 0;
  uint64_t modified_ns = 0;  // Since 1970.

  friend bool operator==(const FileStat&, const FileStat&) = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Follows no symbolic link and waits for no pipe.
  virtual int open(const std::string& path) = 0;
  virtual int create(const std::string& path) = 0;  // To write, 0600. -EEXIST: something is there.
  // Over NFS this is where bytes reach the server, or turn out not to.
  virtual int close(int file) = 0;
  virtual int64_t read(int file, uint64_t offset, std::span<uint8_t> into) = 0;
  virtual int64_t write(int file, uint64_t offset, std::span<const uint8_t> from) = 0;
  virtual int datasync(int file) = 0;
  virtual int set_time(int file, uint64_t modified_ns) = 0;
  virtual int touch(const std::string& path, uint64_t modified_ns) = 0;
  virtual int stat(int file, FileStat& out) = 0;
  virtual int stat(const std::string& path, FileStat& out) = 0;  // Of a link, the link itself.
  virtual int link(const std::string& from, const std::string& to) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& path) = 0;
  virtual int make_directory(const std::string& path) = 0;    // 0700.
  virtual int remove_directory(const std::string& path) = 0;  // -ENOTEMPTY: something is in it.
  virtual int sync_directory(const std::string& path) = 0;
  virtual int sync_all(const std::string& path) = 0;  // The whole file system that it lies on.
  // The names in it, without "." and "..", in the order in which their files are found fastest.
  virtual int list(const std::string& path, std::vector<std::string>& out) = 0;
};

// The machine's own.
std::shared_ptr<FileSystem> make_system();

}  // namespace stemma::tier::shared
