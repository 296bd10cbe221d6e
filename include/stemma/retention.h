// What to keep when room is short: what callers say about their requests, and the interface behind
// which a policy decides.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stemma/clock.h"
#include "stemma/ids.h"

namespace stemma {

// 0 goes first, 100 goes last. The policy `lru` is exact within one priority and session phase, whatever
// the number of tenants and times to live.
using Priority = uint8_t;
inline constexpr Priority kDefaultPriority = 35;
inline constexpr Priority kMaxPriority = 100;

enum class FinishReason : uint8_t { unknown, end_turn, tool_use, length, cancelled };

// Whether the conversation goes on. An ended or idle session's blocks go before those of requests
// that said nothing, and these before an active session's; within one priority.
enum class SessionPhase : uint8_t { ended, unknown, active };

// A priority for the blocks whose first position lies in [begin, end).
struct PriorityRange {
  uint32_t begin = 0;
  uint32_t end = kOpenEnd;
  Priority priority = kDefaultPriority;
  uint64_t ttl_ns = kNever;  // After that long the blocks fall back to the default priority.

  static constexpr uint32_t kOpenEnd = 0xFFFF'FFFFU;
};
inline constexpr uint32_t kMaxPriorityRanges = 64;

// What a request says about the blocks it leaves behind. What counts for a block is the best said by
// those whose use ended there or further on (of two that ended at the same place, the later): a
// prefix is worth at least what its continuations are.
struct Retain {
  Priority priority = kDefaultPriority;
  uint64_t ttl_ns = kNever;  // After that long `priority` falls back to the default.
  // Ordered, not overlapping, at most kMaxPriorityRanges; positions outside all ranges have
  // `priority`.
  std::span<const PriorityRange> ranges = {};
  SessionId session = kNoSession;
  SessionPhase phase = SessionPhase::unknown;
  // How long an active session counts as active without being used; then it counts as ended. When
  // both times are given, both run out at the earlier one.
  uint64_t session_ttl_ns = kNever;
  // The request was preempted and comes back: its blocks go last.
  bool will_return = false;
  FinishReason finish = FinishReason::unknown;
  uint64_t expected_return_ns = 0;  // How soon the next use is expected; 0 = no idea.
  uint32_t output_tokens = 0;       // How long the answer was; 0 = not known.
};

// ---------------------------------------------------------------------------------------------
// The policy side.

// The number of a cell of the prefix tree: one block's worth of one path.
using CellIndex = uint32_t;
inline constexpr CellIndex kNoCell = 0x0FFF'FFFFU;

// One use of a path, as a policy sees it.
struct Touch {
  uint64_t now_ns = 0;
  TenantId tenant = kNoTenant;
  Priority priority = kDefaultPriority;
  uint64_t deadline_ns = kNever;  // From then on the two expired_ ones count instead.
  Priority expired_priority = kDefaultPriority;
  SessionPhase expired_phase = SessionPhase::unknown;
  SessionId session = kNoSession;
  SessionPhase phase = SessionPhase::unknown;
  bool will_return = false;
  FinishReason finish = FinishReason::unknown;
  uint64_t expected_return_ns = 0;
  uint32_t output_tokens = 0;
  uint32_t depth_tokens = 0;   // Where the path ends, in positions.
  uint32_t reused_tokens = 0;  // How much of it this use found cached.
};

struct Victim {
  CellIndex cell = kNoCell;  // kNoCell: nothing left to choose from.
  TenantId tenant = kNoTenant;
  CellIndex next = kNoCell;  // Probably the one after it; a hint for loading ahead.
};

// A RetentionPolicy orders the cells that could be evicted. It chooses and never moves.
//
// It is told of touches (a use of a path ended at this cell), of replacements (a leaf went and its
// parent became a leaf) and of removals; it answers with the next victim. It may hold cells that
// cannot be evicted just now (inner cells at which some use ended, leased cells): the caller checks,
// says set_aside(), and asks again. Every evictable cell is held: a cell becomes evictable only through
// touch() or replace().
//
// Threading:  one thread at a time; called under the cache's lock: no I/O, no callbacks.
// Ownership:  the cache owns the policy; a policy owns whatever it keeps per cell, and ghosts.
// Cost:       touch, replace and remove are O(1) and do not allocate in steady state.
// Errors:     prepare() is the only call that may be short of memory, and says so. Of the cells that it
//             was told of, every other call (but order() and check_invariants(), which may throw
//             std::bad_alloc) must do without more, perhaps less exactly; none may throw.
class RetentionPolicy {
 public:
  virtual ~RetentionPolicy() = default;
  virtual std::string_view name() const noexcept = 0;

