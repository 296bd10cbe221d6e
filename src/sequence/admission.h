// Admission: lets requests in. It reads a prompt and its options, has a plan made, and leases a
// sequence.
//
// Invariant:  a request that is refused changes nothing but a counter.
// Threading:  the caller holds the books' lock. begin() runs on the engine's thread: it may ask the
//             engine what a sequence holds, and releases the lock meanwhile.
// Ownership:  a turn record belongs to the caller, and its sequence points to it until the turn
//             ends.
// Cost:       see Finder and TurnPlanner. Nothing throws.
#pragma once

#include <memory>
#include <string_view>

#include "sequence/books.h"
#include "sequence/finder.h"
#include "sequence/turn_planner.h"

namespace stemma::sequence {

class Admission {
 public:
  Admission(Books& books, Finder& finder, TurnPlanner& planner) noexcept
      : books_(books), finder_(finder), planner_(planner) {}

  // As SequenceCache::begin(). `whole`: all of the prompt may be reused, its last unit too.
  Result<std::unique_ptr<TurnRecord>> begin(const Scope& scope, const Prompt& prompt,
                                            const TurnOptions& options, bool whole);
  // As SequenceCache::lookup() and can_admit().
  Result<SequenceReport> lookup(const Scope& scope, const Prompt& prompt,
                                const TurnOptions& options);
  bool can_admit(std::string_view session) const noexcept;

 private:
  Result<void> read_turn(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                         bool whole, TurnRecord& turn);
  // All that can fail: finds, plans, and opens the session. May throw std::bad_alloc.
  Result<void> prepare(TurnRecord& turn, const TurnOptions& options);
  // Gives the plan's sequence to the turn. Cannot fail.
  void lease_sequence(TurnRecord& turn, uint64_t now_ns) noexcept;
  bool has_vacancy() const noexcept;  // A sequence that is not leased.

  Books& books_;
  Finder& finder_;
  TurnPlanner& planner_;
};

}  // namespace stemma::sequence
