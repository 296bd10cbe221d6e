// The two rights to a state of a StateStore: to read one that stays, and to write one that nobody
// else can see.
//
// Threading:  as the store: one thread at a time. But StateLease::read(), StateDraft::seal() and
//             writing into a draft's memory may run beside other calls.
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
  uint32_t depth = 0;   // How many positions the state covers.
  uint32_t common = 0;  // How many of these match the words asked for.
  uint32_t logits = 0;  // How many logits it has.
  uint64_t bytes = 0;   // State and logits, as they count in the budget.
  uint64_t generation = 0;

  explicit operator bool() const noexcept { return entry != StateIndex::kNone; }
};

struct StateMatch {
  // The deepest state whose words are a prefix of those asked for: any engine can use it.
  StateCandidate exact;
  // A state with the longest common prefix, perhaps deeper than that, for engines that can rewind:
  // load it and trim to `common`. The same as `exact` if no state has more in common.
  StateCandidate longest;
};

struct SavedState {
  std::span<const uint8_t> state;
  std::span<const float>
      logits;  // After the last position of its words; empty when none were kept.
};

// A reader's right to one state: until it ends, its bytes neither move nor change.
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
  // Error: corrupt (the bytes are not what was sealed: StateStore::remove() it), wrong_state
  // (ended). The spans are valid as long as the lease.
  Result<SavedState> read() const;
  // Ends it early. Harmless if it has ended.
  void release() noexcept;

 private:
  friend class StateStore;
  StateLease(StateStore* store, const StateCandidate& found) noexcept
      : store_(store), found_(found) {}

  StateStore* store_ = nullptr;
  StateCandidate found_;
};

// A writer's right to a state that nobody else can see yet. Ends with commit(), or gives everything
// back.
class StateDraft {
 public:
  StateDraft() noexcept = default;
  StateDraft(StateDraft&& other) noexcept;
  StateDraft& operator=(StateDraft&& other) noexcept;
  ~StateDraft() { abandon(); }

  explicit operator bool() const noexcept { return store_ != nullptr; }
  std::span<uint8_t> state() const noexcept { return state_; }  // Zeroed; at least 4-byte aligned.
  std::span<float> logits() const noexcept { return logits_; }  // The caller fills all of them.

  // Declares the first `written` bytes of state() to be the state; nothing may be written after.
  // Optional: otherwise commit() does it. Error: invalid_argument (no bytes), out_of_range (more
  // than there are), wrong_state (sealed already, or ended); nothing changed.
  Result<void> seal(uint64_t written);
  // Makes the state findable, in place of one with the same scope and words, and ends the draft.
  // The state counts as the bytes that were reserved, because it keeps that memory. After seal(),
  // `written` is ignored. A state with a label can be handed on.
  // Error: as seal(); stale (its scope was dropped meanwhile: the draft can only be abandoned).
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
