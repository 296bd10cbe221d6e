// Directory: the files of a shared tier, and how they are read, published and removed. It keeps no books.
//
// Bytes go through pieces of memory of the calling thread's own: of the caller's they are copied while it
// lends it (Loan), so whoever does not want to wait for a stalled file system takes the loan back and goes.
//
// Invariant:  a file under an entry's name is whole from the instant it is there: it is written and closed
//             under a temporary name in the same folder, then linked, or renamed where links are not known or
//             something else is to be replaced. A put whose temporary is gone has failed and is not begun
//             again: a purge may have taken it. What does not hold is removed only if it is still the file
//             that was looked at. Nothing whose name is not ours is touched, nor an entry of a newer format.
// Threading:  thread-safe; every call may block for as long as the file system does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tier/entry.h"
#include "tier/shared/books.h"
#include "tier/shared/file_system.h"

namespace stemma::tier::shared {

// The right to touch the memory that an item names. It may be gone at any time but between take() and give().
class Loan {
 public:
  virtual ~Loan() = default;
  virtual bool take() noexcept = 0;
  virtual void give() noexcept = 0;
};

// How a call on one entry ended.
struct Answer {
  TierOutcome outcome = TierOutcome::failed;
  int problem = 0;  // errno, where the file system is to blame.
  bool already_there = false;
  bool gone = false;  // There is no such file, or no longer.
  EntryInfo info = {};
};

class Directory {
 public:
  Directory(std::string path, std::shared_ptr<FileSystem> files);

  // Makes it, or makes sure that it is one. What an earlier version wrote is removed. Error: corrupt
  // (something else lies there), unsupported (a newer version), copy_failed (errno),
  // invalid_argument (no directory).
  Result<void> open();
  // Its version. Error: stale (there is none here), and as open() says.
  Result<uint32_t> version();
  // 0, or -errno where its marker cannot be seen.
  int check();
  // Whether it is there, after it was not: its marker is, or it is empty on the device that it was on before and
  // gets a new one. So nothing is written where it was mounted once.
  bool is_back();

  Answer contains(const EntryKey& key);
  // `done`: the loan is taken, and its taker's to give back.
  Answer get(const TierItem& item, Loan& loan);
  // Whether an equal one lies there: `done`. `absent`: it may be put. `refused`: it must not be.
  Answer look_before_put(const EntryKey& key, const EntryInfo& info);
  struct PutOptions {
    bool durable = false;
    uint64_t used_ns = 0;
  };
  // When somebody else removes the temporary meanwhile, this put has failed, and the file system is
  // not to blame.
  Answer put(const TierItem& item, const PutOptions& options, Loan& loan);
  Answer remove(const EntryKey& key);
  void touch(const EntryKey& key, uint64_t used_ns);

  // was_gone: somebody else had removed it.
  enum class Evicted : uint8_t { gone, was_gone, used_since, not_ours, failed };
  // Unless its file is newer than `on_file_ns`: then `used_ns` says when it was used.
  Evicted evict(const EntryKey& key, uint64_t on_file_ns, uint64_t& used_ns, int& problem);

  struct Folder {
    std::vector<Books::Seen> seen;
    uint64_t temporary_bytes = 0;  // Of others, that may still be written.
    uint64_t leftovers = 0, foreign = 0;
  };
  // Temporaries last written before `leftover_ns` are removed, and so are folders of scopes that have
  // been empty since. 0 or -errno.
  int list(uint32_t folder, uint64_t leftover_ns, Folder& out);
  // The scopes that have a folder in this one; counts what else lies there. 0 or -errno.
  int list_scopes(uint32_t folder, std::vector<uint64_t>& owners, uint64_t& foreign);
  // Removes what earlier versions wrote: nobody can tell whose it is. `removed` counts files. 0 or
  // -errno: the first thing that failed; the rest is still tried.
  int remove_old(uint64_t& removed);
  int sync_all() { return files_->sync_all(path_); }

  // For whoever inspects; these remove nothing. What its header says, and with `verify` all of it.
  enum class Found : uint8_t { absent, whole, damaged, newer, foreign, failed };
  Found look(const EntryKey& key, EntryHeader& header);
  Found verify(const EntryKey& key, EntryHeader& header);

  const std::string& path() const noexcept { return path_; }
  std::string folder_path(uint32_t folder) const { return path_ + "/" + folder_name(folder); }
  std::string scope_path(uint32_t folder, uint64_t owner) const {
    return folder_path(folder) + "/" + scope_name(owner);
  }
  std::string path_of(const EntryKey& key) const;
  FileSystem& files() const noexcept { return *files_; }

 private:
  struct Opened;
  Opened open_entry(const EntryKey& key);
  // `take` is given the payload piece by piece; false ends it. Damaged or failed otherwise.
  using Take = std::function<bool(uint64_t offset, std::span<const uint8_t> piece)>;
  Answer read_body(Opened& opened, std::vector<uint32_t>& words, const Take& take);
  Answer not_believed(const Opened& opened, const EntryKey& key);
  int write_file(int file, const TierItem& item, const PutOptions& options, Loan& loan, bool& cut);
  Answer write_and_publish(const TierItem& item, const PutOptions& options, Loan& loan);
  Answer publish(const std::string& temporary, const TierItem& item);
  // Whether a put ended so because a file or folder of its own is gone, while the directory is there.
  bool has_vanished(const Answer& answer);
  int list_scope(uint32_t folder, uint64_t owner, uint64_t leftover_ns, Folder& out);
  // `made`: its folder was not there before.
  int create_temporary(const EntryKey& key, std::string& path, bool& made);
  enum class Marker : uint8_t { if_absent, replaced };
  int write_marker(Marker how);

  const std::string path_;
  const std::shared_ptr<FileSystem> files_;
  const std::string prefix_;  // Of our temporaries.
  std::atomic<uint64_t> temporaries_{0};
  std::atomic<bool> vanishing_told_{false};
  uint64_t device_ = 0, parent_device_ = 0;
};

}  // namespace stemma::tier::shared
