// TurnPlanner: chooses the plan of a turn, and says in its report what the plan does and why.
//
// It asks the planner (planner.h) for the cheapest plan; if there is no room for that one, it takes
// the cheapest that has room. It also chooses where the turn stops to keep checkpoints.
//
// Invariant:  a plan that is chosen has room, apart from what other turns were promised.
// Threading:  the caller holds the books' lock; replan() on the engine's thread.
// Ownership:  leases go to the turn. The books and the finder outlive it.
// Cost:       plan() is make_plan(), twice at most. May throw std::bad_alloc.
#pragma once

#include "sequence/books.h"
#include "sequence/finder.h"

namespace stemma::sequence {

class TurnPlanner {
 public:
  TurnPlanner(Books& books, Finder& finder) noexcept : books_(books), finder_(finder) {}

  // Chooses a plan. Returns false if none fits into the context. Removes from `found` what the plan
  // cannot use because there is no room.
  bool plan(TurnRecord& turn, Found& found);
  // Finds and plans again for a turn that has its sequence, because something has changed or
  // failed. `cold`: with nothing reused.
  void replan(TurnRecord& turn, const Excluded& excluded, bool cold);
  // Chooses the depths at which checkpoints are kept while the prompt is computed.
  void choose_stops(TurnRecord& turn, const Found& found);

  // ---- The report -------------------------------------------------------------------------------

  // How much is reused, and why not more.
  void explain(TurnRecord& turn, const Found& found) const;
  // What each step of the plan contributes.
  void describe(TurnRecord& turn) const;
  // Which media items have to be processed.
  static void note_media(TurnRecord& turn);

 private:
  SequenceMiss reason_for(const TurnRecord& turn, const Found& found) const;
  uint32_t possible_reuse(const TurnRecord& turn, const Found& found) const;

  Books& books_;
  Finder& finder_;
};

}  // namespace stemma::sequence
