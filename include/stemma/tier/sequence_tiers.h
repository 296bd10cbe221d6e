// SequenceTiers keeps what a SequenceCache saves in tiers too, and brings back what the tiers have
// of a prompt before its request begins.
//
//   SequenceCache --saved()----------> a copy --> TierStack: write_through levels
//   SequenceCache --wants(), take()--> a copy --> TierStack: on_second_use levels; levels that have
//                                                 lost an entry in use; write_back levels, when
//                                                 the part leaves memory
//   fetch(prompt) --> which depths are stored --> worth it? --> load --> Fetch
//                 --> SequenceCache::admit(), in one go or bit by bit
//
// An entry is a segment, a checkpoint or a state. Its key is the content key of the prefix that it
// ends, on the grid of segment_tokens. (Logits stay in memory: computing one token is faster than
// fetching a vocabulary.) A fetch asks for every depth of the grid and for the ends of messages. A
// capture may end anywhere, so the fetch also asks for every depth that a capture could have
// reached beyond the deepest one found: up to the next multiple of the grid or, without segments,
// the end of the prompt. Of all depths found, the fetch uses the deepest one at which the engine
// could resume. (An engine that rewinds anywhere needs all segments from the beginning on. An
// engine with a window or recurrent part also needs the checkpoint. An engine without segments
// needs a state.)
//
// A write-back level gets an entry when the cache evicts it for want of room.
// SequenceCache::hand_on() gives it everything else that it lacks: call that before the process
// ends, a part at a time with TierStack::flush() in between, because a level's queue is limited to
// the stack's queue_bytes (in addition to the cache's own saved_bytes) and drops everything beyond
// that. Entries that are invalid, were dropped or truncated, or no longer match their checksum are
// not written. Entries larger than the cache's saved_bytes are never saved, and so are stored
// nowhere: they could not be admitted either. One exception: if a checkpoint ends inside a segment,
// no cache holds the part of that segment before the checkpoint, so that part is written at once.
//
// Invariant:  the engine's thread never waits: saved() and take() copy and return; a fetch runs on
//             other threads and ends when its time is over, whatever the tiers do. It fetches
//             nothing that is expected to take longer than computing it.
// Threading:  thread-safe. saved(), wants() and take() come from the engine's thread.
// Ownership:  the stack must outlive this, and this the cache it listens to. A Fetch may outlive
//             both.
// Cost:       saved(), take(): one copy of the bytes, if a level wants them; before take() the
//             cache looks at each of them once. fetch(): two hashes of the prompt and two questions
//             to each tier; without segments one question more for each 1,024 tokens of the prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "stemma/sequence.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::tier {

// Parts, and the payloads that keep their bytes alive.
struct LoadedParts {
  std::vector<SavedPart> parts;
  std::vector<std::shared_ptr<const Payload>> payloads;
};

// A search for a prompt in the tiers, and its result.
class Fetch {
 public:
  virtual ~Fetch() = default;
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  virtual bool over() const noexcept = 0;
  // Ends it soon, with whatever it has.
  virtual void cancel() noexcept = 0;
  // Waits until it is over, or until this time on Clock::monotonic(). Returns whether it is over.
  virtual bool wait(uint64_t until_ns) = 0;

  // ---- At any time ----
  // Returns the parts not taken yet, for SequenceCache::admit(), ascending, each one once. If a
  // part needs only those before it (the engine rewinds anywhere), take parts as they arrive: they
  // can be admitted, and their memory used again, while the next are on their way. One thread at a
  // time.
  virtual LoadedParts take() = 0;

  // ---- When it is over ----
  // The parts not taken; valid while the fetch lives, or until they are taken.
  virtual std::span<const SavedPart> parts() const noexcept = 0;
  // How many of the prompt's tokens are in tiers and can be used.
  virtual uint32_t stored_tokens() const noexcept = 0;
  // How many of the prompt's tokens are here, or in parts that were loaded (taken or not).
  virtual uint32_t loaded_tokens() const noexcept = 0;
  virtual uint64_t bytes() const noexcept = 0;
  virtual uint64_t spent_ns() const noexcept = 0;
  virtual uint32_t level() const noexcept = 0;  // The slowest level that a part came from.

 protected:
  Fetch() = default;
};

struct FetchOptions {
  std::span<const uint32_t> message_ends = {};
  uint32_t have = 0;        // Positions available here without the tiers.
  uint32_t saved_here = 0;  // Positions saved here in segments: not loaded.
  // Depths at which checkpoints are saved here: not loaded either. With write-back, a checkpoint
  // may be here after its segments have left.
  std::span<const uint32_t> checkpoints_here = {};
  // Called once, on a thread of the tiers, when the fetch is over.
  std::function<void()> on_over = {};
  // Called on a thread of the tiers each time when there are parts to take() before the fetch is
  // over.
  std::function<void()> on_part = {};
};

