// Tier: where entries lie that are not in the engine's own memory: host memory, a disk, a shared store.
//
// An entry is the bytes of one anchor (a block, a segment, a state, a checkpoint, logits) under the
// content key of the prefix that it ends. It describes itself (docs/formats/tier-entry.md), and is
// believed only when everything that it says is what the reader wants and its checksum holds: whatever
// else lies there is a miss and a counter, never an answer. The key proves scope and words, so nothing
// is found by whom it is not meant for; the words themselves are kept only if asked for.
//
// Work comes in batches, and a batch runs by itself:
//
//   make, fill in --> submit() --> items end one by one, in any order --> finished, on_done
//                                '-- cancel(), or its deadline: what has not begun ends so
//
// Invariant:  what get() gives is what was put under that key, whole, or it does not say `done`. An
//             entry is visible when its put is done and never in part; a put that failed, was cancelled
//             or came too late leaves it whole or absent. Capacity is never exceeded, not even right
//             after an open.
// Threading:  thread-safe. submit() does no I/O and does not wait (in host memory it copies): it may be
//             called where nothing slow is allowed. One batch belongs to one tier at a time.
// Ownership:  a batch is shared by who made it and by the tier until it is finished. The bytes that its
//             items name belong to whoever made it and must live until then; where that cannot be
//             promised, TierBatch::keep holds them.
// Errors:     per item. A tier that is broken, away or full answers so, fast: nothing of it reaches the
//             cache but misses.
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

// Which entry: what it is, of which layer group (0 where there are none), and of which prefix.
struct EntryKey {
  ContentKey chain;
  EntryKind kind = EntryKind::block;
  uint8_t group = 0;

  friend bool operator==(const EntryKey&, const EntryKey&) = default;
};

// The key of an entry whose bytes are arranged as `layout` says (EntryInfo::layout). Other layouts give other keys, so
// programs that arrange bytes in different ways, as during an upgrade, can share a tier.
EntryKey entry_key(const ContentKey& chain, EntryKind kind, uint8_t group,
                   uint64_t layout) noexcept;

// The fingerprint of the scope that an entry belongs to: the last 8 bytes of its key, which are the
// same in all keys of a scope (docs/formats/content-key.md). A stranger's scope has the same one
// with a probability of 2^-64.
uint64_t owner_of(const EntryKey& key) noexcept;
uint64_t owner_of(const Scope& scope) noexcept;

// What an entry says of itself besides its key.
struct EntryInfo {
  uint32_t begin = 0;   // Positions [begin, end) are what its bytes are about; `end` is where the
  uint32_t end = 0;     // prefix ends that its key names.
  uint64_t layout = 0;  // Fingerprint of how the bytes are arranged; the maker's business.
  uint64_t bytes = 0;   // Of the payload.
  uint32_t words = 0;   // Words kept with it: end - begin, or 0.
  // link_of() the key of the prefix that it goes on from, on its maker's grid; 0: unknown.
  uint64_t parent = 0;

  friend bool operator==(const EntryInfo&, const EntryInfo&) = default;
};

// touch: the entry was used in a faster place. The tier keeps it as if it had been read here.
enum class TierOp : uint8_t { put, get, contains, remove, touch };

enum class TierOutcome : uint8_t {
  pending,  // Not ended yet.
  // put, contains, touch: it is there. get: the bytes are there. remove: it is gone.
  done,
  absent,  // get, contains, touch: there is none, or (get) one of another layout or range. remove: there was none.
  refused,    // put: too large, or no room for it. get: it is larger than the room given.
  corrupt,    // get: what lay there was not believed, and is gone or will be.
  failed,     // The tier could not: I/O error, unreachable, broken.
  late,       // The deadline passed first.
  cancelled,  // cancel() came first.
};
std::string_view to_string(TierOutcome outcome) noexcept;

// One entry's part in a batch. What it says before submit() is what is wanted; the outcome and, for
// get and contains, `info` are written before it ends.
struct TierItem {
  EntryKey key;
  // put: what is to be kept. get: `layout`, and `end` where not 0, must be what the entry says, and all
  // is filled in. contains: filled in as far as the tier knows without reading it (`bytes` may be 0).
  EntryInfo info;
  std::span<const uint8_t> source;       // put: info.bytes bytes.
  std::span<const uint32_t> words;       // put: info.words words; only if they are to be kept.
  std::span<uint8_t> into;               // get: room for at least info.bytes.
  Priority priority = kDefaultPriority;  // put: for the tier's retention.
  TierOutcome outcome = TierOutcome::pending;
};

// Items should be in ascending order of depth: of one prompt's entries, the deeper go first when room
// is short.
class TierBatch {
 public:
  // Error: out_of_memory.
  static Result<std::shared_ptr<TierBatch>> make(TierOp op, size_t items);

  TierOp op() const noexcept { return op_; }
  std::span<TierItem> items() noexcept { return items_; }

