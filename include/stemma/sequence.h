// SequenceCache: the KV cache of an engine whose sequences are opaque (sequence_engine.h).
//
// It knows which words every sequence holds, lends sequences to requests, and finds the cheapest
// correct way to have a prompt's prefix in one of them: stay, trim, copy from another sequence, load
// what was saved, or nothing. What a request leaves behind is saved in segments that all requests
// share, within a byte budget.
//
//   begin(scope, prompt) --> execute() --> engine computes [available, length) --> finish()
//        a sequence          the prefix        computed(n) after each batch         kept, idle
//        is leased           is in it
//
// Invariant:  what execute() makes available is a verified prefix of the prompt in the same scope, held
//             in every layer the next token reads, and never ends inside a unit. After any failure the
//             sequence in question is empty, the others are untouched, and the answer is true.
// Threading:  calls that change something (begin, drain, warm, admit, hand_on, those that forget, and all of Turn) on one
//             thread at a time, that of the engine; it is called in begin, execute, computed, rewind, shift,
//             fork, reserve, finish, abandon, drain, warm, truncate and drop_scope, with no lock held. lookup,
//             can_admit, stats, session, sequence and what is named "any thread" may run beside them.
// Ownership:  the engine outlives the cache. Turns keep the innards alive; when the cache is destroyed
//             first, they can only end.
// Memory:     a call that finds none answers out_of_memory, with nothing changed. Nothing throws.
// Cost:       begin() walks the prompt once for live sequences and once for what is saved, whatever is
//             stored; O(sequences) beside that, independent of sessions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/key.h"
#include "stemma/options.h"
#include "stemma/pinned_memory.h"
#include "stemma/prompt.h"
#include "stemma/result.h"
#include "stemma/retention.h"
#include "stemma/scope.h"
#include "stemma/sequence_engine.h"
#include "stemma/sequence_stats.h"

namespace stemma {

namespace sequence {
class Core;
struct TurnRecord;
}  // namespace sequence

// Where a prefix may come from.
enum class Reuse : uint8_t {
  disabled = 0,    // Every request starts empty, and leaves nothing.
  live = 1,        // Sequences that are in the engine.
  saved = 2,       // What was saved; a sequence is emptied when its request ends.
  everything = 3,  // Both.
};

// Something saved, on its way out of the cache or back into it.
struct SavedPart {
  EntryKind kind = EntryKind::segment;  // A segment, a state, a checkpoint or logits.
  Range range;                          // Of the words; what is no segment begins at 0.
  std::span<const uint8_t> bytes;
  // On its way out: link_of() the key of the prefix up to the last multiple of segment_tokens
  // before range.end.
  uint64_t parent = 0;
};

// Why a part that was saved, or admitted, earlier is heard of again.
enum class SeenAgain : uint8_t {
  used,     // Another capture found it there, or an engine loaded it.
  leaving,  // It was evicted for want of room; or hand_on() says that it may be lost.
};

// Such a part. What it was saved for is long gone: `chain` is all that is known of its words.
struct KeptPart {
  EntryKind kind = EntryKind::segment;
  Range range;
  std::span<const uint8_t> bytes;
  ContentKey chain;
  Priority priority = kDefaultPriority;  // What its turn said.
  std::span<const uint32_t> words;  // Of the range, if keeps_words(); none of a prompt with media.
  uint64_t parent = 0;              // As SavedPart has it.
};

// Hears of everything that is saved, so that it can be kept elsewhere too. Called on the engine's thread, with
// no lock held; what is borrowed is valid during the call. Must be quick, and must not call the cache.
class SavedListener {
 public:
  virtual ~SavedListener() = default;
  // `part` was saved for the prompt's first part.range.end words. `chain` is their content key on the grid
  // of segment_tokens (docs/formats/content-key.md).
  virtual void saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
                     const ContentKey& chain, const Retain& retain) noexcept = 0;

  // ---- Later; for those who care ----
  // Whether it wants the bytes now. 0: no. Anything else is handed back with them.
  virtual uint32_t wants(EntryKind /*kind*/, const ContentKey& /*chain*/,
                         SeenAgain /*seen*/) noexcept {
    return 0;
  }
  // Here they are, checked: exactly what was saved. What is invalid (dropped, truncated, quarantined,
  // damaged) never comes here; nor do logits. (A segment for whose place begin() had need comes with the next
  // capture, admit(), drain() or hand_on().)
  virtual void take(const KeptPart& /*part*/, uint32_t /*wanted*/) noexcept {}
  // Whether words are remembered for take(): 4 bytes a position more. Asked once.
  virtual bool keeps_words() const noexcept { return false; }
};