struct SequenceTiersStats {
  uint64_t heard = 0, heard_bytes = 0;                // Parts that the cache saved.
  uint64_t used_again = 0;                            // Parts stored because they were used again.
  uint64_t written_back = 0, written_back_bytes = 0;  // Parts stored because they left memory.
  uint64_t dropped = 0;                               // Parts not copied, for lack of memory.
  uint64_t fetches = 0;
  uint64_t found = 0;                            // Fetches that found more than is here.
  uint64_t loaded = 0;                           // Fetches that loaded what they found.
  uint64_t loaded_tokens = 0, loaded_bytes = 0;  // How much these fetches loaded.
  uint64_t not_worth_it = 0;                     // Fetches whose prompt was faster to compute.
  uint64_t not_to_be_had = 0;  // Fetches that lost what they found on the way, or gave it up.
  uint32_t waiting = 0;        // Fetches that wait now.
};

class SequenceTiers final : public SavedListener {
 public:
  struct Options {
    EngineTraits traits;
    uint32_t segment_tokens = 64;  // The cache's value.
    bool keep_words = false;       // Store the prompts' words with the entries.
    uint32_t threads = 2;          // Fetches at the same time.
    uint32_t queue = 1024;         // Fetches that may wait; more end at once, empty.
    // A number for the model and its settings, such as a part of the scope's digest. Scopes keep
    // models apart in any case; this number shows in a store which model's entries it holds
    // (EntryInfo::layout).
    uint32_t model = 0;
  };
  // The EntryInfo::layout of its entries.
  static uint64_t layout(const Options& options) noexcept;
  uint64_t layout() const noexcept;
  // Error: invalid_argument (segment_tokens is no power of two from 1 to 1024).
  static Result<void> check(const Options& options);
  // Error: that of check(), out_of_memory (which also means: no threads).
  static Result<std::unique_ptr<SequenceTiers>> create(TierStack& stack, const Options& options);
  // The same for options that check() accepts. With others it logs an error, stores nothing and
  // finds nothing. May throw std::bad_alloc and std::system_error.
  SequenceTiers(TierStack& stack, const Options& options);
  ~SequenceTiers() override;  // Ends waiting fetches, empty.
  SequenceTiers(const SequenceTiers&) = delete;
  SequenceTiers& operator=(const SequenceTiers&) = delete;

  void saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
             const ContentKey& chain, const Retain& retain) noexcept override;
  uint32_t wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept override;
  bool take(const KeptPart& part, uint32_t wanted) noexcept override;
  bool keeps_words() const noexcept override;

  // Starts looking. Never null. It finds nothing for a prompt that SequenceCache would refuse: one
  // with a token of 2^31 or above, or with media items that overlap or end beyond it.
  std::shared_ptr<Fetch> fetch(const Scope& scope, const Prompt& prompt,
                               const FetchOptions& options);

  // ---- Forgetting ----
  // Removes the scope's entries that follow the prefix from the tiers; with an empty prefix, all of
  // the scope's. Entries that may or may not follow go too: those that branch off less than a
  // segment before the prefix ends, and those whose predecessors the tier has lost
  // (Purged::unsure). Returns one report a level; waits until this time on Clock::monotonic().
  // While this runs, no fetch, not even an earlier one, gives parts of the scope. It first calls
  // `drop_here`, which forgets the same in the cache, then purges the tiers: so nothing old comes
  // back. Call it on any thread but the engine's.
  std::vector<LevelPurged> forget(const Scope& scope, const Prompt& prefix, uint64_t until_ns,
                                  const std::function<void()>& drop_here = {});
  // The same for all scopes: everything with this layout.
  std::vector<LevelPurged> forget_everything(uint64_t until_ns,
                                             const std::function<void()>& drop_here = {});

  // Whether any level is write-back: then the tiers may lack saved parts until hand_on() is called.
  bool writes_back() const noexcept;
  // While this is on, parts that leave memory or are handed on are also offered to write-through
  // levels, unless these are known to have them: a level may have lost a part while it was full or
  // did not answer.
  void offer_lost(bool on) noexcept;
  // How many bytes of parts the largest level could keep if they were handed on now; handing on
  // more is useless (SequenceCache::hand_on_from()). kNever: a level does not tell its capacity.
  uint64_t hand_on_bytes() const noexcept;
  // Asks the levels whether they still have what was handed on since the last call (the last 4096
  // entries of it), and returns how many entries a level lacks. A store that evicts by sampling,
  // such as Redis, may have evicted the best entries to make room for the rest. Handing on again
  // gives such levels what they lack, and only that. Call this after TierStack::flush(). It waits
  // as long as TierStack::where() does.
  uint64_t check_handed_on();
  // True if a level is not write-through: it gets nothing before wants() and take() are called.
  bool hears_later() const noexcept;
  TierStack& stack() noexcept;
  SequenceTiersStats stats() const;

 private:
  class Work;
  const std::unique_ptr<Work> work_;
};

}  // namespace stemma::tier
