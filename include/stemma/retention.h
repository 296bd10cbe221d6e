// What to keep when room is short: the hints that callers give with their requests, and the
// interface of the policies that decide.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// 0 goes first, 100 goes last. The policy `lru` is exact within one priority and session phase,
// whatever the number of tenants and times to live.
using Priority = uint8_t;
inline constexpr Priority kDefaultPriority = 35;
inline constexpr Priority kMaxPriority = 100;

enum class FinishReason : uint8_t { unknown, end_turn, tool_use, length, cancelled };

// Whether the conversation goes on. Within one priority, blocks of ended or idle sessions go first,
// then those of requests that gave no hint, then those of active sessions.
enum class SessionPhase : uint8_t { ended, unknown, active };

// A priority for the blocks whose first position lies in [begin, end).
struct PriorityRange {
  uint32_t begin = 0;
  uint32_t end = kOpenEnd;
  Priority priority = kDefaultPriority;
  uint64_t ttl_ns = kNever;  // After this time the blocks fall back to the default priority.

  static constexpr uint32_t kOpenEnd = 0xFFFF'FFFFU;
};
inline constexpr uint32_t kMaxPriorityRanges = 64;

// A request's hints about the blocks it leaves behind. A block gets the best hint of all uses that
// ended at this block or deeper, because a prefix is worth at least as much as its continuations.
// If two uses ended at the same place, the later one counts.
struct Retain {
  Priority priority = kDefaultPriority;
  uint64_t ttl_ns = kNever;  // After this time `priority` falls back to the default.
  // Ordered, not overlapping, at most kMaxPriorityRanges; positions outside all ranges have
  // `priority`.
  std::span<const PriorityRange> ranges = {};
  SessionId session = kNoSession;
  SessionPhase phase = SessionPhase::unknown;
  // How long an unused active session counts as active; then it counts as ended. If both times are
  // given, both run out at the earlier one.
  uint64_t session_ttl_ns = kNever;
  // The request was preempted and will come back: its blocks go last.
  bool will_return = false;
  FinishReason finish = FinishReason::unknown;
  uint64_t expected_return_ns = 0;  // How soon the next use is expected; 0 = unknown.
  uint32_t output_tokens = 0;       // How long the answer was; 0 = unknown.
};

// ---------------------------------------------------------------------------------------------
// The policy side. A cache makes its policy from a name (Options::policy). register_policy(), at the
// end, gives a policy of yours a name; docs/guide/replay.md, "A policy of your own", shows how.

// The number of a cell of the prefix tree. A cell is one block's worth of one path.
using CellIndex = uint32_t;
inline constexpr CellIndex kNoCell = 0x0FFF'FFFFU;

// One use of a path, as a policy sees it.
struct Touch {
  uint64_t now_ns = 0;
  TenantId tenant = kNoTenant;
  Priority priority = kDefaultPriority;
  uint64_t deadline_ns = kNever;  // From then on the two expired_ fields count instead.
  Priority expired_priority = kDefaultPriority;
  SessionPhase expired_phase = SessionPhase::unknown;
  SessionId session = kNoSession;
  SessionPhase phase = SessionPhase::unknown;
  bool will_return = false;
  FinishReason finish = FinishReason::unknown;
  uint64_t expected_return_ns = 0;
  uint32_t output_tokens = 0;
  uint32_t depth_tokens = 0;   // Where the path ends, in positions.
  uint32_t reused_tokens = 0;  // How much of the path this use found cached.
};

struct Victim {
  CellIndex cell = kNoCell;  // kNoCell: there is nothing left to choose from.
  TenantId tenant = kNoTenant;
  CellIndex next = kNoCell;  // Probably the next victim; a hint for loading ahead.
};

// A RetentionPolicy orders the cells that could be evicted. It chooses and never moves.
//
// The cache reports touches (a use of a path ended at this cell), replacements (a leaf went and its
// parent became a leaf) and removals; the policy names the next victim. It may hold cells that
// cannot be evicted at the moment (inner cells at which some use ended, leased cells): the caller
// checks, calls set_aside(), and asks again. Every evictable cell is held: a cell becomes evictable
// only through touch() or replace().
//
// Order:      evictable cells go by class: those whose touch says will_return go last, the others
//             by priority, then by phase (ended, unknown, active), lowest first. From deadline_ns
//             on a cell has its expired class. The policy is free only among cells of one class.
// Threading:  one thread at a time; called under the cache's lock: no I/O, no callbacks.
// Ownership:  the cache owns the policy; the policy owns its data per cell and its ghosts (records
//             of evicted cells).
// Cost:       touch, replace and remove are O(1) and do not allocate in steady state.
// Errors:     only prepare() may fail for lack of memory; it then returns false. For prepared cells
//             every other call must work without more memory, perhaps less exactly, and must not
//             throw (except order() and check_invariants(), which may throw std::bad_alloc).
class RetentionPolicy {
 public:
  virtual ~RetentionPolicy() = default;
  virtual std::string_view name() const noexcept = 0;

