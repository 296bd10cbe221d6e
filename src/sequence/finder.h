// Finder: what could serve a prompt.
//
// It looks for the words of a turn in live sequences, in saved segments, states and checkpoints,
// and for sequences that could take them. TurnPlanner chooses among what is found.
//
// Invariant:  what is found was held or saved under exactly the words of the prompt, in its scope,
//             and does not end inside a unit.
// Threading:  the caller holds the books' lock. Holding::yes also requires the engine's thread,
//             because it may ask the engine what a sequence holds, with the lock released.
// Ownership:  leases of saved entries go to the turn. The books outlive it.
// Cost:       one walk of the prompt for live sequences, one for each store, and O(sequences). May
//             throw std::bad_alloc.
#pragma once

#include <cstdint>

#include "sequence/books.h"

namespace stemma::sequence {

// Whether what is found will be used, so that it must stay until then.
enum class Holding : uint8_t { no, yes };

class Finder {
 public:
  explicit Finder(Books& books) noexcept : books_(books) {}

  // Finds what could serve the turn. Only the sequence `fixed` may be changed; with kNoSequence any
  // that is not leased. It relies on the engine's last answer, but asks again (Holding::yes) where
  // passes of other sequences may have changed it. Carrying the plan out shows whether it is true.
  void find(TurnRecord& turn, Found& found, Holding holding, uint32_t fixed,
            const Excluded& excluded);
  // Keeps the state or checkpoint that the turn's plan needs. Requires that it was found just now.
  void hold_anchor(TurnRecord& turn, const Found& found);

  // Looks for logits of the whole prompt; with them nothing has to be evaluated. Requires a store
  // of logits. With Holding::yes the turn gets them.
  void find_logits(TurnRecord& turn, uint32_t at_most, Holding holding);

  // The planner's input, apart from what was found.
  PlanInput plan_input(const TurnRecord& turn) const;

 private:
  void find_live(TurnRecord& turn, Found& found, Holding holding, uint32_t fixed,
                 const Excluded& excluded);
  void find_saved(TurnRecord& turn, Found& found, Holding holding, const Excluded& excluded);
  void find_segments(TurnRecord& turn, Found& found, Holding holding);
  void find_states(TurnRecord& turn, Found& found);
  void find_checkpoints(TurnRecord& turn, Found& found);
  void find_vacant(const TurnRecord& turn, Found& found, uint32_t fixed);
  bool take_logits(TurnRecord& turn, const StateCandidate& entry);

  Books& books_;
};

}  // namespace stemma::sequence
