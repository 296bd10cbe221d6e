// SealedTier: any tier, with entries that are encrypted and authenticated before they reach it.
//
// Each scope has its own key in a KeyRing. Anyone who reads or writes the inner tier without that
// key learns the sizes and positions of entries and which of them belong to one scope, and nothing
// else. They cannot read an entry, find out whether a known prompt is stored, or make an entry that
// is served. They can remove and damage entries, which causes misses.
//
//   put:  submit() --> queue --> threads: seal into staging memory --> inner tier --> items end
//         (a small put is sealed inside submit(), if its key and staging memory are at hand)
//   get:  submit() --> inner tier, into staging memory --> threads: open --> items end
//
// Entries are sealed with AES-256-GCM under a key of their own, which is derived from the scope's
// key and a random 24-byte nonce (XAES-256-GCM;
// docs/decisions/0027-entries-are-sealed-under-keys-of-their-own.md). The entry's key, kind, group,
// positions, layout and size are authenticated too. docs/formats/sealed-entry.md draws the bytes.
//
// Invariant:  a get that ends as `done` gives what a holder of the scope's key put under that key,
//             whole and unchanged. No plaintext reaches the inner tier: names that only the scope's
//             key can compute replace the keys of entries (the last 8 bytes stay, so owner_of()
//             still tells the scope), and fingerprints replace the layouts.
// Keys:       a put makes its scope's key if there is none. Without the key all other operations
//             end as `absent`. Entries sealed with a dropped key are `absent` too: they are not
//             found, and are evicted when their room is needed. If a key file cannot be used, items
//             end as failed; nothing is served or overwritten.
// Purge:      a purge of a whole scope also drops its key. Sealed entries do not name their
//             parents, so Purge::follows takes every entry that is deep enough, as `unsure`.
// Words:      not kept (EntryInfo::words is 0 in answers): they are the prompt, and no call reads
//             them back.
// Corrupt:    an entry that has the right name but does not authenticate is `corrupt`, and is
//             removed from the inner tier. The caller's room then holds nothing of it.
// Order:      a large batch reaches the inner tier in parts, so that sealing and writing overlap.
//             Afterwards it tells the inner tier the order of use, so that the deepest entry still
//             goes first.
// Threading:  thread-safe. submit() does no I/O and does not wait. If the keys are in memory,
//             contains, touch, remove, gets and small puts reach the inner tier inside submit().
//             on_done runs on a thread of this tier or of the inner one, or inside submit().
// Memory:     at most staging_bytes for puts and as much for gets, or one larger entry. Other items
//             wait in the queue, until their deadline. Beyond queue_items, puts are refused and
//             others fail.
// Deadlines:  hold only while the key directory answers; keep it on a local disk.
// Ownership:  owns the inner tier.
// Cost:       64 bytes an entry, one pass of AES-256-GCM over the bytes, and a copy into staging
//             memory.
#pragma once

#include <cstdint>
#include <memory>

#include "stemma/result.h"
#include "stemma/tier/key_ring.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {

struct SealedTierOptions {
  std::shared_ptr<KeyRing> keys = {};
  uint32_t threads = 2;  // Threads that seal and open entries; 1 to 64.
  uint64_t staging_bytes = uint64_t{128} << 20U;
  // A batch goes to the inner tier in parts of about this size, unless it is so large that entries
  // of the same batch could evict each other.
  uint64_t part_bytes = uint64_t{1} << 20U;
  // A put of at most this many bytes is sealed inside submit(), which takes less time than handing
  // it to a thread: 64 KiB take 3 microseconds with IPsec MB and 11 with OpenSSL. 0: no put is
  // sealed there.
  uint64_t at_once_bytes = uint64_t{72} << 10U;
  uint32_t queue_items = 1U << 16U;
};

// What sealing adds to a payload.
inline constexpr uint64_t kSealBytes = 64;

// The layout that the inner tier sees for entries of this layout. Applied twice it gives the layout
// back.
uint64_t sealed_layout(uint64_t layout) noexcept;

// The new tier has the inner tier's name and traits, except that max_entry_bytes is kSealBytes
// less. Error: invalid_argument (options), out_of_memory, unsupported (the system's OpenSSL has no
// AES-256-GCM).
Result<std::unique_ptr<Tier>> make_sealed_tier(std::unique_ptr<Tier> inner,
                                               const SealedTierOptions& options);

}  // namespace stemma::tier
