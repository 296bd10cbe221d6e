// Core: the books of a SequenceCache, and what is done with them.
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
#include "base/mutex.h"
#include "key/key_chain.h"
#include "sequence/costs.h"
#include "sequence/lexicon.h"
#include "sequence/live_index.h"
#include "sequence/planner.h"
#include "sequence/range_mover.h"
#include "sequence/room.h"
#include "sequence/segment_store.h"
#include "sequence/segment_writer.h"
#include "sequence/session_table.h"
#include "sequence/state_store.h"
#include "sequence/stops.h"
#include "stemma/sequence.h"

namespace stemma::sequence {

class Core;

// What a request said about what it leaves, with ranges of its own.
struct OwnRetain {
  Retain retain;
  std::vector<PriorityRange> ranges;
  void assign(const Retain& from) {
    ranges.assign(from.ranges.begin(), from.ranges.end());
    retain = from;
    retain.ranges = {};
  }
  Retain get() const noexcept {
    Retain out = retain;
    out.ranges = ranges;
    return out;
  }
  // True if the request marked a part of its prompt as worth keeping. Such a part is saved even where computing it
  // again looks cheap.
  bool asks_to_keep() const noexcept {
    const auto above = [](const PriorityRange& range) { return range.priority > kDefaultPriority; };
    return retain.priority > kDefaultPriority || std::ranges::any_of(ranges, above);
  }
};

// One of the engine's sequences.
struct SequenceRecord {
  SequenceState state = SequenceState::free;
  uint64_t generation = 0;
  // The engine may hold something in it that nobody knows: it could not be cleared.
  bool dirty = false;
  // What it holds, but for what its turn, if it has one that is ready, knows better: words of which
  // [0, LiveIndex::length()) are true.
  std::optional<Scope> scope;
  Text text;
  Held held;  // As the engine said last.
  // A recurrent state has what was discarded in it, at whatever position it is: it can be resumed nowhere.
  bool shifted = false;
  TurnRecord* turn = nullptr;
  SessionId session = kNoSession;  // Whose last turn it holds.
  // Waiting to be saved: [0, capture), with an anchor at its end.
  uint32_t capture = 0;
  uint32_t saved = 0;  // [0, saved) was saved not long ago.
  TenantId tenant = kNoTenant;
  OwnRetain retain;
};

enum class TurnPhase : uint8_t { planned, ready, failed };

struct TurnRecord {
  uint32_t sequence = kNoSequence;
  uint64_t generation = 0;
  TurnPhase phase = TurnPhase::planned;
  Scope scope = Scope::from_digest({});
  Text text;
  uint32_t prompt_tokens = 0;
  uint32_t full_limit = 0;  // The most that its units allow,
  uint32_t limit = 0;       // and that the caller allows as well.
  uint32_t terminal = 0;    // Where the next prompt that begins like this one will want to resume.
  SequenceState was = SequenceState::free;  // Its sequence's, before.
  uint32_t available = 0;
  uint32_t computed = 0;
  uint32_t unmeasured =
      kNoSequence;  // From here on nobody has said yet what computing took; kNoSequence: all is said.
  bool keep = true;
  bool bypass = false;
  bool exclusive = true;
  bool forgotten = false;  // Its scope was dropped: it leaves nothing.
  bool counted = false;    // In the statistics.
  // What follows LiveIndex::length() is not what the words say (a shift), or is not indexed.
  bool approximate = false;
  Reuse reuse = Reuse::everything;
  uint32_t promised_end = 0;  // It may become so long: room for that is nobody else's.
  uint32_t session = SessionTable::kNone;
  TenantId tenant = kNoTenant;
  OwnRetain retain;
  Plan plan;
  uint64_t epoch = 0;  // Of the books the plan was made with.
  SegmentStore::Hold segments;
  StateLease state;  // The state or checkpoint of the plan.
  StateLease logits;
  std::span<const float> logits_span;
  std::vector<uint32_t> message_ends;
  std::vector<uint32_t> stops;   // Ascending; depths to be kept when they are reached.
  uint32_t interval_tokens = 0;  // While it answers, every so many tokens is a stop; 0 = none.
  uint32_t late_tokens = 0;      // A stop can be kept when so many more tokens were computed.
  std::vector<uint32_t> media_to_process;
  std::vector<uint32_t> item_ends;  // Of the prompt's media items.
  SequenceReport report;
};

// A capture that has begun: what a sequence held then, on its way to be saved. It has words of its own, so that it
// outlives what the sequence holds.
struct CaptureRun {
  CaptureRun(Core& core, const Scope& of);
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

// What of the saved things a plan may not use, after it failed once.
struct Excluded {
  bool forks = false;
  bool segments = false;
  bool states = false;
  bool checkpoints = false;
};

// What could serve a prompt.
struct Found {
  std::vector<LiveIndex::Match> matches;
  std::vector<LiveCandidate> live;
  std::vector<Vacancy> vacant;
  std::vector<uint32_t> checkpoints;               // Depths, ascending, and ...
  std::vector<StateCandidate> checkpoint_entries;  // ... what is there.
  StateMatch state;
  SavedCandidates saved;
  uint32_t matched = 0;       // By anything at all.
  uint32_t live_matched = 0;  // By sequences.
  uint32_t by_mode = 0;       // By what the mode excludes.
  bool scope_known = false;
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
  std::string_view policy() const noexcept { return options_.policy; }
  SessionInfo session(std::string_view name);
  SequenceInfo sequence(SequenceId id);
  Result<std::vector<SequenceContent>> contents();
  uint32_t pending();
  void check_invariants();