struct SequenceOptions {
  Reuse reuse = Reuse::everything;

  // All that is saved: segments (with their index), states and checkpoints. 0 = nothing is saved.
  uint64_t saved_bytes = 256U << 20U;
  // The part of saved_bytes for checkpoints, where the engine has them and attends to the whole past
  // elsewhere. 0 to 1.
  double checkpoint_share = 0.25;
  uint64_t logits_bytes = 0;  // For attached logits; 0 = none are kept.

  uint32_t segment_tokens = 64;  // Positions a saved segment has; a power of two, 1 to 1024.
  // Engines that cannot rewind freely keep checkpoints (states, where the engine has no segments) at boundaries
  // of a prompt: where messages end, where it parts from what is known, at its end, and in between at intervals.
  // Boundaries closer than 64 tokens are merged, because short batches are slow.
  //
  // Boundaries before this depth, or before interval_tokens if that is less, are not kept. The end of a prompt
  // always is.
  uint32_t least_tokens = 32;
  // A checkpoint at every multiple of this many tokens, also below 64. 0 = the cache chooses: at least 256
  // tokens and about an eighth of the prompt, and more where saving takes long or the store is small. A number
  // larger than the context means none.
  uint32_t interval_tokens = 0;
  // At most this many boundaries of one request are kept: its end, where it parts from what is known, the first
  // and the last message, intervals, then other messages. (The end is not kept if a boundary less than four
  // tokens before it is.)
  uint32_t marks = 8;
  // Captures that wait for drain(); the oldest is given up for a newer one.
  uint32_t pending_captures = 64;
  uint32_t sessions = 65'536;  // Names remembered; the one unused longest is forgotten.

  std::vector<TenantQuota> quotas = {};  // Of saved segments.
  std::string policy = "lru";
  // What things cost before the first measurement: computing a token, and moving bytes.
  uint64_t compute_token_ns = 1'000'000;
  uint64_t move_byte_ps = 200;
  uint64_t move_call_ns = 50'000;
  // What a token takes more for each cell of the context that it looks at; 0: unknown until it is measured.
  uint64_t attention_cell_ps = 0;
  // Pins the buffers that ranges go through, for an engine on a device (EngineTraits::range_tokens): its driver's, as
  // cuda_memory_hook() of stemma/host_tier.h. Outlives the cache and its turns; null = plain memory.
  HostMemoryHook* pinned = nullptr;
  // Threads that take such ranges apart and put them together. Without a number as many as the machine has but two, 12
  // at most; with 0 the engine's thread does it.
  std::optional<uint32_t> range_threads = {};
  const Clock* clock = nullptr;       // Outlives the cache and its turns; null = monotonic.
  SavedListener* listener = nullptr;  // Likewise; null = nobody listens.
};

struct TurnOptions {
  // The conversation, if it has a name: affinity and retention, never a border.
  std::string_view session = {};
  bool exclusive = true;  // Error busy while another turn of the session is under way.
  TenantId tenant =
      kNoTenant;  // Pays for what is saved, unless another pays for the scope already.
  Reuse reuse = Reuse::everything;  // Of what the cache has.
  // Encoder prompts, embeddings: start empty, keep nothing, whatever the words are.
  bool bypass = false;
  bool keep = true;                 // false: what is computed is forgotten at the end.
  uint32_t at_most = 0xFFFF'FFFFU;  // Make no more than this many positions available.
  uint32_t evaluate_at_least = 1;   // Units at the prompt's end that must be evaluated; 0 is 1.
  uint32_t reserve_tokens = 0;      // Room to leave for the answer.
  // Logits kept for exactly this prompt are wanted; if they are there, nothing needs to be evaluated.
  bool want_logits = false;
  // Depths at which messages end, ascending: the next prompt may part from this one there.
  std::span<const uint32_t> message_ends = {};
  Retain retain = {};
};

class Turn;

