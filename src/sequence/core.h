// Core: what is done with the books of a SequenceCache (books.h).
//
// Decide, do, settle: the books are changed under the lock, the engine is called without it (see
// Engine). Only the engine's thread changes anything, so between two of its locked stretches nothing has
// changed; the lock is for those who look from other threads.
//
//   core.cc          creation, sequences and sessions, looking, saving in quiet moments
//   core_execute.cc  carrying plans out, and what to do when it fails
//   core_idle.cc     dropping idle sequences that cost more than they are worth
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
#include "sequence/finder.h"
#include "sequence/notifier.h"
#include "sequence/planner.h"
#include "sequence/records.h"
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

  // core_execute.cc
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
  // ---- Sequences ----
  // Clears a sequence in the engine and in the books. False: it is broken now.
  bool empty(uint32_t sequence);
  // The books say that nothing is in it.
  void forget(uint32_t sequence) noexcept;
  // Empties an idle sequence for somebody else; saves it first if that is worth it.
  bool retire(uint32_t sequence, SequenceReport* report);

  // ---- Executing ----
  Result<void> try_plan(TurnRecord& turn, Excluded& excluded);
  Result<void> lay_base(TurnRecord& turn, Excluded& excluded);
  Result<void> load_segments(TurnRecord& turn, Range range, Excluded& excluded);
  // All of pieces_. Bytes and calls are counted; after an error `bad` is where the segment begins.
  Result<void> load_one_by_one(SequenceId id, uint64_t& bytes, uint32_t& calls, uint32_t& bad);
  Result<void> load_ranges(SequenceId id, uint64_t& bytes, uint32_t& calls, uint32_t& bad);
  Result<void> load_anchor(TurnRecord& turn, Part part, uint32_t depth, Excluded& excluded);
  void quarantine_segment(TurnRecord& turn, uint32_t from);
  void save_source(TurnRecord& turn);
  void settle(TurnRecord& turn);
  void failed_step(TurnRecord& turn, Step step);
  // Clears a sequence that could not be cleared before. False: there is none, or it still cannot.
  bool mend();
  // Empties idle sequences, but not `spared`, until so many positions are free for this one, beyond what
  // others were promised. False: not enough.
  bool make_room_for(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report);
  // The same, whatever others were promised.
  bool free_up(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report);
  // Empties idle sequences that would slow the turn's computing by more than having them again costs.
  void drop_idle(TurnRecord& turn) noexcept;
  // The same for every turn whose prompt is being computed: a sequence that had to stay has been saved since.
  void drop_what_was_saved() noexcept;
  // How much of what an idle sequence holds could be restored if it were emptied now.
  uint32_t restorable_part(uint32_t sequence);
  // Whether another turn, which was not carried out yet, is to copy from it.
  bool is_planned_source(uint32_t s, const TurnRecord& turn) const noexcept;

  // ---- Capturing ----
  void drain(const DrainLimits& limits, Drained& drained);
  bool start_next(const DrainLimits& limits, Drained& drained, uint32_t& passed_over);
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
  // Scratch.
  std::vector<SavedSegment> pieces_;
};

}  // namespace stemma::sequence