 private:
  friend class EngineSaver;
  friend class PartsSaver;
  friend struct CaptureRun;

  Core(SequenceEngine& engine, const SequenceOptions& options);
  Result<void> set_up();
  // Buffers for ranges, if the engine moves any. How much of the budget they take.
  uint64_t make_mover(uint64_t budget);
  Result<std::unique_ptr<StateStore>> make_store(uint64_t budget, uint64_t entry_bytes);

  // Without the lock, for as long as it lives.
  class Unlocked {
   public:
    explicit Unlocked(Core& core) noexcept : core_(core) { core_.mutex_.unlock(); }
    ~Unlocked() { core_.mutex_.lock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

   private:
    Core& core_;
  };

  // Says what failed and is made good, without the lock.
  void warn(const char* what);

  // ---- Modes ----
  bool any() const noexcept { return traits_.rewind == Rewind::any; }
  static bool has(Reuse reuse, Reuse part) noexcept {
    return (static_cast<uint8_t>(reuse) & static_cast<uint8_t>(part)) != 0;
  }
  Reuse mode_of(const TurnOptions& options) const noexcept {
    return static_cast<Reuse>(static_cast<uint8_t>(options.reuse) &
                              static_cast<uint8_t>(options_.reuse));
  }

  // ---- Sequences ----
  SequenceRecord& at(uint32_t sequence) noexcept { return records_[sequence]; }
  static bool in_turn(const SequenceRecord& record) noexcept {
    return record.turn != nullptr && record.turn->phase == TurnPhase::ready;
  }
  const Text& text_of(uint32_t sequence) const noexcept {
    const SequenceRecord& record = records_[sequence];
    return in_turn(record) ? record.turn->text : record.text;
  }
  const Scope& scope_of(uint32_t sequence) const noexcept {
    const SequenceRecord& record = records_[sequence];
    return in_turn(record) ? record.turn->scope : *record.scope;
  }
  uint32_t known(uint32_t sequence) const noexcept { return live_.length(SequenceId{sequence}); }
  // Asks the engine, and remembers.
  Held ask(uint32_t sequence);
  // Where the sequence can be resumed, as far as we know.
  Held resumable_part(uint32_t sequence) const noexcept;
  // Clears a sequence in the engine and in the books. False: it is broken now.
  bool empty(uint32_t sequence);
  // The books say that nothing is in it.
  void forget(uint32_t sequence) noexcept;
  void set_state(uint32_t sequence, SequenceState state) noexcept;
  // Empties an idle sequence for somebody else; saves it first if that is worth it.
  bool retire(uint32_t sequence, SequenceReport* report);
  Result<void> check(const TurnRecord& turn);
  void changed() noexcept { ++epoch_; }
  // Words [known, n) of the turn are in its sequence.
  void index_up_to(TurnRecord& turn, uint32_t n) noexcept;

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
  bool is_own(const TurnRecord& turn, uint32_t sequence) const noexcept;
  // A use, now, of the state, checkpoint or logits at this depth (1 at least).
  Touch touch_of(const OwnRetain& retain, uint32_t depth) const noexcept;

