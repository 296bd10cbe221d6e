// DirectoryPurge: one purge of a shared directory, folder by folder, on all available threads.
//
//   for each folder: look(), if one entry cannot tell --> for each folder: remove() --> finish()
//
// A put that has begun has a temporary file in the folder of its scope. The purge removes it, so
// that no process on any machine can publish the put any more, however late. For that a folder is
// listed twice: the first listing finds a temporary that was there before, or the second finds its
// entry.
//
// Invariant:  when remove() has ended for all folders and finish() returns 0, every entry and
//             temporary that was there when remove() began and that the purge takes is gone; none
//             comes back after a loss of power.
// Threading:  look() and remove() on many threads at once; the rest on one thread, before or after.
// Cost:       a scope's purge lists the scope's own folders and removes its files unread. Any other
//             purge reads the header of every entry that it could take.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/lock.h"
#include "tier/purge_choice.h"
#include "tier/shared/directory.h"

namespace stemma::tier::shared {

class DirectoryPurge {
 public:
  // `go_on` is asked before each file, on any of the threads; false ends the purge early.
  DirectoryPurge(Directory& directory, const Purge& what, std::function<bool()> go_on)
      : directory_(directory), what_(what), go_on_(std::move(go_on)), choice_(what_) {}

  bool looks_first() const {
    const base::Lock lock(mutex_);
    return choice_.looks_first();
  }
  void look(uint32_t folder);
  // Reports the entries that are gone. All three throw std::bad_alloc.
  void remove(uint32_t folder, std::vector<EntryKey>& gone);
  // Removes what earlier versions wrote, of any scope: nobody can tell its scope.
  void remove_old();
  // Makes the purge durable. Returns 0 or the first errno; work after a failure is still tried.
  // EPROTONOSUPPORT: entries of a newer version were left, because only newer versions can read
  // them.
  int finish();
  Purged purged() const {
    const base::Lock lock(mutex_);
    return choice_.purged;
  }

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
  mutable base::WaitMutex mutex_;  // Guards everything below.
  PurgeChoice choice_ STEMMA_GUARDED_BY(mutex_);
  int problem_ STEMMA_GUARDED_BY(mutex_) = 0;                // -errno.
  std::set<std::string> to_sync_ STEMMA_GUARDED_BY(mutex_);  // Folders.
};

}  // namespace stemma::tier::shared
