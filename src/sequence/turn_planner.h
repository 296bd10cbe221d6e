// TurnPlanner: chooses the plan of a turn, and says in its report what the plan does and why.
//
// It asks the planner (planner.h) for the cheapest way among what was found, and takes the cheapest
// that has room if that way has none. It also chooses where the turn stops to keep checkpoints.
//
// Invariant:  a plan that is chosen has room, as far as the promises to other turns allow.
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

  // Chooses a plan. False when none fits into the context. What the plan cannot use for want of
  // room is taken out of `found`.
  bool plan(TurnRecord& turn, Found& found);
  // Finds and plans anew for a turn that has its sequence, because something has changed or failed.
  // `cold`: with nothing reused.
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