  // ---- Before submit() ----
  uint64_t deadline_ns = kNever;  // On Clock::monotonic().
  // put: done means that it will be there after a loss of power. Without it, after the process is
  // killed (where the tier outlives processes at all).
  bool durable = false;
  std::shared_ptr<const void> keep;  // Let go when the batch is.
  // Called once, when all items have ended, on any thread, perhaps inside submit(), without locks held;
  // it should be quick and must not wait for other batches. wait() may return before it has.
  std::function<void(TierBatch&)> on_done;

  // ---- After submit() ----
  bool finished() const noexcept { return unfinished() == 0; }
  size_t unfinished() const noexcept { return left_.load(std::memory_order_acquire); }  // Items.
  // Until it is finished or this time has come; says whether it is finished.
  bool wait(uint64_t until_ns = kNever);
  // What has not begun ends as cancelled, soon; what has begun may still be done.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_release); }

  // ---- For tiers ----
  bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_acquire); }
  // What an item that has not begun ends as now: `pending` when it may begin.
  TierOutcome verdict(uint64_t now_ns) const noexcept;
  // Ends item i: exactly once each. The last one finishes the batch: it must not be touched afterwards
  // but through a shared_ptr of one's own.
  void end(size_t i, TierOutcome outcome) noexcept;

  TierBatch(TierOp op, size_t items)
      : op_(op), items_(items), left_(items) {}  // make() is what you want.

 private:
  const TierOp op_;
  std::vector<TierItem> items_;
  std::atomic<size_t> left_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
};

// What a tier is, so that a planner knows what to expect of it.
struct TierTraits {
  std::string name = {};         // "host", "disk", "redis"; in reports and metrics.
  uint64_t capacity_bytes = 0;   // 0: the tier does not know (its server decides).
  uint64_t max_entry_bytes = 0;  // Of a payload; larger ones are refused.
  bool outlives_process = false;
  bool shared = false;  // Others may put and remove there too.
};

// Since the tier was made, but for what is marked "now".
struct TierStats {
  uint64_t entries = 0;     // Now. 0 where the tier does not know.
  uint64_t used_bytes = 0;  // Now, everything it takes: payloads, headers, padding.
  uint64_t puts = 0, put_bytes = 0, already_there = 0;  // already_there: puts done without writing.
  uint64_t gets = 0, get_bytes = 0;                     // Done.
  uint64_t absent = 0, refused = 0, corrupt = 0, failed = 0, late = 0, cancelled = 0;
  uint64_t contains = 0, removed = 0, touched = 0;
  uint64_t evictions = 0, evicted_bytes = 0;  // To make room.
  uint64_t read_ns = 0, write_ns = 0;         // Time in which at least one get, put was under way.
  uint64_t retired_bytes = 0;                 // Now: places that failed and are not used any more.
  bool open = true;  // Now: false while a circuit breaker keeps it from being asked.
};

// Which entries a purge removes: those for which everything holds that is given here. With nothing
// given, all of them.
struct Purge {
  std::optional<uint64_t> owner = {};   // It belongs to this scope, as owner_of() says.
  std::optional<uint64_t> layout = {};  // It has this EntryInfo::layout.
  uint32_t keep = 0;                    // It is about positions beyond the first so many.
  // It follows the prefix that has this link_of(), by the parents of the entries in the tier; or,
  // because some of them are not there, nobody can tell whether it does. The prefix ends at `keep`,
  // or before it by less than a block.
  std::optional<uint64_t> follows = {};

  // Whether an entry's key is all that it takes to tell.
  bool is_by_key() const noexcept { return !layout && keep == 0 && !follows; }
  bool names(const EntryKey& key) const noexcept { return !owner || *owner == owner_of(key); }
  // But for `follows`, which is more than one entry can tell.
  bool takes(const EntryKey& key, const EntryInfo& info) const noexcept {
    return names(key) && (!layout || *layout == info.layout) && info.end > keep;
  }
  friend bool operator==(const Purge&, const Purge&) = default;
};

// What a purge removed.
struct Purged {
  uint64_t entries = 0;
  uint64_t bytes = 0;      // Of their payloads, as far as the tier knows.
  uint64_t unsure = 0;     // Of the entries, those of which nobody could tell whether they follow.
  bool complete = false;   // Nothing is left that was there when the purge began.
  std::string error = {};  // What kept it from being complete, for an operator.
};

class Tier {
 public:
  virtual ~Tier() = default;  // Ends what is under way; batches not begun end as cancelled.

  virtual const TierTraits& traits() const noexcept = 0;
  virtual void submit(std::shared_ptr<TierBatch> batch) = 0;
  virtual TierStats stats() const = 0;
  // Waits until what was submitted before has ended and is durable as far as the tier can, or for so
  // long. False: not yet.
  virtual bool flush(uint64_t until_ns) = 0;
  // Removes entries, and waits for that until this time on Clock::monotonic(). An entry whose put
  // was submitted here before is gone when the answer is complete, also where the put ended as late;
  // and it stays gone after a loss of power. One that is put later may stay. What a tier kept in
  // files can no longer be read from them. A get that is under way may still end as done.
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