struct DrainLimits {
  uint32_t items = 0xFFFF'FFFFU;
  uint64_t bytes = ~uint64_t{0};  // What is begun within it is finished.
  // Returns after about so long, in the middle of a capture if need be: that goes on with the next call. (A call of
  // the engine that has begun is not broken off; where the engine moves ranges they are short enough for 5 ms.)
  uint64_t ns = ~uint64_t{0};
  // Also at the expense of what was saved before. Otherwise what finds no room waits: it is live, and
  // will be saved when its sequence is needed for something else.
  bool evict = false;
  // Also what takes longer to save than to compute, because the engine has it in many pieces (answers that were computed
  // beside others). For when nothing else is to be done.
  bool dear = true;
  // The longest that one read of the engine should take. Whoever asks for something meanwhile waits for it.
  uint64_t step_ns = 4'800'000;
};
struct Drained {
  uint32_t items = 0;  // Taken from the queue, whatever became of them.
  uint32_t saved = 0;
  uint64_t bytes = 0;
  bool more = false;   // It ended because of its limits: there may be more to do.
  bool waits = false;  // Threads are at work on what was read: call again in a moment.
  // Of its time: moving running prompts to where idle sequences were, which speeds them up.
  uint64_t moving_ns = 0;
};

// How far hand_on() came.
struct HandedOn {
  uint32_t parts = 0;  // That the listener took, and
  uint64_t bytes = 0;  // theirs.
  uint64_t next = 0;   // Where to go on, unless it is over.
  bool over = true;
};

// What became of the parts that admit() was given.
struct Admitted {
  uint32_t taken = 0;
  uint32_t present = 0;  // Were there.
  uint32_t refused = 0;  // No room, a gap before it, no place for such a part.
  uint64_t bytes = 0;    // Of those taken.
};

// What truncate() forgot, and what it could not.
struct Truncated {
  uint32_t sequences = 0;    // Idle ones that were cut, or emptied,
  uint64_t live_tokens = 0;  // and the positions they gave up.
  uint32_t segments = 0;     // No longer found; so are
  uint32_t states = 0;
  uint32_t checkpoints = 0;
  uint32_t logits = 0;
  uint32_t in_use = 0;  // Sequences of turns under way that hold more than was to stay.
};

enum class SequenceState : uint8_t {
  free,    // Empty.
  idle,    // Holds what its last turn left.
  leased,  // A turn's.
  broken,  // The engine failed to clear it; tried again before it is used.
};
struct SequenceInfo {
  SequenceState state = SequenceState::free;
  uint64_t generation = 0;      // Counts how often what it held was given up.
  uint32_t length = 0;          // Words known to be in it.
  uint32_t unsaved_tokens = 0;  // Waiting to be saved.
  bool approximate = false;     // Shifted: only what lies before the shift is ever reused.
};
struct SessionInfo {
  bool known = false;
  bool in_flight = false;
  bool resident = false;  // Its last sequence still holds what it left.
  SequenceId sequence{};  // If resident or in flight.
  uint64_t turns = 0;     // Finished or not.
  uint32_t length = 0;    // Of its last finished turn.
  uint64_t last_used_ns = 0;
};

// One thing that can be reused now.
struct SequenceContent {
  enum class Kind : uint8_t { live, segment_path, state, checkpoint, logits };
  Kind kind = Kind::live;
  Scope scope;
  uint32_t depth = 0;
  uint64_t bytes = 0;     // 0 for live ones.
  SequenceId sequence{};  // Of live ones.
  bool leased = false;
};

class SequenceCache {
 public:
  // Error: invalid_argument (an impossible option, or traits that contradict themselves),
  // out_of_memory. All sequences are taken to be empty, and cleared before their first use if not.
  static Result<SequenceCache> create(SequenceEngine& engine, const SequenceOptions& options = {});
  SequenceCache(SequenceCache&&) noexcept;
  SequenceCache& operator=(SequenceCache&&) noexcept;
  ~SequenceCache();

  // ---- Requests ---------------------------------------------------------------------------------

