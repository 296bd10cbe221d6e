// Core: what is done with the books of a SequenceCache (books.h).
//
// Decide, do, settle: the books are changed under the lock, the engine is called without it (see
// Engine). Only the engine's thread changes anything, so between two of its locked stretches nothing has
// changed; the lock is for those who look from other threads.
//
//   core.cc          creation, sequences and sessions, looking
//   core_begin.cc    admission and planning
//   core_execute.cc  carrying plans out, and what to do when it fails
//   core_idle.cc     dropping idle sequences that cost more than they are worth
//   core_capture.cc  what is saved, when
//   core_tell.cc     what whoever listens is told
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

#include "base/index_lists.h"
#include "key/key_chain.h"
#include "sequence/books.h"
#include "sequence/planner.h"
#include "sequence/records.h"
#include "sequence/segment_store.h"
#include "sequence/segment_writer.h"
#include "sequence/state_store.h"
#include "stemma/sequence.h"

namespace stemma::sequence {

class Core;

// A capture that has begun: what a sequence held then, on its way to be saved. It has words of its own, so that it
// outlives what the sequence holds.
struct CaptureRun {
  CaptureRun(SegmentStore* store, const Scope& of) : scope(of), writer(store) {}
  uint32_t sequence = kNoSequence;
  uint32_t depth = 0;
  uint32_t segments_to = 0;  // So much of it goes into segments.
  uint64_t generation = 0;   // Of the sequence, when it began.
  Scope scope;
  Text text;
  OwnRetain retain;
  SegmentWriter writer;
  bool has_anchor = false;
  Captured anchor;  // The state or checkpoint at its end.
};

class Core {
 public:
  static Result<Core*> create(SequenceEngine& engine, const SequenceOptions& options);

  // Owners: the cache, and each turn. The last one deletes.
  void retain_owner() noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
  void release_owner() noexcept;
  void cache_gone() noexcept;

  // core_begin.cc
  Result<Turn> begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                     bool whole);
  Result<SequenceReport> lookup(const Scope& scope, const Prompt& prompt,
                                const TurnOptions& options);
  bool can_admit(std::string_view session);

  // core_execute.cc
  Result<uint32_t> execute(TurnRecord& turn);

  // core_capture.cc
  Drained drain(const DrainLimits& limits);
  Result<SequenceReport> warm(const Scope& scope, const Prompt& prefix,
                              SequenceCache::Compute compute, void* user,
                              const TurnOptions& options);

  // core_tell.cc
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
  friend class EngineSaver;
  friend class PartsSaver;

  Core(SequenceEngine& engine, const SequenceOptions& options);
  Result<void> set_up();
  // ---- Sequences ----
  // Clears a sequence in the engine and in the books. False: it is broken now.
  bool empty(uint32_t sequence);
  // The books say that nothing is in it.
  void forget(uint32_t sequence) noexcept;
  // Empties an idle sequence for somebody else; saves it first if that is worth it.
  bool retire(uint32_t sequence, SequenceReport* report);