  // Takes memory for the cells [0, cell], which may be touched from now on. False when there is none;
  // what was prepared before stays so.
  virtual bool prepare(CellIndex cell) = 0;
  // A use of a path ended at `cell`: it is now the most recently used of its class.
  virtual void touch(CellIndex cell, const Touch& touch) = 0;
  // `child` is about to be freed and `parent` has no other child: the last use that counted for
  // `child` now counts for `parent`, unless the policy already holds a better one for it.
  virtual void replace(CellIndex child, CellIndex parent) = 0;
  // `cell` left the set: it is freed, or nothing that was said of it counts any more.
  virtual void remove(CellIndex cell) = 0;
  // `cell` was found not evictable. It must not be the victim again before touch() or replace() names
  // it; what was said of it counts again then. A policy without an answer to that forgets it.
  virtual void set_aside(CellIndex cell) { remove(cell); }
  virtual bool holds(CellIndex cell) const noexcept = 0;

  // The cell to evict next; among `tenant`'s own when `only_tenant`. The cell stays held until
  // replace() or remove() names it.
  virtual Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) = 0;

  // After `parent`'s only child, the last victim, is freed: would `parent` be the next victim? A policy
  // that says so lets a whole path go without being asked again for each cell; it is told of the
  // first and the last by one replace(). `ahead` will probably be asked about soon.
  virtual bool parent_follows(CellIndex parent, CellIndex ahead) const noexcept {
    (void)parent, (void)ahead;
    return false;
  }
  // Writes the cells that will probably go after the victim `cell`, and returns how many it wrote. A hint
  // for loading ahead: none at all is right, too. O(out.size()).
  virtual uint32_t following(CellIndex cell, std::span<CellIndex> out) const noexcept {
    (void)cell, (void)out;
    return 0;
  }
  // The cells it holds and did not set aside, next to go first; for dumps and for looking. O(cells).
  virtual void order(uint64_t now_ns, std::vector<CellIndex>& out) const = 0;

  // For policies that remember what they evicted: when this is true, the next three are called, so
  // that a policy can keep a fingerprint per cell and ghosts of what went. Between inserted() and
  // evicted() or forgotten() a cell lives, and its parent lives longer than it does. A number that is
  // free may also be given to something that policies are not told of, such as the root of a scope.
  virtual bool tracks_contents() const noexcept { return false; }
  // `cell` became findable below `parent` holding `words`. kNoCell: it is the first of its path.
  virtual void inserted(CellIndex cell, CellIndex parent, std::span<const uint32_t> words) {
    (void)cell, (void)parent, (void)words;
  }
  // `cell` is about to be freed to make room.
  virtual void evicted(CellIndex cell) { (void)cell; }
  // `cell` is about to be freed for another reason: its content was dropped on request, or a longer
  // block took its place. The policy does not hold it any more.
  virtual void forgotten(CellIndex cell) { (void)cell; }

  // Memory it holds, for budgets and reports.
  virtual uint64_t bytes() const noexcept = 0;
  virtual void clear() = 0;
  // Stops the process with a description when its books do not balance.
  virtual void check_invariants() const = 0;
};

// Makes a policy for a tree of `cells` cells. Returns null for an unknown name, or without memory.
// Known: "lru" (least recently used leaf first, deepest first, exact within a class); "default", also called
// "adaptive" (learns when conversations come back, and goes as "lru" where that is no worse); and the classical
// "lru_k", "slru", "arc", "s3_fifo", "sieve", "gdsf", each of which is far behind "lru" on some traffic:
// `stemma replay` shows on which.
std::unique_ptr<RetentionPolicy> make_policy(std::string_view name, uint32_t cells) noexcept;
bool knows_policy(std::string_view name) noexcept;

}  // namespace stemma
