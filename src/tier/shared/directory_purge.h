// DirectoryPurge: one purge of a shared directory, folder by folder, on as many threads as there are.
//
//   for each folder: look(), where single entries do not tell --> for each folder: remove() --> finish()
//
// A put that has begun has a temporary file in the folder of its scope. The purge removes it, so that
// the put cannot be published any more, whoever does it, on whatever machine, and however late. For
// that a folder is listed twice: a temporary that was there before is found by the first listing, or
// its entry by the second.
//
// Invariant:  when remove() has ended for all folders and finish() says 0, no entry and no temporary is
//             left that the purge takes and that was there when remove() began; none comes back after
//             a loss of power.
// Threading:  look() and remove() from many threads at once; the rest on one thread before or after.
// Cost:       a scope's purge lists the scope's own folders and removes its files unread. Any other
//             purge reads the header of every entry that it could take.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "tier/purge_choice.h"
#include "tier/shared/directory.h"

namespace stemma::tier::shared {

class DirectoryPurge {
 public:
  // `go_on` is asked before each file, on any of the threads; false ends the purge early.
  DirectoryPurge(Directory& directory, const Purge& what, std::function<bool()> go_on)
      : directory_(directory), what_(what), go_on_(std::move(go_on)), choice_(what_) {}

  bool looks_first() const noexcept { return choice_.looks_first(); }
  void look(uint32_t folder);
  // Says which entries are gone. All three throw std::bad_alloc.
  void remove(uint32_t folder, std::vector<EntryKey>& gone);
  // Removes what earlier versions wrote, whosever it is: nobody can tell.
  void remove_old();
  // Makes it last. 0, or the first errno of all; what comes after a failure is still tried.
  // EPROTONOSUPPORT: entries of a newer version were left, because only they know what they are.
  int finish();
  const Purged& purged() const noexcept { return choice_.purged; }

 private:
  using Names = std::unordered_set<std::string>;
  std::vector<uint64_t> owners_in(uint32_t folder);
  void remove_listed(uint32_t folder, uint64_t owner, Names& seen, std::vector<EntryKey>& gone);
  bool remove_temporary(const std::string& path);
  bool remove_unread(const std::string& path, const EntryKey& key);
  bool remove_if_taken(const std::string& path, const EntryKey& key);
  bool unlink(const std::string& path);
  void note(int result);
  void changed(const std::string& folder);

  Directory& directory_;
  const Purge what_;
  const std::function<bool()> go_on_;
  std::mutex mutex_;  // Guards everything below.
  PurgeChoice choice_;
  int problem_ = 0;                // -errno.
  std::set<std::string> to_sync_;  // Folders.
};

}  // namespace stemma::tier::shared
