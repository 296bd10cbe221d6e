// TierStack: several tiers as one place to keep entries, fastest first. It decides what goes where and
// what is worth fetching; the tiers move the bytes.
//
//   store   seen ──wanting()──▶ which levels want it ──store()──▶ one queue and one writer a level
//   load    keys ──where()──▶ who has what ──choose()──▶ worth it? ──load()──▶ bytes, and promoted
//                                └───────────── prefetch() does all three behind one's back
//
// A level takes entries by its policy: write_through (the first time one is seen), on_second_use, or
// write_back (when it leaves the engine's memory: whoever evicts it says so). What is loaded from a level
// goes up to those above it. What a level evicts for want of room is gone from that level and goes nowhere:
// a write-back level below host memory does not get what that lets go, but has it already, from when it left
// the engine. (Moving entries down from level to level would save the writes of those that are used
// again in between, and would read back every entry that a tier evicts.)
//
// The stack remembers what it put or found on a level and does not put it there again. When an entry is used again
// above, the levels below are told (TierOp::touch), about once while a level takes in a small part of its
// capacity: otherwise the hottest entries, which are never read from a tier, would be the first it evicts. A level
// that answers that it has lost the entry gets it again at the next use; a level that loses it again and again gets it
// after twice as many uses each time, up to 62, because a level that is smaller than what is in use would otherwise be
// written all the time and keep nothing. A write-back level gets an entry that is used often even if it never leaves
// memory. An entry that leaves memory is put again where it may have been pushed out since. What is larger than a level
// ever takes is not put there, and counted.
//
// PagedTiers and SequenceTiers put one under a cache; who has a cache of another kind calls it directly.
//
// Invariant:  nothing here waits longer than it was told, whatever a tier does; a level that does not
//             answer in time has nothing, and is left alone for a while. Of several who load one entry at
//             a time, one asks the tiers and all get the same bytes. choose() takes nothing that is
//             expected to take longer than computing it.
// Threading:  thread-safe; no tier is called and nobody is waited for under a lock. One writer thread a
//             level and one for prefetching.
// Ownership:  owns the tiers. Payloads are shared and immutable.
// Errors:     none but at creation: what goes wrong is a miss and a counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stemma/clock.h"
#include "stemma/host_tier.h"
#include "stemma/result.h"
#include "stemma/tier.h"

namespace stemma::tier {

inline constexpr uint32_t kMostLevels = 8;
using LevelMask = uint32_t;  // Bit l: level l, the fastest is 0.

enum class WritePolicy : uint8_t { write_through, write_back, on_second_use };
enum class Sighting : uint8_t { computed, used_again, evicted };

struct StackLevel {
  std::unique_ptr<Tier> tier;
  WritePolicy write = WritePolicy::write_through;
  bool promote = true;  // What was found below is put here too.
  // What is assumed until it was measured.
  uint64_t latency_ns = 1'000'000;
  uint64_t bytes_per_second = 1'000'000'000;
};

struct StackOptions {
  std::vector<StackLevel> levels = {};  // Fastest first; 1 to kMostLevels.
  // The longest that where() waits. A level from which nothing has arrived for so long, and for twice the time that
  // the first entries should take besides, is stalled: the next level that has the entries is asked.
  uint64_t query_ns = 50'000'000;
  uint64_t load_ns = 5'000'000'000;    // The longest that load() waits, even while entries arrive.
  uint64_t store_ns = 10'000'000'000;  // The longest that a put may take before it is given up.
  uint64_t queue_bytes = 256U << 20U;  // Of payloads that wait for one level.
  uint32_t prefetch_entries = 4096;    // Entries that wait to be prefetched; more are dropped.
  uint32_t sightings = 1U << 16U;      // Entries remembered.
  double caution = 1.0;                // Loading must be that much faster than computing.
  uint64_t probe_ns = 5'000'000'000;   // How often a level that is too slow is tried again.
  // A level that did not answer in time is not asked for so long; twice as long each further time, up to
  // 64 times.
  uint64_t rest_ns = 1'000'000'000;
  const Clock* clock = nullptr;  // For measuring; null = monotonic.
  // What is loaded, and blocks that are stored, lie on their way in an arena of this size: set aside at creation,
  // and taken and pinned then where there is a hook. What finds no room there lies in ordinary memory, as
  // everything does without an arena (0). The hook lives longer than the stack and all payloads; a level that
  // is stuck in a file system may let go of one at any time, so with such levels until the process ends.
  uint64_t transfer_bytes = 0;
  HostMemoryHook* hook = nullptr;
};

// An entry that somebody wants: its key and what it must say of itself. Who does not know how large it is
// leaves `info.bytes` at 0 and says how large it may be.
struct Wanted {
  EntryKey key;
  EntryInfo info;
  uint32_t tokens = 0;   // That need not be computed when it is there, and all before it.
  uint64_t at_most = 0;  // Of bytes, where info.bytes is 0.

  uint64_t room() const noexcept { return info.bytes != 0 ? info.bytes : at_most; }
};

class TransferArena;

// Bytes of one entry, shared by everybody who needs them and changed by nobody.
struct Payload {
  // In the arena if there is one with room, otherwise in ordinary memory. Null without memory.
  static std::shared_ptr<Payload> make(uint64_t bytes,
                                       const std::shared_ptr<TransferArena>& arena = nullptr);
  std::span<uint8_t> span() noexcept { return {data.get(), size}; }
  std::span<const uint8_t> span() const noexcept { return {data.get(), size}; }

