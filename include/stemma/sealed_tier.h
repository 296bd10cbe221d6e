// SealedTier: any tier, with entries that are encrypted and authenticated before they reach it.
//
// Each scope has a key of its own in a KeyRing. Whoever reads or writes the inner tier without that
// key learns the sizes and positions of entries and which of them belong to one scope, and nothing
// else: it can neither read an entry, nor find out whether a known prompt is stored, nor make an
// entry that is served. It can remove and damage entries, which is a miss.
//
//   put:  submit() --> queue --> threads: seal into staging memory --> inner tier --> items end
//   get:  submit() --> queue --> inner tier, into staging memory --> threads: open --> items end
//
// Entries are sealed with AES-256-GCM under a key of their own, which is derived from the scope's
// key and a random 24-byte nonce (XAES-256-GCM;
// docs/decisions/0027-entries-are-sealed-under-keys-of-their-own.md). The entry's key, kind, group,
// positions, layout and size are authenticated with it. docs/formats/sealed-entry.md draws the
// bytes.
//
// Invariant:  what get() gives was put under that key by somebody who has the scope's key, whole
//             and unchanged, or it does not say `done`. No plaintext reaches the inner tier: keys
//             of entries are replaced by names that only the scope's key can compute (their last 8
//             bytes stay, so owner_of() still says whose they are), layouts by fingerprints of
//             their own.
// Keys:       a put makes its scope's key if there is none. Without the key everything else is
//             `absent`, as are entries that were sealed with a key that has been dropped: they are
//             not found, and go when their room is needed. A key file that cannot be used ends
//             items as failed; nothing is served or overwritten then.
// Purge:      of a whole scope drops its key, too. Entries do not name their parents here, so
//             Purge::follows takes every entry that is deep enough, as `unsure`.
// Words:      are not kept (EntryInfo::words is 0 in answers): they are the prompt, and no call
//             reads them back.
// Corrupt:    an entry under its name that does not authenticate is `corrupt`, and is removed from
//             the inner tier. The room that was given for it holds nothing of it.
// Order:      a large batch reaches the inner tier in parts, so that sealing and writing overlap.
//             Afterwards the inner tier is told the order of use, so that the deepest entry is
//             still the first to go.
// Threading:  thread-safe. submit() does no I/O and does not wait. contains, touch and remove reach
//             the inner tier inside submit() while the keys are in memory. on_done runs on a thread
//             of this or of the inner tier.
// Memory:     at most staging_bytes for puts and as much for gets, or one entry that is larger.
//             What does not fit waits in the queue, until its deadline. Beyond queue_items further
//             puts are refused and the rest fails.
// Deadlines:  hold as long as the key directory answers; it should lie on a local disk.
// Ownership:  owns the inner tier.
// Cost:       64 bytes an entry, one pass of AES-256-GCM over the bytes, and a copy into staging
//             memory.
#pragma once

#include <cstdint>
#include <memory>

#include "stemma/key_ring.h"
#include "stemma/result.h"
#include "stemma/tier.h"

namespace stemma::tier {

struct SealedTierOptions {
  std::shared_ptr<KeyRing> keys = {};
  uint32_t threads = 2;  // That seal and open; 1 to 64.
  uint64_t staging_bytes = uint64_t{128} << 20U;
  // A batch goes to the inner tier in parts of about this size, unless it is so large that entries
  // of the same batch could evict each other.
  uint64_t part_bytes = uint64_t{1} << 20U;
  uint32_t queue_items = 1U << 16U;
};

// What sealing adds to a payload.
inline constexpr uint64_t kSealBytes = 64;

// The layout that the inner tier sees for entries of this layout. Applied twice it gives the layout
// back.
uint64_t sealed_layout(uint64_t layout) noexcept;

// The name and the traits are those of the inner tier, but for max_entry_bytes, which is kSealBytes
// less. Error: invalid_argument (options), out_of_memory, unsupported (the system's OpenSSL has no
// AES-256-GCM).
Result<std::unique_ptr<Tier>> make_sealed_tier(std::unique_ptr<Tier> inner,
                                               const SealedTierOptions& options);

}  // namespace stemma::tier
