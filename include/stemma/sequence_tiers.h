// SequenceTiers: what a SequenceCache saves is kept in tiers too, and what tiers have of a prompt is brought
// back before its request begins.
//
//   SequenceCache --saved()---------> a copy --> TierStack: write-through levels
//   SequenceCache --wants(), take()--> a copy --> TierStack: on_second_use; write_back when it leaves memory;
//                                                 any level that has lost an entry that is used again
//   fetch(prompt) --> which depths are stored --> worth it? --> load --> Fetch --> SequenceCache::admit()
//
// An entry is a segment, a checkpoint or a state under the content key of the words that it ends, on the grid of
// segment_tokens. (Logits stay in memory: computing one token is faster than fetching a vocabulary.) A prompt is
// looked for at every depth of the grid and where its messages end. Captures end anywhere, so it is looked for at
// every depth behind what was found as well, as far as a capture could reach: up to the next multiple of the grid or,
// without segments, up to the end of the prompt. What is used is the deepest that the engine could resume. (Memory that
// rewinds anywhere needs segments from the beginning on; a window or recurrent part needs its checkpoint as well;
// without segments, a state.)
//
// A write-back level gets an entry when the cache evicts it for want of room, and all that it lacks by
// SequenceCache::hand_on(): call that before a process ends, a part at a time with TierStack::flush() in
// between, because what waits for a level is bounded by the stack's queue_bytes (beside the cache's own
// saved_bytes) and more is dropped. What is invalid, was dropped or truncated, or no longer has the checksum
// it was saved with, is not written. What is larger than the cache's saved_bytes is never saved, and so is
// kept nowhere: it could not be admitted either. One exception: where a checkpoint ends inside a segment,
// the part of that segment before it is in no cache, and is written at once.
//
// Invariant:  the engine's thread is never kept waiting: saved() and take() copy and return, a fetch runs elsewhere
//             and ends when its time is over, whatever the tiers do. Nothing is fetched that would take
//             longer than computing it, as far as is known.
// Threading:  thread-safe. saved(), wants() and take() come from the engine's thread.
// Ownership:  the stack outlives it; it outlives the cache that it listens to. A Fetch outlives both.
// Cost:       saved(), take(): one copy of the bytes, if a level wants them; before take() the cache looks at
//             each of them once. fetch(): two hashes of the prompt and two questions to each tier; without
//             segments one question more for each 1,024 tokens of the prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "stemma/sequence.h"
#include "stemma/tier_stack.h"

namespace stemma::tier {

// What came of looking for a prompt in the tiers.
class Fetch {
 public:
  virtual ~Fetch() = default;
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  virtual bool over() const noexcept = 0;
  // Nobody wants it any more: it ends soon, with whatever it has.
  virtual void cancel() noexcept = 0;
  // Until it is over, or this time on Clock::monotonic(). Whether it is over.
  virtual bool wait(uint64_t until_ns) = 0;

  // ---- When it is over ----
  // For SequenceCache::admit(), ascending; valid as long as the fetch.
  virtual std::span<const SavedPart> parts() const noexcept = 0;
  virtual uint32_t stored_tokens() const noexcept = 0;  // Of the prompt, in tiers; usable.
  virtual uint32_t loaded_tokens() const noexcept = 0;  // Of the prompt, in parts() and here.
  virtual uint64_t bytes() const noexcept = 0;
  virtual uint64_t spent_ns() const noexcept = 0;
  virtual uint32_t level() const noexcept = 0;  // The slowest that something came from.

