// Core: where the parts of a SequenceCache meet.
//
// It owns the books and the parts that work on them, takes the lock, and passes each call on to the
// part whose job it is. An arrow means "uses"; all of them use Books.
//
//   Admission --> TurnPlanner --> Finder                  finding and planning
//   PlanExecutor --> TurnPlanner, Restorer, IdleDropper   carrying plans out
//   TurnProgress, TurnEnd                                 the rest of a turn
//   Drainer --> IdleDropper                               what can wait for a quiet moment
//   Forgetter, SessionCloser                              what is forgotten on request
//   PartIntake, Inspector                                 taking parts in; looking
//   Clearer --> Capturer --> Notifier                     emptying; saving; telling the listener
//
// Invariant:  a call on a cache that is gone, or on a turn that lost its sequence, changes nothing
//             but a counter; such a turn can only end.
// Threading:  as SequenceCache says. Every function takes the lock once, and calls the parts with
//             it; fork() and warm() take it for each of their steps.
// Ownership:  reference-counted: the cache and each turn own it, and the last one deletes it.
// Cost:       that of the parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sequence/admission.h"
#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/drainer.h"
#include "sequence/finder.h"
#include "sequence/forgetter.h"
#include "sequence/idle_dropper.h"
#include "sequence/inspector.h"
#include "sequence/notifier.h"
#include "sequence/part_intake.h"
#include "sequence/plan_executor.h"
#include "sequence/relocator.h"
#include "sequence/restorer.h"
#include "sequence/session_closer.h"
#include "sequence/turn_end.h"
#include "sequence/turn_planner.h"
#include "sequence/turn_progress.h"
#include "stemma/sequence.h"

namespace stemma::sequence {

class Core {
 public:
  static Result<Core*> create(SequenceEngine& engine, const SequenceOptions& options);

  void release_owner() noexcept;
  // The cache was destroyed, and with it perhaps the engine.
  void cache_gone() noexcept;
  void destroy(TurnRecord* turn) noexcept;

  // The functions of SequenceCache. In begin() `whole` says that all of the prompt may be reused.
  Result<Turn> begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                     bool whole);
  Result<SequenceReport> lookup(const Scope& scope, const Prompt& prompt,
                                const TurnOptions& options);
  bool can_admit(std::string_view session);
  Drained drain(const DrainLimits& limits);
  uint32_t pending();
  Result<SequenceReport> warm(const Scope& scope, const Prompt& prefix,
                              SequenceCache::Compute compute, void* user,
                              const TurnOptions& options);
  Result<Admitted> admit(const Scope& scope, const Prompt& prompt, std::span<const SavedPart> parts,
                         const TurnOptions& options);
  HandedOn hand_on(uint64_t from, uint64_t bytes);
  uint64_t hand_on_from(uint64_t bytes);
  uint32_t saved_tokens(const Scope& scope, const Prompt& prompt) const;
  uint32_t saved_checkpoints(const Scope& scope, const Prompt& prompt, std::span<uint32_t> out);
  void forget_context();
  void drop_scope(const Scope& scope);
  void drop_saved();
  Result<Truncated> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  void end_session(std::string_view session);
  SequenceStats stats();
  std::string_view policy() const noexcept { return books_.options.policy; }
  SessionInfo session(std::string_view name);
  SequenceInfo sequence(SequenceId id);
  Result<std::vector<SequenceContent>> contents();
  void check_invariants();

  // The functions of Turn.
  Result<uint32_t> execute(TurnRecord& turn);
  Result<void> computed(TurnRecord& turn, uint32_t n, uint64_t spent_ns);
  Result<void> extend(TurnRecord& turn, std::span<const Token> tokens);
  Result<void> reserve(TurnRecord& turn, uint32_t tokens);
  Result<void> rewind(TurnRecord& turn, uint32_t n);
  Result<void> attach_logits(TurnRecord& turn, uint32_t depth, std::span<const float> logits);
  Result<Turn> fork(TurnRecord& turn, const TurnOptions& options);
  Result<void> shift(TurnRecord& turn, uint32_t keep, uint32_t discard);
  Result<void> finish(TurnRecord& turn, const Retain* retain);
  Result<void> abandon(TurnRecord& turn);

 private:
  Core(SequenceEngine& engine, const SequenceOptions& options) : books_(engine, options) {}

  std::atomic<uint32_t> owners_{1};
  Books books_;
  // The parts. They and the books are used under books_.mutex.
  Notifier notifier_ STEMMA_GUARDED_BY(books_.mutex){books_};
  Capturer capturer_ STEMMA_GUARDED_BY(books_.mutex){books_, notifier_};
  Clearer clearer_ STEMMA_GUARDED_BY(books_.mutex){books_, capturer_};
  Finder finder_ STEMMA_GUARDED_BY(books_.mutex){books_};
  TurnPlanner planner_ STEMMA_GUARDED_BY(books_.mutex){books_, finder_};
  Admission admission_ STEMMA_GUARDED_BY(books_.mutex){books_, finder_, planner_};
  Restorer restorer_ STEMMA_GUARDED_BY(books_.mutex){books_, notifier_, capturer_};
  IdleDropper idle_ STEMMA_GUARDED_BY(books_.mutex){books_, finder_, capturer_, clearer_};
  PlanExecutor executor_ STEMMA_GUARDED_BY(books_.mutex){books_,   capturer_, clearer_,
                                                         planner_, restorer_, idle_};
  Relocator relocator_ STEMMA_GUARDED_BY(books_.mutex){books_, clearer_};
  Drainer drainer_ STEMMA_GUARDED_BY(books_.mutex){books_,   notifier_, capturer_,
                                                   clearer_, idle_,     relocator_};
  SessionCloser sessions_ STEMMA_GUARDED_BY(books_.mutex){books_};
  TurnProgress progress_ STEMMA_GUARDED_BY(books_.mutex){books_, notifier_, capturer_, clearer_,
                                                         restorer_};
  TurnEnd end_ STEMMA_GUARDED_BY(books_.mutex){books_, capturer_, clearer_, sessions_};
  Forgetter forgetter_ STEMMA_GUARDED_BY(books_.mutex){books_, capturer_, clearer_, sessions_};
  PartIntake intake_ STEMMA_GUARDED_BY(books_.mutex){books_, notifier_};
  Inspector inspector_ STEMMA_GUARDED_BY(books_.mutex){books_, capturer_};
};

}  // namespace stemma::sequence
