// SimFiles: a file system in memory that can fail any call, hold I/O back, and lose power.
//
// It remembers each write since a file's last sync. after_power_loss() returns a file system as it
// may be found afterwards: of each such write all, nothing, or its beginning up to any byte is
// there. Writes that were not yet performed count as such writes too. A sync that fails forgets the
// writes before it, as kernels do: a later sync does not cover them.
// Threading: thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tier/files.h"

namespace stemma::test {

using tier::Files;
using tier::FileStat;
using tier::Io;
using tier::IoQueue;
using tier::OpenAs;

class SimFiles final : public Files {
 public:
  // Returns how call number `nth` (from 0) of this name ends: normally; with -errno; or, for "read"
  // and "write", after this many bytes at most. Names are those of Files, and "io.read",
  // "io.write", "io.sync".
  using OnCall = std::function<std::optional<int64_t>(std::string_view call, uint64_t nth)>;

  explicit SimFiles(uint64_t seed = 1) : random_(seed * 2 + 1) {}

  void on_call(OnCall what);
  // While held, queues perform no I/O.
  void hold(bool held);
  // Waits until this many I/Os are held back.
  void wait_for_held(size_t count);
  uint64_t calls(const std::string& name) const;
  std::map<std::string, uint64_t> all_calls() const;
  std::unique_ptr<SimFiles> after_power_loss(uint64_t seed) const;
  // Bytes that take up space: all pages but holes.
  uint64_t taken_bytes(const std::string& path) const;
  // The stored bytes, to look at or to damage. Not while a tier is working.
  std::vector<uint8_t>& bytes_of(const std::string& path);
  // From now on reads of these bytes fail with -EIO; so do writes, if `writes` says so.
  void make_bad(const std::string& path, uint64_t offset, uint64_t bytes, bool writes = false);
  void make_good(const std::string& path);
  // Removes a directory and its contents, as another program would.
  void remove_all(const std::string& path);
  bool supports_direct = true;
  bool supports_zero = true;

  int open(const std::string& path, OpenAs as) override;
  int close(int file) override;
  int lock(int file) override;
  int64_t size(int file) override;
  int truncate(int file, uint64_t bytes) override;
  int allocate(int file, uint64_t offset, uint64_t bytes) override;
  int zero(int file, uint64_t offset, uint64_t bytes) override;
  int punch(int file, uint64_t offset, uint64_t bytes) override;
  int64_t read(int file, uint64_t offset, std::span<uint8_t> into) override;
  int64_t write(int file, uint64_t offset, std::span<const uint8_t> from) override;
  int datasync(int file) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink(const std::string& path) override;
  int make_directory(const std::string& path) override;
  int is_at(int file, const std::string& path) override;
  int stat(int file, FileStat& out) override;
  int stat(const std::string& path, FileStat& out) override;
  int set_time(int file, uint64_t modified_ns) override;
  int touch(const std::string& path, uint64_t modified_ns) override;
  int link(const std::string& from, const std::string& to) override;
  int remove_directory(const std::string& path) override;
  int sync_all(const std::string& path) override;
  int sync_directory(const std::string& path) override;
  int list(const std::string& path, std::vector<std::string>& out) override;
  std::unique_ptr<IoQueue> queue(uint32_t depth) override;

 private:
  friend class SimQueue;
  struct Unsynced {
    uint64_t offset = 0;
    std::vector<uint8_t> bytes;
  };
  struct File {
    std::vector<uint8_t> bytes;         // As it is.
    std::vector<uint8_t> durable;       // As it was at its last sync.
    std::vector<Unsynced> since;        // Writes since then; a change of size counts as synced.
    std::vector<bool> taken;            // Pages that take room.
    uint64_t bad_from = 0, bad_to = 0;  // Bytes that cannot be read,
    bool bad_writes = false;            // nor written.
    bool locked = false;
    uint64_t modified_ns = 0;
  };
  struct Open {
    std::shared_ptr<File> file;
    bool locks = false;
  };
  std::optional<int64_t> fate(const char* name);
  uint64_t random();
  File* find(int file);
  void resize(File& file, uint64_t bytes);
  void put(File& file, uint64_t offset, std::span<const uint8_t> from);
  int64_t perform(const Io& io);
  static void describe(const File& file, FileStat& out);
  static bool is_bad(const File& file, uint64_t offset, uint64_t bytes, bool writes);
  static int64_t sync(File& file, std::optional<int64_t> said);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<File>> names_;
  std::map<std::string, bool> directories_;
  std::map<int, Open> open_;
  int next_file_ = 100;
  std::map<std::string, uint64_t> calls_;
  OnCall on_call_;
  bool held_ = false;
  std::vector<Io*> waiting_;  // Of all queues.
  uint64_t random_;
};

}  // namespace stemma::test
