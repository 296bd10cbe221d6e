// Books: everything that a SequenceCache knows, which all of its parts read and write.
//
// They say what each sequence of the engine holds, who uses it, what is saved and what things cost.
// Other parts decide what to do; the functions here only look something up, or note one fact.
//
// Decide, do, settle: the books are changed under the lock, and the engine is called without it
// (Unlocked). Only the engine's thread changes anything. So nothing has changed when that thread
// takes the lock again; the lock protects the threads that only read.
//
// Invariant:  a sequence is leased exactly while it has a turn, and in `idle_order` exactly while
//             it is idle; LiveIndex::length() <= Room::length() of an idle sequence, and a free one
//             holds nothing.
// Threading:  every function requires the lock, unless it says otherwise. Functions that call the
//             engine release the lock meanwhile.
// Ownership:  owns the stores and the records of sequences. The engine outlives the books.
// Cost:       O(1) unless a function says otherwise; nothing but set_up() allocates, except that
//             index_up_to() takes memory for new words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/index_lists.h"
#include "base/mutex.h"
#include "sequence/capture_queue.h"
#include "sequence/costs.h"
#include "sequence/lexicon.h"
#include "sequence/live_index.h"
#include "sequence/range_mover.h"
#include "sequence/records.h"
#include "sequence/room.h"
#include "sequence/segment_store.h"
#include "sequence/session_table.h"
#include "sequence/state_store.h"
#include "sequence/step_limit.h"
#include "sequence/stops.h"
#include "stemma/sequence.h"

namespace stemma::sequence {

struct Books {
  // Requires: check() of both. Nothing may be used before set_up() succeeded.
  Books(SequenceEngine& of, const SequenceOptions& with);
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;
  // Takes all memory that the books need. May throw std::bad_alloc. Error: out_of_memory.
  Result<void> set_up();
  // Whether a cache can be made of these. Error: invalid_argument.
  static Result<void> check(const SequenceOptions& options, const EngineTraits& traits);

  // Releases the lock for as long as the object lives.
  class Unlocked {
   public:
    explicit Unlocked(Books& books) noexcept : books_(books) { books_.mutex.unlock(); }
    ~Unlocked() { books_.mutex.lock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

   private:
    Books& books_;
  };

  // ---- Options and traits. Any thread, without the lock. ----------------------------------------

  // Whether the memory can go back to any position.
  bool any() const noexcept { return traits.rewind == Rewind::any; }
  // The reuse that both the cache and the turn allow.
  Reuse mode_of(const TurnOptions& turn) const noexcept {
    return static_cast<Reuse>(static_cast<uint8_t>(turn.reuse) &
                              static_cast<uint8_t>(options.reuse));
  }
  // Whether there is a listener.
  bool heard() const noexcept { return options.listener != nullptr; }

  // ---- What a sequence holds --------------------------------------------------------------------

  SequenceRecord& at(uint32_t sequence) noexcept { return records[sequence]; }
  const SequenceRecord& at(uint32_t sequence) const noexcept { return records[sequence]; }
  // How many words of the sequence are known.
  uint32_t known(uint32_t sequence) const noexcept { return live.length(SequenceId{sequence}); }
  const Text& text_of(uint32_t sequence) const noexcept {
    return in_turn(at(sequence)) ? at(sequence).turn->text : at(sequence).text;
  }
  const Scope& scope_of(uint32_t sequence) const noexcept {
    return in_turn(at(sequence)) ? at(sequence).turn->scope : *at(sequence).scope;
  }
  const OwnRetain& retain_of(uint32_t sequence) const noexcept {
    return in_turn(at(sequence)) ? at(sequence).turn->retain : at(sequence).retain;
  }
  // Where the sequence can be resumed, by the engine's last answer.
  Held resumable_part(uint32_t sequence) const noexcept;
  // Cells of other sequences that this one's passes attend to too: of all other sequences, and only
  // of those in turns. O(sequences).
  uint64_t cells_of_others(uint32_t sequence) const noexcept;
  uint64_t cells_in_turns(uint32_t sequence) const noexcept;
  // Whether the turn belongs to the conversation whose last turn the sequence holds.
  bool is_own(const TurnRecord& turn, uint32_t sequence) const noexcept;

  // ---- Asking the engine, without the lock ------------------------------------------------------

  // What the engine holds in the sequence; the record remembers it.
  Held ask(uint32_t sequence);
  // Asks, and says whether the sequence holds [0, n) and can go on there.
  bool verify(uint32_t sequence, uint32_t n);
  // The end of the first segment of a range, or of the range if that comes first.
  uint32_t segment_end(Range range) const noexcept {
    return std::min(range.end, range.begin + options.segment_tokens);
  }
  // Waits for what the engine has begun, so that the next measurement does not include it.
  void settle_engine();
  // Logs a failure that the cache has made good.
  void warn(const char* what);

  // ---- Noting a fact ----------------------------------------------------------------------------

  void set_state(uint32_t sequence, SequenceState state) noexcept;
  // Plans made before this must be made again.
  void changed() noexcept { ++epoch; }
  // Words [known, n) of the turn are in its sequence, and are found from now on.
  void index_up_to(TurnRecord& turn, uint32_t n) noexcept;
  // Counts the turn in the statistics, once.
  void count(TurnRecord& turn) noexcept;
  // Error: stale (the cache is gone, or the turn's sequence was taken away).
  Result<void> check_turn(const TurnRecord& turn);
  // Describes a use, now, of the state, checkpoint or logits at this depth. Requires depth >= 1.
  Touch touch_of(const OwnRetain& retain, uint32_t depth) const noexcept;

  SequenceEngine* const engine;
  const SequenceOptions options;
  const Clock* const clock;
  const EngineTraits traits;
  bool use_states = false;
  bool use_checkpoints = false;

  base::Mutex mutex;
  bool gone = false;   // The cache was destroyed: turns can only end.
  uint64_t epoch = 0;  // Counts changes that a plan may depend on.
  uint64_t laid = 0;   // Counts sequences that began empty.
  std::vector<SequenceRecord> records;
  base::IndexLists idle_order;  // List 0: idle sequences, least recently used first.
  Lexicon lexicon;
  LiveIndex live;
  Room room;
  SessionTable sessions;
  std::unique_ptr<RangeMover> mover;  // If the engine moves ranges.
  std::unique_ptr<SegmentStore> segments;
  std::unique_ptr<StateStore> states;  // Whole states.
  std::unique_ptr<StateStore> checkpoints;
  std::unique_ptr<StateStore> logits;
  CostMeter meter;
  StepLimit step_limit;
  uint64_t step_ns = kStepNs;  // How long a step of a capture may take now.
  WindowSlack window_slack;
  SequenceStats stats;  // Only the counters; the rest is filled in on request.
  CaptureQueue queue;   // Sequences that wait to be saved.
  // Scratch of one section under the lock: a flag for each sequence.
  std::vector<uint8_t> flags;
  std::vector<uint8_t> nobody;  // No flag is ever set.

 private:
  Result<void> make_stores();
  // Makes the buffers for ranges, if the engine moves ranges. Returns how much of the budget they
  // take.
  uint64_t make_mover(uint64_t budget);
  Result<std::unique_ptr<SegmentStore>> make_segments(uint64_t budget);
  Result<std::unique_ptr<StateStore>> make_store(uint64_t budget, uint64_t entry_bytes);
};

}  // namespace stemma::sequence
