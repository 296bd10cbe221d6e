// Turn: a request's hold on one sequence of a SequenceCache, whose begin() makes it.
//
// Threading:  the engine's thread, as the calls of the cache that change something.
// Ownership:  a turn keeps the cache's internals alive; once the cache is destroyed, it can only
//             end.
#pragma once

#include <cstdint>
#include <span>

#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/retention.h"
#include "stemma/sequence/options.h"
#include "stemma/sequence_engine.h"
#include "stemma/sequence_stats.h"

namespace stemma {

namespace sequence {
class Core;
struct TurnRecord;
}  // namespace sequence

inline constexpr uint64_t kMeasuredLater = ~uint64_t{0};

// A request's hold on one sequence.
//
//   0 ........ available ........ computed ........ length
//   | there without computing | in the sequence | words known |
//
// Calls on a turn whose sequence was taken away (forget_context) fail with stale, calls in the
// wrong order with wrong_state; neither changes anything. After a failed execute, rewind or shift a
// turn can only end. Destroying a turn that was not finished abandons it.
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
  // Before execute(): the plan. After it: what really happened.
  SequenceReport report() const noexcept;
  // Media items that `available` does not cover completely, as indices into Prompt::media. Valid
  // until the next call on this turn.
  std::span<const uint32_t> media_to_process() const noexcept;
  // Logits kept for the whole prompt, if the options asked for them and there are any: sampling can
  // begin before, or without, execute(). Valid while the turn lives.
  std::span<const float> logits() const noexcept;

  // Carries out the plan, or another one if a step fails. Returns `available`: what the sequence
  // really holds. Error: the reason why it could not even be emptied; the turn can then only end.
  Result<uint32_t> execute();

  // How far to compute at most before calling computed(): to the next boundary where a checkpoint
  // is kept, or to length. A sliding window can be saved a little later, so with one this may lie
  // beyond the boundary.
  uint32_t next_stop() const noexcept;
  // Reports that positions [0, n) are in the sequence. `spent_ns` is how long computing them took,
  // if known. kMeasuredLater: the forward pass may still be running, and the time given with the
  // next call is for both. Saves at once what cannot be saved later, such as a recurrent state that
  // the next batch changes.
  // Error: out_of_range (n beyond length or below computed).
  Result<void> computed(uint32_t n, uint64_t spent_ns = 0);
  // Adds words, sampled or speculative. Error: invalid_argument.
  Result<void> extend(std::span<const Token> tokens);
  // Makes room for this many positions beyond length by emptying idle sequences.
  // Error: out_of_blocks (leased sequences have the rest; nothing changed), out_of_memory.
  Result<void> reserve(uint32_t tokens);
  // Forgets words from n on. Error: out_of_range (beyond length, inside a media item), unsupported
  // (the memory cannot go back there; nothing changed). After any other error the sequence's
  // contents no longer count: available and computed are 0.
  Result<void> rewind(uint32_t n);
  // Keeps the logits after exactly the words [0, depth). Error: unsupported (logits_bytes is 0, a
  // shifted turn), invalid_argument (no logits), out_of_range (no such depth, more than
  // logits_bytes), out_of_blocks (more than those in use leave), out_of_memory.
  Result<void> attach_logits(uint32_t depth, std::span<const float> logits);
  // Returns another turn, on another sequence, over the words [0, computed). It is executed
  // already; its report says how the words got there. If memory cannot be copied, `available` may
  // be less, and the rest must be computed. Error: as begin() and execute(); unsupported (a
  // bypassed or shifted turn).
  Result<Turn> fork(const TurnOptions& options = {});
  // Forgets [keep, keep + discard) and moves the rest down. From then on this sequence is
  // approximate: only [0, keep) will ever be reused. Error: unsupported, out_of_range, or the
  // engine's error (then the sequence's contents no longer count).
  Result<void> shift(uint32_t keep, uint32_t discard);

  // The request is done: what was computed stays, and will be saved. `retain` replaces the one
  // given to begin().
  Result<void> finish(const Retain* retain = nullptr);
  // The request failed or was cancelled: only boundaries saved while it ran are kept. What it
  // found in its sequence (not what it copied or loaded) stays there, idle, if the memory can go
  // back to that; else the sequence is emptied.
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
