// KeyRing: a directory with one random key for each scope. Entries that are sealed
// (stemma/tier/sealed_tier.h) can be read only with the key of their scope, so dropping a key
// erases everything that was sealed with it, in every tier and in every copy of one.
//
// A key is a file of 72 bytes, named after the fingerprint of its scope (owner_of()):
// "00c0ffee00c0ffee.key". docs/formats/key-ring.md draws it. The first put of a scope makes its
// key. Several processes may use one directory at the same time: if two make the same key, the
// first one wins and the second one uses it.
//
//   no file --make()--> X.key --drop()--> renamed, overwritten, synced, unlinked --> no file
//                         '--- a key in memory is compared with its file, at most once per check_ns
//
// Invariant:  a key that make() returns lies on disk: file and directory were synced. A file that
//             is damaged, readable by others, or made for another scope is never used and never
//             overwritten.
// Threading:  thread-safe. find(), make() and drop() read and write files; held() does not. Locks
//             are not held during file access.
// Ownership:  keys are shared. A key is wiped from memory when its last user releases it: after
//             drop(), when the entries being sealed or opened with it have ended.
// Cost:       one stat per check_ns for each key in use. About 250 bytes for each of at most
//             keys_in_memory keys.
// Errors:     corrupt (the file is not a key file, or another scope's), unsupported (a newer
//             version), invalid_argument (others may read it), copy_failed (the system refuses: the
//             value is its errno). problem() names the file and says what to do; each problem is
//             logged once.
//
// It does not protect against anyone who can read the directory or the memory of the server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/clock.h"
#include "stemma/result.h"

namespace stemma::tier {

class ScopeKey;  // The contents of a key file, ready for use: src/tier/seal/scope_key.h.

struct KeyRingOptions {
  // Created with mode 0700 if missing; its parent must exist. Refused if others can enter or read
  // it.
  std::string path = {};
  // How long a key in memory is used without checking its file. So a key that another process
  // dropped may still be used for this long.
  uint64_t check_ns = 1'000'000'000;
  uint32_t keys_in_memory = 4096;  // Others are read again when they are needed.
  const Clock* clock = nullptr;    // Null: the machine's. Otherwise it must outlive the ring.
};

class KeyRing {
 public:
  using Key = std::shared_ptr<const ScopeKey>;

  virtual ~KeyRing() = default;

  // Also finishes a drop() that was cut off. Error: as above, and out_of_memory. `why` tells an
  // operator which file is wrong, and how.
  static Result<std::shared_ptr<KeyRing>> open(const KeyRingOptions& options, std::string& why);

  // Returns the key if it is in memory and its file was checked within check_ns; otherwise null. No
  // I/O.
  virtual Key held(uint64_t owner) const = 0;
  // The key of this scope; null if there is none.
  virtual Result<Key> find(uint64_t owner) = 0;
  // The key of this scope, which is made if there is none.
  virtual Result<Key> make(uint64_t owner) = 0;
  // Overwrites and removes the key's file; returns whether there was one. When this returns without
  // an error, nobody without a copy of that file can read anything sealed with the key. Other
  // processes notice within check_ns. The next put of the scope makes a new key, which opens none
  // of the old entries.
  virtual Result<bool> drop(uint64_t owner) = 0;

  // The last thing that went wrong, for an operator; empty when nothing did.
  virtual std::string problem() const = 0;
  virtual const std::string& path() const noexcept = 0;
};

}  // namespace stemma::tier
