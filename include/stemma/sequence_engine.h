// SequenceEngine: what a SequenceCache needs from an engine whose sequences are opaque.
//
// The engine owns the KV memory and gives it out as sequences, numbered 0 to sequences - 1. A
// sequence holds the KV of positions [0, end) of some text, or nothing. The cache never sees
// inside: it trims, copies, saves and loads, and asks what is really held.
//
// Every call may fail before, during or after its effect, and the cache does not trust a success
// either: it asks held() afterwards. So an engine reports what it knows and cleans up nothing.
// After a failure the cache clears the sequence that the call was changing. A call never changes
// any other sequence. It affects how far another one can grow only by the room it takes. The effect
// of a call is complete when the call returns. If an engine still has work to finish, calls that
// depend on it fail with busy.
//
// Errors: invalid_argument (no such sequence, a range that is empty or upside down), out_of_range
// (positions that are not held, a buffer that is too small), unsupported (the traits say no),
// wrong_state (the traits say yes, but the sequence cannot now), out_of_blocks (no room in the
// context), corrupt (bytes that the engine refuses), and any other error of the engine.
//
// Threading:  one thread at a time; called only on the thread that called the SequenceCache, with
//             none of Stemma's locks held. A call may use the cache's functions that are marked
//             "any thread", and must not throw.
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

// How far back a sequence can go without computing anything again. The model's strictest layer
// decides. can_resume() is the exact rule.
enum class Rewind : uint8_t {
  any,     // Full attention: to any position.
  window,  // Sliding window: to n while the `rewind_tokens` positions before n are still held.
  // Recurrent with a few states kept: to at most `rewind_tokens` positions before its end.
  bounded,
  exact,  // Recurrent: not at all; it stands at its end.
};

// How one sequence's positions get into another.
enum class Fork : uint8_t {
  shared,   // copy() of any range is cheap and uses no memory until the two sequences diverge.
  copy,     // copy() of [0, n) into an empty sequence works and costs like a restore.
  restore,  // Only by save() and load().
  none,     // Not at all; nothing can be saved either.
};

struct EngineTraits {
  uint32_t sequences = 1;       // How many the cache may use; the engine may have one for scratch.
  uint32_t context_tokens = 0;  // Positions that fit into memory.
  // true: all sequences share context_tokens, and positions they share count once. false: each
  // sequence has context_tokens of its own.
  bool unified = true;
  Rewind rewind = Rewind::any;
  uint32_t rewind_tokens = 0;  // For Rewind::window and Rewind::bounded.
  Fork fork = Fork::shared;
  // Part::segment can be saved, and loaded behind the positions that a sequence holds. Unless
  // rewind is any, a sequence can be resumed after a segment only once a checkpoint is loaded, too.
  bool segments = false;
  bool checkpoints = false;  // Part::checkpoint can be saved and loaded. Not with Rewind::any.
  bool shift = false;        // shift() works.
  // The most bytes a part has. A segment: fixed_bytes, plus bytes_per_token for each token. A
  // checkpoint: checkpoint_bytes. A state: all of these, even if checkpoints are not offered.
  uint64_t bytes_per_token = 0;
  uint64_t fixed_bytes = 0;
  uint64_t checkpoint_bytes = 0;
  // The best number of positions for one save() or load() of a segment. 0: each call moves one of
  // the cache's segments. Above 0, for an engine on a device: the cache asks for ranges of up to
  // this many positions, and splits and joins them with cut() and join(). A segment of n positions
  // then has exactly fixed_bytes + n * bytes_per_token bytes, and save() gets a buffer with room
  // for checkpoint_bytes more.
  uint32_t range_tokens = 0;
};

// What a sequence really holds.
//
// Full-attention layers hold [0, end), each position once; window layers hold [begin, end). A
// recurrent layer can stand anywhere from begin + 1 to end; begin is end - 1 if it knows only its
// end. With full attention alone begin is 0.
//
// A sequence is unfinished if its segments or a copied range wait for their checkpoint, if it has a
// gap, or if a call failed. It is then {0, 0, false}: it takes up room, cannot be resumed anywhere,
// and computing into it, even from 0, gives nonsense. An empty sequence is {0, 0, true}.
struct Held {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool whole = true;  // The sequence contains nothing else.
  bool operator==(const Held&) const = default;
};

// Whether a sequence that holds `held` can go on at n after a trim to n. At 0 every sequence can.
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

