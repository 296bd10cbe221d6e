// Directory reads, publishes and removes the files of a shared tier. It keeps no books.
//
// Bytes go through memory of the calling thread, and are copied from or to the caller's memory
// while the caller lends it (Loan). So a caller that will not wait for a stalled file system takes
// the loan back and leaves.
//
// Invariant:  a file under an entry's name is whole from the instant it appears: it is written and
//             closed under a temporary name in the same folder, then linked, or renamed if links
//             are not supported or a file must be replaced. A put whose temporary is gone has
//             failed and is not retried: a purge may have taken it. A corrupt file is removed only
//             if it is still the one that was read. Files whose names are not ours, and entries of
//             a newer format, are never touched.
// Threading:  thread-safe; every call may block for as long as the file system does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tier/entry.h"
#include "tier/files.h"
#include "tier/shared/books.h"

namespace stemma::tier::shared {

// The right to touch the memory that an item names. It may end at any time except between take()
// and give().
class Loan {
 public:
  virtual ~Loan() = default;
  virtual bool take() noexcept = 0;
  virtual void give() noexcept = 0;
};

// How a call on one entry ended.
struct Answer {
  TierOutcome outcome = TierOutcome::failed;
  int problem = 0;  // errno, if the file system is to blame.
  bool already_there = false;
  bool gone = false;  // The file does not, or no longer, exist.
  EntryInfo info = {};
};

class Directory {
 public:
  Directory(std::string path, std::shared_ptr<Files> files);

  // Makes the directory, or checks that it is one of ours. Removes what an earlier version wrote.
  // Error: corrupt (something else is there), unsupported (a newer version), copy_failed (errno),
  // invalid_argument (no directory).
  Result<void> open();
  // Its version. Error: stale (there is none here), and those of open().
  Result<uint32_t> version();
  // 0, or -errno if its marker cannot be seen.
  int check();
  // Whether a missing directory is back: its marker is there, or it is empty on the same device as
  // before and gets a new marker. So nothing is written to the mount point of a lost mount.
  bool is_back();

  Answer contains(const EntryKey& key);
  // `done`: the loan was taken, and the caller must give it back.
  Answer get(const TierItem& item, Loan& loan);
  // `done`: an equal entry is there. `absent`: it may be put. `refused`: it must not be.
  Answer look_before_put(const EntryKey& key, const EntryInfo& info);
  struct PutOptions {
    bool durable = false;
    uint64_t used_ns = 0;
  };
  // If somebody else removes the temporary meanwhile, this put fails, and the file system is not to
  // blame.
  Answer put(const TierItem& item, const PutOptions& options, Loan& loan);
  Answer remove(const EntryKey& key);
  void touch(const EntryKey& key, uint64_t used_ns);

  // was_gone: somebody else had removed it.
  enum class Evicted : uint8_t { gone, was_gone, used_since, not_ours, failed };
  // Unless its file is newer than `on_file_ns`: then `used_ns` is set to its last use.
  Evicted evict(const EntryKey& key, uint64_t on_file_ns, uint64_t& used_ns, int& problem);

  struct Folder {
    std::vector<Books::Seen> seen;
    uint64_t temporary_bytes = 0;  // Others', perhaps still being written.
    uint64_t leftovers = 0, foreign = 0;
  };
  // Removes temporaries last written before `leftover_ns`, and scopes' folders that have been empty
  // since. 0 or -errno.
  int list(uint32_t folder, uint64_t leftover_ns, Folder& out);
  // Lists the scopes with a folder in this one, and counts everything else there. 0 or -errno.
  int list_scopes(uint32_t folder, std::vector<uint64_t>& owners, uint64_t& foreign);
  // Removes what earlier versions wrote, since nobody can tell its scope. `removed` counts files. 0
  // or -errno: the first failure; the rest is still tried.
  int remove_old(uint64_t& removed);
  int sync_all() { return files_->sync_all(path_); }

  // For inspection; they remove nothing. look() judges by the header, verify() by the whole entry.
  enum class Found : uint8_t { absent, whole, damaged, newer, foreign, failed };
  Found look(const EntryKey& key, EntryHeader& header);
  // `payload`: receives it if it is whole; null: not wanted.
  Found verify(const EntryKey& key, EntryHeader& header, std::vector<uint8_t>* payload = nullptr);

  // Reads a whole entry of any layout, and removes it if it is damaged: `corrupt`.
  Answer scrub(const EntryKey& key);

  const std::string& path() const noexcept { return path_; }
  std::string folder_path(uint32_t folder) const { return path_ + "/" + folder_name(folder); }
  std::string scope_path(uint32_t folder, uint64_t owner) const {
    return folder_path(folder) + "/" + scope_name(owner);
  }
  std::string path_of(const EntryKey& key) const;
  Files& files() const noexcept { return *files_; }

 private:
  struct Opened;
  Opened open_entry(const EntryKey& key);
  // `take` gets the payload piece by piece and may return false to end it. Otherwise damaged or
  // failed.
  using Take = std::function<bool(uint64_t offset, std::span<const uint8_t> piece)>;
  Answer read_body(Opened& opened, std::vector<uint32_t>& words, const Take& take);
  // `done`: the entry is whole, and `payload` has its bytes.
  Answer read_whole(Opened& opened, std::vector<uint8_t>& payload);
  Answer not_believed(const Opened& opened, const EntryKey& key);
  int write_file(int file, const TierItem& item, const PutOptions& options, Loan& loan, bool& cut);
  Answer write_and_publish(const TierItem& item, const PutOptions& options, Loan& loan);
  Answer publish(const std::string& temporary, const TierItem& item);
  // Whether a put ended this way because its own file or folder is gone, while the directory
  // exists.
  bool has_vanished(const Answer& answer);
  int list_scope(uint32_t folder, uint64_t owner, uint64_t leftover_ns, Folder& out);
  // `made`: its folder was new.
  int create_temporary(const EntryKey& key, std::string& path, bool& made);
  enum class Marker : uint8_t { if_absent, replaced };
  int write_marker(Marker how);

  const std::string path_;
  const std::shared_ptr<Files> files_;
  const std::string prefix_;  // Of our temporaries' names.
  std::atomic<uint64_t> temporaries_{0};
  std::atomic<bool> vanishing_told_{false};
  uint64_t device_ = 0, parent_device_ = 0;
};

}  // namespace stemma::tier::shared
