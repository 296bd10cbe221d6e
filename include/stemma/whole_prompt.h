// WholePromptCache: stores prompts and the engine's state after each, for callers that need only
// find() and store().
//
// An entry is a prompt's tokens, the engine's state after them as opaque bytes, and, if the caller
// has them, the logits of the last token. find() returns the longest stored prompt that the query
// begins with. If that is the whole query, stored logits are those of the next token, and nothing
// needs to be computed. Engines that own pages should use PagedCache, and engines with sequences
// SequenceCache: those share what prompts have in common; here every entry is stored whole.
//
// Invariant:  bytes in use <= budget_mib; a leased entry is never evicted, overwritten or freed;
//             each scope and prompt has one entry, the one stored last; every lookup counts in
//             exactly one class.
// Threading:  thread-safe. Bytes are copied and checked outside the lock. One thread at a time may
//             use a lease; any thread may end it.
// Ownership:  the cache copies what is stored. Leases keep its memory alive and may outlive it. A
//             moved-from cache is empty, and its store() fails with wrong_state.
// Cost:       find(): one walk over the query, however many entries there are, and a checksum of
//             the bytes found. store(): a copy and a checksum. In addition to the budget, the index
//             takes at most a tenth of it (or 8 MiB), and each entry 300 bytes.
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

  // The entry that a request reads. It neither changes nor goes while the lease lives.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();

    // The stored prompt: a prefix of the query, or all of it.
    std::span<const Token> key() const noexcept;
    bool exact() const noexcept;  // Whether it is the whole query.
    std::span<const uint8_t> bytes() const noexcept;
    std::span<const float> logits() const noexcept;  // Empty when none were stored.
    // Ends the lease early; all of the above are empty then. Harmless if it has ended already.
    void release() noexcept;

   private:
    friend class WholePromptCache;
    struct Held;
    explicit Lease(std::unique_ptr<Held> held) noexcept;
    std::unique_ptr<Held> held_;
  };

  struct Statistics {
    // Each lookup adds to one of these four.
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t short_queries = 0;  // Misses, because prompts that short are not stored.
    uint64_t bypassed = 0;       // Lookups while the cache was off.

    uint64_t exact_hits = 0;     // Hits on the whole query.
    uint64_t reused_tokens = 0;  // The sum over all hits.
    uint64_t evictions = 0;
    uint64_t refused = 0;  // Entries that were too large.
    uint64_t corrupt = 0;  // Entries whose bytes had changed; they were forgotten.
    uint64_t entries = 0;
    uint64_t tokens = 0;  // The sum over all entries.
    uint64_t bytes = 0;   // In use by entries, and by forgotten entries that are still leased.
    uint64_t index_bytes = 0;
    uint64_t used_mib = 0;  // `bytes` in MiB, rounded down.
    uint64_t budget_mib = 0;

    // The share of hits among lookups that were not bypassed; 0 if there were none.
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
  // While off, nothing is found or stored; existing entries stay.
  void enable(bool on) noexcept;

  // Makes the entry found the most recently used. Also returns nullopt if there is no memory for a
  // lease.
  std::optional<Lease> find(const Scope& scope, std::span<const Token> prompt) noexcept;
  // Replaces what was stored for this prompt; leases of the old entry keep it. Does nothing while
  // the cache is off, or if the prompt is too short. Error: invalid_argument (a value that is not a
  // token, or no bytes), out_of_range (larger than the whole budget), out_of_blocks (larger than
  // the room that leases leave): nothing has changed then; out_of_memory.
  Result<void> store(const Scope& scope, std::span<const Token> prompt,
                     std::span<const uint8_t> bytes, std::span<const float> logits = {}) noexcept;
  // Makes the entry of exactly this prompt the most recently used. False if there is none.
  bool touch(const Scope& scope, std::span<const Token> prompt) noexcept;
  // Evicts up to n entries that are not leased, least recently used first. Returns how many.
  uint32_t evict(uint32_t n) noexcept;
  // Forgets all entries and zeroes all counters.
  void clear() noexcept;
  // A consistent snapshot.
  Statistics statistics() const noexcept;

 private:
  struct Inner;
  explicit WholePromptCache(std::shared_ptr<Inner> inner) noexcept : inner_(std::move(inner)) {}
  std::shared_ptr<Inner> inner_;
};

}  // namespace stemma