  // Leases a sequence and plans. Of the engine only held() is called: passes of other sequences
  // shorten how far a window goes back. (What the sequence holds, and the plan does not keep, takes up
  // room until execute(): do not wait long with that.)
  // Error: busy (every sequence is leased, or the session is under way), invalid_argument (tokens,
  // media, options), out_of_range (the prompt and what it reserves are more than the context has),
  // out_of_blocks (not enough of it is free or idle), out_of_memory; nothing changed.
  Result<Turn> begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options = {});
  // What begin() would plan now. Takes and counts nothing. Any thread.
  Result<SequenceReport> lookup(const Scope& scope, const Prompt& prompt,
                                const TurnOptions& options = {}) const;
  // Whether begin() would find a sequence. Any thread.
  bool can_admit(std::string_view session = {}) const;

  // Saves what is waiting to be saved and has room, oldest first. For quiet moments.
  Drained drain(const DrainLimits& limits = {});
  uint32_t pending() const noexcept;  // Any thread.

  // Has the prefix computed, and saves it, unless it is there. `compute` appends the words of
  // [available, length) to the sequence. Error: what begin() or `compute` answers.
  using Compute = Result<void> (*)(void* user, SequenceId sequence, std::span<const Token> tokens,
                                   uint32_t begin);
  Result<SequenceReport> warm(const Scope& scope, const Prompt& prefix, Compute compute, void* user,
                              const TurnOptions& options = {});

  // Takes in what was saved elsewhere: by another process, or an earlier one. Parts are those a listener
  // heard of, for this scope and these words, in ascending order of their ends; whether their bytes are what
  // they should be only the engine can tell, when it loads them. A segment is taken if all before it is saved
  // here, or was just taken; what is there already is left as it is. Nobody hears of it.
  // Error: invalid_argument (tokens, media), out_of_memory. What does not fit is left out, and counted.
  Result<Admitted> admit(const Scope& scope, const Prompt& prompt, std::span<const SavedPart> parts,
                         const TurnOptions& options = {});

  // Offers the listener everything that is saved here as if it were leaving, for a process that ends or wants
  // to be safe. It stays here. What was used most often comes last, and of what was used equally often the
  // latest: a store that is too small for all of it should keep what comes last. From 0 on, or where the last
  // call ended; a call ends before the listener takes more than so many bytes, unless a single part is larger.
  // What is used between two calls may be offered again. O(saved parts), for each 256 of them that are offered.
  HandedOn hand_on(uint64_t from = 0, uint64_t bytes = ~uint64_t{0});
  // Where hand_on() has to begin so that it offers no more than so many bytes: those that it offers last. What
  // a store cannot keep beside them need not be written. O(saved parts).
  uint64_t hand_on_from(uint64_t bytes);

  // How much of the prompt, from its beginning on, is saved in segments. Any thread.
  uint32_t saved_tokens(const Scope& scope, const Prompt& prompt) const;
  // The depths of the prompt at which there is a checkpoint, the deepest first, as many as fit into `out`; how
  // many. What lies under them may be gone. Any thread.
  uint32_t saved_checkpoints(const Scope& scope, const Prompt& prompt,
                             std::span<uint32_t> out) const;

  // ---- Forgetting -------------------------------------------------------------------------------

  // The engine's context was made anew: no sequence holds anything. Turns under way become stale. What
  // was saved stays.
  void forget_context();
  // What this scope has, live and saved. Turns under way go on, and leave nothing.
  void drop_scope(const Scope& scope);
  // Everything that was saved, logits too.
  void drop_saved();
  // What goes on like the prompt behind its first `keep` positions; with `keep` at the prompt's end, however
  // it goes on: so an empty prompt forgets all of the scope. Idle sequences are cut there, or emptied where
  // their memory cannot go back. Segments go whole, from the one that holds position `keep` on. Turns under
  // way are not touched, and what they leave will be found: the answer counts them.
  // Error: invalid_argument (tokens, media), out_of_range (`keep` beyond the prompt, or inside a media item),
  // out_of_memory; nothing changed.
  Result<Truncated> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  // The conversation is over, now or when its turn under way ends: its sequence is the next to go, what it
  // saved goes early.
  void end_session(std::string_view session);

  // ---- Looking ----------------------------------------------------------------------------------

  SequenceStats stats() const;                          // Any thread.
  std::string_view policy() const noexcept;             // As the options said. Any thread.
  SessionInfo session(std::string_view session) const;  // Any thread.
  SequenceInfo sequence(SequenceId id) const;           // Any thread.
  // O(everything). Error: out_of_memory. Any thread.
  Result<std::vector<SequenceContent>> contents() const;
  // Stops the process with a description if the books do not balance. Looks at less without memory.
  void check_invariants() const;

 private:
  explicit SequenceCache(sequence::Core* core) noexcept : core_(core) {}
  sequence::Core* core_ = nullptr;
};

