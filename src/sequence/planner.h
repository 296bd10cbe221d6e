// The planner: finds the cheapest correct way to get a prefix of a prompt into some sequence.
//
// A pure function of what is known. All costs are in nanoseconds: loading, computing what is left
// (a token costs more the deeper it is), and what is lost when a sequence that holds something else
// is emptied. More is reused only if that costs less, so no plan is slower than computing
// everything.
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
  bool can_stay = false;  // May be changed: it is idle, or the request's own.
  bool own = false;       // Of the same conversation, which probably needs nothing else in it.
};

// A sequence that shares nothing with the prompt, but can be filled.
struct Vacancy {
  uint32_t sequence = kNoSequence;
  uint64_t loss_ns = 0;  // What emptying it costs.
};

// What is saved of this prompt.
struct SavedCandidates {
  uint32_t segments = 0;  // [0, segments) is saved in segments.
  // Depths, ascending, at which a checkpoint is kept.
  std::span<const uint32_t> checkpoints = {};
  uint32_t state_depth = 0;          // The deepest state that is completely a prefix; 0 = none.
  uint32_t state_longest = 0;        // The most words that a state shares with the prompt.
  uint32_t state_longest_depth = 0;  // The depth of that state.
};

struct PlanInput {
  EngineTraits traits;
  uint32_t limit = 0;  // No more than this may be available.
  uint32_t prompt = 0;
  uint32_t segment_tokens = 64;
  std::span<const LiveCandidate> live = {};
  // Other sequences that could take the prompt; the first of equally good ones is taken. Two are
  // enough, because one may be the source.
  std::span<const Vacancy> vacant = {};
  SavedCandidates saved;
  Costs costs;
  // Cells of other sequences that stay under any plan: computing looks at them too.
  uint64_t beside_cells = 0;
  bool restorable = false;  // What a sequence loses can be loaded again.
};

// The price of giving up [begin, end) of a sequence: the cost of restoring it, times the likelihood
// that it is needed.
uint64_t price_of(const PlanInput& input, uint32_t begin, uint32_t end, bool own);

// An idle sequence, and the turn whose computing it slows down.
struct IdleSequence {
  uint32_t length = 0;         // Positions that it holds.
  uint32_t own_cells = 0;      // How many of its last positions it shares with none that stays.
  uint32_t restorable = 0;     // [0, restorable) can be loaded again.
  uint32_t prompt_tokens = 0;  // Tokens of the prompt that the turn is about to compute.
  uint32_t answer_tokens = 0;  // Tokens of the answer that it then computes one at a time.
  uint64_t slowed_ns = 0;      // How much it has slowed down others since it became idle.
};
// Whether dropping an idle sequence is cheaper than computing beside it.
bool worth_dropping(const PlanInput& input, const IdleSequence& idle);

enum class Base : uint8_t { empty, stay, fork };

struct Plan {
  uint32_t sequence = kNoSequence;  // The sequence to use; kNoSequence: there is none.
  Base base = Base::empty;
  uint32_t source = kNoSequence;  // Of a fork.
  uint32_t base_tokens = 0;       // Positions of the base: kept, or copied.
  uint32_t segments_to = 0;       // Then segments up to here; 0 = none.
  uint32_t state_depth = 0;       // Instead of base and segments: a state of this depth.
  uint32_t checkpoint = 0;        // Then a checkpoint at this depth; 0 = none.
  uint32_t available = 0;         // Positions that the plan makes available.
  uint64_t cost_ns = 0;
};

// Returns the cheapest of the plans that fit; without `fits`, of all plans. `fits` is called only
// for plans that are cheaper than the best so far.
Plan make_plan(const PlanInput& input, const std::function<bool(const Plan&)>& fits = {});

// The largest depth, at most n, at which a sequence that holds `held` can be resumed, in place or
// (with `copied`) after a copy of [0, depth) into another one; 0 = none.
uint32_t resumable(const EngineTraits& traits, Held held, uint32_t n, bool copied) noexcept;

}  // namespace stemma::sequence
