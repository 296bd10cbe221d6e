// Tier: a place for entries outside the engine's own memory: host memory, a disk, a shared store.
//
// An entry is the bytes of one anchor (a block, a segment, a state, a checkpoint, logits) under the
// content key of the prefix that it ends. It describes itself (docs/formats/tier-entry.md). A
// reader believes it only if the whole description is what the reader wants and the checksum holds:
// everything else is a miss and a counter, never an answer. The key proves scope and words, so a
// reader of another scope finds nothing. The words themselves are kept only on request.
//
// Work comes in batches, and a batch runs by itself:
//
//   make, fill in --> submit() --> items end one by one, in any order --> finished, on_done
//                                '-- cancel() or its deadline ends the items not begun
//
// Invariant:  a get that ends as `done` gives exactly what was put under that key, whole. An entry
//             is visible when its put is done, never in part; a put that failed, was cancelled or
//             was late leaves it whole or absent. Capacity is never exceeded, not even right after
//             an open.
// Threading:  thread-safe. submit() does no I/O and does not wait (host memory copies): call it
//             even where nothing slow is allowed. One batch belongs to one tier at a time.
// Ownership:  its maker and the tier share a batch until it is finished. The bytes that its items
//             name belong to the maker and must live until then; if the maker cannot promise that,
//             TierBatch::keep holds them.
// Errors:     per item. A tier that is broken, unreachable or full says so, fast: the cache sees
//             only misses.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/clock.h"
#include "stemma/key.h"
#include "stemma/result.h"
#include "stemma/retention.h"
#include "stemma/scope.h"

namespace stemma {

std::string_view to_string(EntryKind kind) noexcept;

// Names an entry: its kind, its layer group (0 if there are no groups), and its prefix.
struct EntryKey {
  ContentKey chain;
  EntryKind kind = EntryKind::block;
  uint8_t group = 0;

  friend bool operator==(const EntryKey&, const EntryKey&) = default;
};

// The key of an entry whose bytes are arranged as `layout` says (EntryInfo::layout). Other layouts
// give other keys, so programs that arrange bytes in different ways, as during an upgrade, can
// share a tier.
EntryKey entry_key(const ContentKey& chain, EntryKind kind, uint8_t group,
                   uint64_t layout) noexcept;

// The fingerprint of the scope that an entry belongs to: the last 8 bytes of its key, which are the
// same in all keys of a scope (docs/formats/content-key.md). Two scopes have the same one with a
// probability of 2^-64.
uint64_t owner_of(const EntryKey& key) noexcept;
uint64_t owner_of(const Scope& scope) noexcept;

// What an entry says about itself besides its key.
struct EntryInfo {
  uint32_t begin = 0;   // The first position that its bytes are about.
  uint32_t end = 0;     // One past the last; the prefix that its key names ends here.
  uint64_t layout = 0;  // Fingerprint of how the bytes are arranged; its maker defines it.
  uint64_t bytes = 0;   // Of the payload.
  uint32_t words = 0;   // Words kept with it: end - begin, or 0.
  // link_of() the key of the prefix that it continues, on its maker's grid; 0: unknown.
  uint64_t parent = 0;

  friend bool operator==(const EntryInfo&, const EntryInfo&) = default;
};

// touch: the entry was used in a faster place. The tier treats that as a read here.
enum class TierOp : uint8_t { put, get, contains, remove, touch };

enum class TierOutcome : uint8_t {
  pending,  // Not ended yet.
  // put, contains, touch: it is there. get: the bytes are there. remove: it is gone.
  done,
  // There is no such entry, or (get) it has another layout or range.
  absent,
  refused,    // put: too large, or no room for it. get: it is larger than the room given.
  corrupt,    // get: the entry did not pass the checks; it is or will be removed.
  failed,     // The tier could not: I/O error, unreachable, broken.
  late,       // The deadline passed first.
  cancelled,  // cancel() came first.
};
std::string_view to_string(TierOutcome outcome) noexcept;

// One entry's part in a batch. Before submit() it says what is wanted. The tier writes the outcome
// and, for get and contains, `info` before the item ends.
struct TierItem {
  EntryKey key;
  // put: what to keep. get: the entry must have this `layout`, and this `end` unless it is 0; the
  // tier fills in all of it. contains: the tier fills in what it knows without reading the entry
  // (`bytes` may be 0).
  EntryInfo info;
  std::span<const uint8_t> source;       // put: info.bytes bytes.
  std::span<const uint32_t> words;       // put: info.words words; only to keep them.
  std::span<uint8_t> into;               // get: room for at least info.bytes.
  Priority priority = kDefaultPriority;  // put: for the tier's retention.
  TierOutcome outcome = TierOutcome::pending;
};

// Items should be in ascending order of depth: a tier short of room evicts a prompt's deepest
// entries first.
class TierBatch {
 public:
  // Error: out_of_memory.
  static Result<std::shared_ptr<TierBatch>> make(TierOp op, size_t items);

  TierOp op() const noexcept { return op_; }
  std::span<TierItem> items() noexcept { return items_; }

  // ---- Before submit() ----
  uint64_t deadline_ns = kNever;  // On Clock::monotonic().
  // put: an entry that is done survives a loss of power. Without this, it survives a kill of the
  // process (if the tier outlives processes at all).
  bool durable = false;
  std::shared_ptr<const void> keep;  // Released with the batch.
  // Called once, when all items have ended, on any thread, perhaps inside submit(), without locks
  // held; it should be quick and must not wait for other batches. wait() may return before it does.
  std::function<void(TierBatch&)> on_done;