// Which part of a sequence is saved.
enum class Part : uint8_t {
  // All of [0, end), loaded into an empty sequence.
  state,
  // The full-attention part of [begin, end), loaded behind [0, begin).
  segment,
  // The window and recurrent part at exactly end, loaded last, into a sequence whose full-attention
  // part holds at least [0, end). Loading removes what the sequence holds beyond end.
  checkpoint,
};

// Positions [begin, end). begin is 0 for states and checkpoints.
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
  // Which positions the sequence really has. Cheap; detects gaps and doubled positions, but not
  // wrong contents. Empty if there is no such sequence.
  virtual Held held(SequenceId sequence) = 0;

  // Waits for forward passes that are still running, in an engine that returns before they are
  // done. The cache calls it before it measures how long a call takes.
  virtual void settle() {}

  // Forgets everything and gives the room back, whatever state the sequence is in.
  virtual Result<void> clear(SequenceId sequence) = 0;
  // Forgets positions from n on; same as clear() if n is 0. After success [0, n) may still not be
  // resumable: a window may be gone. Error: wrong_state (recurrent, too far back; nothing changed).
  virtual Result<void> trim(SequenceId sequence, uint32_t n) = 0;
  // Adds positions [begin, end) of `from` to `to`, which holds [0, range.begin): those of full
  // attention, those of the window that `from` still has, and the recurrent state at the end of
  // `from`. So a copy that ends earlier may need a checkpoint before it can be resumed.
  virtual Result<void> copy(SequenceId from, SequenceId to, Range range) = 0;

  // How many bytes save() would write now. Error: the same as save() would return.
  virtual Result<uint64_t> size(SequenceId sequence, Part part, Range range) = 0;
  // Writes the part into `out`, which has at least size() bytes; returns how many were written. The
  // sequence is unchanged. A state covers everything that the sequence holds. A checkpoint is saved
  // at the sequence's end, or with Rewind::window at any n that can be resumed. Two saves of the
  // same positions may differ in bytes.
  virtual Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                                std::span<uint8_t> out) = 0;
  // Puts positions `wanted` into the sequence, which holds [0, wanted.begin). `bytes` are the bytes
  // that save() wrote for `saved`. For a state or a checkpoint, `wanted` is all of `saved`. For a
  // segment, `wanted` may be any part of it, but loading needs room for the whole segment. The
  // cache has checked the checksum of the bytes; engines need not. After an error the sequence's
  // contents no longer count. Unless the error is out_of_blocks, busy or out_of_memory, the cache
  // takes the bytes to be bad and gives them up.
  virtual Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                            std::span<const uint8_t> bytes) = 0;

  // Estimates how many separate pieces of the engine's memory hold the positions; at least 1. For
  // save() each piece costs about as much as a call. Positions that were computed one at a time,
  // beside other sequences, lie apart.
  virtual uint32_t pieces(SequenceId /*sequence*/, Range /*range*/) { return 1; }

  // ---- Ranges of several segments, if range_tokens is not 0 ----
  // These depend on bytes alone. They run on any thread, several at a time, beside any other call.

  // `bytes` is what save() wrote for the segment `whole`. Fills `out` with what save() would have
  // written for `part`, and adds all of `out` to the sum, in order.
  virtual Result<void> cut(Range /*whole*/, std::span<const uint8_t> /*bytes*/, Range /*part*/,
                           std::span<uint8_t> /*out*/, ByteSum& /*sum*/) const {
    return Error(Errc::unsupported, "this engine moves no ranges");
  }
  // The reverse of cut(): `bytes` are those of the segment `saved`. Copies positions `part`, which
  // lie in `saved` and in `whole`, to where they belong in `out`. Once all positions of `whole` are
  // there, `out` is what save() would have written for `whole`. Adds all of `bytes` to the sum, in
  // order. `bytes` may turn out to be damaged; whatever they are, this call writes only to `out`.
  virtual Result<void> join(Range /*saved*/, std::span<const uint8_t> /*bytes*/, Range /*part*/,
                            Range /*whole*/, std::span<uint8_t> /*out*/, ByteSum& /*sum*/) const {
    return Error(Errc::unsupported, "this engine moves no ranges");
  }

  // Forgets [keep, keep + discard) and moves what follows down; may need room for positions that
  // other sequences share. The result is an approximation: the KV that stays was computed while it
  // could still see what is gone.
  virtual Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) = 0;
};

}  // namespace stemma
