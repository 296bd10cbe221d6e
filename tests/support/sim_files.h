// SimFiles: a file system in memory that can fail any call, hold I/O back, and lose its power.
//
// What was written since a file's last sync is remembered write by write. after_power_loss() is another
// file system, as it may be found then: of each such write all, nothing, or its beginning up to any byte
// is there, and what had not even been performed counts as such a write too. A sync that fails
// forgets what was written before it, as kernels do: a later one says nothing about that.
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

#include "tier/disk/files.h"

namespace stemma::test {

using tier::disk::Files;
using tier::disk::Io;
using tier::disk::IoQueue;
using tier::disk::OpenAs;

class SimFiles final : public Files {
 public:
  // What becomes of call number `nth` (from 0) of this name: nothing special; -errno; or, for "read" and
  // "write", so many bytes at most. Names are those of Files, and "io.read", "io.write", "io.sync".
  using OnCall = std::function<std::optional<int64_t>(std::string_view call, uint64_t nth)>;

  explicit SimFiles(uint64_t seed = 1) : random_(seed * 2 + 1) {}

  void on_call(OnCall what);
  // While it is held, I/O of queues does not happen.
  void hold(bool held);
  // Waits until so many I/Os are held back.
  void wait_for_held(size_t count);
  uint64_t calls(const std::string& name) const;
  std::map<std::string, uint64_t> all_calls() const;
  std::unique_ptr<SimFiles> after_power_loss(uint64_t seed) const;
  // Bytes that take room: everything but holes, in pages.
  uint64_t taken_bytes(const std::string& path) const;
  // The bytes as they lie there, to be looked at or damaged. Not while a tier is at work.
  std::vector<uint8_t>& bytes_of(const std::string& path);
  // Reads of these bytes fail from now on (-EIO), and writes too if asked for.
  void make_bad(const std::string& path, uint64_t offset, uint64_t bytes, bool writes = false);
  void make_good(const std::string& path);
  // Removes a directory and what is in it, as somebody else would.
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
    std::vector<Unsynced> since;        // Written since; a change of size counts as synced.
    std::vector<bool> taken;            // Pages that take room.
    uint64_t bad_from = 0, bad_to = 0;  // Bytes that cannot be read,
    bool bad_writes = false;            // nor written.
    bool locked = false;
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
