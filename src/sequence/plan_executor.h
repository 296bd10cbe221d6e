// PlanExecutor: carries out the plan of a turn.
//
// Every call of the engine may fail before, during or after its effect, and its success is not
// trusted: a step counts only if held() confirms it. When a step fails, the sequence is emptied,
// what is bad is given up, and the turn is planned again without it; after some tries, with nothing
// reused.
//
// Invariant:  after execute() succeeded the sequence holds [0, turn.available) of the prompt,
//             verified; after an error it counts as empty, and the turn can only end. Other
//             sequences are untouched, or emptied to make room.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the books and the other parts outlive it.
// Cost:       a call of the engine for each step, and one held() to check it.
#pragma once

#include <cstdint>

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/idle_dropper.h"
#include "sequence/restorer.h"
#include "sequence/turn_planner.h"

namespace stemma::sequence {

class PlanExecutor {
 public:
  PlanExecutor(Books& books, Capturer& capturer, Clearer& clearer, TurnPlanner& planner,
               Restorer& restorer, IdleDropper& idle) noexcept
      : books_(books),
        capturer_(capturer),
        clearer_(clearer),
        planner_(planner),
        restorer_(restorer),
        idle_(idle) {}

  // Returns how many positions are available. Error: the reason why the sequence could not even be
  // emptied. Requires a turn in TurnPhase::planned that has a sequence.
  Result<uint32_t> execute(TurnRecord& turn);

 private:
  Result<void> try_plans(TurnRecord& turn);
  Result<void> try_plan(TurnRecord& turn, Excluded& excluded);
  Result<void> load_state(TurnRecord& turn, Excluded& excluded);
  // Prepares the sequence as the plan's base says: cut, empty, or with a copy.
  Result<void> lay_base(TurnRecord& turn, Excluded& excluded);
  Result<void> stay(TurnRecord& turn);
  Result<void> clear_for(TurnRecord& turn);
  Result<void> copy(TurnRecord& turn, Excluded& excluded);
  // If a sequence has the turn's words but cannot be copied, saves them now, to be found as saved.
  void save_source(TurnRecord& turn);
  // The plan was carried out, or could not be.
  void settle(TurnRecord& turn);
  void fail(TurnRecord& turn);
  void failed_step(TurnRecord& turn, Step step) noexcept;

  Books& books_;
  Capturer& capturer_;
  Clearer& clearer_;
  TurnPlanner& planner_;
  Restorer& restorer_;
  IdleDropper& idle_;
};

}  // namespace stemma::sequence
