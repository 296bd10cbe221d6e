// SequenceEngine: what an engine whose sequences are opaque lets a SequenceCache do with them.
//
// The engine owns the KV memory and gives it out as sequences, numbered 0 to sequences - 1. A
// sequence holds the KV of positions [0, end) of some text, or nothing. The cache never sees inside:
// it trims, copies, saves and loads, and asks what is really held.
//
// Every call may fail, before, in the middle of or after its effect, and a success is not believed
// either: the cache asks held() afterwards. So an engine reports what it knows and cleans up nothing;
// after a failure the cache clears the sequence that was to be changed. A call never changes any other
// sequence, nor, but for the room that it takes, how far another one can still go. What a call did is
// done when it returns; an engine that still has to finish it answers busy to whoever needs it.
//
// Errors: invalid_argument (a sequence there is not, a range that is empty or upside down),
// out_of_range (positions that are not held, a buffer that is too small), unsupported (the traits say
// no), wrong_state (the traits say yes, the sequence cannot now), out_of_blocks (no room in the
// context), corrupt (bytes that the engine refuses), anything else the engine has to say.
//
// Threading:  one thread at a time; called only on the thread that called the SequenceCache, with none
//             of Stemma's locks held. A call may look at the cache (what is named "any thread"), and must
//             not throw.
// Ownership:  the caller's; outlives the SequenceCache.
#pragma once

#include <cstdint>
#include <span>

#include "stemma/byte_sum.h"
#include "stemma/result.h"

namespace stemma {

// One of the engine's sequences.
enum class SequenceId : uint32_t {};

constexpr uint32_t to_index(SequenceId id) noexcept { return static_cast<uint32_t>(id); }

// How far back a sequence can go without computing anything again. The strictest of a model's layers
// decides. can_resume() is the rule.
enum class Rewind : uint8_t {
  any,      // Full attention: to any position.
  window,   // Sliding window: to n while the `rewind_tokens` positions before n are still held.
  bounded,  // Recurrent with a few states kept: to at most `rewind_tokens` positions before its end.
  exact,    // Recurrent: nowhere; it stands at its end.
};

// How one sequence's positions get into another.
enum class Fork : uint8_t {
  shared,   // copy() of any range is cheap and uses no memory until the two part.
  copy,     // copy() of [0, n) into an empty sequence works and costs like a restore.
  restore,  // Only by save() and load().
  none,     // Not at all; nothing can be saved either.
};

struct EngineTraits {
  uint32_t sequences = 1;       // That the cache may use; one more may be the engine's scratch.
  uint32_t context_tokens = 0;  // Positions there is memory for.
  // true: all sequences share context_tokens, shared positions counted once; false: each has them.
  bool unified = true;
  Rewind rewind = Rewind::any;
  uint32_t rewind_tokens = 0;  // Of Rewind::window and Rewind::bounded.
  Fork fork = Fork::shared;
  // Part::segment can be saved, and loaded behind what is held. Unless rewind is any, what was loaded
  // can be resumed only after a checkpoint.
  bool segments = false;
  bool checkpoints = false;  // Part::checkpoint can be saved and loaded. Not with Rewind::any.
  bool shift = false;        // shift() works.
  // At most: a segment has fixed_bytes and bytes_per_token for each of its tokens, a checkpoint has
  // checkpoint_bytes, a state all of these. (The last also where checkpoints are not offered.)
  uint64_t bytes_per_token = 0;
  uint64_t fixed_bytes = 0;
  uint64_t checkpoint_bytes = 0;
  // Positions that one save() or load() of a segment moves best. 0: one of the cache's segments a call. More, for
  // an engine on a device: the cache asks for ranges of up to so many, and takes them apart and puts them together
  // with cut() and join(). A segment of n positions then has exactly fixed_bytes + n * bytes_per_token bytes, and
  // save() is given a buffer that has checkpoint_bytes more.
  uint32_t range_tokens = 0;
};

// What a sequence really holds.
//
// [0, end) is there in every layer of full attention, once; [begin, end) in those of a window. A
// recurrent layer can stand at begin + 1 to end: begin is end - 1 when it knows only its end. With full
// attention alone begin is 0.
//
// A sequence in the middle of something (segments or a copied range that wait for their checkpoint, a
// gap, a call that failed) is {0, 0, false}: it takes up room and can be resumed nowhere, and computing
// into it, even from 0, gives nonsense. An empty one is {0, 0, true}.
struct Held {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool whole = true;  // Nothing is in the sequence but this.
  bool operator==(const Held&) const = default;
};

// Whether a sequence that holds `held` can go on at n, after a trim to n. From 0 every one can.
constexpr bool can_resume(const EngineTraits& traits, Held held, uint32_t n) noexcept {
  if (n == 0 || n > held.end) return n == 0;
  switch (traits.rewind) {
    case Rewind::any: return true;
    case Rewind::window:
      return held.begin == 0 ||
             (n >= traits.rewind_tokens && held.begin <= n - traits.rewind_tokens);
    case Rewind::bounded:
    case Rewind::exact: return held.begin < n;
  }
  return false;
}

// What is saved of a sequence.
enum class Part : uint8_t {
  // All of [0, end), loaded into an empty sequence.
  state,
  // The full-attention part of [begin, end), loaded behind [0, begin).
  segment,
  // The window and recurrent part at exactly end, loaded last, into a sequence whose full-attention
  // part holds at least [0, end); what it holds beyond end is gone then.
  checkpoint,
};

// Positions [begin, end). Of a state and of a checkpoint begin is 0.
struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Range&) const = default;
};

