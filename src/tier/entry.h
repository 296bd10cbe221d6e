// How an entry describes itself, in every tier: a header of 128 bytes, then the words if they are
// kept, then the payload. docs/formats/tier-entry.md draws every byte.
//
// A header from read_header() is consistent in itself; believe() tells whether it is the entry that
// a reader wants. Nothing here trusts a byte.
// Threading: pure functions. Cost: sum() reads every byte once, about as fast as memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stemma/result.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {

inline constexpr uint32_t kHeaderBytes = 128;
inline constexpr uint32_t kFormatVersion = 1;
// More than this is not written, and not believed.
inline constexpr uint64_t kMostPayloadBytes = uint64_t{1} << 40U;
inline constexpr uint32_t kMostPositions = 1U << 30U;

struct EntryHeader {
  EntryKey key;
  EntryInfo info;
  uint64_t sum = 0;      // Of the words and the payload.
  uint64_t written = 0;  // Seconds since 1970; for people, never for a decision.
  uint64_t serial = 0;   // The tier's own: of two entries with one key, the higher one counts.

  friend bool operator==(const EntryHeader&, const EntryHeader&) = default;
  // Of the words and the payload behind it.
  uint64_t body_bytes() const noexcept { return uint64_t{info.words} * 4 + info.bytes; }
};

// XXH3 with 64 bits of the words (little-endian) and the payload, one after the other.
uint64_t sum(std::span<const uint32_t> words, std::span<const uint8_t> payload) noexcept;
// The same for words and payload in one piece.
uint64_t sum(std::span<const uint8_t> body) noexcept;

void write_header(const EntryHeader& header, std::span<uint8_t, kHeaderBytes> out) noexcept;

// Error: unsupported (a newer format; the value is its version), corrupt (anything else that
// write_header() would not have written).
Result<EntryHeader> read_header(std::span<const uint8_t, kHeaderBytes> bytes) noexcept;

// Whether an entry with this header is what a get's item asks for. `done`: yes, but the payload's
// sum is not checked yet. `absent`: a good entry of another layout or other positions, which
// belongs to another reader and stays. `corrupt`: it has another key. `refused`: it is larger than
// the item's room.
TierOutcome believe(const EntryHeader& header, const TierItem& item) noexcept;

// Whether a put can be written at all: `pending` if so, otherwise `refused`.
TierOutcome check_put(const TierItem& item, const TierTraits& traits) noexcept;

}  // namespace stemma::tier