  struct Free {
    std::shared_ptr<TransferArena> arena;
    void operator()(uint8_t* memory) const noexcept;
  };
  std::unique_ptr<uint8_t[], Free> data;
  size_t size = 0;
};

struct StoreItem {
  EntryKey key;
  EntryInfo info;
  std::shared_ptr<const Payload> payload;
  std::vector<uint32_t> words;  // Only if they are to be kept.
  Priority priority = kDefaultPriority;
  Sighting sighting = Sighting::computed;  // Why it is stored; for statistics.
};

// What choose() decided.
struct LoadChoice {
  size_t count = 0;        // Candidates worth loading, from the first on.
  double expected_ns = 0;  // How long that takes; levels work at the same time.
  double saved_ns = 0;     // How long computing them would take instead.
};

struct Loaded {
  std::shared_ptr<const Payload> payload;  // Null: not to be had.
  EntryInfo info;
  uint32_t level = 0;
};

// What a purge removed from one level.
struct LevelPurged {
  std::string name;
  Purged purged;
};

struct LevelStats {
  std::string name;
  TierStats tier;
  uint64_t hits = 0, hit_bytes = 0;             // Entries that load() and prefetch() got here.
  uint64_t misses = 0;                          // Were said to be there, and could not be had.
  uint64_t stored = 0, promoted = 0;            // Asked to be put: by store(), by promotion.
  uint64_t written_back = 0;                    // Of those stored: because they left memory.
  uint64_t waiting = 0;                         // To be put, now.
  uint64_t dropped = 0;                         // The queue was full.
  uint64_t lost = 0;                            // Put, but refused, failed or late.
  uint64_t too_large = 0;                       // Entries that it can never take.
  uint64_t too_slow = 0;                        // There, and not worth loading.
  double latency_ns = 0, bytes_per_second = 0;  // As measured.
};

struct StackStats {
  std::vector<LevelStats> levels;
  uint64_t queries = 0, late_queries = 0;  // Late: not all levels answered.
  uint64_t shared_loads = 0;               // Entries that somebody else was already loading.
  uint64_t prefetches = 0, dropped_prefetches = 0;  // Entries.
  uint64_t probes = 0, rests = 0;
  uint64_t crowded = 0;  // Payloads that found no room in the arena.
  double token_ns = 0;   // What the engine takes for a token; 0: nobody said.
};

class TierStack {
 public:
  // Error: invalid_argument (no levels, or too many), out_of_memory.
  static Result<std::unique_ptr<TierStack>> create(StackOptions options);
  virtual ~TierStack() = default;  // What waits in queues is let go; flush() first to keep it.
  TierStack(const TierStack&) = delete;
  TierStack& operator=(const TierStack&) = delete;

  // ---- Finding ----

  // For each entry the levels that have it; every level is asked for all of them at once, in one batch.
  // Waits until all have answered, at most query_ns.
  virtual std::vector<LevelMask> where(std::span<const Wanted> wanted) = 0;
  // How many of the entries, from the first on, are somewhere: presence is not monotone.
  static size_t covered(std::span<const LevelMask> levels) noexcept;
  // Of entries that are all somewhere, how many (from the first on) are worth loading now.
  virtual LoadChoice choose(std::span<const Wanted> wanted, std::span<const LevelMask> levels) = 0;
  // The engine computed so many tokens in so long.
  virtual void prefilled(uint32_t tokens, uint64_t ns) = 0;

  // ---- Loading ----

  // Loads what is somewhere, from the fastest level that has it, the next one where that fails. Waits
  // until all are there or cannot be had, at most `wait_ns` and load_ns.
  virtual std::vector<Loaded> load(std::span<const Wanted> wanted,
                                   std::span<const LevelMask> levels,
                                   uint64_t wait_ns = kNever) = 0;
  // Brings up what lies below the first level, some time soon. Returns at once.
  virtual void prefetch(std::span<const Wanted> wanted) = 0;

  // ---- Storing ----

  // Memory for what is to be stored. Null without any.
  virtual std::shared_ptr<Payload> make_payload(uint64_t bytes) = 0;

  // The levels that want the entry, now that it was seen; 0: none, or it is there already. With used_again the levels
  // that have it are told of the use, soon and not more often than they need to know.
  virtual LevelMask wanting(const EntryKey& key, Sighting sighting) = 0;
  // Puts it there, some time soon (less than a second, if the tier keeps up). Returns at once.
  virtual void store(const StoreItem& item, LevelMask levels) = 0;
  // Waits until everything stored or prefetched before has ended and is durable as far as tiers can.
  virtual bool flush(uint64_t until_ns) = 0;

  // ---- Forgetting ----

  // Removes entries from all levels at once, and from what waits to be stored or prefetched; one
  // report a level. Waits until this time on Clock::monotonic(). What load() got before, or gets
  // meanwhile, is not put anywhere any more; who asked for it may still be given it. What store()
  // is given from now on may stay.
  virtual std::vector<LevelPurged> purge(const Purge& what, uint64_t until_ns) = 0;

  virtual size_t levels() const noexcept = 0;
  virtual Tier& tier(size_t level) noexcept = 0;
  virtual WritePolicy write_policy(size_t level) const noexcept = 0;
  virtual uint64_t load_ns() const noexcept = 0;  // As the options said.
  virtual StackStats stats() const = 0;

 protected:
  TierStack() = default;
};

}  // namespace stemma::tier