inline constexpr uint64_t kMeasuredLater = ~uint64_t{0};

// A request's hold on one sequence.
//
//   0 ........ available ........ computed ........ length
//   | there without computing | in the sequence | words known |
//
// Calls on a turn whose sequence was taken away (forget_context) answer stale; calls in the wrong order
// wrong_state; neither changes anything. After a failed execute, rewind or shift a turn can only end.
// Destroying a turn that was not finished abandons it.
class Turn {
 public:
  Turn() noexcept = default;
  Turn(Turn&& other) noexcept;
  Turn& operator=(Turn&& other) noexcept;
  ~Turn();

  bool active() const noexcept { return record_ != nullptr; }
  SequenceId sequence() const noexcept;
  uint64_t generation() const noexcept;
  uint32_t available() const noexcept;  // 0 before execute().
  uint32_t computed() const noexcept;
  uint32_t length() const noexcept;
  // The plan before execute(), the truth after it.
  SequenceReport report() const noexcept;
  // Media items that are not wholly covered by `available`, as indices into Prompt::media. Valid until
  // the next call on this turn.
  std::span<const uint32_t> media_to_process() const noexcept;
  // Logits kept for the whole prompt, if they were wanted and are there: sampling can begin before, or
  // without, execute(). Valid while the turn lives.
  std::span<const float> logits() const noexcept;

  // Carries the plan out, and another one where something fails. Returns `available`: what the sequence
  // really holds. Error: whatever keeps it from being empty; the turn can then only end.
  Result<uint32_t> execute();

  // How far to compute at most before the next computed(): to a boundary that is to be kept, or to length. A
  // sliding window can be saved a little later, so there this may lie behind the boundary.
  uint32_t next_stop() const noexcept;
  // [0, n) is in the sequence. `spent_ns` is what computing it took, if known. kMeasuredLater: the forward pass may
  // still be going on, and the time given with the next call is for both. Saves what cannot wait.
  // Error: out_of_range (n beyond length or below computed).
  Result<void> computed(uint32_t n, uint64_t spent_ns = 0);
  // More words: sampled, or speculative. Error: invalid_argument.
  Result<void> extend(std::span<const Token> tokens);
  // Makes room for so many positions beyond length, at the expense of idle sequences.
  // Error: out_of_blocks (leased ones have the rest, and nothing changed), out_of_memory.
  Result<void> reserve(uint32_t tokens);
  // Forgets words from n on. Error: out_of_range (beyond length, inside a media item), unsupported (the
  // memory cannot go back there; nothing changed). After any other error nothing of the sequence counts:
  // available and computed are 0.
  Result<void> rewind(uint32_t n);
  // The logits after exactly the words so far [0, depth). Error: unsupported (logits_bytes is 0, a shifted
  // turn), invalid_argument (no logits), out_of_range (no such depth, more than logits_bytes),
  // out_of_blocks (more than those in use leave), out_of_memory.
  Result<void> attach_logits(uint32_t depth, std::span<const float> logits);
  // Another turn, on another sequence, over the words [0, computed). It was executed already: its report
  // says how they got there; `available` may be less where memory cannot be copied, and the rest is to be
  // computed. Error: as begin() and execute(); unsupported (a bypassed or shifted turn).
  Result<Turn> fork(const TurnOptions& options = {});
  // Forgets [keep, keep + discard) and moves the rest down. From then on this sequence is approximate:
  // only [0, keep) will ever be reused. Error: unsupported, out_of_range, what the engine says (then
  // nothing of the sequence counts).
  Result<void> shift(uint32_t keep, uint32_t discard);

  // The request is done: what was computed stays, and will be saved. `retain` replaces what begin()
  // was told.
  Result<void> finish(const Retain* retain = nullptr);
  // It failed, or was cancelled: nothing of it is kept but boundaries saved while it ran. What it found in its sequence (not what it
  // copied or loaded) stays there, idle, if the memory can go back to that; else the sequence is emptied.
  Result<void> abandon();

 private:
  friend class SequenceCache;
  friend class sequence::Core;
  Turn(sequence::Core* core, sequence::TurnRecord* record) noexcept
      : core_(core), record_(record) {}
  sequence::Core* core_ = nullptr;
  sequence::TurnRecord* record_ = nullptr;
};

}  // namespace stemma
