// WholePromptCache: prompts, and what an engine had computed after each, for callers that want no more
// than find() and store().
//
// An entry is a prompt's tokens, the engine's state after them as opaque bytes, and, if the caller has
// them, the logits of the last token. find() gives the longest stored prompt that the query begins with,
// or all of it: then the logits, if stored, are the next token's and nothing needs to be computed.
// Engines that own pages want PagedCache, those with sequences SequenceCache, which share what prompts
// have in common; here every entry is whole.
//
// Invariant:  bytes in use <= budget_mib; a leased entry is never evicted, overwritten or freed; one entry
//             for each scope and prompt, the one stored last; every lookup counts in exactly one class.
// Threading:  thread-safe. Bytes are copied and checked outside the lock; a lease is one thread's at a
//             time and may end on any.
// Ownership:  the cache copies what is stored. Leases keep its memory alive and may outlive it. After a
//             move the old object has nothing, and store() answers wrong_state.
// Cost:       find(): one walk over the query, whatever the number of entries, and a checksum of the bytes
//             found. store(): a copy and a checksum. Besides the budget an index of at most a tenth of
//             it (or 8 MiB), and 300 bytes an entry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/scope.h"

namespace stemma {

class WholePromptCache {
 public:
  struct Config {
    uint32_t budget_mib = 512;  // States and logits; 0 keeps nothing.
    bool enabled = true;
    uint32_t min_tokens = 8;  // Shorter prompts are neither stored nor found.
    uint32_t max_entries = 100;
  };

  // What a request reads from. While it lives nothing of it changes or goes.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();

    // The stored prompt: a prefix of the query, or all of it.
    std::span<const Token> key() const noexcept;
    bool exact() const noexcept;  // All of it.
    std::span<const uint8_t> bytes() const noexcept;
    std::span<const float> logits() const noexcept;  // Empty when none were stored.
    // Ends it early; everything is empty then. Harmless when it has ended.
    void release() noexcept;

   private:
    friend class WholePromptCache;
    struct Held;
    explicit Lease(std::unique_ptr<Held> held) noexcept;
    std::unique_ptr<Held> held_;
  };

  struct Statistics {
    // One of these for each lookup.
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t short_queries = 0;  // Misses, because nothing that short is stored.
    uint64_t bypassed = 0;       // While the cache was off.

    uint64_t exact_hits = 0;     // Of the hits, of the whole query.
    uint64_t reused_tokens = 0;  // Of the hits, together.
    uint64_t evictions = 0;
    uint64_t refused = 0;  // Entries that were too large.
    uint64_t corrupt = 0;  // Entries whose bytes had changed; they were forgotten.
    uint64_t entries = 0;
    uint64_t tokens = 0;  // Of the entries, together.
    uint64_t bytes = 0;   // In use: of entries, and of forgotten ones that are still leased.
    uint64_t index_bytes = 0;
    uint64_t used_mib = 0;  // Whole ones.
    uint64_t budget_mib = 0;

    // Hits among the lookups that were not bypassed; 0 when there were none.
    double hit_rate() const noexcept {
      const uint64_t all = hits + misses + short_queries;
      return all == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(all);
    }
  };

  // Error: invalid_argument (more entries than can be numbered), out_of_memory.
  static Result<WholePromptCache> create(const Config& config) noexcept;
  WholePromptCache(WholePromptCache&&) noexcept = default;
  WholePromptCache& operator=(WholePromptCache&&) noexcept = default;

  Config config() const noexcept;
  // Off: nothing is found and nothing stored; what is there stays.
  void enable(bool on) noexcept;

  // None also when there is no memory for a lease. The entry is now the most recently used.
  std::optional<Lease> find(const Scope& scope, std::span<const Token> prompt) noexcept;
  // In place of what was stored for this prompt; who leases that keeps it. Ignored while the cache is
  // off, and for prompts that are too short. Error: invalid_argument (a value that is no token, no
  // bytes), out_of_range (larger than the whole budget), out_of_blocks (larger than leases leave), and
  // then nothing has changed; out_of_memory.
  Result<void> store(const Scope& scope, std::span<const Token> prompt,
                     std::span<const uint8_t> bytes, std::span<const float> logits = {}) noexcept;
  // Makes the entry of exactly this prompt the most recently used. False when there is none.
  bool touch(const Scope& scope, std::span<const Token> prompt) noexcept;
  // Evicts up to n entries, least recently used first, none that is leased. How many went.
  uint32_t evict(uint32_t n) noexcept;
  // Forgets all entries and zeroes all counters.
  void clear() noexcept;
  // One moment of all of it.
  Statistics statistics() const noexcept;

 private:
  struct Inner;
  explicit WholePromptCache(std::shared_ptr<Inner> inner) noexcept : inner_(std::move(inner)) {}
  std::shared_ptr<Inner> inner_;
};

}  // namespace stemma
