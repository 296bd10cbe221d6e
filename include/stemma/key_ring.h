// KeyRing: a directory with one random key for each scope. Entries that are sealed
// (stemma/sealed_tier.h) can be read only with the key of their scope, so dropping a key erases
// everything that was sealed with it, in every tier and in every copy of one.
//
// A key is a file of 72 bytes, named after the fingerprint of its scope (owner_of()):
// "00c0ffee00c0ffee.key". docs/formats/key-ring.md draws it. It is made when the first entry of its
// scope is put. Several processes may use one directory at a time: of two that make the same key,
// the first one wins and the second one uses it.
//
//   no file --make()--> X.key --drop()--> renamed, overwritten, synced, unlinked --> no file
//                         '--- a key in memory is compared with its file, at most once in check_ns
//
// Invariant:  a key that make() returns lies on disk: file and directory were synced. A file that
//             is damaged, or that others may read, or that was made for another scope, is never
//             used and never overwritten.
// Threading:  thread-safe. find(), make() and drop() read and write files; held() does not. No file
//             is touched while a lock is held.
// Ownership:  keys are shared. A key is wiped from memory when the last one who uses it lets go of
//             it, which after drop() is when the entries that are being sealed or opened with it
//             have ended.
// Cost:       one stat for each key in use and check_ns. About 250 bytes for each of at most
//             keys_in_memory keys.
// Errors:     corrupt (the file is not a key file, or another scope's), unsupported (a newer
//             version), invalid_argument (others may read it), copy_failed (the system refuses: the
//             value is its errno). problem() names the file and says what to do; it is logged, once
//             for each problem.
//
// What it does not protect against: somebody who can read the directory or the memory of the
// server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/clock.h"
#include "stemma/result.h"

namespace stemma::tier {

class ScopeKey;  // What is in a key file, ready to be used: src/tier/seal/scope_key.h.

struct KeyRingOptions {
  // Made with mode 0700 if it is not there; what it lies in must be. One that others can enter or
  // read is refused.
  std::string path = {};
  // A key in memory is used for so long without a look at its file. So a key that another process
  // dropped is still used for that long.
  uint64_t check_ns = 1'000'000'000;
  uint32_t keys_in_memory = 4096;  // Others are read again when they are needed.
  const Clock* clock = nullptr;    // Null: the machine's. Otherwise it must outlive the ring.
};

class KeyRing {
 public:
  using Key = std::shared_ptr<const ScopeKey>;

  virtual ~KeyRing() = default;

  // Finishes what a drop() left behind that was cut off. Error: as above, and out_of_memory. `why`
  // tells an operator what is wrong with which file.
  static Result<std::shared_ptr<KeyRing>> open(const KeyRingOptions& options, std::string& why);

  // The key, if it is in memory and its file was looked at lately; otherwise null. No I/O.
  virtual Key held(uint64_t owner) const = 0;
  // The key of this scope; null if there is none.
  virtual Result<Key> find(uint64_t owner) = 0;
  // The key of this scope, which is made if there is none.
  virtual Result<Key> make(uint64_t owner) = 0;
  // Overwrites and removes the key's file. True: there was one. When this returns without an error,
  // nothing that was sealed with the key can be read any more by anybody who has no copy of the
  // key's file. Other processes notice within check_ns. The next put of the scope makes a new key,
  // which opens none of the old entries.
  virtual Result<bool> drop(uint64_t owner) = 0;

  // The last thing that went wrong, for an operator; empty when nothing did.
  virtual std::string problem() const = 0;
  virtual const std::string& path() const noexcept = 0;
};

}  // namespace stemma::tier
