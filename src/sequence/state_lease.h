// The two rights to a state of a StateStore: to read one that stays, and to write one that nobody sees.
//
// Threading:  as the store: one thread at a time, but StateLease::read(), StateDraft::seal() and writing
//             what a draft gives, which may run beside other calls.
// Ownership:  move-only; both end before the store does.
#pragma once

#include <cstdint>
#include <span>

#include "sequence/part_label.h"
#include "sequence/state_index.h"
#include "stemma/result.h"
#include "stemma/retention.h"

namespace stemma::sequence {

class StateStore;

// A state that a lookup found. It may be gone by the time it is leased.
struct StateCandidate {
  uint32_t entry = StateIndex::kNone;
  uint32_t depth = 0;   // Positions it is the state of.
  uint32_t common = 0;  // How many of them begin the words asked for.
  uint32_t logits = 0;  // How many there are.
  uint64_t bytes = 0;   // What it counts: state and logits.
  uint64_t generation = 0;

  explicit operator bool() const noexcept { return entry != StateIndex::kNone; }
};

struct StateMatch {
  // The deepest whose words are all among those asked for: right for any engine, as it is.
  StateCandidate exact;
  // One with most words in common, perhaps deeper than that: for engines that can be rewound, load and
  // trim to `common`. The same as `exact` where none has more.
  StateCandidate longest;
};

struct SavedState {
  std::span<const uint8_t> state;
  std::span<const float>
      logits;  // After the last position of its words; empty when none were kept.
};

// A reader's right to one state: until it ends the bytes stay where and what they are.
class StateLease {
 public:
  StateLease() noexcept = default;
  StateLease(StateLease&& other) noexcept;
  StateLease& operator=(StateLease&& other) noexcept;
  ~StateLease() { release(); }

  explicit operator bool() const noexcept { return store_ != nullptr; }
  uint32_t depth() const noexcept { return found_.depth; }
  uint32_t common() const noexcept { return found_.common; }
  uint64_t bytes() const noexcept { return found_.bytes; }
  // Error: corrupt (the bytes are not what was sealed: StateStore::remove() it), wrong_state (ended).
  // The spans are valid as long as the lease.
  Result<SavedState> read() const;
  // Ends it early. Harmless when it has ended.
  void release() noexcept;

 private:
  friend class StateStore;
  StateLease(StateStore* store, const StateCandidate& found) noexcept
      : store_(store), found_(found) {}

  StateStore* store_ = nullptr;
  StateCandidate found_;
};

// A writer's right to a state that nobody else can see yet. Ends with commit(), or gives everything back.
class StateDraft {
 public:
  StateDraft() noexcept = default;
  StateDraft(StateDraft&& other) noexcept;
  StateDraft& operator=(StateDraft&& other) noexcept;
  ~StateDraft() { abandon(); }

  explicit operator bool() const noexcept { return store_ != nullptr; }
  std::span<uint8_t> state() const noexcept { return state_; }  // Zeroed; at least 4-byte aligned.
  std::span<float> logits() const noexcept { return logits_; }  // To be filled, all of them.

  // The first `written` bytes of state() are the state; nothing may be written any more. Optional:
  // commit() does it if it was not done. Error: invalid_argument (no bytes), out_of_range (more than
  // there are), wrong_state (sealed already, or ended); nothing changed.
  Result<void> seal(uint64_t written);
  // Findable from now on, in place of what had the same scope and words; the draft has ended. It counts
  // what was reserved, because that is the memory it has. After seal(), `written` is not looked at. A state
  // with a label can be handed on.
  // Error: as seal(); stale (its scope was dropped meanwhile: only to be abandoned).
  Result<void> commit(uint64_t written, const Touch& touch = {}, PartLabel&& label = {});
  void abandon() noexcept;

 private:
  friend class StateStore;

  StateStore* store_ = nullptr;
  uint32_t entry_ = StateIndex::kNone;
  bool sealed_ = false;
  std::span<uint8_t> state_;
  std::span<float> logits_;
};

}  // namespace stemma::sequence
