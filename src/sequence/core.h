// Core: what is done with the books of a SequenceCache (books.h).
//
// Decide, do, settle: the books are changed under the lock, the engine is called without it (see
// Engine). Only the engine's thread changes anything, so between two of its locked stretches nothing has
// changed; the lock is for those who look from other threads.
//
//   core.cc          creation, sequences and sessions, looking, saving in quiet moments
//   core_admit.cc    what was saved elsewhere
//   core_turn.cc     the rest of a turn's life
//   core_forget.cc   scopes, what was saved, what follows a prefix, sessions
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "key/key_chain.h"
#include "sequence/admission.h"
#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/drainer.h"
#include "sequence/finder.h"
#include "sequence/idle_dropper.h"
#include "sequence/notifier.h"
#include "sequence/plan_executor.h"
#include "sequence/records.h"
#include "sequence/restorer.h"
#include "sequence/segment_store.h"
#include "sequence/state_store.h"
#include "sequence/turn_planner.h"
#include "stemma/sequence.h"

namespace stemma::sequence {

class Core;

class Core {
 public:
  static Result<Core*> create(SequenceEngine& engine, const SequenceOptions& options);

  // Owners: the cache, and each turn. The last one deletes.
  void retain_owner() noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
  void release_owner() noexcept;
  void cache_gone() noexcept;

  Result<Turn> begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                     bool whole);
  Result<SequenceReport> lookup(const Scope& scope, const Prompt& prompt,
                                const TurnOptions& options);
  bool can_admit(std::string_view session);

  Result<uint32_t> execute(TurnRecord& turn);

  Drained drain(const DrainLimits& limits);
  Result<SequenceReport> warm(const Scope& scope, const Prompt& prefix,
                              SequenceCache::Compute compute, void* user,
                              const TurnOptions& options);
  HandedOn hand_on(uint64_t from, uint64_t bytes);

  // core_turn.cc
  Result<void> computed(TurnRecord& turn, uint32_t n, uint64_t spent_ns);
  Result<void> extend(TurnRecord& turn, std::span<const Token> tokens);
  Result<void> reserve(TurnRecord& turn, uint32_t tokens);
  Result<void> rewind(TurnRecord& turn, uint32_t n);
  Result<void> attach_logits(TurnRecord& turn, uint32_t depth, std::span<const float> logits);
  Result<Turn> fork(TurnRecord& turn, const TurnOptions& options);
  Result<void> shift(TurnRecord& turn, uint32_t keep, uint32_t discard);
  Result<void> finish(TurnRecord& turn, const Retain* retain);
  Result<void> abandon(TurnRecord& turn);
  void destroy(TurnRecord* turn) noexcept;

  // core_forget.cc
  void forget_context();
  void drop_scope(const Scope& scope);
  void drop_saved();
  Result<Truncated> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  Result<Admitted> admit(const Scope& scope, const Prompt& prompt, std::span<const SavedPart> parts,
                         const TurnOptions& options);
  uint32_t saved_tokens(const Scope& scope, const Prompt& prompt) const;
  uint32_t saved_checkpoints(const Scope& scope, const Prompt& prompt, std::span<uint32_t> out);
  void end_session(std::string_view session);

  // core.cc
  SequenceStats stats();
  std::string_view policy() const noexcept { return books_.options.policy; }
  SessionInfo session(std::string_view name);
  SequenceInfo sequence(SequenceId id);
  Result<std::vector<SequenceContent>> contents();
  uint32_t pending();
  void check_invariants();

 private:
  friend class PartsSaver;

  Core(SequenceEngine& engine, const SequenceOptions& options);
  void admit_segments(const Scope& scope, const Text& text, std::span<const SavedPart> parts,
                      const TurnOptions& options, key::KeyChain* chain, Admitted& admitted);
  void admit_state(const Scope& scope, const Text& text, const SavedPart& part,
                   const TurnOptions& options, key::KeyChain* chain, Admitted& admitted);

  // ---- Forgetting ----
  // May throw std::bad_alloc; nothing has changed then.
  Result<Truncated> truncate(const Scope& scope, const Text& text, uint32_t keep);
  // An idle sequence holds no more than [0, n) from now on: n, or nothing where it cannot go back
  // there. Returns which.
  uint32_t cut_back(uint32_t sequence, uint32_t n);

  // ---- Turns ----
  // Nothing of the sequence counts any more; the turn can only end.
  void lose(TurnRecord& turn);
  Result<void> check_ready(TurnRecord& turn);
  // What a turn kept comes to rest, or goes.
  void leave(TurnRecord& turn);
  // Gives a sequence back that was leased and not touched.
  void give_back(TurnRecord& turn) noexcept;
  // What a turn found in its sequence is what is left there. False: it is not.
  bool step_back(TurnRecord& turn);
  void end_turn(TurnRecord& turn) noexcept;
  // The turn is no longer one of its session, which may be over with it.
  void leave_session(TurnRecord& turn) noexcept;
  // Requires that no turn of it is under way.
  void close_session(uint32_t session) noexcept;

  std::atomic<uint32_t> owners_{1};
  Books books_;
  Notifier notifier_;
  Capturer capturer_;
  Finder finder_;
  TurnPlanner planner_;
  Admission admission_;
  Clearer clearer_;
  Restorer restorer_;
  IdleDropper idle_;
  PlanExecutor executor_;
  Drainer drainer_;
};

}  // namespace stemma::sequence
