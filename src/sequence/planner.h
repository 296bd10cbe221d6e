// The planner: the cheapest correct way to have a prefix of a prompt in some sequence.
//
// A pure function of what is known. Everything is costed in nanoseconds: loading, computing what is left (a
// token costs more the deeper it is), and what is lost when a sequence that holds something else is emptied. A
// way to have more is taken only if it costs less, so no plan is slower than computing everything.
// Threading: pure functions.
// Cost:      O(live sequences + vacancies), a few checkpoints each.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sequence/costs.h"
#include "stemma/sequence_engine.h"
#include "stemma/sequence_stats.h"

namespace stemma::sequence {

inline constexpr uint32_t kNoSequence = 0xFFFF'FFFFU;

// A sequence that shares words with the prompt.
struct LiveCandidate {
  uint32_t sequence = 0;
  uint32_t common = 0;    // Words in common with the prompt.
  Held held;              // As the engine says; agrees with the books.
  bool can_stay = false;  // Idle, or the request's own: may be changed.
  bool own = false;       // Of the same conversation, which has probably done with what it had.
};

// A sequence to put things into that has nothing to offer.
struct Vacancy {
  uint32_t sequence = kNoSequence;
  uint64_t loss_ns = 0;  // What emptying it costs.
};

// What is saved of this prompt.
struct SavedCandidates {
  uint32_t segments = 0;  // [0, segments) in segments.
  // Depths, ascending, at which a checkpoint is kept.
  std::span<const uint32_t> checkpoints = {};
  uint32_t state_depth = 0;          // The deepest state that is wholly a prefix; 0 = none.
  uint32_t state_longest = 0;        // The most words a state shares with the prompt ...
  uint32_t state_longest_depth = 0;  // ... and how many it has.
};

struct PlanInput {
  EngineTraits traits;
  uint32_t limit = 0;  // No more than this may be available.
  uint32_t prompt = 0;
  uint32_t segment_tokens = 64;
  std::span<const LiveCandidate> live = {};
  // Who else could take it; of equally good ones the first is taken. Two are enough, because one may be
  // the source.
  std::span<const Vacancy> vacant = {};
  SavedCandidates saved;
  Costs costs;
  // Cells of other sequences that stay whatever the plan: computing looks at them too.
  uint64_t beside_cells = 0;
  bool restorable = false;  // What a sequence loses can be loaded again.
};

// The price of letting [begin, end) of somebody's sequence go: what having it again would cost, as
// likely as that is.
uint64_t price_of(const PlanInput& input, uint32_t begin, uint32_t end, bool own);

// An idle sequence, and the turn whose computing it slows down.
struct IdleSequence {
  uint32_t length = 0;         // Positions that it holds.
  uint32_t own_cells = 0;      // Of these, the last so many are shared with nobody who stays.
  uint32_t restorable = 0;     // [0, restorable) can be loaded again.
  uint32_t prompt_tokens = 0;  // That the turn is about to compute,
  uint32_t answer_tokens = 0;  // and then, one at a time.
};
// Whether dropping an idle sequence is cheaper than computing beside it.
bool worth_dropping(const PlanInput& input, const IdleSequence& idle);

enum class Base : uint8_t { empty, stay, fork };

struct Plan {
  uint32_t sequence = kNoSequence;  // Where; kNoSequence: there is none.
  Base base = Base::empty;
  uint32_t source = kNoSequence;  // Of a fork.
  uint32_t base_tokens = 0;       // What the base contributes: kept, or copied.
  uint32_t segments_to = 0;       // Then segments up to here; 0 = none.
  uint32_t state_depth = 0;       // Instead of base and segments: a state of this depth.
  uint32_t checkpoint = 0;        // Then a checkpoint at this depth; 0 = none.
  uint32_t available = 0;         // What it makes available.
  uint64_t cost_ns = 0;
};

// The cheapest of the plans that fit; of all of them without a `fits`. It is asked only about those that
// are cheaper than what was found before.
Plan make_plan(const PlanInput& input, const std::function<bool(const Plan&)>& fits = {});

// The largest depth of at most n at which a sequence that holds `held` can be resumed where it is, or
// after a copy of [0, depth) into another one; 0 = none.
uint32_t resumable(const EngineTraits& traits, Held held, uint32_t n, bool copied) noexcept;

}  // namespace stemma::sequence