class SequenceEngine {
 public:
  virtual ~SequenceEngine() = default;

  // Never changes.
  virtual EngineTraits traits() const = 0;
  // The truth about positions, cheap: gaps and doubled positions are seen, contents are not. Empty
  // for a sequence there is not.
  virtual Held held(SequenceId sequence) = 0;

  // Waits until what was computed is there, where forward passes go on after whoever asked for them was answered. The
  // cache calls it before it measures what a call takes.
  virtual void settle() {}

  // Forgets everything and gives the room back, whatever state the sequence is in.
  virtual Result<void> clear(SequenceId sequence) = 0;
  // Forgets positions from n on; clear() when n is 0. That it succeeded does not mean that [0, n) can be
  // resumed: a window may be gone. Error: wrong_state (recurrent, too far back; nothing was changed).
  virtual Result<void> trim(SequenceId sequence, uint32_t n) = 0;
  // Gives `to`, which holds [0, range.begin), positions [begin, end) of `from` as well: those of full
  // attention, those of the window that `from` still has, and `from`'s recurrent state, which is that of
  // its end. So a copy that ends earlier may need a checkpoint before it can be resumed.
  virtual Result<void> copy(SequenceId from, SequenceId to, Range range) = 0;

  // How many bytes save() would write now. Error: whatever save() would answer.
  virtual Result<uint64_t> size(SequenceId sequence, Part part, Range range) = 0;
  // Writes the part into `out`, which has at least size() bytes; returns how many were written. The
  // sequence is unchanged. A state is saved of all that is held; a checkpoint at the end, or with
  // Rewind::window at any n that can be resumed. Two saves of the same positions may differ in bytes.
  virtual Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                                std::span<uint8_t> out) = 0;
  // Puts positions `wanted` of what save() wrote for `saved` into the sequence, which holds
  // [0, wanted.begin). A state or checkpoint is wanted whole; of a segment any part may be, but room for
  // all of it is needed meanwhile. The bytes are as they were written: the cache has checked their
  // checksum, and engines need not. After an error nothing of the sequence counts, and unless that is
  // out_of_blocks, busy or out_of_memory the bytes are taken to be bad and given up.
  virtual Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                            std::span<const uint8_t> bytes) = 0;

  // In how many pieces of the engine's memory positions of a sequence lie: save() takes about as long for a piece as for
  // a call. What was computed one position at a time, beside other sequences, lies apart. An estimate; 1 at least.
  virtual uint32_t pieces(SequenceId /*sequence*/, Range /*range*/) { return 1; }

  // ---- Ranges of several segments, if range_tokens is not 0 ----
  // Functions of bytes alone: on any thread, several at a time, beside every other call.

  // `bytes` is what save() wrote for the segment `whole`. Fills `out` with what it would have written for `part`, and
  // adds all of `out` to the sum, in order.
  virtual Result<void> cut(Range /*whole*/, std::span<const uint8_t> /*bytes*/, Range /*part*/,
                           std::span<uint8_t> /*out*/, ByteSum& /*sum*/) const {
    return Error(Errc::unsupported, "this engine moves no ranges");
  }
  // The other way round: puts positions `part` of the segment `saved` where they belong in `out`, which becomes what
  // save() would have written for `whole`, once all its positions were put there. `part` lies in both. Adds all of
  // `bytes` to the sum, in order: they may turn out to be damaged, and whatever they are, only `out` is written.
  virtual Result<void> join(Range /*saved*/, std::span<const uint8_t> /*bytes*/, Range /*part*/,
                            Range /*whole*/, std::span<uint8_t> /*out*/, ByteSum& /*sum*/) const {
    return Error(Errc::unsupported, "this engine moves no ranges");
  }

  // Forgets [keep, keep + discard) and moves what follows down; may need room for what other sequences
  // share. The result is an approximation: the KV that stays was computed with what is gone in view.
  virtual Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) = 0;
};

}  // namespace stemma
