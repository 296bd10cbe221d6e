// TierStack: several tiers as one place to keep entries, fastest first. It decides what goes where
// and what is worth fetching; the tiers move the bytes.
//
//   store   seen ──wanting()──▶ which levels want it ──store()──▶ one queue and one writer a level
//   load    keys ──where()──▶ who has what ──choose()──▶ worth it? ──load()──▶ bytes, and promoted
//                                └───────────── prefetch() does all three in the background
//
// A level's policy says when it takes an entry: write_through (at its first sighting),
// on_second_use, or write_back (when it leaves the engine's memory: whoever evicts it reports
// that). An entry loaded from a level is copied to the levels above. An entry that a level evicts
// for want of room moves nowhere: a write-back level below host memory does not receive what host
// memory evicts; it got the entry when that left the engine. (If entries moved down level by level,
// those used again in between would not have to be written, but every entry that a tier evicts
// would have to be read back.)
//
// The stack remembers what it put or found on a level and does not put it there again. When an
// entry is used again above, the stack tells the levels below (TierOp::touch), about once while a
// level takes in a small part of its capacity. Otherwise a level would evict the hottest entries
// first, because they are never read from it. A level that answers that it has lost the entry gets
// it again at the next use. If the level keeps losing the entry, the number of uses before the next
// put roughly doubles each time, up to 62: a level smaller than what is in use would otherwise be
// written all the time and keep nothing. A write-back level also gets an entry that is used often
// but never leaves memory. An entry that leaves memory is put again on levels that may have evicted
// it since. An entry too large for a level is not put there, and is counted.
//
// PagedTiers and SequenceTiers put a stack under a cache; other kinds of cache call it directly.
//
// Invariant:  no call waits longer than its limit, whatever a tier does; a level that does not
//             answer in time counts as empty, and is not asked for a while. If several callers load
//             one entry at the same time, one asks the tiers and all get the same bytes. choose()
//             never picks a load that is expected to take longer than computing.
// Threading:  thread-safe; never calls a tier or waits while holding a lock. One writer thread a
//             level, and one for prefetching.
// Ownership:  owns the tiers. Payloads are shared and immutable.
// Errors:     only at creation; later failures are misses and counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stemma/clock.h"
#include "stemma/result.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/stack_stats.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {

inline constexpr uint32_t kMostLevels = 8;
using LevelMask = uint32_t;  // Bit l is level l; 0 is the fastest.

enum class WritePolicy : uint8_t { write_through, write_back, on_second_use };
enum class Sighting : uint8_t { computed, used_again, evicted };

struct StackLevel {
  std::unique_ptr<Tier> tier;
  WritePolicy write = WritePolicy::write_through;
  bool promote = true;  // Copy what was found below to this level.
  // These two are assumed until the stack has measured the level.
  uint64_t latency_ns = 1'000'000;
  uint64_t bytes_per_second = 1'000'000'000;
};

struct StackOptions {
  std::vector<StackLevel> levels = {};  // Fastest first; 1 to kMostLevels.
  // The longest that where() waits. While loading, a level is stalled if nothing has arrived from
  // it for this long plus twice the time that the first entries should take: then the next level
  // that has the entries is asked.
  uint64_t query_ns = 50'000'000;
  uint64_t load_ns = 5'000'000'000;    // The longest that load() waits, even if entries arrive.
  uint64_t store_ns = 10'000'000'000;  // The longest that a put may take.
  uint64_t queue_bytes = 256U << 20U;  // The most bytes that may wait to be put on one level.
  uint32_t prefetch_entries = 4096;    // Entries that may wait to be prefetched; more are dropped.
  uint32_t sightings = 1U << 16U;      // How many entries the stack remembers.
  double caution = 1.0;                // How many times faster loading must be than computing.
  uint64_t probe_ns = 5'000'000'000;   // How often to try a level again that was too slow.
  // How long not to ask a level that did not answer in time; doubles each further time, up to 64
  // times as long.
  uint64_t rest_ns = 1'000'000'000;
  const Clock* clock = nullptr;  // For measuring; null = monotonic.
  // Size of the arena that holds entries being loaded and blocks being stored. It is reserved at
  // creation and, with a hook, taken and pinned then. What does not fit, or everything if this is
  // 0, uses ordinary memory. The hook must outlive the stack and all payloads. A level that is
  // stuck in a file system may release a payload at any time: with such levels keep the hook until
  // the process ends.
  uint64_t transfer_bytes = 0;
  HostMemoryHook* hook = nullptr;
  // load() asks a level for about this many bytes at a time, and asks for the next part before this
  // one has arrived.
  uint64_t load_part_bytes = uint64_t{32} << 20U;
};

// A request for an entry: its key and what it must say about itself. If you do not know its size,
// leave `info.bytes` at 0 and set `at_most`. With `info.end` 0, where() accepts any range.
struct Wanted {
  EntryKey key;
  EntryInfo info;
  uint32_t tokens = 0;   // Tokens that need not be computed if this and all before it are there.
  uint64_t at_most = 0;  // The most bytes that the entry may have if info.bytes is 0.

  uint64_t room() const noexcept { return info.bytes != 0 ? info.bytes : at_most; }
};

class TransferArena;