 protected:
  Fetch() = default;
};

struct FetchOptions {
  std::span<const uint32_t> message_ends = {};
  uint32_t have = 0;        // Positions that can be had here without the tiers.
  uint32_t saved_here = 0;  // Positions that are saved here in segments: those need not be loaded.
  // Depths at which checkpoints are saved here: those neither. With write-back a checkpoint may be here alone
  // when the segments under it have left.
  std::span<const uint32_t> checkpoints_here = {};
  std::function<void()> on_over = {};  // On a thread of ours, once, when it is over.
};

struct SequenceTiersStats {
  uint64_t heard = 0, heard_bytes = 0;                // Parts that were saved.
  uint64_t used_again = 0;                            // Stored later: when they were used again,
  uint64_t written_back = 0, written_back_bytes = 0;  // and when they left memory.
  uint64_t dropped = 0;                               // Not copied: no memory.
  uint64_t fetches = 0;
  uint64_t found = 0;                            // Fetches that found more than there was here,
  uint64_t loaded = 0;                           // and brought it,
  uint64_t loaded_tokens = 0, loaded_bytes = 0;  // so much.
  uint64_t not_worth_it = 0;                     // Found, and faster to compute;
  uint64_t not_to_be_had = 0;                    // or lost on the way, or nobody waited.
  uint32_t waiting = 0;                          // Fetches, now.
};

class SequenceTiers final : public SavedListener {
 public:
  struct Options {
    EngineTraits traits;
    uint32_t segment_tokens = 64;  // As the cache's.
    bool keep_words = false;       // The prompts' words are kept with the entries.
    uint32_t threads = 2;          // Fetches at one time.
    uint32_t queue = 1024;         // Fetches that may wait; more are over at once, with nothing.
    // A number for the model and its settings, such as a part of the scope's digest. Scopes keep models apart
    // in any case; with it whoever looks at a store sees whose entries are in it (EntryInfo::layout).
    uint32_t model = 0;
  };
  // What its entries have as EntryInfo::layout.
  static uint64_t layout(const Options& options) noexcept;
  SequenceTiers(TierStack& stack, const Options& options);
  ~SequenceTiers() override;  // Fetches that wait are over, with nothing.
  SequenceTiers(const SequenceTiers&) = delete;
  SequenceTiers& operator=(const SequenceTiers&) = delete;

  void saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
             const ContentKey& chain, const Retain& retain) noexcept override;
  uint32_t wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept override;
  void take(const KeptPart& part, uint32_t wanted) noexcept override;
  bool keeps_words() const noexcept override;

  // Starts looking. Never null.
  std::shared_ptr<Fetch> fetch(const Scope& scope, const Prompt& prompt,
                               const FetchOptions& options);

  // ---- Forgetting ----
  // Removes what the tiers have of the scope and follows the prefix; all of the scope for an empty
  // one. What cannot be told goes as well: what parts from the prefix less than a segment before
  // its end, and entries whose predecessors the tier has lost (Purged::unsure). Returns one report
  // a level; waits until this time on Clock::monotonic(). No fetch, earlier ones included, gives
  // parts of the scope from its beginning to its end. First `drop_here` is called, to forget the
  // same in the cache, then the tiers are purged: so nothing of the past comes back. Any thread but
  // the engine's.
  std::vector<LevelPurged> forget(const Scope& scope, const Prompt& prefix, uint64_t until_ns,
                                  const std::function<void()>& drop_here = {});
  // The same of all scopes: everything that has this layout.
  std::vector<LevelPurged> forget_everything(uint64_t until_ns,
                                             const std::function<void()>& drop_here = {});

  // Whether any level is write-back: then what is saved is not all in tiers until hand_on() has been called.
  bool writes_back() const noexcept;
  // While it is on, write-through levels are also offered what leaves memory or is handed on, unless
  // they are known to have it: entries that they lost when they were full or did not answer.
  void offer_lost(bool on) noexcept;
  // The most that a level takes of what is handed on now: more of it need not be (SequenceCache::hand_on_from()).
  // kNever: a level does not tell its capacity.
  uint64_t hand_on_bytes() const noexcept;
  // True if a level is not write-through: it gets nothing before wants() and take() are called.
  bool hears_later() const noexcept;
  TierStack& stack() noexcept;
  SequenceTiersStats stats() const;

 private:
  class Work;
  const std::unique_ptr<Work> work_;
};

}  // namespace stemma::tier