  // ---- After submit() ----
  bool finished() const noexcept { return unfinished() == 0; }
  size_t unfinished() const noexcept { return left_.load(std::memory_order_acquire); }  // Items.
  // Waits until the batch is finished, or until this time. Returns whether it is finished.
  bool wait(uint64_t until_ns = kNever);
  // Items that have not begun end as cancelled, soon; others may still be done.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_release); }

  // ---- For tiers ----
  bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_acquire); }
  // The outcome for an item that has not begun: `pending` if it may begin now.
  TierOutcome verdict(uint64_t now_ns) const noexcept;
  // Ends item i; call it exactly once for each. The last call finishes the batch: after it, touch
  // the batch only through a shared_ptr of your own.
  void end(size_t i, TierOutcome outcome) noexcept;

  TierBatch(TierOp op, size_t items) : op_(op), items_(items), left_(items) {}  // Use make().

 private:
  const TierOp op_;
  std::vector<TierItem> items_;
  std::atomic<size_t> left_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
};

// What a planner may expect of a tier.
struct TierTraits {
  std::string name = {};         // "host", "disk", "redis"; in reports and metrics.
  uint64_t capacity_bytes = 0;   // 0: the tier does not know (its server decides).
  uint64_t max_entry_bytes = 0;  // The largest payload that the tier accepts.
  bool outlives_process = false;
  bool shared = false;  // Others may put and remove there too.
};

// Counts since the tier was made, except for values marked "now".
struct TierStats {
  uint64_t entries = 0;                                 // Now. 0 where the tier does not know.
  uint64_t used_bytes = 0;                              // Now: payloads, headers, padding.
  uint64_t puts = 0, put_bytes = 0, already_there = 0;  // already_there: puts done without writing.
  uint64_t gets = 0, get_bytes = 0;                     // Gets that ended as done.
  uint64_t absent = 0, refused = 0, corrupt = 0, failed = 0, late = 0, cancelled = 0;
  uint64_t contains = 0, removed = 0, touched = 0;
  uint64_t evictions = 0, evicted_bytes = 0;  // Entries evicted to make room.
  // read_ns: the time during which at least one get was under way. write_ns: the same for puts.
  uint64_t read_ns = 0, write_ns = 0;
  uint64_t retired_bytes = 0;  // Now: bytes in places that failed and are not used again.
  // Now: about how many bytes of payloads fit, if only its server knows and
  // TierTraits::capacity_bytes does not say. 0: unknown.
  uint64_t room_bytes = 0;
  bool reachable = true;  // Now; false while a circuit breaker blocks requests to it.
};

// Which entries a purge removes: those that meet all conditions given here. Without conditions,
// all.
struct Purge {
  std::optional<uint64_t> owner = {};   // The entry belongs to this scope, as owner_of() says.
  std::optional<uint64_t> layout = {};  // The entry has this EntryInfo::layout.
  uint32_t keep = 0;                    // The entry reaches beyond this many positions.
  // The entry follows the prefix with this link_of(), according to the parents of the tier's
  // entries. An entry also counts as following if a parent is missing, because the tier then cannot
  // tell. The prefix ends at `keep`, or less than a block before.
  std::optional<uint64_t> follows = {};

  // Whether an entry's key alone decides.
  bool is_by_key() const noexcept { return !layout && keep == 0 && !follows; }
  bool names(const EntryKey& key) const noexcept { return !owner || *owner == owner_of(key); }
  // Without `follows`, which a single entry cannot decide.
  bool takes(const EntryKey& key, const EntryInfo& info) const noexcept {
    return names(key) && (!layout || *layout == info.layout) && info.end > keep;
  }
  friend bool operator==(const Purge&, const Purge&) = default;
};

// What a purge removed.
struct Purged {
  uint64_t entries = 0;
  uint64_t bytes = 0;      // The size of their payloads, as far as the tier knows.
  uint64_t unsure = 0;     // How many of `entries` may or may not follow the prefix.
  bool complete = false;   // Whether everything that was there at the beginning is gone.
  std::string error = {};  // Why the purge is not complete, for an operator.
};

class Tier {
 public:
  virtual ~Tier() = default;  // Ends what is under way; batches not begun end as cancelled.

  virtual const TierTraits& traits() const noexcept = 0;
  virtual void submit(std::shared_ptr<TierBatch> batch) = 0;
  virtual TierStats stats() const = 0;
  // Waits until all earlier work has ended and is as durable as the tier can make it, or until this
  // time. Returns false if the time came first.
  virtual bool flush(uint64_t until_ns) = 0;
  // Removes entries, and waits for that until this time on Clock::monotonic(). If the answer is
  // complete, every entry whose put was submitted here before is gone, even if the put ended as
  // late, and it stays gone after a loss of power. An entry that is put later may stay. What a tier
  // kept in files can no longer be read from them. A get that is under way may still end as done.
  virtual Purged purge(const Purge& what, uint64_t until_ns) = 0;
};

}  // namespace stemma

template <>
struct std::hash<stemma::EntryKey> {
  size_t operator()(const stemma::EntryKey& key) const noexcept {
    return std::hash<stemma::ContentKey>()(key.chain) ^
           (static_cast<size_t>(key.kind) << 8U | key.group);
  }
};
