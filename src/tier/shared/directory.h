// Directory: the files of a shared tier, and how they are read, published and removed. It keeps no books.
//
// Bytes go through pieces of memory of the calling thread's own: of the caller's they are copied while it
// lends it (Loan), so whoever does not want to wait for a stalled file system takes the loan back and goes.
//
// Invariant:  a file under an entry's name is whole from the instant it is there: it is written and closed
//             under a temporary name in the same folder, then linked, or renamed where links are not known or
//             something else is to be replaced. What does not hold is removed only if it is still the file
//             that was looked at. Nothing whose name is not ours is touched, nor an entry of a newer format.
// Threading:  thread-safe; every call may block for as long as the file system does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "tier/entry.h"
#include "tier/purge_choice.h"
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

  // Makes it, or makes sure that it is one. Error: corrupt (something else lies there), unsupported (a newer
  // version), copy_failed (errno), invalid_argument (no directory).
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
  // A temporary that somebody else removes meanwhile is written once more; if that one goes, too, this put has
  // failed, and the file system is not to blame.
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
  // Shows the choice the entries of a folder that the purge names; or removes those that it takes,
  // and says which; after sync_folder() they do not come back. `go_on` is asked before each; false
  // ends it. 0 or -errno: the first thing that failed; what comes after it is still tried. Where
  // names tell all, files are removed unread, also those that a newer version wrote.
  enum class PurgeStep : uint8_t { look, remove };
  int purge(uint32_t folder, const Purge& what, PurgeStep step, const std::function<bool()>& go_on,
            PurgeChoice& choice, std::vector<EntryKey>& gone);
  int sync_folder(uint32_t folder);
  // Temporaries last written before `leftover_ns` are removed. 0 or -errno.
  int list(uint32_t folder, uint64_t leftover_ns, Folder& out);
  int sync_all() { return files_->sync_all(path_); }

  // For whoever inspects; these remove nothing. What its header says, and with `verify` all of it.
  enum class Found : uint8_t { absent, whole, damaged, newer, foreign, failed };
  Found look(const EntryKey& key, EntryHeader& header);
  Found verify(const EntryKey& key, EntryHeader& header);

  const std::string& path() const noexcept { return path_; }
  std::string path_of(const EntryKey& key) const;

 private:
  struct Opened;
  Opened open_entry(const EntryKey& key);
  // `take` is given the payload piece by piece; false ends it. Damaged or failed otherwise.
  using Take = std::function<bool(uint64_t offset, std::span<const uint8_t> piece)>;
  Answer read_body(Opened& opened, std::vector<uint32_t>& words, const Take& take);
  Answer not_believed(const Opened& opened, const EntryKey& key);
  int remove_unread(const std::string& path, const EntryKey& key, PurgeChoice& choice);
  int write_file(int file, const TierItem& item, const PutOptions& options, Loan& loan, bool& cut);
  Answer put_once(const TierItem& item, const PutOptions& options, Loan& loan);
  Answer publish(const std::string& temporary, const TierItem& item);
  // Whether a put ended so because a file or folder of its own is gone, while the directory is there.
  bool has_vanished(const Answer& answer);
  int create_temporary(uint32_t folder, std::string& path);
  int write_marker();

  const std::string path_;
  const std::shared_ptr<FileSystem> files_;
  const std::string prefix_;  // Of our temporaries.
  std::atomic<uint64_t> temporaries_{0};
  std::atomic<bool> vanishing_told_{false};
  uint64_t device_ = 0, parent_device_ = 0;
};

}  // namespace stemma::tier::shared
