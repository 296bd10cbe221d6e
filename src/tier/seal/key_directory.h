// KeyDirectory: the files of a KeyRing; it caches nothing.
//
// Invariant:  a key file appears whole, by link(2), after a sync, and goes by rename(2) before it
//             is overwritten. So nobody sees half a key, and a dropped key never returns.
// Threading:  thread-safe.
// Cost:       read() takes an open, a stat and a read; make() two syncs.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/result.h"
#include "tier/seal/key_file.h"

namespace stemma::tier::seal {

// Identifies a file: another file has other numbers.
struct FileIdentity {
  uint64_t device = 0, inode = 0, changed_ns = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct StoredKey {
  KeyFile file;
  FileIdentity identity;
};

class KeyDirectory {
 public:
  // Here and below, `why` names the file and says what to do. A dropped key that cannot be erased
  // is logged.
  static Result<std::unique_ptr<KeyDirectory>> open(const std::string& path, std::string& why);
  ~KeyDirectory();
  KeyDirectory(const KeyDirectory&) = delete;
  KeyDirectory& operator=(const KeyDirectory&) = delete;

  // Null: there is no such file.
  Result<std::unique_ptr<StoredKey>> read(uint64_t owner, std::string& why) const;
  // The file that is there now; all zeros: none.
  Result<FileIdentity> identity(uint64_t owner, std::string& why) const;
  // Makes a key if there is none. Afterwards the file holds the key of the first process to make
  // one.
  Result<void> make(uint64_t owner, std::string& why) const;
  // Renames the file so that it is no longer found. False: there was none.
  Result<bool> hide(uint64_t owner, std::string& why) const;
  // Overwrites, syncs and unlinks hidden files: of this scope, or of all.
  Result<void> erase_hidden(uint64_t owner, std::string& why) const;
  Result<void> erase_all_hidden(std::string& why) const;

  const std::string& path() const noexcept { return path_; }
  std::string path_of(uint64_t owner) const;

 private:
  KeyDirectory(std::string path, int directory) : path_(std::move(path)), directory_(directory) {}
  Error refused(const char* what, const std::string& name, int error, std::string& why) const;
  Result<void> erase(const std::string& prefix, std::string& why) const;
  Result<void> wipe(const std::string& name, std::string& why) const;
  int open_to_wipe(const std::string& name) const;
  Result<void> write_temporary(const std::string& name, uint64_t owner, std::string& why) const;
  void remove_leftovers() const;

  const std::string path_;
  const int directory_;
};

// "00c0ffee00c0ffee".
std::string hex_of(uint64_t owner);

}  // namespace stemma::tier::seal
