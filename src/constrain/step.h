// One byte of an answer: from the stacks before it to the stacks after it.
//
// Stacks are all ways to read the bytes so far. Each has the state that reads the next byte, and
// the frames of the rules and repetitions around it. A Stepper follows every way from there to the
// next states that read a byte, so stacks never stand at a state that reads nothing.
//
// Of two stacks that differ only in counts, the Stepper keeps the one that can still do everything
// the other can: the one with the lower count, once both have reached the minimum. This keeps
// nested repetitions small.
//
// Invariant:  no two stacks are equal; each can be completed within the limits of its grammar.
// Threading:  Stacks are plain values; a Stepper has memory for one call at a time.
// Cost:       50 to 200 ns a byte and stack; nothing is allocated once the vectors have grown.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "constrain/grammar.h"

namespace stemma::constrain {

// A stack is [state, frames, then two words a frame]: the state to return to and 0, or the loop's
// number with kLoopFrame and its count. All stacks lie in one array, so that copies and comparisons
// are cheap.
struct Stacks {
  static constexpr uint32_t kLoopFrame = 0x8000'0000U;
  // A flag in a count: nothing was read since this round of the loop began.
  static constexpr uint32_t kFresh = 0x8000'0000U;

  std::vector<uint32_t> words;
  uint32_t count = 0;
  bool may_end = false;  // The bytes so far are a whole answer.

  bool dead() const { return count == 0 && !may_end; }
  void clear() {
    words.clear();
    count = 0;
    may_end = false;
  }
  bool operator==(const Stacks&) const = default;
};

enum class StepOutcome : uint8_t {
  read,
  refused,  // No answer continues with this byte.
  limit,    // More than GrammarLimits::stacks, or too many states that read nothing in between.
};

class Stepper {
 public:
  Stepper();
  // The stacks before the first byte.
  StepOutcome start(const Grammar& grammar, Stacks& to);
  // `to` is what follows `byte`; it is empty unless the outcome is `read`.
  StepOutcome read(const Grammar& grammar, const Stacks& from, uint8_t byte, Stacks& to);
  // What the last call cost: the states passed, and the words of stacks read and written. About
  // 5 ns each.
  uint64_t work() const { return work_ + words_; }

 private:
  struct Frame {
    uint32_t what;
    uint32_t count;
    bool operator==(const Frame&) const = default;
  };
  // What to undo to get back to a choice.
  struct Change {
    enum class Kind : uint8_t { pushed, popped, counted } kind;
    Frame frame;  // As it was.
  };
  struct Choice {
    uint32_t next;  // Index of the next target. Of a loop that may be left: its exit.
    uint32_t end;   // Of a loop: kLeave.
    size_t changes;
  };
  static constexpr uint32_t kLeave = 0xFFFF'FFFFU;
  struct Seen {
    uint64_t key = 0;
    uint64_t round = 0;
  };
  static constexpr uint32_t kFresh = Stacks::kFresh;

  void begin(const Grammar& grammar, Stacks& to);
  void load(const uint32_t* stack);
  StepOutcome follow(uint32_t state);
  bool next_choice(uint32_t& state);
  uint32_t next_state(const Grammar::Instruction& at, bool& dead);
  uint32_t loop_once(const Grammar::Loop& loop, uint32_t count, bool& dead);
  void push(Frame frame);
  Frame pop();
  void set_count(uint32_t count);
  void undo(size_t changes);
  bool first_visit(uint32_t state);
  bool add(uint32_t state);
  bool add_plain(const uint32_t* stack, uint32_t state);
  bool keep_last(size_t begin);
  bool covers(const uint32_t* one, const uint32_t* other) const;
  uint64_t skeleton_of(const uint32_t* stack) const;

  const Grammar* grammar_ = nullptr;
  Stacks* to_ = nullptr;
  std::vector<Frame> frames_;
  std::vector<uint64_t> hashes_;  // hashes_[n]: of the first n frames.
  std::vector<Change> changes_;
  std::vector<Choice> choices_;
  std::vector<Seen> seen_;
  uint32_t seen_count_ = 0;
  uint64_t round_ = 0;
  uint64_t work_ = 0;   // States passed by this call.
  uint64_t words_ = 0;  // Words of stacks that it read and wrote.
  struct Added {
    uint64_t skeleton;
    uint32_t at;
    uint32_t next;  // The next entry in the same bucket of added_by_.
  };
  std::vector<Added> added_;
  std::array<uint32_t, 512> added_by_;  // Buckets by skeleton: the last entry of each.
};

}  // namespace stemma::constrain