  // ---- Executing ----
  Result<void> try_plan(TurnRecord& turn, Excluded& excluded);
  Result<void> lay_base(TurnRecord& turn, Excluded& excluded);
  // What is measured from now on is not what was computed before.
  void settle_engine();
  Result<void> load_segments(TurnRecord& turn, Range range, Excluded& excluded);
  // All of pieces_. Bytes and calls are counted; after an error `bad` is where the segment begins.
  Result<void> load_one_by_one(SequenceId id, uint64_t& bytes, uint32_t& calls, uint32_t& bad);
  Result<void> load_ranges(SequenceId id, uint64_t& bytes, uint32_t& calls, uint32_t& bad);
  Result<void> load_anchor(TurnRecord& turn, Part part, uint32_t depth, Excluded& excluded);
  void quarantine_segment(TurnRecord& turn, uint32_t from);
  void save_source(TurnRecord& turn);
  void replan(TurnRecord& turn, const Excluded& excluded, bool cold);
  void settle(TurnRecord& turn);
  void count(TurnRecord& turn);
  void failed_step(TurnRecord& turn, Step step);
  // Clears a sequence that could not be cleared before. False: there is none, or it still cannot.
  bool mend();
  // Whether the sequence holds [0, n) and can go on there.
  bool verify(uint32_t sequence, uint32_t n);
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
  // Cells of other sequences in turns, which the passes of this one look at too.
  uint64_t cells_in_turns(uint32_t sequence) const noexcept;
  // The same of all other sequences.
  uint64_t cells_of_others(uint32_t sequence) const noexcept;

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
  bool heard() const noexcept { return options_.listener != nullptr; }
  const OwnRetain& retain_of(uint32_t sequence) const noexcept {
    return in_turn(records_[sequence]) ? records_[sequence].turn->retain
                                       : records_[sequence].retain;
  }
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

  SequenceEngine* engine_;
  const SequenceOptions options_;
  const Clock* clock_;
  EngineTraits traits_;
  bool use_states_ = false;
  bool use_checkpoints_ = false;
  std::atomic<uint32_t> owners_{1};

  base::Mutex mutex_;
  bool gone_ = false;  // The cache was destroyed: turns can only end.
  uint64_t epoch_ = 0;
  uint32_t pending_ = 0;
  std::vector<SequenceRecord> records_;
  base::IndexLists lists_;    // Of sequences: free ones, idle ones least recently used first.
  base::IndexLists waiting_;  // Of sequences with a capture, oldest first.
  Lexicon lexicon_;
  LiveIndex live_;
  Room room_;
  SessionTable sessions_;
  std::unique_ptr<RangeMover> mover_;  // If the engine moves ranges.
  std::unique_ptr<SegmentStore> segments_;
  std::unique_ptr<StateStore> states_;  // Whole states.
  std::unique_ptr<StateStore> checkpoints_;
  std::unique_ptr<StateStore> logits_;
  std::unique_ptr<CaptureRun> run_;  // The capture that goes on bit by bit.
  CostMeter meter_;
  WindowSlack window_slack_;
  SequenceStats stats_;  // The sums.
  // Scratch.
  std::vector<SavedSegment> pieces_;
  std::vector<uint8_t> flags_;
  std::vector<uint8_t> nobody_;  // Zeroes, for each sequence.
};

}  // namespace stemma::sequence
