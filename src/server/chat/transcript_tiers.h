// TranscriptTiers: stores transcripts in the tiers under the cache, as entries of their own kind.
//
// They have keys of their scope, so a purge of the scope removes them, a sealed tier seals them,
// and each tier bounds them together with everything else that it holds. A truncation removes all
// of a scope's transcripts, because nobody can tell which of them follow the prefix.
//
// Threading:  thread-safe.
// Ownership:  the stack outlives it.
// Cost:       keep(): one copy of the bytes. load(): one request to each tier, and a second to
//             follow pointers; it waits for `wait_ns` at most.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/chat/transcript_entry.h"
#include "stemma/key.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::server {

class TranscriptTiers {
 public:
  // If `stack` is null, nothing is kept and nothing found.
  TranscriptTiers(tier::TierStack* stack, uint64_t layout, uint64_t wait_ns)
      : stack_(stack), layout_(layout), wait_ns_(wait_ns) {}

  bool exist() const noexcept { return stack_ != nullptr; }
  // Stores a transcript under the first name, which is its id's, and small entries that point to it
  // under the others; the first of those is its digest's. Levels that already have it learn that it
  // is used.
  void keep(std::span<const ContentKey> names, const Transcript& transcript,
            tier::Sighting sighting) const;
  // Returns, for each list of names, the transcript of the first known name, or nothing if no name
  // is known.
  std::vector<std::optional<StoredTranscript>> load(
      std::span<const std::vector<ContentKey>> names) const;

 private:
  void store(const ContentKey& key, std::span<const uint8_t> bytes, tier::LevelMask levels) const;
  tier::LevelMask wanting(const ContentKey& key, tier::Sighting sighting) const;
  // The entries under the keys, decoded.
  std::vector<std::optional<std::variant<StoredTranscript, TranscriptPointer>>> read(
      std::span<const ContentKey> keys) const;
  EntryKey entry(const ContentKey& key) const;
  EntryInfo info(uint64_t bytes) const;

  tier::TierStack* stack_;
  uint64_t layout_;
  uint64_t wait_ns_;
};

}  // namespace stemma::server
