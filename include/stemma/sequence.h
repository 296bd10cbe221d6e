// SequenceCache: the KV cache of an engine whose sequences are opaque (sequence_engine.h).
//
// It knows which words each sequence holds, lends sequences to requests, and finds the cheapest
// correct way to get a prompt's prefix into a sequence: stay, trim, copy from another sequence,
// load from saved entries, or start empty. What a request leaves behind is saved in segments that
// all requests share, within a byte budget.
//
//   begin(scope, prompt) --> execute() --> engine computes [available, length) --> finish()
//        a sequence          the prefix        computed(n) after each batch         kept, idle
//        is leased           is in it
//
// Invariant:  what execute() makes available is a verified prefix of the prompt in the same scope,
//             held in every layer the next token reads, and never ends inside a unit. After any
//             failure the affected sequence is empty, the others are untouched, and the call
//             reports what is really there.
// Threading:  calls that change something (begin, drain, warm, admit, hand_on, those that forget,
//             and all of Turn) run on one thread at a time, the engine's. These call the engine,
//             with no lock held: begin, execute, computed, rewind, shift, fork, reserve, finish,
//             abandon, drain, warm, truncate and drop_scope. lookup, can_admit, stats, session,
//             sequence and everything marked "any thread" may run at the same time.
// Ownership:  the engine outlives the cache. Turns keep the cache's internals alive; once the
//             cache is destroyed, a turn can only end.
// Memory:     a call that gets none fails with out_of_memory and changes nothing. Nothing throws.
// Cost:       begin() walks the prompt once for live sequences and once for saved entries, however
//             much is stored, plus O(sequences). The number of sessions does not matter.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stemma/prompt.h"
#include "stemma/result.h"
#include "stemma/scope.h"
#include "stemma/sequence/info.h"
#include "stemma/sequence/options.h"
#include "stemma/sequence/saved_listener.h"
#include "stemma/sequence/turn.h"
#include "stemma/sequence_engine.h"
#include "stemma/sequence_stats.h"

namespace stemma {

namespace sequence {
class Core;
}  // namespace sequence

class SequenceCache {
 public:
  // Error: invalid_argument (an impossible option, or traits that contradict themselves),
  // out_of_memory. Assumes that all sequences are empty, and clears one that is not before its
  // first use.
  static Result<SequenceCache> create(SequenceEngine& engine, const SequenceOptions& options = {});
  SequenceCache(SequenceCache&&) noexcept;
  SequenceCache& operator=(SequenceCache&&) noexcept;
  ~SequenceCache();

  // ---- Requests ---------------------------------------------------------------------------------

  // Leases a sequence and makes a plan. Of the engine it calls only held(), because a window may
  // have moved on while other sequences computed. (Positions that the sequence holds beyond the
  // plan take up room until execute(), so call that soon.)
  // Error: busy (every sequence is leased, or the session is under way), invalid_argument (tokens,
  // media, options), out_of_range (the prompt and what it reserves exceed the context),
  // out_of_blocks (too little of the context is free or idle), out_of_memory; nothing changed.
  Result<Turn> begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options = {});
  // What begin() would plan now. Takes and counts nothing. Any thread.
  Result<SequenceReport> lookup(const Scope& scope, const Prompt& prompt,
                                const TurnOptions& options = {}) const;
  // Whether begin() would find a sequence. Any thread.
  bool can_admit(std::string_view session = {}) const;

  // Saves what waits to be saved and finds room, oldest first. For quiet moments.
  Drained drain(const DrainLimits& limits = {});
  uint32_t pending() const noexcept;  // Any thread.

  // Computes the prefix with `compute` and saves it, unless it is there already. `compute` appends
  // the words of [available, length) to the sequence. Error: that of begin() or of `compute`.
  using Compute = Result<void> (*)(void* user, SequenceId sequence, std::span<const Token> tokens,
                                   uint32_t begin);
  Result<SequenceReport> warm(const Scope& scope, const Prompt& prefix, Compute compute, void* user,
                              const TurnOptions& options = {});

  // Takes in what another process, or an earlier one, saved. `parts` are what its listener was told
  // of, for this scope and these words, in ascending order of their ends. Their bytes are not
  // checked here; only the engine can judge them, when it loads them. A segment is taken if all
  // positions before it are saved here, or were taken by this call. Parts that are already here
  // stay as they are. Parts that do not fit are left out, and counted. The listener is not told of
  // any part.
  // Error: invalid_argument (tokens, media), out_of_memory.
  Result<Admitted> admit(const Scope& scope, const Prompt& prompt, std::span<const SavedPart> parts,
                         const TurnOptions& options = {});

  // Offers the listener everything saved here as if it were being evicted, for a process that ends
  // or wants a copy. Everything also stays here. The most used parts come last; among equally used
  // parts, the latest used. So a store that is too small for all parts should keep the last ones.
  // `from` is 0 in the first call, and HandedOn::next of the call before in later ones. A call ends
  // before the listener takes more than `bytes`, unless a single part is larger. Parts that are
  // used between two calls may be offered again. O(saved parts) for each 256 parts offered.
  HandedOn hand_on(uint64_t from = 0, uint64_t bytes = ~uint64_t{0});
  // Returns the `from` with which hand_on() offers at most `bytes`: the parts that it offers last.
  // A store that cannot keep more need not write the others. O(saved parts).
  uint64_t hand_on_from(uint64_t bytes);

  // How much of the prompt, from its beginning on, is saved in segments. Any thread.
  uint32_t saved_tokens(const Scope& scope, const Prompt& prompt) const;
  // Fills `out` with the depths of the prompt's checkpoints, deepest first, as many as fit. Returns
  // how many. The segments under them may be gone. Any thread.
  uint32_t saved_checkpoints(const Scope& scope, const Prompt& prompt,
                             std::span<uint32_t> out) const;

  // ---- Forgetting -------------------------------------------------------------------------------

  // Call it when the engine's context was made anew: no sequence holds anything. Turns under way
  // become stale. What was saved stays.
  void forget_context();
  // Forgets this scope, live and saved. Turns under way go on, and leave nothing.
  void drop_scope(const Scope& scope);
  // Forgets everything that was saved, logits too.
  void drop_saved();
  // Forgets what continues like this prompt after its first `keep` positions. With `keep` at the
  // prompt's end it forgets every continuation, so an empty prompt forgets the whole scope. Idle
  // sequences are cut at `keep`, or emptied if their memory cannot go back there. Segments go
  // whole, starting with the one that holds position `keep`. Turns under way are only counted in
  // the result; what they leave will be found.
  // Error: invalid_argument (tokens, media), out_of_range (`keep` beyond the prompt, or inside a
  // media item), out_of_memory; nothing changed.
  Result<Truncated> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);
  // The conversation is over, now or when its turn under way ends. Its sequence is the next to go,
  // and what it saved goes early.
  void end_session(std::string_view session);

  // ---- Looking ----------------------------------------------------------------------------------

  SequenceStats stats() const;                          // Any thread.
  std::string_view policy() const noexcept;             // As in the options. Any thread.
  SessionInfo session(std::string_view session) const;  // Any thread.
  SequenceInfo sequence(SequenceId id) const;           // Any thread.
  // O(everything). Error: out_of_memory. Any thread.
  Result<std::vector<SequenceContent>> contents() const;
  // Stops the process with a description if the books do not balance. Checks less if memory is
  // short.
  void check_invariants() const;

 private:
  explicit SequenceCache(sequence::Core* core) noexcept : core_(core) {}
  sequence::Core* core_ = nullptr;
};

}  // namespace stemma