// Bytes of one entry, shared by all their users and changed by none.
struct Payload {
  // In the arena if it has room, otherwise in ordinary memory. Null if there is no memory.
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

// Learns the outcome of an entry given to store(): one call for each level that was to take it, but
// none for an entry that still waits when the stack is destroyed. `cancelled`: the level's queue
// was full, or a purge came first. Called on any thread, perhaps inside store(), without locks; it
// must be quick and must not call the stack.
class StoreListener {
 public:
  virtual ~StoreListener() = default;
  virtual void settled(uint64_t number, uint32_t level, TierOutcome outcome) noexcept = 0;
};

struct StoreItem {
  EntryKey key;
  EntryInfo info;
  std::shared_ptr<const Payload> payload;
  std::vector<uint32_t> words;  // To be kept with the entry; empty: keep none.
  Priority priority = kDefaultPriority;
  Sighting sighting = Sighting::computed;  // Why it is stored; for statistics.
  std::shared_ptr<StoreListener> listener = {};
  uint64_t number = 0;  // Passed to the listener.
};

// What choose() decided.
struct LoadChoice {
  size_t count = 0;        // How many candidates, from the first on, are worth loading.
  double expected_ns = 0;  // How long loading them takes; levels work at the same time.
  double saved_ns = 0;     // How long computing them would take instead.
};

struct Loaded {
  std::shared_ptr<const Payload> payload;  // Null: not to be had.
  EntryInfo info;
  uint32_t level = 0;
};

// Called on the thread of load(), once for each entry that some level has, with its index and the
// result. Entries of one level come in the order of the request.
using OnLoaded = std::function<void(size_t index, const Loaded& loaded)>;

class TierStack {
 public:
  // Error: invalid_argument (no levels, or too many), out_of_memory.
  static Result<std::unique_ptr<TierStack>> create(StackOptions options);
  virtual ~TierStack() = default;  // Drops what is queued; flush() first to keep it.
  TierStack(const TierStack&) = delete;
  TierStack& operator=(const TierStack&) = delete;

  // ---- Finding ----

  // Returns for each entry the levels that have it. Asks every level at once, for all entries in
  // one batch. Waits until all levels have answered, at most query_ns.
  virtual std::vector<LevelMask> where(std::span<const Wanted> wanted) = 0;
  // Like where(), but asks only levels that know without another machine or a file system: host
  // memory and disks. Does not wait; a level that does not answer at once counts as empty.
  virtual std::vector<LevelMask> where_now(std::span<const Wanted> wanted) = 0;
  // How many entries, counted from the first up to a gap, some level has. Later ones may be there
  // too.
  static size_t covered(std::span<const LevelMask> levels) noexcept;
  // For entries that are all stored: how many, from the first on, are worth loading now.
  virtual LoadChoice choose(std::span<const Wanted> wanted, std::span<const LevelMask> levels) = 0;
  // Reports that the engine computed this many tokens in this time.
  virtual void prefilled(uint32_t tokens, uint64_t ns) = 0;

  // ---- Loading ----

  // Loads each stored entry from the fastest level that has it, or from the next one if that fails.
  // Waits until each has arrived or failed, at most `wait_ns` and load_ns. With `on_loaded`, each
  // entry is passed on as soon as its result is known, and the answer has no payloads: so the first
  // ones can be used, and their memory released, while the last are on their way.
  virtual std::vector<Loaded> load(std::span<const Wanted> wanted,
                                   std::span<const LevelMask> levels, uint64_t wait_ns = kNever,
                                   const OnLoaded& on_loaded = {}) = 0;
  // Copies entries from below the first level up to it, soon. Returns at once.
  virtual void prefetch(std::span<const Wanted> wanted) = 0;

  // ---- Storing ----

  // Memory for an entry to store. Null if there is none.
  virtual std::shared_ptr<Payload> make_payload(uint64_t bytes) = 0;

  // Reports a sighting and returns the levels that want the entry; 0: none, or they have it
  // already. With used_again, the levels that have it are told of the use, soon but no more often
  // than needed.
  virtual LevelMask wanting(const EntryKey& key, Sighting sighting) = 0;
  // Puts the entry on these levels, soon (within a second, if the tier keeps up). Returns at once,
  // with the levels that will get it: not those whose queue is full or for which it is too large.
  virtual LevelMask store(const StoreItem& item, LevelMask levels) = 0;
  // Waits until everything stored or prefetched before has ended and is as durable as the tiers can
  // make it.
  virtual bool flush(uint64_t until_ns) = 0;

  // ---- Forgetting ----

  // Removes these entries from all levels and from the queues for storing and prefetching. Waits
  // until this time on Clock::monotonic(). Returns for each entry: done (a level had it), absent,
  // failed or late (a level did not confirm that it is gone). What load() got before, or gets
  // meanwhile, is no longer put on any level.
  virtual std::vector<TierOutcome> remove(std::span<const EntryKey> keys, uint64_t until_ns) = 0;

  // Removes entries from all levels at once and from the queues for storing and prefetching.
  // Returns one report a level. Waits until this time on Clock::monotonic(). What load() got
  // before, or gets meanwhile, is no longer put on any level, but its caller may still receive it.
  // What is given to store() from now on may stay.
  virtual std::vector<LevelPurged> purge(const Purge& what, uint64_t until_ns) = 0;

  virtual size_t levels() const noexcept = 0;
  virtual Tier& tier(size_t level) noexcept = 0;
  virtual WritePolicy write_policy(size_t level) const noexcept = 0;
  virtual uint64_t load_ns() const noexcept = 0;  // As the options said.
  virtual uint64_t store_ns() const noexcept = 0;
  virtual StackStats stats() const = 0;

 protected:
  TierStack() = default;
};

}  // namespace stemma::tier