  // Allocates memory for the cells [0, cell], which may be touched from now on. Returns false when
  // there is none; cells prepared before stay prepared.
  virtual bool prepare(CellIndex cell) = 0;
  // A use of a path ended at `cell`: it is now the most recently used cell of the class that
  // `touch` gives it. Which cell of a class goes first is the policy's choice.
  virtual void touch(CellIndex cell, const Touch& touch) = 0;
  // `child` is about to be freed and `parent` has no other child: the last use that counted for
  // `child` now counts for `parent`, unless the policy already holds a better one for `parent`.
  virtual void replace(CellIndex child, CellIndex parent) = 0;
  // `cell` left the set: it is freed, or its earlier touches no longer count.
  virtual void remove(CellIndex cell) = 0;
  // `cell` turned out not to be evictable. It must not be the victim again before touch() or
  // replace() names it; its earlier touches count again then. By default the policy forgets it.
  virtual void set_aside(CellIndex cell) { remove(cell); }
  virtual bool holds(CellIndex cell) const noexcept = 0;

  // The cell to evict next; only among `tenant`'s cells if `only_tenant`. The cell stays held until
  // replace() or remove() names it.
  virtual Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) = 0;

  // Whether `parent` would be the next victim once its only child, the last victim, is freed. If
  // so, a whole path can go without a question for each cell; one replace() then names the path's
  // first and last cell. A question about `ahead` will probably follow soon.
  virtual bool parent_follows(CellIndex parent, CellIndex ahead) const noexcept {
    (void)parent, (void)ahead;
    return false;
  }
  // Writes the cells that will probably go after the victim `cell`, and returns how many it wrote.
  // A hint for loading ahead, so writing none is correct too. O(out.size()).
  virtual uint32_t following(CellIndex cell, std::span<CellIndex> out) const noexcept {
    (void)cell, (void)out;
    return 0;
  }
  // The cells it holds and has not set aside, the next victim first; for dumps and inspection.
  // O(cells).
  virtual void order(uint64_t now_ns, std::vector<CellIndex>& out) const = 0;

  // For policies that remember what they evicted: if true, the next three functions are called, so
  // that the policy can keep a fingerprint per cell and ghosts of evicted cells. A cell lives from
  // inserted() to evicted() or forgotten(), and its parent outlives it. A free number may also go
  // to something that is not reported to policies, such as the root of a scope.
  virtual bool tracks_contents() const noexcept { return false; }
  // `cell`, which holds `words`, became findable below `parent` (kNoCell: the path begins with it).
  virtual void inserted(CellIndex cell, CellIndex parent, std::span<const uint32_t> words) {
    (void)cell, (void)parent, (void)words;
  }
  // `cell` is about to be freed to make room.
  virtual void evicted(CellIndex cell) { (void)cell; }
  // `cell` is about to be freed for another reason: its content was dropped on request, or a longer
  // block took its place. The policy no longer holds it.
  virtual void forgotten(CellIndex cell) { (void)cell; }

  // The memory it holds, for budgets and reports.
  virtual uint64_t bytes() const noexcept = 0;
  virtual void clear() = 0;
  // Stops the process with a description if its books do not balance.
  virtual void check_invariants() const = 0;
};

// Makes a policy for a tree of `cells` cells. Returns null if the name is unknown or memory is
// short. Known names: "lru" (least recently used leaf first, deepest first, exact within a class);
// "default", also called "adaptive" (learns when conversations come back, and falls back to "lru"
// wherever that does as well); and the classical "lru_k", "slru", "arc", "s3_fifo", "sieve" and
// "gdsf". Each classical policy is far behind "lru" on some traffic; `stemma replay` shows which.
std::unique_ptr<RetentionPolicy> make_policy(std::string_view name, uint32_t cells) noexcept;
bool knows_policy(std::string_view name) noexcept;

// A policy of yours, and how much memory budgets must leave for it.
struct PolicyKind {
  std::string_view name;  // 1 to 31 characters: a to z, 0 to 9 and _. register_policy() copies it.
  // Makes the policy for `cells` cells. Returns null, or throws std::bad_alloc, if memory is short.
  std::unique_ptr<RetentionPolicy> (*make)(uint32_t cells) = nullptr;
  uint32_t bytes_per_cell = 0;  // At most, with every kind of hint.
  uint32_t fixed_bytes = 0;     // Beyond 128 KiB, whatever the number of cells.
};

// Makes a policy of yours known by its name to everything that is created afterwards in this
// process: caches, tiers, replays. It stays known until the process ends. At most 32.
// Threading: thread-safe. Error: invalid_argument (the name has other characters or is taken, there
// is no `make`, or there are 32 already).
Result<void> register_policy(const PolicyKind& kind) noexcept;

}  // namespace stemma