  // ---- Planning ----
  bool has_vacancy() const noexcept;  // A sequence that is not leased.
  Result<void> read_turn(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                         bool whole, TurnRecord& turn);
  // Finds what could serve, and leases what is saved if `hold`; `fixed` is the only sequence that may
  // be changed, or kNoSequence. Goes by what the engine said last, but asks again (if `hold`) where passes of
  // others may have changed it; execute() sees whether it holds.
  void find(TurnRecord& turn, Found& found, bool hold, uint32_t fixed, const Excluded& excluded);
  void find_live(TurnRecord& turn, Found& found, bool begins, uint32_t fixed,
                 const Excluded& excluded);
  void find_saved(TurnRecord& turn, Found& found, bool hold, const Excluded& excluded);
  void find_checkpoints(TurnRecord& turn, Found& found);
  void find_vacant(const TurnRecord& turn, Found& found, uint32_t fixed);
  StateCandidate kept_logits(const TurnRecord& turn);
  void find_logits(TurnRecord& turn, uint32_t at_most);
  // With logits nothing has to be evaluated.
  static void allow_all(TurnRecord& turn, uint32_t at_most) noexcept;
  // False when no plan fits into the context.
  bool plan(TurnRecord& turn, Found& found);
  bool fits(const TurnRecord& turn, const Plan& plan);
  // Whether a sequence that holds [0, kept) could have so many positions more, if all others went that
  // may, but for `spared`.
  bool could_have(uint32_t sequence, uint32_t kept, uint64_t tokens, uint32_t spared);
  // Positions that must be free to carry a plan out.
  uint64_t needs_room(const TurnRecord& turn, const Plan& plan) const noexcept;
  // Positions of a plan that are in the context already.
  uint32_t has_without_room(const Plan& plan) const noexcept;
  // The same of another turn's plan, if this sequence is changed before that is carried out.
  uint32_t will_have_without_room(const Plan& plan, uint32_t sequence) const noexcept;
  // Whether the plan of a turn on another sequence than this one shares what `s` has. That turn was
  // promised no room for it, so it stays.
  bool is_source(uint32_t s, uint32_t sequence) const noexcept;
  // Room that turns on other sequences were promised and have not taken.
  uint64_t promised_to_others(uint32_t sequence) const;
  void hold_anchor(TurnRecord& turn, const Found& found);
  // What the report says of the plan.
  void explain(TurnRecord& turn, const Found& found);
  void describe(TurnRecord& turn);
  void note_media(TurnRecord& turn);
  void choose_stops(TurnRecord& turn, const Found& found);
  // The size of what is kept at a stop.
  uint64_t anchor_bytes(uint32_t depth) const noexcept;
  // Whether its boundaries must be saved as they are reached.
  bool anchors(const TurnRecord& turn) const noexcept;
  PlanInput plan_input(const TurnRecord& turn) const;

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
  void replan(TurnRecord& turn, const Excluded& excluded, bool cold);
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
  // [0, depth) of the sequence is to be saved when there is time.
  void queue(uint32_t sequence, uint32_t depth);
  void unqueue(uint32_t sequence, CaptureFate fate);
  // Saves what waits in a sequence, all of it, now.
  Captured capture(uint32_t sequence);
  // The same, for a request that waits: no more than one step of it.
  Captured capture_in_a_step(uint32_t sequence);
  // A capture bit by bit: begun (null: there is nothing to save, which is counted), going on until a time, ended.
  std::unique_ptr<CaptureRun> start_run(uint32_t sequence);
  void drain(const DrainLimits& limits, Drained& drained);
  bool start_next(const DrainLimits& limits, Drained& drained, uint32_t& passed_over);
  // One range more. False: it waits for threads, or a buffer.
  bool go_on(CaptureRun& run, uint64_t until);
  void wait_for(CaptureRun& run);
  Captured end_run(CaptureRun& run);
  // What is being saved bit by bit comes to rest: what was read is saved, the rest waits again.
  void pause_run();
  // Whether a request that needs a sequence's place waits for one step of its capture at most.
  bool part_will_do() const noexcept;
  // If a capture of the sequence goes on bit by bit: one step more, or all, before the sequence is emptied.
  void read_on(uint32_t sequence);
  // The sequence will hold nothing from n on: what of it is being saved ends there.
  void will_lose(uint32_t sequence, uint32_t n) noexcept;
  // How many positions can be read in one step.
  uint32_t step_tokens() const noexcept;
  // Saves the checkpoint, or the state, at this depth of what the sequence holds.
  Captured capture_anchor(uint32_t sequence, uint32_t depth, const Touch& touch);
  void count_capture(const Captured& captured);
  bool worth_saving(uint32_t sequence) const noexcept;
  // Whether a request should wait until this is saved, because all from `kept` on would be lost without.
  bool worth_waiting(Range unsaved, uint32_t kept) const noexcept;
  // Saves what will be lost when the sequence is cut to `kept`, where that is worth the wait. Returns the bytes.
  uint64_t save_before_cut(uint32_t sequence, uint32_t kept);
  // Whether [0, depth) could ever be restored faster than computed. Says yes until something was measured.
  bool worth_keeping(uint32_t depth) const noexcept;
  // Whether what waits in a sequence can be saved without letting go of anything saved.
  bool has_room_for(uint32_t sequence) const;
  uint32_t unsaved(uint32_t sequence) const noexcept;
  void admit_segments(const Scope& scope, const Text& text, std::span<const SavedPart> parts,
                      const TurnOptions& options, key::KeyChain* chain, Admitted& admitted);
  void admit_state(const Scope& scope, const Text& text, const SavedPart& part,
                   const TurnOptions& options, key::KeyChain* chain, Admitted& admitted);

  // ---- Telling whoever listens ----
  // Without words where there is no memory for them.
  PartLabel label_of(key::KeyChain& chain, const Text& text, Range range,
                     Priority priority) const noexcept;
  // What was saved of a sequence. Without the lock.
  void tell(uint32_t sequence, const SavedPart& part, const ContentKey& chain);
  void tell_of_state(uint32_t sequence, StateStore& store, Part part, uint32_t depth);
  // Elsewhere a checkpoint is found by the words that it ends. So must be what lies under it: here that is the
  // first part of a segment that goes on, with words that nobody else may have. It is kept nowhere here, so
  // it leaves as soon as it is made.
  void tell_of_tail(uint32_t sequence, uint32_t depth);
  // Something saved earlier. Bytes that were taken. With the lock, which is let go meanwhile.
  uint64_t hand_on(uint32_t slot, SeenAgain seen);
  uint64_t hand_on(EntryKind kind, const StateLease& lease, const PartLabel& label, SeenAgain seen);
  // Segments that were evicted, before their slots are needed.
  void tell_of_evicted();
  // Evicts as reserve() would, telling of what goes.
  void make_way(StateStore& store, EntryKind kind, const Scope& scope, uint32_t depth,
                uint64_t bytes);

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
  uint32_t pending_ = 0;
  base::IndexLists waiting_;         // Of sequences with a capture, oldest first.
  std::unique_ptr<CaptureRun> run_;  // The capture that goes on bit by bit.
  // Scratch.
  std::vector<SavedSegment> pieces_;
  std::vector<uint8_t> flags_;
  std::vector<uint8_t> nobody_;  // Zeroes, for each sequence.
};

}  // namespace stemma::sequence
