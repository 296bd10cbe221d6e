// A MediaTable gives each distinct media item of a scope a small number, so that the words of a
// prompt can be compared as plain memory.
//
// Two items are the same only if their whole identities are equal; the hash only finds the bucket.
// A number means one item of one scope while it has references. After the last reference is dropped
// the number is free. The number freed last is reused first.
//
// Invariant:  a number in use has at least one reference, and no other number has the same scope
//             and identity; numbers are below the given limit, at most kMediaNumberLimit.
// Threading:  one thread at a time.
// Ownership:  plain values; references are counts that the caller must balance.
// Cost:       every call is O(1) expected. Only intern() allocates, and only to grow; the memory
//             stays for later items. 40 bytes an item, and 4 bytes a bucket, of which there are at
//             least as many as items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "key/words.h"
#include "stemma/result.h"

namespace stemma::key {

class MediaTable {
 public:
  explicit MediaTable(uint32_t limit = kMediaNumberLimit) noexcept;

  // The item's number, if it has one. Adds no reference.
  std::optional<uint32_t> find(uint32_t scope, const MediaIdentity& identity) const noexcept;

  // Returns the item's number, new or old, and adds a reference.
  // Error: out_of_memory if memory runs out or every number is in use; nothing has changed then.
  Result<uint32_t> intern(uint32_t scope, MediaIdentity identity) noexcept;

  // These two, identity() and scope() require a number in use.
  void add_reference(uint32_t number) noexcept;
  void drop_reference(uint32_t number) noexcept;

  // Valid until the next intern().
  const MediaIdentity& identity(uint32_t number) const noexcept { return used(number).identity; }
  uint32_t scope(uint32_t number) const noexcept { return used(number).scope; }

  size_t size() const noexcept { return size_; }  // Items in use.
  size_t bytes() const noexcept;                  // Memory held, this object included.
  void check_invariants() const;                  // Stops the process if the books do not balance.

 private:
  struct Entry {
    MediaIdentity identity;
    uint32_t scope;
    uint32_t next;  // In the bucket's chain, or in the list of free entries.
    uint64_t references;
  };

  const Entry& used(uint32_t number) const noexcept;
  Entry& used(uint32_t number) noexcept;
  uint32_t bucket_of(uint32_t scope, const MediaIdentity& identity) const noexcept;
  bool grow() noexcept;

  uint32_t limit_;
  std::vector<Entry> entries_;     // By number.
  std::vector<uint32_t> buckets_;  // First number of each chain; a power of two of them, or none.
  uint32_t first_free_;
  uint32_t size_ = 0;
};

}  // namespace stemma::key
